"""Conflicts: terms that contradict each other, at a station and in the quality of service of a channel.

A station and a channel call some things differently (`capacity` and `max_per_consumer`, `blocking` and `reliability
persistent`), but the rules are the same and are written here once. Each takes `Compared`, the terms that it compares,
with the names that the caller knows. Every conflict is an error: there are no warnings.

The rules that only channels have, and what a station may change of its channel's terms, are in channel/conflicts.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.errors import TermsError
from headrace.station.terms import DEADLINE_CAPACITY_MAX, StationTerms
from headrace.units import format_time


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why some options contradict each other, and what would help."""

    options: tuple[str, ...]
    problem: str
    remedy: str
    of_values: bool = False  # one option is invalid by itself, whatever the others are

    def __str__(self) -> str:
        return f"{', '.join(self.options)}: {self.problem}; {self.remedy}"


def terms_error(conflicts: Sequence[Conflict]) -> TermsError:
    """One error that names every conflict and every remedy."""
    if len(conflicts) == 1:
        return TermsError(conflicts[0].problem, conflicts[0].remedy, tuple(conflicts))
    problems = "; ".join(f"({number}) {each.problem}" for number, each in enumerate(conflicts, 1))
    remedies = "; ".join(f"({number}) {each.remedy}" for number, each in enumerate(conflicts, 1))
    return TermsError(f"{len(conflicts)} conflicts: {problems}", remedies, tuple(conflicts))


@dataclass(frozen=True, slots=True)
class Compared:
    """The terms that rules compare, and what the caller calls them."""

    blocking: bool
    order: str
    discard: str | None  # None: left open
    capacity: int | None
    batch_max: int | None
    pacing_s: float
    start_ns: int | None
    stop_ns: int | None
    blocking_name: str = "blocking"
    blocking_text: str = "blocking True"
    not_blocking_text: str = "blocking False"
    capacity_name: str = "capacity"


def check_terms(terms: StationTerms) -> StationTerms:
    """Return the terms of a station; TermsError lists every conflict."""
    found = list(contradictions(_compared(terms)))
    if terms.restore == "group" and terms.group is None:
        found.append(Conflict(("restore", "group"), "restore group needs a group", "give a group, or another restore"))
    if found:
        error = terms_error(found)
        raise TermsError(f"station {terms.name!r}: {error.problem}", error.hint, error.conflicts)
    return terms


def _compared(terms: StationTerms) -> Compared:
    return Compared(
        blocking=terms.blocking,
        order=terms.order,
        discard=None if terms.discard in ("lifo", "any") else terms.discard,
        capacity=terms.capacity,
        batch_max=terms.batch_max,
        pacing_s=terms.pacing_s,
        start_ns=terms.start_ns or None,
        stop_ns=terms.stop_ns or None,
    )


def contradictions(terms: Compared) -> Iterator[Conflict]:
    """Every contradiction that stations and channels have in common."""
    yield from _about_loss(terms)
    yield from _about_deadlines(terms)
    yield from _about_batches(terms)
    if terms.start_ns is not None and terms.stop_ns is not None and terms.start_ns >= terms.stop_ns:
        yield Conflict(
            ("start_time", "stop_time"),
            f"start_time {format_time(terms.start_ns)} is not before stop_time {format_time(terms.stop_ns)}, "
            "so nothing would ever be delivered",
            "exchange them, or leave one open",
        )


def _about_loss(terms: Compared) -> Iterator[Conflict]:
    if terms.discard is None:
        return
    if terms.blocking:
        yield Conflict(
            (terms.blocking_name, "discard"),
            f"{terms.blocking_text} drops nothing, and discard {terms.discard} says what to drop",
            f"leave discard open, or choose {terms.not_blocking_text}",
        )
    if terms.capacity is None:
        yield Conflict(
            ("discard", terms.capacity_name),
            f"discard {terms.discard} says what a full station drops, and {terms.capacity_name} does not say when it "
            "is full",
            f"give {terms.capacity_name}, or leave discard open",
        )


def _about_deadlines(terms: Compared) -> Iterator[Conflict]:
    if (terms.capacity or 0) <= DEADLINE_CAPACITY_MAX:
        return
    for option, policy in (("order", terms.order), ("discard", terms.discard)):
        if policy == "deadline":
            yield Conflict(
                (option, terms.capacity_name),
                f"{option} deadline keeps products sorted, and {terms.capacity_name} {terms.capacity} is too large",
                f"give at most {DEADLINE_CAPACITY_MAX}, or choose another {option}",
            )


def _about_batches(terms: Compared) -> Iterator[Conflict]:
    if terms.batch_max is not None and terms.capacity is not None and terms.batch_max > terms.capacity:
        yield Conflict(
            ("batch_max", terms.capacity_name),
            f"a batch of {terms.batch_max} never fills, because a station holds {terms.capacity}",
            f"lower batch_max, or raise {terms.capacity_name}",
        )
    if terms.pacing_s and terms.batch_max is None:
        yield Conflict(
            ("pacing", "batch_max"),
            f"pacing {terms.pacing_s:g} s waits for a batch to fill, and batch_max is open",
            "give a batch_max of 2 or more, or no pacing",
        )
