"""An independent client over a link that is cut under each call: by the rules of docs/protocol.md each is executed once."""

from collections.abc import Callable, Iterator

import pytest
from independent_client import Client

from support.serving import Router, Served, Wire

RETRY = {"connect/retry": {"period_init_ms": 50, "period_max_ms": 100, "period_increase_factor": 1}}


@pytest.fixture
def wire(router: Router) -> Iterator[Wire]:
    made = Wire(router[1])
    yield made
    made.close()


@pytest.fixture
def far(wire: Wire, served: Served) -> Iterator[Client]:
    client = Client(wire.endpoint, served.name, **RETRY)
    client.reply_s = 1.0  # a query that went down with the link is repeated after this time
    yield client
    client.close()


@pytest.fixture
def cut(wire: Wire, far: Client, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Cut the link under the next query; whether it has reached the site is open."""
    start = far.start

    def arm() -> None:
        def cut_under(head: bytes, payload: bytes = b"") -> object:
            monkeypatch.setattr(far, "start", start)
            query = start(head, payload)
            wire.cut()
            wire.restore()
            return query

        monkeypatch.setattr(far, "start", cut_under)

    return arm


def test_every_kind_of_call_is_executed_once_over_a_link_that_is_cut(
    far: Client, served: Served, cut: Callable[[], None]
) -> None:
    far.call("openchannel", name="c", feed="a", options={})
    far.call("openmember", channel="c", name="s", selection=None, options={}, create=True)
    cut()
    supplier = far.call("opensupplier", channel="c", keep_s=60)["supplier"]
    sequences = []
    for payload in (b"0", b"1", b"2"):
        cut()
        sequences.append(far.put(payload, "a", supplier=supplier))
    assert sequences == [1, 2, 3]
    cut()
    attachment = far.call("attach", station="s", keep_s=60)["attachment"]
    cut()
    got, reply = far.get(attachment)
    assert [(one["payload"], one["deliveries"]) for one in reply["products"]] == [(b"0", 1), (b"1", 1), (b"2", 1)]
    cut()
    far.settle(attachment, got, "ack", count=3)
    cut()
    follow = far.call("next", selection="a", position=1, limit=10, bytes_limit=100)
    assert [one["sequence"] for one in follow["products"]] == [1, 2, 3]
    statistics = served.queue.station("s").statistics()
    assert (served.queue.next, statistics.acknowledged, statistics.waiting, statistics.leased) == (4, 3, 0, 0)
    assert served.queue.channel("c").statistics().suppliers == 1
    assert len(served.queue.station("s").consumers()) == 1
