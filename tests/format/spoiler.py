"""Change bytes of a file while other processes have it mapped."""

import os
import struct
from pathlib import Path
from types import TracebackType

import reader


class Spoiler:
    """One file; `with` it."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_RDWR)

    def flip(self, at: int, mask: int) -> None:
        """Flip the bits of `mask` in the byte at `at`; a second call restores it."""
        (byte,) = os.pread(self._descriptor, 1, at)
        os.pwrite(self._descriptor, bytes([byte ^ mask]), at)

    def write(self, at: int, data: bytes) -> None:
        os.pwrite(self._descriptor, data, at)

    def forge_row(self, at: int, field: str, mask: int) -> None:
        """Flip bits of a field of the row at `at`, and recompute the check of the row."""
        row = bytearray(os.pread(self._descriptor, reader.ROW_BYTES, at))
        offset, code = reader.ROW[field]
        (value,) = struct.unpack_from("<" + code, row, offset)
        struct.pack_into("<" + code, row, offset, value ^ mask)
        check = reader.low16(reader.xxh3(bytes(row[: reader.ROW_CHECKED_BYTES])))
        struct.pack_into("<H", row, reader.ROW["check"][0], check)
        os.pwrite(self._descriptor, row, at)

    def __enter__(self) -> "Spoiler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def write_word(directory: Path, word: str, value: int | bytes) -> None:
    """Set a word of the control file of a queue."""
    offset, code = reader.CONTROL[word]
    with Spoiler(directory / "control") as spoiler:
        spoiler.write(offset, struct.pack("<" + code, value))
