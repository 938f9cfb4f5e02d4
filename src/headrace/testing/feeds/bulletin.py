"""Text bulletins of forecast offices: forecasts, discussions, statements, warnings.

    00417
    FPUS55 KBOU 060000 AAA
    ZFPBOU

    ZONE FORECAST PRODUCT
    NATIONAL WEATHER SERVICE DENVER CO
    0000Z MON JAN 06 2020

    TONIGHT...MOSTLY CLOUDY WITH A CHANCE OF SNOW SHOWERS. ...

    $$

The first line is the transmission number, which counts bulletins up to 99999; with the minute of
the heading it makes every bulletin unique, however short. The body is a run of whole lines of a
page that is written once per stream. A bulletin that is too short for its title keeps the first
three lines and what fits after them.

Some bulletins are replaced later under the same heading: forecasts amended (AAA), others
corrected (CCA). The replacement says so in its text, which is another run of lines.
"""

import random
import textwrap
from dataclasses import dataclass
from itertools import accumulate

from headrace.testing.feeds.content import S_PER_MINUTE, Content, issued
from headrace.testing.feeds.headings import LINE_END, Heading, HeadingLog, Replacements

FEED = "wx/text/bulletin"

_REPLACED_SHARE = 0.015
_REPLACEMENT_DELAY_S = (5.0, 120.0)
_PAGE_BYTES = 1 << 17
_LINE_CHARS = 66
_PARAGRAPH = LINE_END + LINE_END
_END = _PARAGRAPH + "$$" + LINE_END


