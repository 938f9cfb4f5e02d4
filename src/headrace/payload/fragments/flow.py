"""Flow: how much of what a sender has put is still on its way to receivers, and how much more may be.

The queue evicts its oldest products, so no more than half of it is on its way (`cutting.room_in`): put, and not yet
behind the `seen` of the slowest receiver. A receiver that was silent for a minute delays no other.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.log.config import QueueConfig
from headrace.payload.fragments.cutting import room_in
from headrace.payload.fragments.receipt import Receipt

_ACTIVE_S = 60.0  # a receiver that was not heard of for so long delays no other
_ROOM_MIN = 1 << 17  # whatever a receiver says


@dataclass(slots=True)
class Receiver:
    """What is known of one receiver."""

    where: str
    seen: int = 0
    room: int = 0
    heard_s: float = 0.0


class Flow:
    """What is on its way through one queue."""

    def __init__(self, config: QueueConfig, *, is_followed: bool) -> None:
        """If no receiver is followed, the window is not moved: everything has to fit into it."""
        self._config, self._is_followed = config, is_followed
        self.receivers: dict[str, Receiver] = {}
        self.pending_bytes = 0  # of puts that have no sequences yet
        self._sequences, self._totals = [0], [0]  # of what was put: sequences, and bytes up to there

    def note_put(self, sequence: int, size: int) -> None:
        """This was stored. What was put at the same time may have an earlier sequence.

        A duplicate of what another sender has put is in the queue already, before all of ours, and takes no room.
        """
        place = bisect_left(self._sequences, sequence)
        if place < len(self._sequences) and (place == 1 or self._sequences[place] == sequence):
            return
        self._sequences.insert(place, sequence)
        self._totals.insert(place, self._totals[place - 1])
        for behind in range(place, len(self._totals)):
            self._totals[behind] += size

    def hear(self, receipt: Receipt) -> None:
        """A receiver says how far it has read; what it says of others, or of an earlier sender, tells nothing."""
        if receipt.origin != self._config.origin or len(self._sequences) == 1 or receipt.seen < self._sequences[1]:
            return
        receiver = self.receivers.setdefault(receipt.receiver, Receiver(receipt.where))
        receiver.seen = max(receiver.seen, receipt.seen)
        receiver.room, receiver.heard_s = receipt.room, time.monotonic()

    def active(self) -> set[str]:
        """The receivers that were heard of lately."""
        now = time.monotonic()
        return {name for name, each in self.receivers.items() if now - each.heard_s < _ACTIVE_S}

    def room(self, fragment_bytes: Iterable[int]) -> int:
        """How many bytes may be put now, of transfers with fragments of these sizes."""
        limiting = [self.receivers[each] for each in self.active()] or list(self.receivers.values())
        rooms = [room_in(self._config, each) for each in fragment_bytes]
        window = min([*rooms, *(max(each.room, _ROOM_MIN) for each in limiting)], default=0)
        if not self._is_followed:
            return window
        seen = min((each.seen for each in limiting), default=0)
        behind = self._totals[-1] - self._totals[bisect_right(self._sequences, seen) - 1]
        return window - behind - self.pending_bytes

    def waits_for(self, feed: str, receivers_min: int) -> str:
        """Which receiver a sender waits for, for people."""
        if not self.receivers:
            return f"no receiver of feed {feed} has answered (headrace receive DIR --from QUEUE)"
        active = self.active()
        silent = sorted(each.where for name, each in self.receivers.items() if name not in active)
        if silent:
            return f"receiver {', '.join(silent)} is silent"
        missing = receivers_min - len(self.receivers)
        if missing > 0:
            return f"{missing} of {receivers_min} receivers have not answered"
        return f"receiver {', '.join(sorted(each.where for each in self.receivers.values()))} has not finished"
