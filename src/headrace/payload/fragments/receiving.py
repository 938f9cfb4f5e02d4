"""Receiving: the account of one file at its receiver, and what is told of all of them."""

import time
from dataclasses import dataclass, field

from headrace.payload.fragments.partial import Partial
from headrace.payload.fragments.ranges import ranges_of
from headrace.payload.fragments.receipt import RANGES_MAX, TransferState


@dataclass(slots=True)
class Receiving:
    """One file on its way."""

    partial: Partial
    origin: str
    run: str = ""  # of the sender
    is_due: bool = True  # for a receipt
    moved_s: float = field(default_factory=time.monotonic)  # the last fragment, or question
    written_s: float = 0.0  # the last fragment
    asks: int = 0  # how often what is missing was asked for without an answer
    problem: str = ""
    name: str = ""  # that the file has got; its folder may not be synced yet

    @property
    def state(self) -> TransferState:
        """What the sender is told: which fragments are missing."""
        manifest = self.partial.manifest
        missing = ranges_of(~self.partial.held, RANGES_MAX)
        exact_to = missing[-1][1] + 1 if len(missing) == RANGES_MAX else manifest.count
        return TransferState(
            manifest.transfer, "waiting" if self.problem else "receiving", missing, exact_to, self.problem
        )


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a transfer: done, refused, withdrawn or superseded."""

    name: str
    size: int
    state: str
    problem: str = ""
    root: str = ""  # the hash of the whole


@dataclass(slots=True)
class ReceiverStatistics:
    finished: int = 0
    refused: int = 0
    superseded: int = 0  # incomplete files of which the sender has sent a newer version
    bytes: int = 0  # written
    finished_bytes: int = 0
    repeated: int = 0  # fragments that were there already
    bad: int = 0  # fragments that did not match, and were asked for again
    lost: int = 0  # products that were evicted before they were read
    invalid: int = 0  # messages that are no valid manifest or fragment
    asked: int = 0  # times that missing fragments were asked for because nothing came
    open: int = 0
    open_bytes: int = 0  # of the files on their way
    held_bytes: int = 0  # of those, there already
    waits_for: str = ""
