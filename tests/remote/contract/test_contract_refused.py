"""What a queue refuses instead of accepting it in silence: the same tests on a local and on a remote queue."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace.errors import OptionError, PayloadError
from headrace.queue import AnyConsumer, AnyQueue, AnyStation
from support.serving import put, work

OBJECTS = [
    np.array([1, "a", None], object),
    np.zeros(2, [("Offset", "i4"), ("value", object)]),
    memoryview(np.array([None], object)),
    (ctypes.py_object * 2)(None, None),
]


@pytest.mark.parametrize(
    "act",
    [
        lambda queue: queue.station("late", "**", start=4),
        lambda queue: queue.station("s").seek(4),
        lambda queue: queue.cursor("late", start=4),
        lambda queue: queue.cursor("c").seek(4),
        lambda queue: queue.cursor("c").save(4),
        lambda queue: list(queue.read(4)),
        lambda queue: queue.read_batch(4),
        lambda queue: queue.follow(4),
        lambda queue: queue.resolve(4),
    ],
)
def test_a_position_beyond_the_end_is_refused(
    queue: AnyQueue, station: AnyStation, act: Callable[[AnyQueue], Any]
) -> None:
    put(queue, *"12")
    with pytest.raises(OptionError, match="sequence 4 is beyond the end of the queue: the next product will be 3"):
        act(queue)
    assert station.seek(3) == 3  # the end itself is a position
    put(queue, "3")
    assert work(station) == ["3"]


@pytest.mark.parametrize("payload", OBJECTS)
def test_references_to_objects_are_not_stored(queue: AnyQueue, payload: Any) -> None:
    with pytest.raises(PayloadError, match="Python objects"):
        queue.put(payload, feed="a")
    with pytest.raises(PayloadError, match="Python objects"):
        queue.put_many([b"", payload], feed="a")
    assert queue.next == 1


def test_plain_buffers_are_stored_as_their_bytes(queue: AnyQueue) -> None:
    plain = [np.zeros(2, [("Offset", "i4"), ("b", "f8")]), np.array([True]), np.array(7), bytearray(b"x"), b""]
    for payload in plain:
        queue.put(payload, feed="a")
    assert [bytes(product.payload) for product in queue.read()] == [memoryview(payload).tobytes() for payload in plain]


def test_references_to_objects_are_no_revision(queue: AnyQueue, consumer: AnyConsumer) -> None:
    put(queue, "1")
    batch = consumer.get(1, timeout=60)
    with pytest.raises(OptionError):
        consumer.ack(batch, payloads=[OBJECTS[0]])
    consumer.ack(batch)


def test_a_put_of_drafts_says_what_was_stored(queue: AnyQueue, consumer: AnyConsumer) -> None:
    receipt = consumer.put(consumer.new(2, 10, feed="a", ident="equal"))
    assert (receipt.products, receipt.stored) == (2, 1)


def test_keep_is_accepted_and_validated_everywhere(station: AnyStation) -> None:
    with station.attach(keep="1min") as consumer:
        assert consumer.statistics().alive
    with pytest.raises(OptionError, match="is too long"):
        station.attach(keep="2d")
