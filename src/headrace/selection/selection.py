"""Selection: which products a reader wants, by feed pattern and ident.

    Selection("wx/radar/**")                            every product below wx/radar
    Selection("wx/**", ident=r"^SA.. K")                … whose ident matches
    Selection(ident="METAR")

The ident pattern is a regular expression in RE2's syntax and is searched for anywhere in the ident; it runs in time
linear in the ident, so that no pattern can hold up a queue. Both are checked when the selection is made. Feed patterns
are decided once per feed, never per product; idents are matched a column at a time by Arrow, which has RE2 inside.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FeedError, SelectionError
from headrace.product.feed import FeedPattern


@dataclass(frozen=True, slots=True)
class Selection:
    """What a reader wants; an empty selection wants everything."""

    feed: str | None = None
    ident: str | None = None
    _pattern: FeedPattern | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            pattern = FeedPattern(self.feed) if self.feed is not None else None
        except FeedError as error:
            raise SelectionError(error.problem, error.hint) from None
        object.__setattr__(self, "_pattern", pattern)
        if self.ident is not None:
            _check_regex(self.ident)

    @classmethod
    def of(cls, wanted: "Selection | str | None") -> "Selection":
        """A selection from what callers may write: one, a feed pattern, or nothing."""
        if wanted is None:
            return cls()
        if isinstance(wanted, Selection):
            return wanted
        if isinstance(wanted, str):
            return cls(feed=wanted)
        raise SelectionError(f"{wanted!r} is not a selection", "give a feed pattern or Selection(feed=…, ident=…)")

    def wants_feed(self, feed: str) -> bool:
        return self._pattern is None or self._pattern.matches(feed)

    def wants_idents(self, idents: Any) -> npt.NDArray[np.uint8]:
        """For an Arrow string array: one byte each, 1 where the ident matches."""
        if self.ident is None:
            return np.ones(len(idents), np.uint8)
        matched = pc.match_substring_regex(idents, self.ident)
        found: npt.NDArray[np.uint8] = matched.to_numpy(zero_copy_only=False).astype(np.uint8)
        return found

    def wants(self, feed: str, ident: str) -> bool:
        """Decide one product, the slow way."""
        return self.wants_feed(feed) and bool(self.wants_idents(pa.array([ident]))[0])


def _check_regex(pattern: str) -> None:
    if not isinstance(pattern, str):
        raise SelectionError(f"ident pattern {pattern!r} is not text", "write a regular expression (RE2)")
    try:
        pc.match_substring_regex(pa.array(["x"]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise SelectionError(
            f"ident pattern {pattern!r} is not a regular expression: {reason}",
            "see the RE2 syntax; it has no look-around and no back-references",
        ) from None
    except UnicodeEncodeError:
        raise SelectionError(
            f"ident pattern {pattern!r} cannot be written as UTF-8", "remove lone surrogates"
        ) from None
