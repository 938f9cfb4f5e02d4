"""Day of the month: completes `060053`, the 6th at 00:53 UTC, to a full date.

Headings, reports and idents leave month and year to the reader. The date that is meant is the latest day with that
number which is no later than the day after the product was created. Months that do not have the day are skipped.

Why one day ahead, and not more or less:

- A bulletin of 23:58 may carry the time of the next hour, and a sender's clock may be wrong: the 1st must be possible
  on the 31st. No heading is dated further ahead, because its time is that of observation, of issue or of compilation.
- Each day granted to the future is taken from the past. With one day, a bulletin that is 26 days late is still dated
  correctly: retransmissions after an outage, archives that are read again, CLIMAT reports of the month before.
- LDM's pqact gives the same answer: at noon on the 31st, `01` is in the next month and `02` in this one. Rules that are
  imported from a pqact.conf write the same paths.
- Days are compared, not hours. `06` and `062300` mean the same day, so a path that is made from the day alone and a row
  that is made from the whole heading agree.

The decoders `wmo` and `metar` and the template field `{time(1)}` all use this module: a path and its row never
disagree.
"""

from datetime import date
from functools import lru_cache

AHEAD_DAYS = 1
US_PER_DAY = 86_400_000_000
US_PER_MINUTE = 60_000_000

_EPOCH = date(1970, 1, 1).toordinal()
_LAST = date.max.toordinal()
_TRIED_DAYS = 62  # within them, every day of the month occurs, the 31st too


def resolve_us(digits: str, created_us: int) -> int | None:
    """`060053` of a product created then, in µs since 1970; None if there is no such time.

    24:00 is midnight at the end of the day, as WMO bulletins write it.
    """
    return _resolved(digits, created_us // US_PER_DAY + _EPOCH)


@lru_cache(4096)
def _resolved(digits: str, created: int) -> int | None:
    """Of a product created on this day, an ordinal of `date`. The same times occur in many reports."""
    day, hour, minute = int(digits[:2]), int(digits[2:4]), int(digits[4:6])
    if minute > 59 or hour > 24 or (hour == 24 and minute):
        return None
    found = _latest(day, created)
    if found is None or (hour == 24 and found == _LAST):
        return None
    return (found - _EPOCH) * US_PER_DAY + (hour * 60 + minute) * US_PER_MINUTE


@lru_cache(4096)
def _latest(day: int, created: int) -> int | None:
    """The latest possible day with this number in its month; both are ordinals of `date`."""
    if not 1 <= day <= 31 or not 1 <= created <= _LAST:
        return None
    latest = min(created + AHEAD_DAYS, _LAST)
    days = range(latest, max(0, latest - _TRIED_DAYS), -1)
    return next((each for each in days if date.fromordinal(each).day == day), None)
