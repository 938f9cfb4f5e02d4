"""headrace station take: a consumer on the command line."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.cli.station_take import run_program
from headrace.link.session import SessionTerms, open_session
from headrace.site.site import Site
from support.commandline import Run, fill, objects
from support.fleet import free_port

Start = Callable[..., "subprocess.Popen[bytes]"]
LIMIT_S = 240


def make_station(path: Path, products: int, **terms: object) -> None:
    fill(path, products)
    with Queue.open(path) as queue:
        queue.station("decode", "wx/**", start="oldest", **terms)


def counts(path: Path) -> tuple[int, int, int]:
    """Products that wait, are leased, and are parked."""
    with Queue.open(path) as queue:
        now = queue.station("decode").statistics()
        return now.waiting + now.behind, now.leased, now.parked


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_payloads_are_written_and_acknowledged(run: Run, path: Path) -> None:
    make_station(path, 3)
    assert run("station", "take", path, "decode", "--count", "2", "--separator", "\\n").stdout == "product 1\nproduct 2"
    assert counts(path) == (1, 0, 0)
    (told,) = objects(run("station", "take", path, "decode", "--json").stdout)
    assert (told["sequence"], told["ident"]) == (3, "ident 3")
    result = run("station", "take", path, "decode")
    assert (result.exit_code, result.output, counts(path)) == (0, "", (0, 0, 0))


def test_payloads_are_written_to_files(run: Run, path: Path, tmp_path: Path) -> None:
    make_station(path, 2)
    assert run("station", "take", path, "decode", "--output", "out").exit_code == 0
    assert sorted(file.read_bytes() for file in (tmp_path / "out").iterdir()) == [b"product 1", b"product 2"]


def test_a_program_gets_the_payload_and_the_facts(run: Run, path: Path, tmp_path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put(b"\0pay\n", feed="wx/text", ident="it's $HOME\n;", properties={"run": 6})
    make_station(path, 0)
    command = 'cat > payload; printf "%s|" "$HEADRACE_SEQUENCE" "$HEADRACE_FEED" "$HEADRACE_IDENT" "$HEADRACE_SIZE" '
    command += '"$HEADRACE_STATION" "$HEADRACE_PROPERTIES" > facts'
    assert run("station", "take", path, "decode", "--exec", command).exit_code == 0
    assert (tmp_path / "payload").read_bytes() == b"\0pay\n"
    assert (tmp_path / "facts").read_text() == '1|wx/text|it\'s $HOME\\n;|5|decode|{"run":6}|'
    assert counts(path) == (0, 0, 0)


def test_a_product_whose_program_fails_is_delivered_again_and_parked(
    run: Run, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.station_take._AGAIN_S", 0.0)
    make_station(path, 3, deliveries_max=2)
    command = "echo $HEADRACE_SEQUENCE >> tried; test $HEADRACE_SEQUENCE != 2 || exit 7"
    result = run("station", "take", path, "decode", "--exec", command)
    assert result.exit_code == 1
    assert "product 2 of station decode: the program had exit code 7; it was given back" in result.stderr
    assert sorted((tmp_path / "tried").read_text().split()) == ["1", "2", "2", "3"]
    assert counts(path) == (0, 0, 1)


def test_without_a_limit_of_deliveries_a_failed_product_ends_the_run_and_stays(run: Run, path: Path) -> None:
    make_station(path, 1, deliveries_max=0)
    result = run("station", "take", path, "decode", "--exec", "false", "--json")
    assert result.exit_code == 1
    assert objects(result.stderr)[0]["acknowledged"] is False
    assert counts(path) == (1, 0, 0)


def test_a_program_that_takes_too_long_is_ended_as_failed(run: Run, path: Path) -> None:
    make_station(path, 1)
    words = ["--exec", "sleep 600", "--exec-timeout", "0.2s", "--count", "1"]
    result = run("station", "take", path, "decode", *words)
    assert result.exit_code == 1
    assert "the program ran for more than" in result.stderr
    assert counts(path) == (1, 0, 0)


def test_a_reader_that_goes_away_is_no_failure(start: Start, path: Path) -> None:
    make_station(path, 1)
    taken = start("station", "take", path, "decode", "--follow")
    assert taken.stdout is not None
    assert taken.stdout.read(9) == b"product 1"
    taken.stdout.close()
    assert taken.wait(LIMIT_S) == 141


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_leased_and_no_program(
    start: Start, path: Path, tmp_path: Path, number: int, code: int
) -> None:
    make_station(path, 2)
    taken = start(
        "station", "take", path, "decode", "--follow", "--exec", "echo $$ > pid.new; mv pid.new pid; sleep 600"
    )
    wait_for((tmp_path / "pid").exists)
    assert counts(path) == (1, 1, 0)
    taken.send_signal(number)
    assert taken.wait(LIMIT_S) == code
    assert counts(path) == (2, 0, 0)
    wait_for(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists())


def test_a_signal_that_comes_while_the_program_is_being_started_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *about: Any, **terms: Any) -> None:
            super().__init__(*about, **terms)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_program("sleep 600", b"", {}, None, False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert started[0].poll() is not None


def test_nothing_is_lost_if_the_command_is_killed(start: Start, run: Run, path: Path, tmp_path: Path) -> None:
    make_station(path, 30)
    out = tmp_path / "out"
    out.touch()
    command = "cat > $$.part && echo $HEADRACE_SEQUENCE >> out && sleep 0.05"
    for number in (5, 10):
        taken = start("station", "take", path, "decode", "--follow", "--exec", command)
        wait_for(lambda number=number: len(out.read_text().split()) >= number)
        taken.kill()
        taken.wait(LIMIT_S)
    wait_for(lambda: run("station", "take", path, "decode", "--exec", command).exit_code == 0 and counts(path)[0] == 0)
    assert {int(word) for word in out.read_text().split()} == set(range(1, 31))
    assert counts(path) == (0, 0, 0)


@pytest.fixture
def there(path: Path) -> Iterator[str]:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    with Queue.open(path) as queue, open_session(SessionTerms("router", listen=(endpoint,))) as session:
        site = Site(session, queue, [])
        yield endpoint
        site.close()


def test_products_are_taken_from_an_endpoint(run: Run, there: str, path: Path) -> None:
    make_station(path, 3)
    assert run("station", "take", there, "decode", "--count", "1").stdout == "product 1"
    assert (
        run("station", "take", there, "decode", "--exec", "test $HEADRACE_SEQUENCE = 2", "--count", "2").exit_code == 1
    )
    assert run("station", "take", there, "decode").stdout == "product 3"
    assert counts(path) == (0, 0, 0)


@pytest.mark.parametrize("option", ["--in-order", "--pace"])
def test_products_are_taken_in_the_order_of_their_creation(run: Run, path: Path, option: str) -> None:
    with Queue.open(path) as queue:
        queue.station("decode", "wx/**")
        for ident in "3241":
            created = 1_700_000_000_000_000_000 + int(ident) * 1_000_000
            queue.put(ident.encode(), feed="wx/text", ident=ident, created=created)
    assert run("station", "take", path, "decode", option, "50ms", "--count", "2").stdout == "12"
    assert counts(path) == (2, 0, 0)
    assert run("station", "take", path, "decode", option, "50ms", "--exec", "cat").exit_code == 0
    assert counts(path) == (0, 0, 0)
