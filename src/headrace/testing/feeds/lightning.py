"""Lightning strokes, as text.

    LIGHTNING-NETWORK,2020-01-06T00:01:00,2020-01-06T00:02:00,0000000417
    2020-01-06T00:01:30.214,38.1204,-97.3310,-15.3,2

The first line names the span of time and the number of the message, which makes it unique. Each
further line is a stroke: time, latitude, longitude, peak current in kA, multiplicity. Lines end
in LF.
"""

import random
import time

from headrace.product.ldm_feedtypes import FEEDS
from headrace.testing.feeds.content import S_PER_MINUTE, Content

FEED = FEEDS["LIGHTNING"][0]

_STROKE_BYTES_MAX = 52


class LightningMaker:
    """Strokes of the last whole minute."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def make(self, time_s: float, serial: int, size: int) -> Content:
        end_s = int(time_s) // S_PER_MINUTE * S_PER_MINUTE
        start, end = _moment(end_s - S_PER_MINUTE), _moment(end_s)
        ident = f"LIGHTNING-NETWORK,{start},{end}"
        lines = [f"{ident},{serial:010d}"]
        strokes = max((size - len(lines[0])) // _STROKE_BYTES_MAX, 0)
        lines += sorted(self._stroke(start[:-2]) for _ in range(strokes))
        return Content(FEED, ident, "\n".join((*lines, "")).encode("ascii"), 5)

    def _stroke(self, minute: str) -> str:
        draw = self._random.random
        latitude, longitude = 24 + draw() * 25, -125 + draw() * 58
        current_ka = (draw() - 0.9) * 60
        place = f"{latitude:.4f},{longitude:.4f}"
        strokes = 1 + int(draw() ** 3 * 9)
        return f"{minute}{draw() * 59.999:06.3f},{place},{current_ka:.1f},{strokes}"


def _moment(time_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_s))
