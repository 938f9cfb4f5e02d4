"""What became of each product that `headrace put` was given: told one by one, or summed up for many."""

import click
import msgspec

from headrace.cli import failure
from headrace.cli.output import echo_json, many
from headrace.errors import HeadraceError
from headrace.units import format_size


class PutLine(msgspec.Struct, frozen=True):
    """One product that was put, as JSON. For a duplicate `sequence` is that of the copy that is held."""

    sequence: int
    feed: str
    ident: str
    size: int
    duplicate: bool


class Receipts:
    """Counts and tells. `one_by_one` is for people; JSON always has one line per product."""

    def __init__(self, feed: str, as_json: bool, one_by_one: bool) -> None:
        self._feed, self._as_json, self._one_by_one = feed, as_json, one_by_one
        self.stored = self.duplicates = self.failed = self.stored_bytes = 0

    def put(self, ident: str, size: int, sequence: int, duplicate: bool) -> None:
        if duplicate:
            self.duplicates += 1
        else:
            self.stored += 1
            self.stored_bytes += size
        if self._as_json:
            echo_json(PutLine(sequence, self._feed, ident, size, duplicate))
        elif self._one_by_one:
            known = f"duplicate of {sequence}" if duplicate else str(sequence)
            click.echo(f"{known:>8}  {self._feed}  {format_size(size)}  {failure.visible(ident)}")

    def refused(self, name: str, error: HeadraceError | OSError) -> None:
        """One product could not be put; the others are."""
        self.failed += 1
        if isinstance(error, HeadraceError):
            told = failure.Failure(type(error).__name__, f"{name}: {error.problem}", error.hint, failure.USAGE)
        else:
            problem = f"{name} cannot be read: {error.strerror or error}"
            told = failure.Failure(type(error).__name__, problem, "", failure.USAGE)
        failure.show(told, self._as_json)

    def end(self) -> int:
        """The summary, where there were many, and the exit code."""
        if not self._as_json and not self._one_by_one:
            parts = [f"put {many(self.stored, 'product')} ({format_size(self.stored_bytes)}) under {self._feed}"]
            parts += [many(self.duplicates, "duplicate")] if self.duplicates else []
            parts += [f"{self.failed:,} failed"] if self.failed else []
            click.echo(", ".join(parts))
        return failure.USAGE if self.failed else failure.OK
