"""Feed names and feed patterns.

A feed is a hierarchical name, `wx/radar/nexrad2/KFTG`: one or more levels, joined by `/`, at most 255 bytes of UTF-8.
A level is not empty, does not begin with `@` (Zenoh keeps those names for itself), and has no white space, no control
characters, and none of ``* ? # $ + > " ' \\``, which patterns and other systems use. In a pattern `*` stands for
exactly one level and `**` for any number, none included.
"""

import re

from headrace.errors import FeedError

FEED_BYTES_MAX = 255
_LEVEL = re.compile(r"(?!@)[^\s/*?#$+>\"'\\\x00-\x1f\x7f]+")
_RULES = "use levels joined by '/', such as wx/radar/nexrad2, without blanks or any of * ? # $ + > \" ' \\"


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
    """A feed pattern; `matches(feed)` decides in at most levels x levels steps, whatever the pattern."""

    __slots__ = ("_levels", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise FeedError(
                f"feed pattern {text!r} is not text",
                "write a feed, with * for one level and ** for any",
            )
        _check_length(text)
        self.text = text
        self._levels = text.split("/")
        for level in self._levels:
            if level not in ("*", "**") and not _LEVEL.fullmatch(level):
                raise FeedError(
                    f"feed pattern {text!r} has the illegal level {level!r}",
                    "a level is a name, * for one level, or ** for any number of them",
                )

    def matches(self, feed: str) -> bool:
        """Greedy match; on a mismatch the latest `**` swallows one level more."""
        pattern, levels = self._levels, feed.split("/")
        p = n = 0
        star, resume = -1, 0
        while n < len(levels):
            if p < len(pattern) and pattern[p] == "**":
                star, resume = p, n
                p += 1
            elif p < len(pattern) and pattern[p] in ("*", levels[n]):
                p += 1
                n += 1
            elif star >= 0:
                resume += 1
                p, n = star + 1, resume
            else:
                return False
        return all(level == "**" for level in pattern[p:])

    def __repr__(self) -> str:
        return f"FeedPattern({self.text!r})"
