"""Inventory: what a log holds, without payloads, within the rights of the client; and what has arrived by comparison."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaying import put

from headrace import Queue, Selection
from headrace.errors import FabricMessageError
from headrace.link.rights import Feeds, Rule, rights_of
from headrace.product.batch import ROW
from headrace.queue.queue import log_of
from headrace.relay.inventory import list_held, locate
from headrace.relay.messages.inventory import InventoryReply, identities, rows_of
from headrace.relay.messages.query import Inventory, Locate
from headrace.relay.receive.arrived import recognise, remember_held
from headrace.relay.receive.remembered import Remembered

ALL = Feeds(["**"])


def ask(queue: Queue, selection: str = "**", after: int = 0, products: int = 100,
        allowed: Feeds = ALL) -> InventoryReply:  # fmt: skip
    return list_held(queue, Inventory(selection, after, products), allowed)


def sequences(reply: InventoryReply) -> list[int]:
    return [int(each) for each in rows_of(reply)[0]]


def test_it_lists_what_the_selection_wants_behind_a_sequence(queue: Queue) -> None:
    put(queue, "wx/a", "1", "2")
    put(queue, "wx/b", "3")
    put(queue, "wx/a", "4")
    assert sequences(ask(queue)) == [1, 2, 3, 4]
    assert sequences(ask(queue, "wx/a", 1)) == [2, 4]
    assert sequences(ask(queue, '** ident ~ "[34]"')) == [3, 4]
    assert sequences(ask(queue, "** where priority > 4")) == []
    assert (ask(queue, "wx/b").after, ask(queue, "wx/b").upto) == (0, 4)
    first = ask(queue, products=2)
    assert (sequences(first), first.upto, first.next) == ([1, 2], 2, 5)
    assert sequences(ask(queue, after=first.upto)) == [3, 4]
    assert (sequences(ask(queue, after=4)), ask(queue, after=4).upto) == ([], 4)


def test_feeds_that_the_client_may_not_receive_are_not_listed(queue: Queue) -> None:
    put(queue, "wx/a", "1")
    put(queue, "secret", "2")
    allowed = rights_of([Rule(("b",), receive=("wx/**",))], "b").receive
    assert sequences(ask(queue, allowed=allowed)) == [1]
    assert sequences(ask(queue, "secret", allowed=allowed)) == []
    assert sequences(ask(queue, allowed=rights_of([Rule(("b",), receive=("wx/**",))], "c").receive)) == []


def test_what_was_evicted_is_a_range_and_what_was_deleted_is_not_listed(queue: Queue) -> None:
    for number in range(200):
        queue.put(bytes([number]) + bytes(100_000), feed="x", ident=str(number))
    assert queue.oldest > 1
    reply = ask(queue, products=10_000)
    assert (reply.lost_first, reply.lost_last, reply.oldest) == (1, queue.oldest - 1, queue.oldest)
    assert sequences(reply) == list(range(queue.oldest, queue.next))
    queue.delete(Selection(ident="^199$"))
    assert sequences(ask(queue, products=10_000)) == list(range(queue.oldest, queue.next - 1))


def test_an_expired_product_is_listed_because_the_reader_decides(queue: Queue) -> None:
    queue.put(b"1", feed="x", expiry=1)  # in 1970
    assert len(queue.read_batch("oldest")) == 0
    assert sequences(ask(queue)) == [1]


def write(queue: Queue, before: bytes, after: bytes) -> None:
    """Change the last place of the segments that has these bytes."""
    for file in (queue.path / "segments").iterdir():
        place = file.read_bytes().rfind(before)
        if place >= 0:
            with file.open("r+b") as opened:
                opened.seek(place)
                opened.write(after)


def test_payloads_are_not_read(queue: Queue) -> None:
    """A payload that is damaged does not matter here; a site that reads it finds out."""
    put(queue, "x", "first words", "second words")
    write(queue, b"second words", b"recond words")
    reply = ask(queue)
    assert sequences(reply) == [1, 2]
    assert recognise(queue, Remembered(), rows_of(reply)[1]).all()
    write(queue, b"recond words", b"second words")


@pytest.mark.parametrize(
    "changed",
    [
        {"sequences": bytes(7)}, {"sequences": bytes(24)}, {"signatures": bytes(16)}, {"origins": ()},
        {"created_ns": b""}, {"upto": 1}, {"after": 1}, {"origin_numbers": b"\1\0\0\0"},
    ],
    ids=str,
)  # fmt: skip
def test_columns_that_contradict_each_other_are_refused(queue: Queue, changed: dict[str, object]) -> None:
    put(queue, "x", "1", "2")
    with pytest.raises(FabricMessageError, match="an inventory has"):
        rows_of(msgspec.structs.replace(ask(queue), **changed))


def test_products_are_located_by_signature_within_the_selection_and_the_rights(queue: Queue) -> None:
    put(queue, "wx/a", "1", "2")
    put(queue, "secret", "3")
    put(queue, "wx/b", "4")
    reply = ask(queue)
    signatures = reply.signatures + bytes(16) + b"x" * 16
    kinds, numbers = reply.kinds + bytes([5, 4]), reply.origin_numbers + bytes(4)

    def located(selection: str = "**", allowed: Feeds = ALL) -> list[int]:
        query = Locate(selection, signatures, kinds, reply.origins, numbers)
        return np.frombuffer(locate(queue, query, allowed).sequences, np.uint64).tolist()

    assert located() == [1, 2, 3, 4, 0, 0]
    assert located("wx/a") == [1, 2, 0, 0, 0, 0]
    assert located(allowed=rights_of([Rule(("b",), receive=("wx/**",))], "b").receive) == [1, 2, 0, 4, 0, 0]
    queue.delete(Selection(ident="2"))
    assert located() == [1, 0, 3, 4, 0, 0]
    with pytest.raises(FabricMessageError, match="columns of different lengths"):
        locate(queue, Locate("**", b"abc", b"", (), b""), ALL)
    with pytest.raises(FabricMessageError, match="unknown origin"):
        locate(queue, Locate("**", bytes(16), b"\5", ("a",), b"\1\0"), ALL)


def test_a_signature_that_a_producer_made_up_is_located_for_its_origin_and_kind_alone(queue: Queue) -> None:
    queue.put(b"junk", feed="x", ident="junk", signature=b"sixteen bytes ok")

    def located(kind: int, origin: str) -> int:
        reply = locate(queue, Locate("**", b"sixteen bytes ok", bytes([kind]), (origin,), bytes(2)), ALL)
        return int.from_bytes(reply.sequences, "little")

    assert located(4, queue.config.origin) == 1
    assert [located(4, "elsewhere"), located(5, queue.config.origin), located(1, queue.config.origin)] == [0, 0, 0]


# --- what has arrived -------------------------------------------------------------------------------


def test_products_are_recognised_by_signature_as_long_as_they_are_held(queue: Queue) -> None:
    put(queue, "x", "1", "2", "3")
    _, products = rows_of(ask(queue))
    found = log_of(queue).find_signatures(products.signatures, products.kinds, products.origins.tolist())
    assert found.tolist() == [1, 2, 3]
    queue.delete(Selection(ident="2"))
    assert recognise(queue, Remembered(), products).tolist() == [True, False, True]


def test_a_queue_without_signatures_recognises_what_it_remembers(make_queue: Callable[..., Queue]) -> None:
    ours = make_queue(size="4MiB", dedup="none", origin="here")
    for number in range(3):
        ours.put(b"equal", feed="x", origin="s", origin_sequence=number + 1, created=number + 1)
    _, products = rows_of(ask(ours))
    remembered = Remembered()
    assert not recognise(ours, remembered, products).any()
    remember_held(ours, remembered)
    assert recognise(ours, remembered, products).all()
    ours.put(b"equal", feed="x", origin="s", origin_sequence=3, created=99)  # of a new queue of s
    assert recognise(ours, remembered, rows_of(ask(ours))[1]).tolist() == [True, True, True, False]


def test_our_own_products_have_arrived(make_queue: Callable[..., Queue]) -> None:
    theirs = make_queue("there", origin="there")
    theirs.put(b"1", feed="x", origin="here", origin_sequence=1)
    ours = make_queue()
    assert recognise(ours, Remembered(), rows_of(ask(theirs), "here")[1]).all()


@settings(max_examples=50)
@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 20))
def test_the_latest_products_are_remembered_and_others_are_never_known(numbers: list[int], limit: int) -> None:
    """At least so many, and nothing that was not added."""
    remembered = Remembered(limit)
    for number in numbers:
        rows = np.zeros(1, ROW)
        rows["origin_sequence"] = rows["created_ns"] = number
        remembered.add(rows, ["s"])
        assert len(remembered) <= 3 * limit + 16
    rows = np.zeros(60, ROW)
    rows["origin_sequence"] = rows["created_ns"] = np.arange(1, 61)
    known = {number + 1 for number in np.flatnonzero(remembered.knows(identities(rows, ["s"]))).tolist()}
    assert known <= set(numbers)
    assert set(numbers[-limit:]) <= known if limit >= 8 else True
