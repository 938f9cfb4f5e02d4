"""Givers: the nodes that are in a session, and the patience that a balancer has with them.

A giver that lets go of one slice after the other has all the time it needs. If nothing moves for the time of a session,
it keeps what is left, and is left alone for twice as long, then for four times, up to five minutes: an item of it takes
long, and asking again would only stop its slices again.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from headrace.share.interface import NOBODY, ShareState
from headrace.slices.snapshot import Integers

_PAUSE_S_MAX = 300.0


class Stuck(NamedTuple):
    """A session in which nothing moves."""

    giver: int
    slices: Integers
    pause_s: float  # for which the giver is left alone


class _Watched(msgspec.Struct):
    slices: bytes = b""  # in session; none while the giver is left alone
    since_s: float = 0.0
    failures: int = 0
    until_s: float = 0.0


class Givers:
    def __init__(self, session_s: float) -> None:
        self._session_s = session_s
        self._watched: dict[int, _Watched] = {}

    def watch(self, state: ShareState, now_s: float) -> list[Stuck]:
        """The sessions that should be cancelled now."""
        running, stuck = in_session(state), []
        for giver, slices in running.items():
            watched = self._watched.setdefault(giver, _Watched())
            key = slices.tobytes()
            if watched.slices != key:
                watched.slices, watched.since_s = key, now_s
            elif now_s - watched.since_s > self._session_s:
                watched.failures += 1
                pause_s = min(self._session_s * 2**watched.failures, _PAUSE_S_MAX)
                watched.slices, watched.until_s = b"", now_s + pause_s
                stuck.append(Stuck(giver, slices, pause_s))
        alive = {node.seat for node in state.nodes if node.is_alive}
        for giver in [giver for giver in self._watched if giver not in running]:
            if giver not in alive or self._watched[giver].slices:  # it let go
                del self._watched[giver]
        return stuck

    def left_alone(self, now_s: float) -> list[int]:
        """Those that should not be asked again yet."""
        return [giver for giver, watched in self._watched.items() if watched.until_s > now_s]


def in_session(state: ShareState) -> dict[int, Integers]:
    """The slices that each giver has in session."""
    moving = np.flatnonzero(state.takers != NOBODY)
    moving = moving[np.argsort(state.owners[moving], kind="stable")]
    givers, begins = np.unique(state.owners[moving], return_index=True)
    return dict(zip(givers.tolist(), np.split(moving, begins[1:]), strict=True)) if len(moving) else {}
