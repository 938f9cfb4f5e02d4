"""Feed names and feed patterns.

A feed is a hierarchical name, `wx/radar/nexrad2/KFTG`: one or more levels, joined by `/`, at most 255 bytes of UTF-8.
A level is not empty, does not begin with `@` (Zenoh keeps those names for itself), and has no white space, no control
characters, and none of ``* ? # $ + > | " ' \\``, which patterns and other systems use. In a pattern `*` stands for
exactly one level and `**` for any number, none included; `|` separates alternatives: `wx/text/**|wx/obs/bufr`.
"""

import re

from headrace.errors import FeedError

FEED_BYTES_MAX = 255
ALTERNATIVES_MAX = 64
_LEVEL = re.compile(r"(?!@)[^\s/*?#$+>|\"'\\\x00-\x1f\x7f]+")
_RULES = "use levels joined by '/', such as wx/radar/nexrad2, without blanks or any of * ? # $ + > | \" ' \\"


def check_feed(feed: str) -> str:
    """Return `feed` if it is a valid name; FeedError says what is invalid."""
    if not isinstance(feed, str):
        raise FeedError(f"feed {feed!r} is not text", _RULES)
    if not feed:
        raise FeedError("the feed is empty", _RULES)
    _check_length(feed)
    for level in feed.split("/"):
        if not _LEVEL.fullmatch(level):
            raise FeedError(f"feed {feed!r} has the illegal level {level!r}", _RULES)
    return feed


def _check_length(feed: str) -> None:
    try:
        size = len(feed.encode())
    except UnicodeEncodeError:
        raise FeedError(f"feed {feed!r} is not UTF-8", _RULES) from None
    if size > FEED_BYTES_MAX:
        raise FeedError(
            f"feed {feed[:40]!r}… has {size} bytes, more than {FEED_BYTES_MAX}",
            "choose shorter levels",
        )


class FeedPattern:
    """A feed pattern; `matches(feed)` decides in at most levels x levels steps for each alternative."""

    __slots__ = ("_alternatives", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise FeedError(
                f"feed pattern {text!r} is not text",
                "write a feed, with * for one level and ** for any",
            )
        self.text = text
        alternatives = text.split("|")
        if len(alternatives) > ALTERNATIVES_MAX:
            raise FeedError(
                f"the feed pattern has {len(alternatives)} alternatives, more than {ALTERNATIVES_MAX}",
                "use * and **, or several selections",
            )
        self._alternatives = [_levels(alternative, text) for alternative in alternatives]

    @property
    def alternatives(self) -> tuple[str, ...]:
        """The patterns of which one must match; one, if there is no `|`."""
        return tuple(self.text.split("|"))

    def matches(self, feed: str) -> bool:
        """Whether it selects a feed; given a pattern without `|`, whether it covers that."""
        levels = feed.split("/")
        for pattern in self._alternatives:  # noqa: SIM110 - a generator costs as much as the match
            if _matches(pattern, levels):
                return True
        return False

    def __repr__(self) -> str:
        return f"FeedPattern({self.text!r})"


def _levels(alternative: str, text: str) -> list[str]:
    """The levels of a pattern without `|`. FeedError: it is invalid."""
    _check_length(alternative)
    levels = alternative.split("/")
    for level in levels:
        if level not in ("*", "**") and not _LEVEL.fullmatch(level):
            raise FeedError(
                f"feed pattern {text!r} has the illegal level {level!r}",
                "a level is a name, * for one level, or ** for any number of them",
            )
    return levels


def _matches(pattern: list[str], levels: list[str]) -> bool:
    """Greedy match; on a mismatch the latest `**` swallows one level more."""
    p = n = 0
    star, resume = -1, 0
    while n < len(levels):
        if p < len(pattern) and pattern[p] == "**":
            star, resume = p, n
            p += 1
        elif p < len(pattern) and (pattern[p] == levels[n] or (pattern[p] == "*" and levels[n] != "**")):
            p += 1
            n += 1
        elif star >= 0:
            resume += 1
            p, n = star + 1, resume
        else:
            return False
    return all(level == "**" for level in pattern[p:])
