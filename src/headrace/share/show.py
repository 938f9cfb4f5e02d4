"""What a group looks like from outside: its table as plain data, for balancers, commands and people."""

from typing import Any, Literal

import numpy as np

from headrace.decoding import Decoder
from headrace.log.documents import UNREADABLE
from headrace.share.interface import Load, NodeState, Parked, Sample, Session, ShareState, ShareTerms
from headrace.share.layout import PARKED, SAMPLES, SESSIONS, Table, epochs_of, owners_of, takers_of
from headrace.share.ownership import Ownership
from headrace.share.sessions import REASONS, Moment

_OUTCOMES: tuple[Literal["running", "done", "cancelled", "dead"], ...] = ("running", "done", "cancelled", "dead")
_SHOWN = 100  # sessions in a state
_LOAD: Decoder[Load] = Decoder(Load, encoding="json")


def state_of(own: Ownership, terms: ShareTerms, now: Moment, head: int) -> ShareState:
    """The whole group; columns are copies."""
    table, header = own.table, own.table.header[0]
    owners = owners_of(table.words)
    counts = np.bincount(owners, minlength=len(table.seats))
    seats = np.flatnonzero(table.seats["instance"])
    is_led = now.boot_ns <= int(header["leader_until"])
    return ShareState(
        stream=terms.stream,
        group=terms.group,
        nodes=[_node(own, int(seat), int(counts[seat]), now) for seat in seats],
        owners=owners,
        takers=takers_of(table.words),
        epochs=epochs_of(table.words),
        positions=table.positions.copy(),
        products=table.products.copy(),
        busy_ns=table.busy_ns.copy(),
        head=head,
        sessions=sessions_of(table),
        leader=_text(header["leader"]) if is_led else "",
        term=int(header["term"]),
        counters={
            name: int(header[name])
            for name in ("sessions", "cancelled", "deaths", "parked", "failed", "lost", "lost_last", "refused")
        },
    )


def _node(own: Ownership, seat: int, slices: int, now: Moment) -> NodeState:
    entry = own.table.seats[seat]
    return NodeState(
        seat=seat,
        name=_text(entry["name"]),
        pid=int(entry["pid"]),
        user=_text(entry["user"]),
        joined_ns=int(entry["joined_ns"]),
        age_s=max(0, now.boot_ns - int(entry["heartbeat"])) / 1e9,
        is_alive=own.is_alive(seat, now),
        draining=bool(entry["draining"]),
        load=_load(entry),
        slices=slices,
        products=int(entry["products"]),
        busy_s=int(entry["busy_ns"]) / 1e9,
    )


def _load(entry: Any) -> Load:
    try:
        return _LOAD.decode(bytes(entry["load"])) if entry["load_bytes"] else Load()
    except UNREADABLE:  # damaged: it will be reported again
        return Load()


def sessions_of(table: Table) -> list[Session]:
    """The latest sessions, the oldest first."""
    last = int(table.header["sessions"][0])
    numbers = range(max(1, last - min(_SHOWN, SESSIONS) + 1), last + 1)
    entries = [table.sessions[number % SESSIONS] for number in numbers]
    return [
        Session(
            number=int(each["number"]),
            giver=_text(each["giver"]),
            taker=_text(each["taker"]),
            slices=int(each["slices"]),
            left=int(each["left"]),
            reason=REASONS[min(int(each["reason"]), len(REASONS) - 1)],
            begun_ns=int(each["begun_ns"]),
            removed_ns=int(each["removed_ns"]),
            available_ns=int(each["available_ns"]),
            ended_ns=int(each["ended_ns"]),
            outcome=_OUTCOMES[min(int(each["outcome"]), len(_OUTCOMES) - 1)],
        )
        for each in entries
    ]


def history_of(table: Table) -> list[Sample]:
    """The samples of loads, the oldest first."""
    return [
        Sample(int(each["time_ns"]), _text(each["name"]), float(each["cpu"]), float(each["busy"]),
               int(each["waiting"]), int(each["slices"]))
        for each in _ring(table.samples, int(table.header["samples"][0]), SAMPLES)
    ]  # fmt: skip


def parked_of(table: Table) -> list[Parked]:
    """The products that were given up, the oldest first."""
    return [
        Parked(int(each["slice"]), int(each["sequence"]), int(each["tries"]), _text(each["error"]),
               _text(each["node"]), int(each["time_ns"]))
        for each in _ring(table.parked, int(table.header["parked"][0]), PARKED)
        if each["sequence"]
    ]  # fmt: skip


def _ring(entries: Any, count: int, size: int) -> Any:
    """The entries that were written, the oldest first."""
    if count <= size:
        return entries[:count]
    begin = count % size
    return np.concatenate([entries[begin:], entries[:begin]])


def _text(stored: Any) -> str:
    return bytes(stored).decode(errors="replace")
