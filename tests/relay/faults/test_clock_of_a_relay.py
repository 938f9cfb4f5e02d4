"""A relay whose clock is an hour ahead, with real processes: what expires there is counted behind it, live and later."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from clocks import COMPILER, WrongClock

from headrace import Queue
from headrace.cli.sites import read_map
from headrace.relay.messages.description import Description
from support.daemon import Daemon
from support.fleet import free_port
from support.waiting import until

EXPIRING = 30


@pytest.fixture
def daemons() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def write(folder: Path, name: str, port: int, *, near: int = 0, at: str = "") -> Path:
    """A site that requests everything from `at`, a neighbour."""
    connect = f'connect = ["tcp/127.0.0.1:{near}"]\n' if near else ""
    request = f'[[request]]\nname = "all"\nselect = "**"\nfrom = "oldest"\nsites = ["{at}"]\n' if at else ""
    file = folder / f"{name}.toml"
    file.write_text(
        f'[site]\nqueue = "{name}"\nname = "{name}"\nlisten = ["tcp/127.0.0.1:{port}"]\n{connect}'
        f'[queue]\nsize = "4MiB"\n{request}'
    )
    return file


def described(file: Path, name: str) -> Description:
    (told,) = (node.description for node in read_map(str(file)).nodes if node.name == name)
    assert told is not None
    return told


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_what_expires_at_a_relay_whose_clock_is_ahead_is_counted_behind_it(
    tmp_path: Path, daemons: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {name: free_port() for name in ("source", "relay", "live", "late")}
    daemons.enter_context(Daemon(write(tmp_path, "source", ports["source"]))).wait_until_ready()
    with monkeypatch.context() as patch:
        for name, value in WrongClock(tmp_path, "relay", 3600).environment.items():
            patch.setenv(name, value)
        relay = write(tmp_path, "relay", ports["relay"], near=ports["source"], at="source")
        daemons.enter_context(Daemon(relay)).wait_until_ready()
    live = write(tmp_path, "live", ports["live"], near=ports["relay"], at="relay")
    daemons.enter_context(Daemon(live)).wait_until_ready()
    until(lambda: [each.state for each in described(live, "live").upstreams] == ["live"], "it listens")
    with Queue.open(tmp_path / "source") as source, Queue.open(tmp_path / "relay") as relaying:
        for number in range(EXPIRING):
            source.put(b"%d" % number, feed="x", ident=f"n{number}", expiry="10min")
        source.put(b"stays", feed="x", ident="stays")
        until(lambda: relaying.next == EXPIRING + 2, "the relay has them")
    late = write(tmp_path, "late", ports["late"], near=ports["relay"], at="relay")
    daemons.enter_context(Daemon(late)).wait_until_ready()
    for file, name in ((live, "live"), (late, "late")):
        until(lambda file=file, name=name: described(file, name).requests[0].left_out, f"{name} counts")
        with Queue.open(tmp_path / name) as queue:
            until(lambda queue=queue: queue.next == 2, "the last one arrives")
            assert [product.ident for product in queue.read("oldest")] == ["stays"]
        told = described(file, name)
        assert told.requests[0].left_out == told.upstreams[0].left_out == {"expired": EXPIRING}
        assert [problem.kind for problem in told.problems] == ["left out"]
    told = described(live, "relay")
    assert told.requests[0].expired == EXPIRING
    assert [problem.kind for problem in told.problems] == ["expired"]
