"""How much a sender has on its way: what was put, and not yet seen by the slowest receiver."""

import random
from collections.abc import Callable

from headrace import Queue
from headrace.payload.fragments.cutting import room_in
from headrace.payload.fragments.flow import Flow
from headrace.payload.fragments.receipt import Receipt

ORIGIN, EACH = "here", 60_000


def told(seen: int) -> Receipt:
    return Receipt("0" * 16, "host:/in", ORIGIN, seen, 1 << 40)


def test_the_order_in_which_puts_are_stored_does_not_matter(make_quick: Callable[..., Queue]) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    queue = make_quick(size="16MiB", origin=ORIGIN)
    flow, window = Flow(queue.config, is_followed=True), room_in(queue.config, EACH)
    flow.note_put(100, 0)  # the manifest
    behind = list(range(101, 121))
    random.Random(seed).shuffle(behind)
    for sequence in behind:
        flow.note_put(sequence, EACH)
    assert flow.room([EACH]) == window - 20 * EACH
    for seen in range(100, 121):
        flow.hear(told(seen))
        assert flow.room([EACH]) == window - (120 - seen) * EACH


def test_what_an_earlier_sender_has_put_takes_no_room(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="16MiB", origin=ORIGIN)
    flow, window = Flow(queue.config, is_followed=True), room_in(queue.config, EACH)
    flow.note_put(100, 0)
    for sequence in (40, 41, 101, 101):  # two are duplicates of an earlier sender, one of this one
        flow.note_put(sequence, EACH)
    flow.pending_bytes = EACH
    assert flow.room([EACH]) == window - 2 * EACH
    flow.hear(told(99))
    assert not flow.receivers, "it has not seen anything of this sender"
