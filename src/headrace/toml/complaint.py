"""Complaint: one mistake in a file, for the person who must mend it."""

from collections.abc import Sequence

import msgspec

from headrace.errors import ConfigError


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is, what is wrong, and what to do. `str()` has all but the remedy and the excerpt."""

    file: str
    line: int | None = None  # from 1; None if it is about the file as a whole
    column: int | None = None  # from 1, in that line; only where it tells more than the key does
    table: str = ""  # as people write it: "[site]", "[[request]] 2"
    key: str = ""
    problem: str
    hint: str = ""
    excerpt: str = ""  # two lines: a text, and a caret below the mistake

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        about = " ".join(part for part in (self.table, self.key) if part)
        return f"{place}: {about}: {self.problem}" if about else f"{place}: {self.problem}"


def refusal(complaints: Sequence[Complaint], check: str) -> ConfigError:
    """The error that tells the first of them, and has all; `check` is the command that tells all."""
    first, more = complaints[0], len(complaints) - 1
    if not more:
        return ConfigError(str(first), first.hint, tuple(complaints))
    others = f"{more} more mistake" + "s" * (more > 1)
    hint = f"{first.hint}; all are told by: {check}"
    return ConfigError(f"{first} (and {others})", hint, tuple(complaints))
