"""`connect`: endpoints, directories, and sites that are missing or silent."""

import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import headrace
from headrace.errors import (
    FabricError,
    OptionError,
    SiteUnreachableError,
)
from headrace.link.session import SessionTerms
from headrace.remote.client.pending import PendingReply
from support.fleet import Fabric, free_port, open_plain
from support.serving import Served, idents, put


def test_connect_opens_directories_too(served: Served) -> None:
    with headrace.connect(served.queue.path) as by_path, headrace.connect(str(served.queue.path)) as by_text:
        put(by_path, "1")
        assert idents(by_text.read_batch()) == ["1"]


@pytest.mark.parametrize(
    ("where", "match"),
    [("tcp://host:7447", "written as a URL"), ("tcp/host", "has no port"), ("tcp/host:1?sit=a", "unknown option"),
     ("tcp/host:1?site=a/b", "not the name of a site"), ("http://x:1", "neither a directory nor an endpoint; give the directory"),
     ("", "is empty; give the directory of a queue, a site, such as site:denver, or its endpoint")],
)  # fmt: skip
def test_an_invalid_endpoint_is_refused(where: str, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        headrace.connect(where)


def test_the_error_for_an_endpoint_where_nothing_listens_names_it() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    with pytest.raises(SiteUnreachableError, match=endpoint):
        headrace.connect(endpoint, patience=1)


def test_patience_is_how_long_to_try_to_connect() -> None:
    assert session_timeout_s("10s") == 10
    assert session_timeout_s(0) > 0


def session_timeout_s(patience: float | str) -> float:
    """The time within which `connect` has to reach a site."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SiteUnreachableError) as raised:
        patch.setattr("headrace.remote.client.find.open_session", _refuse)
        headrace.connect("tcp/127.0.0.1:7447", patience=patience)
    return float(str(raised.value).partition(";")[0])


def _refuse(terms: SessionTerms) -> None:
    raise SiteUnreachableError(f"{terms.timeout_s}", "")


def test_a_router_without_a_site_is_refused() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    session = open_plain([endpoint], [])
    try:
        with pytest.raises(FabricError, match="is not a site, and no site is reachable"):
            headrace.connect(endpoint, patience=1)
    finally:
        session.close()


def test_a_site_is_reached_through_another(fabric: Fabric) -> None:
    fabric.add("a")
    fabric.add("b", near=("a",))
    door = fabric._endpoints["a"]
    with headrace.connect(door) as a:
        assert (a.put(b"1", feed="x"), fabric.queues["a"].next) == (1, 2)
    with headrace.connect(f"{door}?site=b") as b:
        assert (b.put(b"1", feed="x"), fabric.queues["b"].next) == (1, 2)
    with pytest.raises(FabricError, match=r"no site 'c' behind .*; reachable sites: a, b"):
        headrace.connect(f"{door}?site=c", patience=1)


def test_silence_counts_from_the_beginning_of_the_call(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = served.connect(patience=30)
    late_s = 0.0

    def take_without_a_reply(_: PendingReply) -> None:
        nonlocal late_s
        late_s += 40.0

    with monkeypatch.context() as patch:
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late_s)
        patch.setattr("headrace.remote.client.connection.time", clock)
        patch.setattr("headrace.remote.client.silence.time", clock)
        patch.setattr(PendingReply, "take", take_without_a_reply)
        with pytest.raises(SiteUnreachableError) as caught:
            remote.put(b"x", feed="a")
    told = re.search(r"has not replied for ([\d.]+) s", caught.value.problem)
    assert told is not None
    assert float(told[1]) >= 40


@pytest.mark.parametrize(
    "act", ["queue.put(bytes(2_000_000), feed='a')", "asyncio.run(queue.put_async(b'x', feed='a'))"]
)
def test_a_forked_child_is_told_to_connect_again(served: Served, act: str) -> None:
    """Also where the parent would have left the call to another thread, which a child does not have."""
    program = (
        "import asyncio, os, sys, headrace\n"
        "from headrace.errors import FabricError\n"
        "queue = headrace.connect(sys.argv[1])\nasyncio.run(queue.put_async(b'1', feed='a'))\n"
        "if child := os.fork():\n"
        "    status = os.waitpid(child, 0)[1]\n    queue.close()\n    sys.exit(os.waitstatus_to_exitcode(status))\n"
        f"try:\n    {act}\n"
        "except FabricError as error:\n    os._exit(7 if 'connect again in the child' in str(error) else 1)\n"
        "os._exit(2)\n"
    )
    where = f"{served.endpoint}?site={served.name}"
    done = subprocess.run([sys.executable, "-c", program, where], timeout=240, check=False)
    assert done.returncode == 7
