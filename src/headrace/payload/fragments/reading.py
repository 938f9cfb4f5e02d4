"""Reading ahead: threads read and hash the fragments behind those that are being put.

`read` and BLAKE3 both release the interpreter, so the file is read while the queue is written. Buffers are used again:
a new one would be cleared first.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from headrace.errors import SourceChangedError
from headrace.payload.fragments.sending import Sending

_THREADS = 2

Piece = tuple[Sending, int]  # a transfer, and the number of a fragment
Filled = tuple[Sending, int, memoryview]


class ReadAhead:
    """Reads fragments for one sender."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "headrace-fragment")
        self._fetching: dict[tuple[str, int], Future[memoryview]] = {}  # by transfer and number
        self._free: list[memoryview] = []  # buffers to use again

    def take(self, batch: list[Piece]) -> tuple[list[Filled], dict[str, str]]:
        """These fragments; and why files cannot be read, by transfer. Begins to read as much behind them."""
        filled: list[Filled] = []
        failed: dict[str, str] = {}
        reads = [self._fetch(*each) for each in batch]
        for (sending, number), read in zip(batch, reads, strict=True):
            try:
                filled.append((sending, number, read.result()))
            except (OSError, SourceChangedError) as error:
                failed.setdefault(sending.manifest.transfer, str(error))
        self._fetch_ahead(*batch[-1], len(batch))
        return [each for each in filled if each[0].manifest.transfer not in failed], failed

    def give_back(self, filled: list[Filled]) -> None:
        """These buffers may be used again."""
        self._free += [view for _, _, view in filled]

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _fetch(self, sending: Sending, number: int) -> "Future[memoryview]":
        """Begin to read a fragment, unless that was begun before."""
        key = (sending.manifest.transfer, number)
        if key not in self._fetching:
            length = sending.manifest.length_of(number)
            buffer = self._free.pop() if self._free else memoryview(bytearray())
            if len(buffer) != length:
                buffer = memoryview(bytearray(length))
            self._fetching[key] = self._threads.submit(sending.read, number, buffer)
        return self._fetching[key]

    def _fetch_ahead(self, sending: Sending, number: int, count: int) -> None:
        """Begin to read the fragments behind this one; forget those that are not needed any more."""
        behind = number + 1 + np.flatnonzero(sending.to_send[number + 1 :])[:count]
        ahead = {(sending.manifest.transfer, each) for each in behind.tolist()}
        self._fetching = {key: read for key, read in self._fetching.items() if key in ahead}
        for each in behind.tolist():
            self._fetch(sending, each)
