"""A site in this process: what it leaves behind when it ends or fails to start."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator

import pytest
import zenoh

from headrace import Queue, Selection
from headrace.errors import FabricError, QueueBusyError
from headrace.link.declarations import Declarations, Declared
from headrace.link.presence import sites_present
from headrace.link.session import SessionTerms, open_session
from headrace.relay.receive.receiver import Request
from headrace.site import site as sites
from headrace.site.site import Site


@pytest.fixture
def session() -> Iterator[zenoh.Session]:
    with open_session(SessionTerms("router", listen=("tcp/127.0.0.1:0",))) as session:
        yield session


def lasting_threads() -> set[threading.Thread]:
    """The threads of Headrace that a process waits for before it ends."""
    return {each for each in threading.enumerate() if each.name.startswith("headrace-") and not each.daemon}


def test_a_site_that_fails_to_start_leaves_no_thread_running(
    session: zenoh.Session, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **more: object) -> None:
        raise FabricError("no")

    before = lasting_threads()
    with monkeypatch.context() as patch:
        patch.setattr(sites, "Server", refuse)
        with pytest.raises(FabricError):
            Site(session, queue, [])
    assert lasting_threads() == before
    Site(session, queue, []).close()


@pytest.mark.parametrize("number", range(1, 8))
def test_a_site_whose_session_refuses_a_declaration_leaves_nothing_running(
    session: zenoh.Session, queue: Queue, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    add, added = Declarations.add, itertools.count(1)

    def fail_once(declarations: Declarations, declare: Callable[[], object]) -> Declared:
        if next(added) == number:
            raise zenoh.ZError("no")
        return add(declarations, declare)

    before = lasting_threads()
    with monkeypatch.context() as patch:
        patch.setattr(Declarations, "add", fail_once)
        with pytest.raises(zenoh.ZError):
            Site(session, queue, [])
    assert lasting_threads() == before
    Site(session, queue, []).close()


def test_a_declaration_that_was_not_renewed_is_renewed_the_next_time(session: zenoh.Session) -> None:
    declarations, tries = Declarations(session), itertools.count()

    def declare() -> object:
        if next(tries) == 1:
            raise zenoh.ZError("no")
        return session.liveliness().declare_token("a")

    declared = declarations.add(declare)
    declarations.renew()
    assert not list(session.liveliness().get("a"))
    declarations.renew()
    assert len(list(session.liveliness().get("a"))) == 1
    declared.undeclare()
    assert not list(session.liveliness().get("a"))
    declarations.close()


@pytest.mark.parametrize("token", ["headrace/site/**", "headrace/site/*/0", "headrace/site/not a site/0"])
def test_a_token_that_is_not_of_a_site_does_not_count(session: zenoh.Session, queue: Queue, token: str) -> None:
    """Any client can declare it."""
    declared = session.liveliness().declare_token(token)
    assert sites_present(session) == {}
    site = Site(session, queue, [])
    assert sites_present(session) == {str(session.zid()): site.name}
    site.close()
    declared.undeclare()  # type: ignore[no-untyped-call]


def test_a_site_closes_even_if_its_session_is_closed_already(queue: Queue) -> None:
    before = lasting_threads()
    session = open_session(SessionTerms("router", listen=("tcp/127.0.0.1:0",)))
    site = Site(session, queue, [Request("r", Selection("wx/**"), sites=("elsewhere",))])
    session.close()  # type: ignore[no-untyped-call]
    site.close()
    assert lasting_threads() == before


def test_a_site_may_be_closed_twice(session: zenoh.Session, queue: Queue) -> None:
    site = Site(session, queue, [])
    site.close()
    site.close()


def test_a_declaration_may_be_undeclared_twice(session: zenoh.Session) -> None:
    declarations = Declarations(session)
    declared = declarations.add(lambda: session.liveliness().declare_token("a"))
    declared.undeclare()
    declared.undeclare()
    declarations.close()


def test_a_queue_has_one_site_at_a_time(session: zenoh.Session, make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    first = Site(session, queue, [])
    with pytest.raises(QueueBusyError, match=f"{queue.path} has a running site already, process {os.getpid()};"):
        Site(session, queue, [])
    first.close()
    Site(session, queue, []).close()
