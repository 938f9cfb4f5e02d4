"""Lines of a stream as batches: whatever has arrived is one batch, so that a slow stream is not held up."""

from collections.abc import Iterator
from typing import Protocol

CHUNK_BYTES = 1 << 20
BATCH_LINES_MAX = 4096

Line = tuple[int, bytes]  # its number, from 1 on, and its bytes without the line feed


class Source(Protocol):
    """A buffered binary stream: `read1` gives what there is and waits only if there is nothing."""

    def read1(self, size: int = ..., /) -> bytes: ...


def line_batches(source: Source, line_bytes_max: int) -> Iterator[list[Line]]:
    """The lines that are not empty, in batches.

    A line longer than `line_bytes_max` is handed out with its first `line_bytes_max + 1` bytes, and the rest of it is
    skipped: the caller cannot put it, and memory stays bounded.
    """
    pieces, cut, number = bytearray(), False, 0
    while chunk := source.read1(CHUNK_BYTES):
        batch: list[Line] = []
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            number += 1
            line = bytes(pieces) + end if pieces else end
            if line and not cut:
                batch.append((number, line[: line_bytes_max + 1]))
            pieces.clear()
            cut = False
            if len(batch) == BATCH_LINES_MAX:
                yield batch
                batch = []
        if not cut:
            pieces += rest
        if len(pieces) > line_bytes_max:
            batch.append((number + 1, bytes(pieces[: line_bytes_max + 1])))
            pieces.clear()
            cut = True
        if batch:
            yield batch
    if pieces:
        yield [(number + 1, bytes(pieces))]
