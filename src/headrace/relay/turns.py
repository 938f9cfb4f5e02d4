"""Turns: in which order the streams of a site advance, so that no principal delays the streams of the others.

One thread advances all streams. A round gives every principal a turn, and the site's own stream too: in its turn the
streams of a principal advance, the one that is furthest behind first, until all have come to the end of the queue or
TURN_S are over. So a stream waits for at most one turn of each other principal, whatever their selections cost and
however many streams they have; who needs more than its turns falls behind, and its receivers read the log.

A turn ends between two steps of a stream, and a step is short: a stream examines fewer products at a time when they
take long (`Step`).
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

TURN_S = 0.01
PRODUCTS_MIN, PRODUCTS_MAX = 16, 1 << 16  # examined in one step


class Advancing(Protocol):
    """A stream, as far as its turn is concerned."""

    @property
    def position(self) -> int: ...
    @property
    def is_behind(self) -> bool: ...
    def step(self) -> None:
        """Publish some of what is behind the position."""


Each = TypeVar("Each", bound=Advancing)


@dataclass(slots=True)
class Step:
    """How many products to examine in one step."""

    products: int = 4096

    def took(self, seconds: float) -> None:
        if seconds > TURN_S:
            self.products = max(PRODUCTS_MIN, self.products // 2)
        elif seconds < TURN_S / 4:
            self.products = min(PRODUCTS_MAX, self.products * 2)


def play_round(
    groups: Iterable[Sequence[Each]], act: Callable[[Each], None], now: Callable[[], float] = time.monotonic
) -> bool:
    """Give each group a turn, in which `act` makes steps; whether a stream is behind afterwards.

    The first stream that is behind makes at least one step, so each group comes forward in each round.
    """
    left = False
    for group in groups:
        behind = [stream for stream in group if stream.is_behind]
        if len(behind) > 1:
            behind.sort(key=lambda stream: stream.position)
        end = now() + TURN_S
        for number, stream in enumerate(behind):
            if number and now() >= end:
                break
            act(stream)
            while stream.is_behind and now() < end:
                act(stream)
        left = left or any(stream.is_behind for stream in behind)
    return left
