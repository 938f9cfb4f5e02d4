"""A site gives memory back after a burst: when it has grown much, and not all the time."""

import ctypes
import itertools

from headrace.site.memory import GROWTH_BYTES, PAUSE_S, MemoryWatch, anonymous_bytes, trim_heaps


def test_heaps_are_trimmed_after_growth_and_once_a_minute_at_most() -> None:
    used, trims = [100 << 20], list[float]()

    def trim() -> None:
        trims.append(now)
        used[0] -= 10 << 20

    watch = MemoryWatch(lambda: used[0], trim)
    for second in range(1000, 1300):
        now = float(second)
        used[0] += GROWTH_BYTES // 32
        watch.look(now)
    assert trims[0] == 1031
    assert all(later - earlier >= PAUSE_S for earlier, later in itertools.pairwise(trims))
    assert len(trims) == 5


def test_memory_that_was_freed_is_given_back() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    blocks = [library.malloc(100_000) for _ in range(600)]  # small enough for the heap
    for block in blocks:
        ctypes.memset(block, 1, 100_000)
    grown = anonymous_bytes()
    for block in blocks[:-1]:
        library.free(block)  # the last one keeps the end of the heap in use
    trim_heaps()
    assert anonymous_bytes() < grown - (30 << 20)
    library.free(blocks[-1])
