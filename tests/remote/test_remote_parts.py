"""Large products are put and read in parts, and stored as one, whatever happens in between."""

import os
import threading
from collections.abc import Callable

import pytest

from headrace import AccessDeniedError
from headrace.errors import PayloadTooLargeError
from headrace.link.rights import Rule
from headrace.remote.client.queue import RemoteQueue
from headrace.remote.protocol import calls, replies
from headrace.remote.server.downloads import Downloads
from headrace.remote.server.uploads import UPLOADS_OF_ONE_MAX, Uploads
from headrace.testing.narrow_link import NarrowLink
from support.serving import Served, Stranger
from support.waiting import until

LARGE = os.urandom(3_000_000)
UPLOAD = b"u" * 16


@pytest.fixture
def served(make_served: Callable[..., Served]) -> Served:
    return make_served(size="16MiB")


def _narrow(queue: RemoteQueue, part_bytes: int = 1 << 16) -> RemoteQueue:
    """As over a slow link: parts are small at first."""
    queue._connection.part.bytes = queue._connection.page.bytes = part_bytes
    return queue


def test_a_large_product_travels_in_parts_and_is_stored_as_one(served: Served) -> None:
    queue = _narrow(served.connect())
    before = served.calls
    assert queue.put(LARGE, feed="a", ident="large") == 1
    assert served.calls - before > 3
    assert bytes(served.queue.read_batch()[0].payload) == LARGE
    _narrow(queue)
    before = served.calls
    assert bytes(queue.read_batch()[0].payload) == LARGE
    assert served.calls - before > 3
    batch = next(_narrow(queue).follow("oldest"))
    assert (len(batch), bytes(batch[0].payload)) == (1, LARGE)


def test_a_large_batch_travels_in_parts_and_small_products_in_one_message(served: Served) -> None:
    queue = _narrow(served.connect())
    assert queue.put_many([LARGE[:50_000]] * 40, feed="a").stored == 40
    assert [product.size for product in _narrow(queue).read("oldest")] == [50_000] * 40
    before = served.calls
    queue.put(b"small", feed="a")
    assert served.calls == before + 1


def test_a_site_that_was_restarted_gets_the_parts_again_and_stores_the_product_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, take = [], Uploads.take

    def forgetful(self: Uploads, *words: object) -> memoryview | None:
        taken.append(words)
        return None if len(taken) == 1 else take(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Uploads, "take", forgetful)
    assert _narrow(served.connect()).put(LARGE, feed="a", ident="large") == 1
    assert (len(taken), served.queue.next) == (2, 2)


def test_parts_of_a_reply_that_the_site_dropped_are_read_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.queue.put(LARGE, feed="a")
    fetched, part = [], Downloads.part

    def forgetful(self: Downloads, *words: object) -> bytes | None:
        fetched.append(words)
        return None if len(fetched) == 2 else part(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Downloads, "part", forgetful)
    assert bytes(next(_narrow(served.connect()).follow("oldest"))[0].payload) == LARGE
    assert bytes(_narrow(served.connect()).read_batch()[0].payload) == LARGE


def test_a_link_that_breaks_between_parts_delays_the_put(served: Served) -> None:
    with NarrowLink(served.endpoint, 3e6) as link:
        queue = served.connect(link.endpoint, on_loss="wait")
        outcome: list[object] = []
        putting = threading.Thread(target=lambda: outcome.append(queue.put(LARGE, feed="a", ident="large")))
        putting.start()
        until(lambda: link.carried[0] > 1_000_000, "a third of the product")
        link.cut()
        link.restore()
        putting.join(60)
    assert outcome == [1]
    assert bytes(served.queue.read_batch()[0].payload) == LARGE


def test_parts_that_do_not_fit_are_refused(served: Served, stranger: Stranger) -> None:
    def part(offset: int, total: int, payload: bytes = b"part", upload: bytes = UPLOAD) -> replies.Reply | str:
        return stranger.call(calls.PutPart(upload, offset, total), payload=payload)

    assert part(0, 8) == replies.Number(4)
    assert part(0, 8) == replies.Number(4)  # repeated
    assert part(6, 8, b"12") == replies.Number(4)  # one is missing before
    for wrong in (part(6, 8), part(0, 8, b""), part(0, 8, upload=b"short")):
        assert isinstance(wrong, replies.Failure)
    too_large = part(0, 1 << 40)
    assert isinstance(too_large, replies.Failure)
    assert too_large.error == PayloadTooLargeError.__name__
    incomplete = stranger.call(calls.PutOne("a", upload=UPLOAD), number=1)
    assert incomplete == replies.PartsGone()
    assert part(4, 8) == replies.Number(8)
    assert stranger.call(calls.PutOne("a", upload=UPLOAD), number=2) == replies.Number(1)
    assert bytes(served.queue.read_batch()[0].payload) == b"partpart"
    assert stranger.call(calls.ReadPart(1, 0, 100)) == replies.PartsGone()


def test_uploads_are_bounded(stranger: Stranger) -> None:
    for number in range(UPLOADS_OF_ONE_MAX + 1):
        stranger.call(calls.PutPart(bytes([number]) * 16, 0, 4), payload=b"part")
    assert stranger.call(calls.PutOne("a", upload=bytes(16)), number=1) == replies.PartsGone()
    assert stranger.call(calls.PutOne("a", upload=b"\1" * 16), number=2) == replies.Number(1)


def test_a_client_without_rights_leaves_no_parts_at_the_site(make_served: Callable[..., Served]) -> None:
    served = make_served(size="16MiB", rules=(Rule(("*",), receive=("a",)),))
    with pytest.raises(AccessDeniedError, match="may not publish"):
        _narrow(served.connect()).put(LARGE, feed="a")


def test_a_consumer_gets_a_large_product_in_parts_and_settles_it_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    station = served.queue.station("s")
    served.queue.put(LARGE, feed="a", ident="large")
    fetched, part = [], Downloads.part

    def forgetful(self: Downloads, *words: object) -> bytes | None:
        fetched.append(words)
        return None if len(fetched) == 2 else part(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Downloads, "part", forgetful)
    with _narrow(served.connect()).station("s").attach() as consumer:
        batch = consumer.get(5, timeout=60)
        assert bytes(batch[0].payload) == LARGE
        assert len(fetched) > 4
        consumer.ack(batch)
        assert len(consumer.get_nowait()) == 0
    assert station.statistics().acknowledged == 1


def test_a_get_that_ends_at_its_timeout_between_parts_goes_on_with_the_next_get(served: Served) -> None:
    served.queue.station("s")
    served.queue.put(LARGE, feed="a", ident="large")
    with NarrowLink(served.endpoint, 2e6) as link:
        consumer = _narrow(served.connect(link.endpoint)).station("s").attach()
        assert len(consumer.get(1, timeout=0.1)) == 0
        before = link.carried[1]
        assert bytes(consumer.get(1, timeout=60)[0].payload) == LARGE
        assert link.carried[1] - before < len(LARGE)
        consumer.detach()
    served.close_users()
