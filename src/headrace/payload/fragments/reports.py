"""Reports: the receipts that a receiver puts (receipt.py): what is due, and when.

A report tells of every file that changed since the last one, and of what was noted besides: transfers that are done,
refused or unknown. A receiver that may not put receipts says so, and goes on without.
"""

import time
from collections.abc import Iterable
from typing import Any, Protocol, Unpack

from headrace.errors import AccessDeniedError
from headrace.log.append import Duplicate
from headrace.log.config import QueueConfig
from headrace.log.seams import Timeout
from headrace.payload.fragments.cutting import room_in
from headrace.payload.fragments.inbox import Inbox
from headrace.payload.fragments.receipt import TRANSFERS_MAX, Receipt, TransferState, encode_receipt, receipts_feed
from headrace.payload.fragments.receiving import ReceiverStatistics, Receiving
from headrace.product.put import PutFacts

REPORT_S = 0.05  # between receipts, unless one is due for another reason
_PUT_S = 5.0


class ReceiveQueue(Protocol):
    """What a receiver needs of a queue, wherever that is."""

    @property
    def config(self) -> QueueConfig: ...
    @property
    def next(self) -> int: ...
    def put(
        self, payload: Any, *, feed: str, ident: str = "", timeout: Timeout = None, **facts: Unpack[PutFacts]
    ) -> int | Duplicate: ...
    def follow(self, start: Any = ..., selection: Any = ..., *, bytes_limit: Any = ...) -> Any: ...


class Reports:
    """The receipts of one receiver, for one thread."""

    def __init__(
        self, queue: ReceiveQueue, feed: str, where: str, inbox: Inbox, statistics: ReceiverStatistics,
        files: dict[str, Receiving],
    ) -> None:  # fmt: skip
        """`where` is this receiver, for people; `files` are those on their way, by transfer."""
        self._queue, self._feed, self._where, self._inbox = queue, receipts_feed(feed), where[-255:], inbox
        self._config, self._statistics, self._files = queue.config, statistics, files
        self._due: dict[str, dict[str, TransferState]] = {}  # by origin: states besides those of files on their way
        self._unreported = 0  # bytes
        self._reported_s = 0.0
        self._is_permitted = True

    @property
    def is_due(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._due) or any(receiving.is_due for receiving in self._files.values())

    def note(self, origin: str, state: TransferState) -> None:
        """Report this state with the next receipt."""
        due = self._due.setdefault(origin, {})
        if len(due) >= TRANSFERS_MAX:
            self.report(now=True)
            due = self._due.setdefault(origin, {})
        due[state.transfer] = state

    def note_written(self, size: int) -> None:
        self._unreported += size

    def report_progress(self) -> None:
        """Report early enough that the sender does not wait."""
        if self._unreported >= _room_of(self._config, self._files.values()) // 8:
            self.report(now=True)

    def report(self, now: bool = False) -> None:
        """Put receipts about everything that is due."""
        if not now and time.monotonic() - self._reported_s < REPORT_S:
            return
        for transfer, receiving in self._files.items():
            if receiving.is_due:
                receiving.is_due = False
                self._due.setdefault(receiving.origin, {}).setdefault(transfer, receiving.state)
        due, self._due = self._due, {}
        for origin, states in due.items():
            listed = list(states.values())
            for place in range(0, len(listed), TRANSFERS_MAX):
                self._put(origin, listed[place : place + TRANSFERS_MAX])
        self._reported_s, self._unreported = time.monotonic(), 0

    def _put(self, origin: str, states: list[TransferState]) -> None:
        if not self._is_permitted:
            return
        seen, room = self._inbox.seen.get(origin, 0), _room_of(self._config, self._files.values())
        receipt = Receipt(self._inbox.receiver, self._where, origin, seen, room, transfers=states)
        try:
            self._queue.put(encode_receipt(receipt), feed=self._feed, timeout=_PUT_S)
        except AccessDeniedError:
            self._is_permitted = False
            self._statistics.waits_for = f"not permitted to put receipts to {self._feed}"


def _room_of(config: QueueConfig, files: Iterable[Receiving]) -> int:
    """Bytes of fragments that may be on their way in the queue from which they are read."""
    sizes = [receiving.partial.manifest.fragment_bytes for receiving in files]
    return min([room_in(config, each) for each in sizes], default=config.size // 4)
