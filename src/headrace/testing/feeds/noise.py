"""Bulk bytes that cost little more than the copy.

Compressed fields and images look random to whoever carries them. Drawing megabytes of random
numbers for each product would be slower than anything under test, so one pool is drawn per stream
and payloads are slices of it. Slices alone would repeat: whoever uses them puts something unique
in front.

The pool comes from `random.Random.randbytes`, whose output for a seed does not change between
releases.
"""

import random
from collections.abc import Iterable

POOL_BYTES = 4 << 20


def draw_pool(source: random.Random) -> memoryview:
    return memoryview(source.randbytes(POOL_BYTES))


class Noise:
    """Slices of a pool that kinds of feed share; where they are cut is each kind's own."""

    __slots__ = ("_pool", "_random")

    def __init__(self, pool: memoryview, source: random.Random) -> None:
        self._pool = pool
        self._random = source

    def between(self, head: bytes, size: int, tail: bytes = b"") -> bytes:
        """`head`, then as many random bytes as make the whole `size` long, then `tail`.

        A size that is too small for head and tail gives just these.
        """
        return b"".join((head, *self._slices(size - len(head) - len(tail)), tail))

    def _slices(self, size: int) -> Iterable[memoryview]:
        half = len(self._pool) // 2
        while size > 0:
            start = int(self._random.random() * half)
            part = self._pool[start : start + min(size, half)]
            size -= len(part)
            yield part
