"""Puts whose reply is lost: the same put is made again, and stored once."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import Batch, Duplicate, Queue
from headrace.errors import SiteUnreachableError
from headrace.log.append import Receipt
from headrace.remote.client import call_numbers
from headrace.remote.client.queue import RemoteQueue
from headrace.remote.server import clients
from headrace.remote.server import puts as server_puts
from support.serving import Served, Wire

PUTS: dict[str, Callable[[RemoteQueue, str], Any]] = {
    "put": lambda queue, ident: queue.put(b"1", feed="wx", ident=ident),
    "put_many": lambda queue, ident: queue.put_many([b"1", b"1"], feed="wx", ident=ident and ["one", "two"]),
    "push": lambda queue, ident: queue.channel("c", "wx").supplier().push(b"1", ident=ident),
    "push_many": lambda queue, ident: queue.channel("c", "wx").supplier().push_many([b"1", b"1"], ident=ident),
    "a put of its own origin": lambda queue, ident: queue.put(b"1", feed="wx", origin="far", origin_sequence=7),
    "a signed put": lambda queue, ident: queue.put(b"1", feed="wx", signature=b"0123456789abcdef"),
    "drafts": lambda queue, ident: (consumer := queue.station("s", "none").attach()).put(
        consumer.new(2, 1, feed="wx", ident=ident)
    ),
}


def lose_one_reply(served: Served, remote: RemoteQueue, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Restart the site after the next reply to a put has been sent, and forget that reply; the call, once it is lost."""
    link, lost = remote._connection, []
    real = link.attempt_by

    async def attempt_by(wait: Any, call: Any, *arguments: Any, **options: Any) -> Any:
        came = await real(wait, call, *arguments, **options)
        if type(call).__name__.startswith("Put") and not lost:
            lost.append(call)
            served.stop()
            served.start()
            return None
        return came

    monkeypatch.setattr(link, "attempt_by", attempt_by)
    return lost


