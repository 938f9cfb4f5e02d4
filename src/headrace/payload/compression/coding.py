"""Coding: one payload as a frame of zstd, if that is worthwhile.

A product is never stored larger than it was put. It is stored compressed only if that saves a sixteenth of it, after
the 13 bytes that the record needs to say so: less is not worth the work of every reader. Payloads that are too small to
gain anything are not tried at all; with a dictionary these are far fewer.

A frame has its content's size, which readers compare with the record's before they expand it. The number of the
dictionary is in the record alone. A frame with a dictionary has a checksum of its content, too: with a wrong dictionary
zstd would return wrong bytes without an error.
"""

import threading
from typing import TYPE_CHECKING, Any

from headrace.channel.compression import LEVEL_DEFAULT
from headrace.log.dictionaries import Dictionary, zstd_dictionary

if TYPE_CHECKING:
    import zstandard

RECORD_OVERHEAD = 16  # of a compressed product: its option, and padding
_SMALLEST, _SMALLEST_WITH_DICTIONARY = 96, 32
_PART = 16  # what must be saved: one part of so many


class Coder:
    """Compresses with one level and one dictionary, or none. Threads may share it."""

    def __init__(self, level: int = LEVEL_DEFAULT, dictionary: Dictionary | None = None) -> None:
        self.level, self.number = level, 0 if dictionary is None else dictionary.number
        self._dictionary = None if dictionary is None else zstd_dictionary(dictionary.content)
        if self._dictionary is not None:
            self._dictionary.precompute_compress(level)
        self._smallest = _SMALLEST if dictionary is None else _SMALLEST_WITH_DICTIONARY
        self._of_thread = threading.local()  # a compressor serves one thread at a time

    def compress(self, payload: Any) -> bytes | None:
        """The frame; None if it is better to store the payload as it is."""
        size = len(payload) if payload.__class__ is bytes else memoryview(payload).nbytes
        if size < self._smallest:
            return None
        frame = self.frame(payload)
        return frame if len(frame) + RECORD_OVERHEAD <= size - size // _PART else None

    def frame(self, payload: Any) -> bytes:
        """The frame, however large it is."""
        try:
            compressor = self._of_thread.compressor
        except AttributeError:
            compressor = self._of_thread.compressor = self._make()
        frame: bytes = compressor.compress(payload)
        return frame

    def _make(self) -> "zstandard.ZstdCompressor":
        import zstandard  # loaded by programs that compress something

        return zstandard.ZstdCompressor(
            level=self.level, dict_data=self._dictionary, write_checksum=self._dictionary is not None,
            write_content_size=True, write_dict_id=False,
        )  # fmt: skip
