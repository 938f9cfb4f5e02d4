"""How files are cut: into fragments that a queue really holds."""

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import Queue
from headrace.errors import HeadraceError
from headrace.log.config import QueueConfig
from headrace.payload.fragments.cutting import fragment_bytes_for, room_in
from headrace.payload.fragments.manifest import FRAGMENTS_MAX

KIB, MIB = 1 << 10, 1 << 20


def config_of(size: int) -> QueueConfig:
    return QueueConfig(
        format=2, uuid="", size=size, age_s=None, durability="memory", dedup="identity", hash="blake3", origin="here"
    )


@given(st.integers(1, 5 << 40), st.sampled_from([64 << 20, 1 << 30, 1 << 38]))
def test_the_number_of_fragments_is_bounded(size: int, queue_bytes: int) -> None:
    try:
        fragment = fragment_bytes_for(size, config_of(queue_bytes))
    except HeadraceError:
        assert size > queue_bytes * 1000
        return
    assert -(-size // fragment) <= FRAGMENTS_MAX
    assert fragment <= queue_bytes // 8


@given(st.integers(1 << 20, 1 << 40))
def test_fragments_fill_the_segments_of_their_queue(queue_bytes: int) -> None:
    config = config_of(queue_bytes)
    fragment = fragment_bytes_for(1, config)
    assert room_in(config, fragment) >= 0.42 * queue_bytes
    assert fragment <= 2 * MIB


@pytest.mark.parametrize("size", ["1MiB", "5MiB", "8MiB", "16MiB", "48MiB"])
def test_a_queue_holds_a_product_of_half_its_size_and_others_behind_it(
    make_quick: Callable[..., Queue], size: str
) -> None:
    queue = make_quick(size=size)
    queue.put(os.urandom(queue.config.put_bytes_max), feed="sat/image", ident="large")
    for number in range(20):
        queue.put(os.urandom(queue.config.size // 64 // 10), feed="sat/image", ident=f"small {number}")
    sizes = [len(product.payload) for product in headrace.joined(queue.read().batches())]
    assert sizes[0] == queue.config.put_bytes_max
    assert len(sizes) == 21


@pytest.mark.parametrize("fragment_bytes", [3_000, 60 * KIB, 64 * KIB, 100 * KIB, 127 * KIB, 200 * KIB, 2 * MIB])
def test_what_there_is_room_for_is_held_twice(make_quick: Callable[..., Queue], fragment_bytes: int) -> None:
    queue = make_quick(size="8MiB", dedup="none")
    queue.put(b"first", feed="a")
    count = 2 * room_in(queue.config, fragment_bytes) // fragment_bytes - 1
    for _ in range(count):
        queue.put(bytes(fragment_bytes), feed="a")
        queue.put(b"receipt", feed="a/receipts")
    assert queue.oldest == 1
