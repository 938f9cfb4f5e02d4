"""Times in bulletins, which have a day of the month, an hour and a minute, made into full ones.

Headings and reports say `060053`: the 6th, 00:53 UTC. Month and year come from when the product was created: it is the
latest such day that is no more than a week after that day. So a bulletin that arrives after midnight on the first of
a month belongs to the month before, one that is a little ahead of the sender's clock to the month that begins, and the
31st is never in a month that has none.
"""

from datetime import date
from functools import lru_cache

AHEAD_DAYS = 7
US_PER_DAY = 86_400_000_000
US_PER_MINUTE = 60_000_000

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date(9999, 12, 1).toordinal()
_TRIED_DAYS = 62 + AHEAD_DAYS  # each day of the month, the 31st too, comes within two months


def resolve_us(digits: str, created_us: int) -> int | None:
    """`060053` as µs since 1970; None if there is no such time."""
    day, hour, minute = int(digits[:2]), int(digits[2:4]), int(digits[4:6])
    if minute > 59 or hour > 24 or (hour == 24 and minute):
        return None
    found = _day_near(day, created_us // US_PER_DAY)
    return None if found is None else found * US_PER_DAY + (hour * 60 + minute) * US_PER_MINUTE


@lru_cache(4096)
def _day_near(day: int, created_day: int) -> int | None:
    """The latest day with this number in its month, counted from 1970 as `created_day` is."""
    latest = created_day + _EPOCH_DAY + AHEAD_DAYS
    if not 1 <= day <= 31 or not _TRIED_DAYS < latest < _LAST_DAY:
        return None
    return next(n - _EPOCH_DAY for n in range(latest, latest - _TRIED_DAYS, -1) if date.fromordinal(n).day == day)
