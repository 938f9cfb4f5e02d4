"""Replies that are lost: a call is repeated, and executed once."""

from collections.abc import Callable

import pytest

from headrace.remote.server import pending_call as pending_calls
from support.lost_replies import lose_replies
from support.serving import Served, idents, put
from support.waiting import until


@pytest.fixture
def lose_first_replies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first reply to every call with a number is lost; the names of those calls."""
    return lose_replies(monkeypatch, lambda pending: pending.number > 0)


def test_a_call_that_is_repeated_is_executed_once(
    make_served: Callable[..., Served], lose_first_replies: list[str]
) -> None:
    served = make_served(dedup="none")
    remote = served.connect()
    assert [remote.put(b"x", feed="a") for _ in range(3)] == [1, 2, 3]
    assert remote.put_many([b"x", b"y"], feed="a").first == 4
    assert remote.put_batch(served.queue.read_batch(1, limit=1)).first == 6
    station = remote.station("s", "**", start="oldest")
    consumer = station.attach()
    assert station.statistics().consumers == 1
    batch = consumer.get(4)
    assert batch.sequences.tolist() == [1, 2, 3, 4]
    consumer.ack(batch)
    for other in consumer.batches(1, timeout=0.1):
        assert other.deliveries.tolist() == [1]
    told = station.statistics()
    assert (told.acknowledged, told.delivered, told.redelivered, told.leased) == (6, 6, 0, 0)
    assert station.seek("oldest") == 1
    station.remove()
    cursor = remote.cursor("c")
    cursor.remove()
    assert {"PutOne", "PutMany", "PutBatch", "OpenStation", "Attach", "Get", "Settle", "SeekStation"} <= set(
        lose_first_replies
    )
    assert served.site is not None
    assert served.site.statistics().remote.repeated >= len(lose_first_replies) - 1  # the last get found nothing


def test_a_get_whose_reply_was_lost_is_continued_by_the_next(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its products are leased to the client, which has not received the reply."""
    remote = served.connect()
    put(served.queue, *"1234")
    consumer = remote.station("s", "**", start="oldest").attach()
    monkeypatch.setattr(pending_calls, "_send", lambda query, *more: query.drop())
    assert len(consumer.get(3, timeout=0.1)) == 0
    monkeypatch.undo()
    until(lambda: remote.station("s").statistics().leased == 3, "three are leased")
    batch = consumer.get(3)
    assert (idents(batch), batch.deliveries.tolist()) == (["1", "2", "3"], [1, 1, 1])
    consumer.ack(batch)
    assert idents(consumer.get(3)) == ["4"]


def test_a_get_for_fewer_than_were_leased_gives_them_back(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = served.connect()
    put(served.queue, *"1234")
    consumer = remote.station("s", "**", start="oldest").attach()
    monkeypatch.setattr(pending_calls, "_send", lambda query, *more: query.drop())
    assert len(consumer.get(3, timeout=0.1)) == 0
    monkeypatch.undo()
    assert idents(consumer.get(1, timeout=5)) == ["1"]
    assert remote.station("s").statistics().leased == 1