@pytest.mark.parametrize("dedup", ["identity", "none"])
@pytest.mark.parametrize("ident", ["", "one"])
@pytest.mark.parametrize("kind", PUTS)
def test_a_put_whose_reply_died_with_the_site_is_stored_once(
    make_served: Callable[..., Served], dedup: str, ident: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site executes the call, and is restarted before its reply has arrived."""
    served = make_served(dedup=dedup)
    remote = served.connect()
    remote.put(b"0", feed="other")
    lost = lose_one_reply(served, remote, monkeypatch)
    outcome = PUTS[kind](remote, ident)
    assert lost
    first = served.queue.read_batch(2)
    count = outcome.products if isinstance(outcome, Receipt) else 1
    if dedup == "identity" and ident and kind in ("push_many", "drafts"):
        count = 1  # the batch had a duplicate in itself
    assert len(first) == count
    if dedup == "none" or (not ident and kind not in ("a put of its own origin", "a signed put")):
        stored = outcome.sequences if isinstance(outcome, Receipt) else [outcome]
        assert list(stored) == first.sequences.tolist()
        assert not isinstance(outcome, Receipt) or outcome.stored == count
    monkeypatch.undo()
    again = PUTS[kind](remote, ident)
    if dedup == "none":  # another put of the same is another product
        assert len(served.queue.read_batch(2)) == 2 * count
        assert again != outcome


@pytest.fixture(params=["signed", "unsigned", "both"])
def elsewhere(request: pytest.FixtureRequest, shared_memory: Path) -> Batch:
    """Products of another queue."""
    unsigned = Queue.create(shared_memory / "unsigned", size="1MiB", durability="memory", origin="un", dedup="none")
    signed = Queue.create(shared_memory / "signed", size="1MiB", durability="memory", origin="si")
    if request.param == "both":
        unsigned.put(b"u", feed="a")
        signed.put_batch(unsigned.read_batch())
    source = unsigned if request.param == "unsigned" else signed
    for number in range(3):
        source.put(b"%d" % number, feed="a", ident=f"{number}")
    if request.param == "both":
        unsigned.put(b"v", feed="a")
        signed.put_batch(unsigned.read_batch(2))
    batch = source.read_batch()
    assert len(batch) == {"signed": 3, "unsigned": 3, "both": 5}[request.param]
    return batch


@pytest.mark.parametrize("dedup", ["identity", "none"])
@pytest.mark.parametrize("some", [False, True])
def test_a_batch_whose_reply_died_with_the_site_is_stored_once(
    make_served: Callable[..., Served], elsewhere: Batch, dedup: str, some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = make_served(dedup=dedup)
    remote = served.connect()
    keep = [place != 1 for place in range(len(elsewhere))] if some else None
    kept = [place for place in range(len(elsewhere)) if keep is None or keep[place]]
    if dedup == "none":  # the same batch was put before
        remote.put_batch(elsewhere, keep)
        new = kept
    else:  # the last of them is there already
        served.queue.put_batch(elsewhere, [place == kept[-1] for place in range(len(elsewhere))])
        new = kept[:-1]
    begin = served.queue.next
    lost = lose_one_reply(served, remote, monkeypatch)
    outcome = remote.put_batch(elsewhere, keep)
    assert lost
    stored = [bytes(product.payload) for product in served.queue.read(begin)]
    assert stored == [bytes(elsewhere.payload(place)) for place in new]
    assert outcome.products == len(kept)
    held = [served.queue.read_batch(int(sequence), limit=1)[0] for sequence in outcome.sequences]
    assert [bytes(product.payload) for product in held] == [bytes(elsewhere.payload(place)) for place in kept]
    if dedup == "none":
        assert (outcome.first, outcome.stored) == (begin, len(kept))


@pytest.mark.parametrize("dedup", ["identity", "none"])
@pytest.mark.parametrize("ident", ["", "one"])
def test_a_repeated_put_does_not_wait_for_a_station_that_its_own_product_has_filled(
    make_served: Callable[..., Served], dedup: str, ident: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = make_served(dedup=dedup)
    remote = served.connect()
    served.queue.station("slow", "wx", blocking=True, capacity=1)
    lost = lose_one_reply(served, remote, monkeypatch)
    outcome = remote.put(b"1", feed="wx", ident=ident, timeout=120)
    assert lost
    assert outcome == (Duplicate(of=1) if ident and dedup == "identity" else 1)


def test_a_push_that_is_repeated_at_a_restarted_site_needs_no_new_slot(
    make_served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another supplier has taken the only one; what was stored is stored."""
    served = make_served(dedup="none")
    remote = served.connect()
    supplier = remote.channel("c", "wx", suppliers_max=1).supplier()
    real = served.start
    others: list[Any] = []

    def start() -> None:
        real()
        others.append(served.queue.channel("c").supplier())

    monkeypatch.setattr(served, "start", start)
    lose_one_reply(served, remote, monkeypatch)
    assert supplier.push(b"1") == 1
    assert served.queue.next == 2


# --- the error can make the put again -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["put", "put_many", "put_batch", "push"])
def test_a_put_that_raised_is_made_again_and_stored_once(make_served: Callable[..., Served], kind: str) -> None:
    """Neither attempt has arrived when the second one is made: the site gets both, and executes one."""
    served = make_served(dedup="none")
    wire = Wire(served.endpoint)
    remote = served.connect(wire.endpoint, patience="1h")
    supplier = remote.channel("c", "wx").supplier()
    served.queue.put(b"0", feed="other")
    batch = served.queue.read_batch()
    put = {
        "put": lambda: remote.put(b"1", feed="wx", timeout=0.2),
        "put_many": lambda: remote.put_many([b"1", b"2"], feed="wx", timeout=0.2),
        "put_batch": lambda: remote.put_batch(batch, timeout=0.2),
        "push": lambda: supplier.push(b"1", timeout=0.2),
    }[kind]
    wire.freeze()
    with pytest.raises(SiteUnreachableError) as raised:
        put()
    retry = raised.value.retry
    assert retry is not None
    with pytest.raises(SiteUnreachableError) as raised:
        retry(timeout=0.2)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(raised.value.retry()), daemon=True)  # type: ignore[misc]
    thread.start()
    wire.thaw()
    thread.join(240)
    first = getattr(got[0], "first", got[0])
    assert (first, served.queue.next) == (2, 4 if kind == "put_many" else 3)
    served.close_users()
    wire.close()


def test_calls_that_never_ended_do_not_make_a_site_refuse_others(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site remembers a call that may be repeated, but not for ever."""
    assert call_numbers._PARKED_SPAN * 2 < clients.CALLS_MAX
    monkeypatch.setattr(call_numbers, "_PARKED_SPAN", 10)
    monkeypatch.setattr(clients, "CALLS_MAX", 30)
    remote = served.connect(wire.endpoint, patience=60)
    wire.freeze()
    with pytest.raises(SiteUnreachableError) as raised:
        remote.put(b"0", feed="wx", timeout=0.1)
    wire.thaw()
    for number in range(1, 50):
        remote.put(b"%d" % number, feed="wx")
    assert served.queue.next == 51
    assert raised.value.retry is not None
    assert raised.value.retry() == 1


def test_a_put_again_has_its_own_time_for_a_blocking_station(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt was blocked until its timeout; the second one waits on."""
    remote = served.connect(wire.endpoint, patience="1h")
    station = served.queue.station("slow", "wx", blocking=True, capacity=1)
    served.queue.put(b"0", feed="wx")
    real, entered, go = server_puts.BlockedPuts.store, threading.Event(), threading.Event()

    def slow(self: Any, *arguments: Any) -> None:
        entered.set()
        assert go.wait(240)
        real(self, *arguments)

    monkeypatch.setattr(server_puts.BlockedPuts, "store", slow)
    with pytest.raises(SiteUnreachableError) as raised:
        remote.put(b"1", feed="wx", timeout=0.1)
    assert entered.wait(240)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(raised.value.retry(timeout=200)), daemon=True)  # type: ignore[misc]
    thread.start()
    go.set()
    with station.attach() as consumer:
        consumer.ack(consumer.get())
        thread.join(240)
        assert got == [2]
        consumer.ack(consumer.get())
