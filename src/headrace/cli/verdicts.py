"""Verdicts of the oracle, as rows of a table and as JSON."""

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.selection import Selection
from headrace.testing import Verdict

VERDICT_HEADER = ("consumer", "sent", "received", "lost", "duplicated", "out of order", "unknown", "altered")
VERDICT_RIGHT = range(1, len(VERDICT_HEADER))


def verdict_row(consumer: str, verdict: Verdict) -> list[str]:
    """One row under VERDICT_HEADER."""
    v = verdict
    counts = (v.sent, v.received, v.lost, v.duplicated, v.out_of_order, v.unknown, v.mismatched)
    return [consumer, *(f"{count:,}" for count in counts)]


def verdict_values(verdict: Verdict) -> dict[str, Any]:
    """For JSON."""
    values: dict[str, Any] = msgspec.to_builtins(verdict)
    return {"ok": verdict.ok, **values}


def expectation(selection: Selection) -> Callable[[str, str], bool] | None:
    """What the oracle should expect of a consumer that selects by feed and ident."""
    return None if selection == Selection() else selection.wants_names
