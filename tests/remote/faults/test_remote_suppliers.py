"""Suppliers of another machine: the connection breaks, the site restarts, the program ends."""

import ast
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import AccessDeniedError, FeedError, SuppliersFullError
from headrace.link.rights import Rule
from headrace.queue import AnySupplier
from support.serving import Served, Wire, idents, when
from support.waiting import until


def suppliers(served: Served) -> int:
    return served.queue.channel("radar").statistics().suppliers


def test_a_push_goes_on_after_the_line_was_cut(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint)
    with remote.channel("radar", "wx/radar").supplier() as supplier:
        assert supplier.push(b"1") == 1
        wire.cut()
        when(lambda: remote._connection.silence.is_silent, wire.restore)
        assert supplier.push(b"2") == 2
        assert suppliers(served) == 1
    told = served.queue.channel("radar").statistics()
    assert (told.pushed, told.duplicates) == (2, 0)


def test_a_supplier_takes_a_new_slot_after_a_restart_of_the_site(served: Served) -> None:
    with served.connect().channel("radar", "wx/radar", suppliers_max=1).supplier() as supplier:
        supplier.push(b"1")
        served.stop()
        assert suppliers(served) == 0
        served.start()
        assert supplier.push(b"2") == 2
        assert supplier.push_many([b"3", b"4"]).stored == 2
        assert suppliers(served) == 1
    assert served.queue.channel("radar").statistics().pushed == 4


def test_a_supplier_whose_slot_was_given_away_is_told(served: Served) -> None:
    with served.connect().channel("radar", "wx/radar", suppliers_max=1).supplier() as supplier:
        served.stop()
        with served.queue.channel("radar").supplier():
            served.start()
            with pytest.raises(SuppliersFullError, match="has 1 supplier"):
                supplier.push(b"1")
        assert supplier.push(b"1") == 1


def test_the_slot_of_a_client_that_is_cut_off_is_free_after_a_while(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint)
    supplier = remote.channel("radar", "wx/radar").supplier(keep=0)
    supplier.push(b"1")
    wire.cut()
    until(lambda: suppliers(served) == 0, "its slot is free")
    wire.restore()
    assert supplier.push(b"2") == 2


def test_a_client_that_leaves_frees_its_slots(served: Served) -> None:
    remote = served.connect()
    held = [remote.channel("radar", "wx/radar").supplier() for _ in range(3)]
    assert suppliers(served) == 3
    remote.close()
    assert suppliers(served) == 0
    assert len(held) == 3


