"""Holders: what another site sends counts only if it is of the origin that was asked for, and if it may bring that."""

from collections.abc import Callable

import numpy as np
import pytest

from headrace import Queue, Selection
from headrace.log.records import Names
from headrace.relay.messages.page import VERSION, Keep, Page, PageHead, decode, queue_id, records_of, sequence_bytes
from headrace.relay.messages.query import IdentifyReply
from headrace.relay.receive.actions import Admit, Steps
from headrace.relay.receive.holders import Holders
from headrace.relay.receive.track import Track

ALL = np.ones(3, np.bool_)  # a driver's reply to Admit


def page_of(queue: Queue) -> Page:
    batch = queue.read_batch("oldest")
    sequences = sequence_bytes(batch.sequences)
    head = PageHead(VERSION, "b", queue_id(queue), "0" * 16, 0, len(batch), len(batch) + 1, len(batch), 7,
                    sequences=sequences)  # fmt: skip
    return decode(head, records_of(batch), Names())


def take(steps: Steps[int], admitted: list[bool]) -> None:
    """Take a page of which these products may be brought."""
    assert isinstance(next(steps), Admit)
    with pytest.raises(StopIteration):
        steps.send(np.array(admitted))


def test_products_that_wait_for_one_that_the_holder_does_not_have_are_counted(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue(origin="b")
    for sequence, previous in ((1, None), (3, 2), (4, 3)):
        queue.put(str(sequence).encode(), feed="wx", origin="a", origin_sequence=sequence, previous=previous)

    def store(page: Page, keep: Keep) -> Steps[None]:
        assert keep.tolist() == [1, 0, 0]
        yield from ()

    identity = IdentifyReply("b", queue_id(queue), 1, 4, 1)
    outcomes = [["b"], identity, "reply", page_of(queue), ALL, None]
    holders = Holders(Selection("**", origin="a"))
    steps = holders.pull(Track(0), store)
    next(steps)
    with pytest.raises(StopIteration) as ended:
        for outcome in outcomes:
            steps.send(outcome)
    assert (ended.value.value, holders.waiting) == (1, 2)


def test_products_of_another_origin_move_nothing(make_queue: Callable[..., Queue]) -> None:
    """Otherwise the origin's own products of that feed would be taken for old ones."""
    queue = make_queue(origin="b")
    queue.put(b"forged", feed="wx/text", origin="c", origin_sequence=1000)
    queue.put(b"real", feed="wx/radar", origin="a", origin_sequence=1)
    kept: list[list[int]] = []

    def store(page: Page, keep: Keep) -> Steps[None]:
        kept.append(keep.tolist())
        yield from ()

    track = Track(0)
    take(Holders(Selection("**", origin="a"))._take(page_of(queue), track, store), [True, True])
    assert kept == [[0, 1]]
    assert (track.reached("wx/text"), track.reached("wx/radar")) == (0, 1)


def test_what_a_holder_may_not_bring_moves_nothing_and_is_left_to_the_driver(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(origin="b")
    queue.put(b"forged", feed="wx/text", origin="a", origin_sequence=1000)
    queue.put(b"real", feed="wx/radar", origin="a", origin_sequence=1)
    kept: list[list[int]] = []

    def store(page: Page, keep: Keep) -> Steps[None]:
        kept.append(keep.tolist())
        yield from ()

    track, holders = Track(0), Holders(Selection("**", origin="a"))
    take(holders._take(page_of(queue), track, store), [False, True])
    assert kept == [[1, 1]]
    assert (track.reached("wx/text"), track.reached("wx/radar"), holders._taken) == (0, 1, 1)
