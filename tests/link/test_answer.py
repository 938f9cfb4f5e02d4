"""Whether anything answers at an endpoint."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.link.answer import Answer, first_answer
from headrace.link.session import SessionTerms, locators, open_session
from support.fleet import free_port
from support.links import make_certs, tls

LONG_S = 3600.0


def never() -> bool:
    return False


@pytest.mark.parametrize("protocol", ["tcp", "tls", "ws", "unixsock-stream"])
def test_a_site_answers_and_a_silent_host_does_not(protocol: str, tmp_path: Path) -> None:
    where = f"unixsock-stream/{tmp_path}/site" if protocol == "unixsock-stream" else f"{protocol}/localhost:0"
    certs = tls(make_certs(tmp_path, "north"), "north") if protocol == "tls" else None
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        open_session(SessionTerms("router", listen=(where,), tls=certs)) as session,
    ):
        frozen, site = f"tcp/127.0.0.1:{silent.getsockname()[1]}", locators(session)[0]
        assert first_answer((f"tcp/127.0.0.1:{free_port()}", frozen, site), LONG_S, never) == Answer(site)
        assert first_answer((frozen,), 0.1, never) == Answer(None)


def test_nothing_listens_only_if_every_endpoint_refuses() -> None:
    closed, missing = f"tcp/localhost:{free_port()}", "unixsock-stream//no/such.sock"
    assert first_answer((closed, missing), LONG_S, never) == Answer(None, is_refused=True)
    assert first_answer((closed, "tcp/no-such-host.invalid:1"), LONG_S, never) == Answer(None)
    assert first_answer((closed, "udp/127.0.0.1:9"), LONG_S, never) == Answer("udp/127.0.0.1:9")


def test_waiting_for_an_answer_can_be_ended() -> None:
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Timer(0.1, is_over.set).start()
        frozen = f"tcp/127.0.0.1:{silent.getsockname()[1]}"
        assert first_answer((frozen,), LONG_S, is_over.is_set) == Answer(None)


def test_a_name_server_that_does_not_answer_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over, answers, real = threading.Event(), threading.Event(), socket.getaddrinfo

    def look_up(host: str, *arguments: Any, flags: int = 0, **options: Any) -> Any:
        if not flags:
            is_over.set()  # the search ends while the name is being looked up
            answers.wait()
        return real(host, *arguments, flags=flags, **options)

    monkeypatch.setattr("headrace.link.answer.socket.getaddrinfo", look_up)
    assert first_answer(("tcp/localhost:9",), LONG_S, is_over.is_set) == Answer(None)
    answers.set()
