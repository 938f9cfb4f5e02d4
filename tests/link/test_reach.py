"""Reach: an endpoint with a link is recognised over every transport, and one without is explained."""

import socket
import time
from pathlib import Path

import pytest

from headrace.link import reach
from headrace.link.reach import Reach
from headrace.link.session import SessionTerms, locators, open_session
from support.fleet import free_port
from support.links import make_certs, sessions, tls
from support.waiting import until


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(reach, "_AGAIN_S", 0.0)
    monkeypatch.setattr(reach, "_TRY_S", 0.2)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp/127.0.0.1:0", "tcp/localhost:0", "tcp/[::1]:0", "tls/127.0.0.1:0", "tls/localhost:0", "quic/localhost:0",
     "udp/127.0.0.1:0", "ws/127.0.0.1:0", "ws/localhost:0", "unixsock-stream/{folder}/s"],
)  # fmt: skip
def test_a_link_is_recognised_by_its_address(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "::1" in endpoint and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    certs = make_certs(tmp_path / "certs", "a", "b")
    listen = endpoint.format(folder=tmp_path).replace(":0", f":{free_port()}")
    with sessions() as open_by:
        open_by("router", listen=(listen,), tls=tls(certs, "a"))
        terms = SessionTerms("router", connect=(listen,), tls=tls(certs, "b"))
        session = open_session(terms)
        try:
            until(lambda: session.info.links(), "they are linked")
            monkeypatch.setattr(Reach, "_reason", lambda *_: pytest.fail("it was tried"))
            assert Reach(session, terms).look() == []
        finally:
            session.close()


def test_of_two_sites_that_connect_to_each_other_neither_is_missing() -> None:
    one, two = (f"tcp/127.0.0.1:{free_port()}" for _ in range(2))
    terms = [
        SessionTerms("router", listen=(one,), connect=(two,)),
        SessionTerms("router", listen=(two,), connect=(one,)),
    ]
    opened = [open_session(each) for each in terms]
    try:
        until(lambda: all(session.info.links() for session in opened), "they are linked")
        reaches = [Reach(session, each) for session, each in zip(opened, terms, strict=True)]
        until(lambda: all(each.look() == [] for each in reaches), "both know")
    finally:
        for session in opened:
            session.close()


def test_an_endpoint_is_explained_until_it_has_a_link() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    terms = SessionTerms("router", listen=("tcp/127.0.0.1:0",), connect=(endpoint,))
    session = open_session(terms)
    try:
        watched = Reach(session, terms)
        (unlinked,) = watched.look()
        assert (unlinked.endpoint, unlinked.reason) == (endpoint, "connection refused")
        with sessions() as open_by:
            open_by("router", listen=(endpoint,))
            until(lambda: watched.look() == [], "it is linked")
        until(lambda: [each.reason for each in watched.look()] == ["connection refused"], "it has gone")
        assert time.monotonic() - watched.look()[0].since < 60
    finally:
        session.close()


def test_a_site_that_connects_to_itself_is_told() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    terms = SessionTerms("router", listen=(endpoint,), connect=(endpoint,))
    session = open_session(terms)
    try:
        assert locators(session) == [endpoint]
        (unlinked,) = Reach(session, terms).look()
        assert unlinked.reason == "it is an endpoint of this site itself"
    finally:
        session.close()
