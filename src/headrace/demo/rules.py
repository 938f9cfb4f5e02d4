"""The rules of a demonstration's pipeline, written as a user writes them, to a file that may be kept.

Some stations report so often that their reports are ahead of their time, by a seventh of what has passed. The watermark
waits for the others.
"""

import math
from pathlib import Path

from headrace.demo.plan import ALERT_FEED, Plan, observed_hours

GUST = 12.0  # m/s
METAR_FEED, RADAR_SELECT = "wx/text/metar", "wx/radar/**"
_AHEAD_SHARE = 0.2
_LATE_MIN = 12  # reports that a bulletin gathers, corrections

_RULES = """\
[pipeline]
queue = "{queue}"
trigger = "2s"

[[rule]]
name = "metar"
select = "{metar}"
decode = "metar"
table = "metar"
[rule.alert]
when = "wind_gust > {gust}"
feed = "{alert}"
ident = "{{station}} {{sequence}} {{report}}"
message = "{{station}}: gusts of {{wind_gust:.1}} m/s at {{observed:%H:%M}}"

[[rule]]
name = "hourly"
select = "{metar}"
decode = "metar"
watermark = "{watermark_min}min"
sql = '''
    select window.start as hour, station, count(*) as reports, avg(temperature) as temperature,
           min(temperature) as coldest, max(temperature) as warmest, max(wind_gust) as gust
    from decoded group by window(observed, '1 hour'), station'''
table = "hourly"

[[rule]]
name = "radar"
select = "{radar}"
[rule.file]
path = "{{feed}}/{{sequence:08}} {{ident}}"
mode = "each"

[spark]
local.dir = "{scratch}"
"""


def write_rules(plan: Plan) -> Path:
    """Into the folder of the pipeline."""
    plan.pipeline.mkdir(parents=True, exist_ok=True)
    file = plan.pipeline / "rules.toml"
    file.write_text(
        _RULES.format(
            queue=plan.second,
            metar=METAR_FEED,
            radar=RADAR_SELECT,
            alert=ALERT_FEED,
            gust=GUST,
            watermark_min=watermark_min(plan.seconds),
            scratch=plan.notes,
        )
    )
    return file


def watermark_min(seconds: float) -> int:
    """How late a report may be, in minutes."""
    return _LATE_MIN + math.ceil(_AHEAD_SHARE * 60 * observed_hours(seconds))
