"""A site keeps its clock: from real servers by UDP, through configuration, description, problems and commands."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from siteconfig import Serve, Write

from headrace import Queue, connect
from headrace.cli.clock import source_troubles, state_lines
from headrace.cli.sites import read_map
from headrace.site.problems import map_problems
from headrace.testing.ntp import SimulatedServer
from headrace.testing.ntp_udp import UdpServer
from headrace.timing.clock.state import ClockState, ServerState
from headrace.units import format_time
from support.commandline import PROGRAM, Run
from support.waiting import until

MS = 1_000_000
AHEAD_S = 3600.0  # of the servers, before the clock of the system


def an_hour_ahead() -> int:
    return time.time_ns() + int(AHEAD_S * 1e9)


@pytest.fixture
def servers() -> Iterator[list[UdpServer]]:
    found = [UdpServer(SimulatedServer(stated_ns=50_000), truth=an_hour_ahead) for _ in range(4)]
    yield found
    for each in found:
        each.close()


def configured(servers: list[UdpServer]) -> str:
    names = json.dumps([each.name for each in servers])
    return f'[site]\nqueue = "q"\nname = "here"\nlisten = ["tcp/127.0.0.1:0"]\n[clock]\nsource = "ntp"\nservers = {names}\n'


def test_a_site_stamps_by_its_servers_and_says_how_right_it_is_and_who_lies(
    servers: list[UdpServer], write: Write, serve: Serve, run: Run, tmp_path: Path
) -> None:
    servers[3].behaviour = SimulatedServer(-900 * MS, stated_ns=50_000)
    daemon = serve(write(configured(servers)))
    endpoint = daemon.wait_until_ready()
    with Queue.open(tmp_path / "q") as queue, connect(endpoint) as remote:
        until(lambda: queue.clock().situation == "synchronised", lambda: queue.clock())
        until(lambda: any(each.verdict == "falseticker" for each in queue.clock().servers))
        for each in (queue, remote):
            each.put(b"x", feed="a")
        for product in queue.read():
            assert abs(product.created_ns - an_hour_ahead()) < 60e9
            assert product.bound_ns is not None
            assert 0 < product.bound_ns < 200 * MS
        reading = queue.statistics().clock
        assert reading.source == "ntp"
        assert abs(reading.offset_s - AHEAD_S) < 1
        assert reading.bound_s is not None
    until(lambda: "lies" in " ".join(found.problem.text for found in map_problems(read_map(endpoint))))
    (site,) = [node.description for node in read_map(endpoint).nodes if node.description]
    assert site.clock is not None
    assert [each.verdict for each in site.clock.servers].count("falseticker") == 1
    for where in (endpoint, tmp_path / "q", tmp_path / "site.toml"):
        shown = run("clock", where, "--check")
        assert (shown.exit_code, "source      ntp, synchronised" in shown.stdout) == (0, True), shown.stdout
        assert servers[3].name in shown.stdout
        assert json.loads(run("clock", where, "--json").stdout)["source"] == "ntp"
    assert "offset" in run("sites", endpoint).stdout


def test_a_killed_site_leaves_a_clock_that_goes_on_and_a_reload_changes_its_servers(
    servers: list[UdpServer], write: Write, serve: Serve, tmp_path: Path
) -> None:
    file = write(configured(servers))
    daemon = serve(file)
    daemon.wait_until_ready()
    with Queue.open(tmp_path / "q") as queue:
        until(lambda: queue.clock().situation == "synchronised", lambda: queue.clock())
        write(configured(servers[:3]))
        daemon.reload("is loaded")
        until(lambda: len(queue.clock().servers) == 3)
        daemon.kill()
        for each in servers:
            each.behaviour = None
        queue.put(b"x", feed="a")
        (product,) = queue.read()
        assert abs(product.created_ns - an_hour_ahead()) < 60e9
        first = queue.statistics().clock.bound_s
        assert first is not None
        again = serve(file)
        again.wait_until_ready()
        until(lambda: queue.clock().situation == "holdover", lambda: queue.clock())
        queue.put(b"y", feed="a")
        _, later = queue.read()
        assert later.created_ns > product.created_ns
        assert (later.bound_ns or 0) > (product.bound_ns or 0)


def test_a_request_becomes_active_at_its_time(write: Write, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "site.toml"
    other.write_text('[site]\nqueue = "q"\nname = "other"\nlisten = ["tcp/127.0.0.1:0"]\n')
    endpoint = serve(other).wait_until_ready()
    moment_ns = time.time_ns() + 3 * 10**9
    daemon = serve(write(
        f'[site]\nqueue = "q"\nname = "here"\nlisten = ["tcp/127.0.0.1:0"]\nconnect = ["{endpoint}"]\n'
        f'[[request]]\nselect = "**"\nstart_time = "{format_time(moment_ns)}"\n'
    ))  # fmt: skip
    with Queue.open(tmp_path / "other" / "q") as source:
        source.put(b"before", feed="a")
        daemon.wait_until_ready()
        until(lambda: time.time_ns() > moment_ns + 10**6)
        source.put(b"after", feed="a")
        with Queue.open(tmp_path / "q") as queue:
            until(lambda: len(list(queue.read())) > 0, lambda: daemon.log.read_text())
            expected = [bytes(each.payload) for each in source.read() if each.inserted_ns >= moment_ns]
            assert [bytes(each.payload) for each in queue.read()][: len(expected)] == expected


def test_a_queue_without_a_site_has_a_keeper_by_command(servers: list[UdpServer], run: Run, tmp_path: Path) -> None:
    Queue.create(tmp_path / "q", size="4MiB").close()
    options = [word for each in servers for word in ("--server", each.name)]
    keeper = subprocess.Popen([*PROGRAM, "clock", str(tmp_path / "q"), "--keep", *options], stderr=subprocess.DEVNULL)
    try:
        with Queue.open(tmp_path / "q") as queue:
            until(lambda: queue.clock().situation == "synchronised", lambda: queue.clock())
            keeper.kill()
            keeper.wait()
            assert queue.statistics().clock.bound_s is not None
            assert json.loads(run("clock", tmp_path / "q", "--json").stdout)["source"] == "ntp"
    finally:
        keeper.kill()
        keeper.wait()


def keeping(queue: Path, *options: str) -> "subprocess.Popen[str]":
    words = [*PROGRAM, "clock", str(queue), "--keep", *options]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def said(keeper: "subprocess.Popen[str]") -> str:
    assert keeper.stderr is not None
    return keeper.stderr.readline()


def test_a_second_keeper_says_that_it_stands_by_and_when_it_takes_over(tmp_path: Path) -> None:
    Queue.create(tmp_path / "q", size="4MiB").close()
    first = keeping(tmp_path / "q", "--source", "system")
    try:
        assert "keeping the clock" in said(first)
        second, third = keeping(tmp_path / "q"), keeping(tmp_path / "q", "--json")
        try:
            line = said(second)
            assert f"process {first.pid} keeps the clock" in line
            assert "stands by, and takes over within seconds after that one ends" in line
            told = json.loads(said(third))
            assert (told["keeping"], told["why"]) == (False, f"process {first.pid} keeps the clock")
            third.kill()
            first.terminate()
            assert first.wait(timeout=240) == 143
            assert "keeping the clock" in said(second)
        finally:
            for each in (second, third):
                each.kill()
                each.communicate()
    finally:
        first.kill()
        first.communicate()


def test_a_source_that_cannot_be_used_is_said_at_the_start() -> None:
    unknown = ServerState("nowhere.invalid", "unreachable", trouble="Name or service not known")
    server = ClockState("ntp", "ntp", "starting", servers=(unknown, ServerState("192.0.2.7", "waiting")))
    assert source_troubles(server) == ["server nowhere.invalid: Name or service not known; it is asked again"]
    (text,) = source_troubles(ClockState("auto", "none", "unsynchronised", "no server is named"))
    assert "has no source: no server is named" in text


def test_the_check_fails_while_no_server_is_known_to_be_right(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers against two: the bound that was known is honest, and no majority confirms it."""
    Queue.create(tmp_path / "q", size="4MiB").close()
    for verdicts, exit_code in ((("undecided",) * 4, 1), (("truechimer", "unreachable"), 0), ((), 0)):
        source = "ntp" if verdicts else "system"
        servers = tuple(ServerState(f"192.0.2.{place}", each) for place, each in enumerate(verdicts))
        state = ClockState(source, source, "synchronised", bound_ns=1000, servers=servers)  # type: ignore[arg-type]
        monkeypatch.setattr(Queue, "clock", lambda queue, state=state: state)
        shown = run("clock", tmp_path / "q", "--check")
        assert (shown.exit_code, "no server is a truechimer" in shown.stderr) == (exit_code, bool(exit_code))


def test_a_correction_that_rounds_to_nothing_is_not_shown() -> None:
    state = ClockState("auto", "none", "unsynchronised", left_ns=12)
    assert not [line for line in state_lines(state) if line.startswith("correction")]
    assert [line for line in state_lines(msgspec.structs.replace(state, left_ns=-5_000)) if "5 µs ahead" in line]
