"""Moments in the notations that headings and file names use.

All times are UTC. Most products of a burst fall into the same minute, so the notations of a
minute are kept.
"""

import time
from functools import lru_cache

S_PER_MINUTE = 60
S_PER_DAY = 86_400

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


@lru_cache(maxsize=4096)
def day_hour_minute(minute: int) -> str:
    """YYGGgg of a WMO heading, day of the month to minute; `minute` counts from 1970."""
    return time.strftime("%d%H%M", time.gmtime(minute * S_PER_MINUTE))


@lru_cache(maxsize=4096)
def issued(minute: int) -> str:
    """The line that dates a text product: `0653Z MON JAN 06 2020`."""
    moment = time.gmtime(minute * S_PER_MINUTE)
    day = f"{_DAYS[moment.tm_wday]} {_MONTHS[moment.tm_mon - 1]} {moment.tm_mday:02d}"
    return f"{moment.tm_hour:02d}{moment.tm_min:02d}Z {day} {moment.tm_year}"


def stamp(time_s: float) -> str:
    """`20200106005312`, as in the names of radar volumes."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(time_s))


def day_of_year_stamp(time_s: float) -> str:
    """`20200060053124`, with tenths of a second, as in the names of satellite images."""
    return time.strftime("%Y%j%H%M%S", time.gmtime(time_s)) + str(int(time_s * 10) % 10)


def cycle(time_s: float, hours: int) -> time.struct_time:
    """The model run that is on the wire: the last whole multiple of `hours` before `time_s`."""
    step_s = hours * 3600
    return time.gmtime(time_s // step_s * step_s)
