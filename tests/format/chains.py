"""Helpers for tests of chain files."""

import reader

from headrace import Queue
from headrace.kernel import _kernel as kernel

NOW_NS = 1_800_000_000_000_000_000


def kernel_of(queue: Queue, number: int = 1) -> kernel.Chain:
    return queue._stations.chain(number).kernel


def put(queue: Queue, count: int, **terms: object) -> None:
    queue.put_many([b"%d" % number for number in range(count)], feed="wx/a", **terms)


def slots_in(chain: reader.Fields, state: str) -> list[reader.Fields]:
    """The slots in one state, by sequence."""
    return sorted((slot for slot in chain["slots"] if slot["state"] == state), key=lambda slot: slot["sequence"])


def sequences_in(chain: reader.Fields, state: str) -> list[int]:
    return [slot["sequence"] for slot in slots_in(chain, state)]
