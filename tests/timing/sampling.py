"""Products of several origins with few different time stamps, and batches of them in any order.

A batch may have any of them, also twice: that is how a network that repeats and reorders hands them over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace import Batch, Queue

ORIGINS = ("b", "a", "c")
TIMES = 12  # different time stamps
EACH = 2 * TIMES  # products of each origin
Fact = tuple[int, str, int]  # created, origin, sequence there


@dataclass(frozen=True)
class Sample:
    whole: Batch  # all, from one queue
    apart: tuple[Batch, ...]  # those of each origin, from queues of their own

    def facts(self, batch: Batch) -> list[Fact]:
        return facts(batch)


def facts(batch: Batch) -> list[Fact]:
    columns = batch.columns
    return list(zip(columns["created_ns"].tolist(), batch.origins, columns["origin_sequence"].tolist(), strict=True))


def make_sample(make: Callable[..., Queue]) -> Sample:
    whole = make("whole", origin="whole")
    apart = []
    for number, origin in enumerate(ORIGINS):
        queue = make(origin, origin=origin)
        for extra in range(number):  # so that numbers of names differ
            queue.put(b"", feed=f"other/{extra}")
        first = queue.next
        for place in range(EACH):
            queue.put(bytes(1 + place % 5), feed=f"x/{origin}", ident=f"{origin}{place}", created=1 + place // 2)
        apart.append(queue.read_batch(first))
        whole.put_batch(apart[-1])
    return Sample(whole.read_batch("oldest"), tuple(apart))


def released(batches: Sequence[Batch]) -> list[Fact]:
    return [fact for batch in batches for fact in facts(batch)]
