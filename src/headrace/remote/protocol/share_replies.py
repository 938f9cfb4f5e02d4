"""Replies to calls about groups of processing nodes; share_calls.py has the calls, and says what columns are."""

from typing import Annotated, Any

import msgspec
import numpy as np

from headrace.errors import FabricMessageError
from headrace.remote.protocol.fields import Seconds
from headrace.remote.protocol.share_calls import Column, column, numbers_in
from headrace.share.interface import Exchanged, Holding, NodeState, Parked, Sample, Session, ShareState, ShareTerms
from headrace.share.layout import PARKED, SAMPLES, SEATS


class _Reply(msgspec.Struct, frozen=True, tag=str.lower, omit_defaults=True, forbid_unknown_fields=True):
    pass


class ShareOpened(_Reply, frozen=True):
    terms: ShareTerms
    feed: str  # of the channel


class Seated(_Reply, frozen=True):
    seat: int
    name: str


class Held(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a seat holds: columns with one entry for each slice that it owns, and the slices that come to it."""

    slices: Column  # u32
    epochs: Column  # u32
    positions: Column  # u64
    leaving: Column  # u8: 1 if it is in session
    careful: Column  # u64: be careful until its position is this
    suspects: Column  # u64
    tries: Column  # u8
    coming: Column  # u32
    draining: bool = False

    @classmethod
    def of(cls, holding: Holding) -> "Held":
        return cls(
            column(holding.slices, "<u4"), column(holding.epochs, "<u4"), column(holding.positions, "<u8"),
            column(holding.leaving, "u1"), column(holding.careful, "<u8"), column(holding.suspects, "<u8"),
            column(holding.tries, "u1"), column(holding.coming, "<u4"), holding.draining,
        )  # fmt: skip

    def holding(self) -> Holding:
        slices = numbers_in(self.slices, "<u4").copy()

        def each(data: bytes, kind: str) -> Any:
            return numbers_in(data, kind, len(slices)).copy()

        return Holding(
            slices, each(self.epochs, "<u4"), each(self.positions, "<u8"), each(self.leaving, "u1") != 0,
            each(self.careful, "<u8"), each(self.suspects, "<u8"), each(self.tries, "u1"),
            numbers_in(self.coming, "<u4").copy(), self.draining,
        )  # fmt: skip


class SeatTold(_Reply, frozen=True):
    """The reply to an exchange."""

    version: int
    held: Held | None = None  # None: as the node knows it
    refused: Column = b""  # u32: slices whose confirmation or release did not count
    pause_s: Seconds = 0.0  # until the next confirmation

    @classmethod
    def of(cls, exchanged: Exchanged, pause_s: float) -> "SeatTold":
        held = None if exchanged.holding is None else Held.of(exchanged.holding)
        return cls(exchanged.version, held, column(exchanged.refused, "<u4"), pause_s)

    def exchanged(self) -> Exchanged:
        holding = None if self.held is None else self.held.holding()
        return Exchanged(self.version, holding, numbers_in(self.refused, "<u4"), self.pause_s)


class GroupState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole group; columns have one entry for each slice."""

    nodes: Annotated[list[NodeState], msgspec.Meta(max_length=SEATS)]
    owners: Column  # u16: seat; 65,535: none; 65,534: another group works on it
    takers: Column  # u16
    epochs: Column  # u32
    positions: Column  # u64
    products: Column  # u64
    busy_ns: Column  # u64
    head: int
    sessions: list[Session]
    leader: str
    term: int
    counters: dict[str, int]


class ShareTold(_Reply, frozen=True):
    """The description of a group; one of these is set."""

    state: GroupState | None = None
    history: Annotated[list[Sample], msgspec.Meta(max_length=SAMPLES)] | None = None
    parked: Annotated[list[Parked], msgspec.Meta(max_length=PARKED)] | None = None


_KINDS = {"owners": "<u2", "takers": "<u2", "epochs": "<u4", "positions": "<u8", "products": "<u8", "busy_ns": "<u8"}


def told_of(state: ShareState, nodes: list[NodeState]) -> ShareTold:
    """A state as it travels, with these nodes."""
    columns: dict[str, Any] = {name: column(getattr(state, name), kind) for name, kind in _KINDS.items()}
    return ShareTold(
        GroupState(
            nodes, **columns, head=state.head, sessions=state.sessions, leader=state.leader, term=state.term,
            counters=state.counters,
        )
    )  # fmt: skip


def state_of(told: GroupState | None, terms: ShareTerms) -> ShareState:
    """What `told_of` made such."""
    if told is None:
        raise FabricMessageError("the reply has no state of the group", "run the same version at both ends")
    columns: dict[str, Any] = {
        name: np.array(numbers_in(getattr(told, name), kind, terms.slices)) for name, kind in _KINDS.items()
    }
    return ShareState(
        terms.stream, terms.group, told.nodes, **columns, head=told.head, sessions=told.sessions, leader=told.leader,
        term=told.term, counters=told.counters,
    )  # fmt: skip