@dataclass(frozen=True, slots=True)
class Office:
    name: str  # CCCC
    region: int  # last digit of its headings
    city: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A category of text product."""

    data_type: str  # TTAA and the first digit of ii
    category: str  # NNN of the line under the heading
    title: str
    weight: int
    priority: int
    replacement: str  # how the BBB group of its replacements starts


@dataclass(frozen=True, slots=True)
class _Issue:
    """A bulletin as it was sent, from which its replacement is made."""

    heading: Heading
    kind: Kind
    office: Office
    size: int


OFFICES: tuple[Office, ...] = (
    Office("KBOU", 5, "DENVER CO"),
    Office("KDVN", 3, "QUAD CITIES IA IL"),
    Office("KOUN", 4, "NORMAN OK"),
    Office("KFWD", 4, "FORT WORTH TX"),
    Office("KEWX", 4, "AUSTIN/SAN ANTONIO TX"),
    Office("KLOT", 3, "CHICAGO IL"),
    Office("KMPX", 3, "TWIN CITIES/CHANHASSEN MN"),
    Office("KOKX", 1, "NEW YORK NY"),
    Office("KBOX", 1, "BOSTON/NORTON MA"),
    Office("KLWX", 1, "BALTIMORE MD/WASHINGTON DC"),
    Office("KMFL", 2, "MIAMI FL"),
    Office("KFFC", 2, "PEACHTREE CITY GA"),
    Office("KBMX", 4, "BIRMINGHAM AL"),
    Office("KLIX", 4, "NEW ORLEANS LA"),
    Office("KSEW", 6, "SEATTLE WA"),
    Office("KPQR", 6, "PORTLAND OR"),
    Office("KLOX", 6, "LOS ANGELES/OXNARD CA"),
    Office("KMTR", 6, "SAN FRANCISCO BAY AREA CA"),
    Office("KSLC", 5, "SALT LAKE CITY UT"),
    Office("KABQ", 5, "ALBUQUERQUE NM"),
    Office("KTOP", 3, "TOPEKA KS"),
    Office("KGLD", 3, "GOODLAND KS"),
    Office("KRAH", 2, "RALEIGH NC"),
    Office("KILN", 1, "WILMINGTON OH"),
)

KINDS: tuple[Kind, ...] = (
    Kind("FPUS5", "ZFP", "ZONE FORECAST PRODUCT", 20, 4, "AA"),
    Kind("FZUS5", "CWF", "COASTAL WATERS FORECAST", 14, 4, "AA"),
    Kind("FXUS6", "AFD", "AREA FORECAST DISCUSSION", 12, 4, "CC"),
    Kind("NWUS5", "LSR", "PRELIMINARY LOCAL STORM REPORT", 10, 5, "CC"),
    Kind("FPUS7", "NOW", "SHORT TERM FORECAST", 10, 4, "CC"),
    Kind("CDUS4", "CLI", "CLIMATE REPORT", 8, 3, "CC"),
    Kind("SRUS8", "RR3", "HYDROMETEOROLOGICAL DATA REPORT", 14, 4, "CC"),
    Kind("WWUS8", "SPS", "SPECIAL WEATHER STATEMENT", 6, 5, "CC"),
    Kind("WGUS5", "FFW", "BULLETIN - FLASH FLOOD WARNING", 2, 7, "CC"),
    Kind("WUUS5", "SVR", "BULLETIN - SEVERE THUNDERSTORM WARNING", 3, 7, "CC"),
    Kind("WFUS5", "TOR", "BULLETIN - TORNADO WARNING", 1, 7, "CC"),
)

_REMARKS = {"CC": "...CORRECTED", "AA": "...UPDATED"}
_SUBJECTS = ("SHOWERS", "SNOW SHOWERS", "THUNDERSTORMS", "PATCHY FOG", "LIGHT RAIN", "DRIZZLE")
_PERIODS = (
    "TONIGHT",
    "MONDAY",
    "TUESDAY NIGHT",
    "THIS AFTERNOON",
    "LATE IN THE WEEK",
    "BY MIDNIGHT",
)
_WINDS = ("NORTH", "NORTHEAST", "EAST", "SOUTHEAST", "SOUTH", "SOUTHWEST", "WEST", "NORTHWEST")
_SENTENCES = (
    "{period}...MOSTLY CLOUDY WITH A {tens} PERCENT CHANCE OF {subject}.",
    "HIGHS AROUND {degrees}. {wind} WINDS {speed} TO {more} MPH.",
    "LOWS IN THE UPPER {tens}S. {wind} WINDS NEAR {speed} MPH.",
    "AN UPPER LEVEL TROUGH WILL BRING {subject} TO THE AREA {period}.",
    "{subject} WILL END FROM THE {wind} {period}.",
    "VISIBILITY MAY DROP BELOW {speed} MILES IN {subject}.",
    "GUSTS TO {more} MPH HAVE BEEN REPORTED WITH {subject}.",
    "MODELS DISAGREE ON THE TIMING OF {subject} {period}.",
    "THE RIVER STAGE WAS {degrees}.{speed} FEET AND IS FORECAST TO FALL {period}.",
)


class BulletinMaker:
    """Text bulletins of all offices."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._page = _write_page(source)
        self._weights = list(accumulate(kind.weight for kind in KINDS))
        self._headings = HeadingLog()
        self._replacements: Replacements[_Issue] = Replacements()

    def make(self, time_s: float, serial: int, size: int) -> Content:
        source = self._random
        again = self._replacements.take(time_s)
        if again is not None:
            return self._write(again, again.kind.replacement + "A", serial)
        kind = source.choices(KINDS, cum_weights=self._weights)[0]
        office = OFFICES[int(source.random() * len(OFFICES))]
        minute = int(time_s) // S_PER_MINUTE
        heading = Heading(f"{kind.data_type}{office.region}", office.name, minute)
        bbb = self._headings.take(heading)
        issue = _Issue(heading, kind, office, size)
        if not bbb and source.random() < _REPLACED_SHARE:
            low, high = _REPLACEMENT_DELAY_S
            self._replacements.plan(time_s + low + source.random() * (high - low), issue)
        return self._write(issue, bbb, serial)

    def _write(self, issue: _Issue, bbb: str, serial: int) -> Content:
        line = issue.heading.text(bbb)
        awips = issue.kind.category + issue.office.name[1:]
        opening = f"{serial % 100_000:05d} {LINE_END}{line}{LINE_END}{awips}{LINE_END}"
        title = LINE_END.join(
            (
                "",
                issue.kind.title + _REMARKS.get(bbb[:2], ""),
                f"NATIONAL WEATHER SERVICE {issue.office.city}",
                issued(issue.heading.minute),
                "",
                "",
            )
        )
        if len(opening) + len(title) + len(_END) < issue.size:
            opening += title
        body = self._lines(issue.size - len(opening) - len(_END))
        text = f"{opening}{body}{_END if body else ''}"
        return Content(FEED, f"{line} /p{awips}", text.encode("ascii"), issue.kind.priority)

    def _lines(self, size: int) -> str:
        """At most `size` characters of the page, whole lines, without the last line end."""
        if size <= 0:
            return ""
        page = self._page
        somewhere = int(self._random.random() * (len(page) // 2))
        start = page.index(_PARAGRAPH, somewhere) + len(_PARAGRAPH)
        end = page.rfind(LINE_END, start, start + size + len(LINE_END))
        return page[start : end if end > start else start + size].rstrip()


def _write_page(source: random.Random) -> str:
    """Paragraphs about the weather, wrapped into lines, with a blank line after each."""
    page, length = [], 0
    while length < _PAGE_BYTES:
        sentences = " ".join(_sentence(source) for _ in range(3 + int(source.random() * 4)))
        paragraph = LINE_END.join(textwrap.wrap(sentences, _LINE_CHARS))
        page.append(paragraph)
        length += len(paragraph) + len(_PARAGRAPH)
    return _PARAGRAPH.join((*page, ""))


def _sentence(source: random.Random) -> str:
    speed = 2 + int(source.random() * 20)
    return _pick(source, _SENTENCES).format(
        period=_pick(source, _PERIODS),
        subject=_pick(source, _SUBJECTS),
        wind=_pick(source, _WINDS),
        tens=10 + int(source.random() * 8) * 10,
        degrees=5 + int(source.random() * 90),
        speed=speed,
        more=speed + 5 + int(source.random() * 20),
    )


def _pick(source: random.Random, choices: tuple[str, ...]) -> str:
    return choices[int(source.random() * len(choices))]