def test_a_slot_is_free_when_close_returns(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.client.supplier._LEAVE_S", 240)
    channel = served.connect().channel("radar", "wx/radar", suppliers_max=1)
    assert served.site is not None
    clients, may_close = served.site._remote._clients, threading.Event()
    close = clients.close_suppliers

    def close_late(*args: Any, **options: Any) -> None:
        assert may_close.wait(240)
        close(*args, **options)

    monkeypatch.setattr(clients, "close_suppliers", close_late)
    closing = threading.Thread(target=channel.supplier().close)
    closing.start()
    closing.join(0.2)
    has_waited = closing.is_alive()
    may_close.set()
    assert has_waited, "it waits for the site"
    closing.join()
    channel.supplier().close()


def test_closing_a_supplier_raises_nothing_when_the_site_does_not_reply(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.remote.client.supplier._LEAVE_S", 0.1)
    remote = served.connect(wire.endpoint)
    supplier, other = (remote.channel("radar", "wx/radar").supplier(keep=0) for _ in range(2))
    wire.cut()
    supplier.close()
    until(lambda: suppliers(served) == 0, "the site notices")
    wire.restore()
    remote.close()
    other.close()


def test_many_threads_share_a_supplier_through_a_restart(served: Served) -> None:
    with served.connect().channel("radar", "wx/radar").supplier() as supplier:

        def push(name: str) -> None:
            for number in range(20):
                supplier.push(b"", ident=f"{name}{number}")

        threads = [threading.Thread(target=push, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        until(lambda: served.queue.next > 10, "some pushes")
        served.stop()
        served.start()
        for thread in threads:
            thread.join()
        assert suppliers(served) == 1
    assert sorted(idents(served.queue.read_batch())) == sorted(f"{name}{n}" for name in "abc" for n in range(20))


def test_a_pull_supplier_and_a_push_consumer_survive_a_restart_of_the_site(served: Served) -> None:
    remote = served.connect()
    channel = remote.channel("radar", "wx/radar")
    station = channel.station("s", "**")
    numbers, got = iter(range(30)), list[bytes]()

    def poll() -> bytes | None:
        number = next(numbers, None)
        return None if number is None else b"%d" % number

    with (
        channel.pull(poll, every="1ms") as supplier,
        channel.consumer(station, lambda product: got.append(bytes(product.payload))),
    ):
        until(lambda: len(got) > 5, "some products")
        served.stop()
        served.start()
        until(lambda: supplier.statistics().pushed + served.queue.channel("radar").statistics().duplicates >= 30, "all")
        until(lambda: set(got) == {b"%d" % number for number in range(30)}, "every product")
    stored = [bytes(product.payload) for product in served.queue.read()]
    assert sorted(stored) == sorted(b"%d" % number for number in range(30))  # each once


# --- rights -----------------------------------------------------------------------------------------


@pytest.fixture
def publisher(make_served: object) -> tuple[Served, AnySupplier]:
    served: Served = make_served(
        rules=(Rule(("*",), receive=("lab/**",), publish=("wx/radar/KFTG",), manage=("lab/**",)),)
    )  # type: ignore[operator]
    served.queue.channel("radar", "wx/radar").station("s")
    served.queue.channel("secret", "secret")
    return served, served.connect().channel("radar").supplier()


def test_a_client_pushes_what_it_may_publish_and_changes_nothing(publisher: tuple[Served, AnySupplier]) -> None:
    served, supplier = publisher
    remote = served.connect()
    assert remote.channels() == ["radar"]
    assert supplier.push(b"1", feed="wx/radar/KFTG") == 1
    for refused in ("wx/radar/KXXX", None):
        with pytest.raises(AccessDeniedError, match="may not publish feed wx/radar"):
            supplier.push(b"2", feed=refused)
        with pytest.raises(AccessDeniedError, match="may not publish feed wx/radar"):
            supplier.push_many([b"2"], feed=refused)
    with pytest.raises(FeedError):
        supplier.push(b"2", feed="lab/x")
    channel = remote.channel("radar")
    for act in (
        lambda: channel.change(timeout="1s"), lambda: channel.remove(), lambda: channel.station("s", "**"),
        lambda: remote.channel("secret"), lambda: remote.channel("mine", "wx/radar"),
        lambda: channel.change_station("s"), lambda: remote.channel("secret", "lab"),
    ):  # fmt: skip
        with pytest.raises(AccessDeniedError):
            act()
    mine = remote.channel("mine", "lab")
    mine.station("t", "**")
    mine.remove(force=True)
    assert served.queue.channels() == ["radar", "secret"]


def test_a_client_cannot_push_as_the_supplier_of_another(publisher: tuple[Served, AnySupplier]) -> None:
    served, supplier = publisher
    other = served.connect().channel("radar").supplier()
    other._number = supplier._number  # type: ignore[attr-defined]
    assert other.push(b"1", feed="wx/radar/KFTG") == 1  # as a supplier of its own: the number means nothing to the site
    assert other._number != supplier._number  # type: ignore[attr-defined]


def test_the_program_of_the_page_runs_over_a_link_that_is_cut_at_every_step(
    served: Served, wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "channels.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.S)
    assert program.count("Queue.create(") == program.count("        ...\n") == 1

    def cut() -> None:
        wire.cut()
        wire.restore()

    def meanwhile() -> None:
        """In place of the dots, with a pull supplier and a push consumer at work."""
        cut()
        radar = served.queue.channel("radar")
        until(lambda: radar.statistics().pushed >= 3, "the pull supplier goes on")
        until(lambda: radar.statistics().acknowledged == 1, "the push consumer goes on")

    names = {"cut": cut, "meanwhile": meanwhile, "remote": served.connect(wire.endpoint)}
    program = re.sub(r"Queue\.create\(.*\)", "remote", program).replace("        ...\n", "        meanwhile()\n")
    for statement in ast.parse(program).body:
        cut()
        exec(compile(ast.Module([statement], []), "channels.md", "exec"), names)
    assert capsys.readouterr().out == "L2/KFTG/1\n"
    told = served.queue.channel("radar").statistics()
    assert (told.pushed, told.duplicates, told.rejected) == (served.queue.next - 1, 0, 0)
