"""Commands that put a stream wait for a site that restarts, and put nothing twice."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import Queue
from headrace.cli.stream import PatientPuts, put_patiently
from headrace.errors import BlockedError, SiteUnreachableError
from headrace.pipeline.source.columns import arrow_of
from headrace.remote.client.queue import RemoteQueue
from support.commandline import Run, interruptible
from support.serving import Served, when

COMMANDS = {
    "generate": ["generate", "QUEUE", "--fast", "--products", "1200", "--feeds", "metar", "--duplicates", "0"],
    "restore": ["archive", "restore", "TABLE", "QUEUE"],
    "replay": ["replay", "SOURCE", "QUEUE", "--speed", "max"],
    "put": ["put", "QUEUE", "--lines", "--feed", "a", "--timeout", "100ms"],
}


@pytest.fixture
def served(shared_memory: Path) -> Iterator[Served]:
    """A site whose queue recognises no duplicates, so that nothing hides."""
    served = Served(shared_memory, dedup="none")
    yield served
    served.close()


@pytest.fixture
def words(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """The words of a command that puts 1,200 products with several puts."""
    monkeypatch.setattr("headrace.cli.put.BATCH_LINES_MAX", 400)
    for name in ("CONNECT_S_MAX", "CONNECT_S_MIN"):  # patience for a busy machine
        monkeypatch.setattr(f"headrace.cli.options.{name}", 240.0)
    with Queue.create(tmp_path / "source", size="4MiB") as source:
        source.put_many([b"%d" % number for number in range(1200)], feed="a")
        batch = arrow_of(source.read_batch(limit=1200))
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "table.parquet")
    monkeypatch.setattr("headrace.pipeline.source.parts.PART_BYTES", 32 << 10)
    monkeypatch.setattr("headrace.queue.queue.CHUNK_PRODUCTS", 400)
    monkeypatch.setattr("headrace.timing.replay.source.CHUNK_PRODUCTS", 400)
    places = {
        "QUEUE": f"{served.endpoint}?site={served.name}", "TABLE": str(tmp_path / "table.parquet"),
        "SOURCE": str(tmp_path / "source"),
    }  # fmt: skip
    return lambda command: [places.get(word, word) for word in COMMANDS[command]]


def before_second_put(monkeypatch: pytest.MonkeyPatch, act: Callable[[RemoteQueue], object]) -> list[int]:
    """Act before the second put is made; the number of products in each put."""
    real, puts = RemoteQueue.put_many, list[int]()

    def put_many(self: RemoteQueue, payloads: Any, **facts: Any) -> Any:
        puts.append(len(payloads))
        if len(puts) == 2:
            act(self)
        return real(self, payloads, **facts)

    monkeypatch.setattr(RemoteQueue, "put_many", put_many)
    return puts


LINES = b"".join(b"%d\n" % number for number in range(1200))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_site_restarts_and_everything_is_put_once(
    command: str, run: Run, served: Served, words: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip

    def stop(remote: RemoteQueue) -> None:
        served.stop()
        when(lambda: "does not reply; retrying" in caplog.text, served.start)

    puts = before_second_put(monkeypatch, stop)
    told = run(*words(command), stdin=LINES if command == "put" else None)
    assert told.exit_code == 0, told.output
    assert "does not reply; retrying" in told.stderr
    assert len(puts) >= 3
    assert served.queue.next == 1201


@pytest.mark.parametrize("command", ["generate", "restore", "put"])
def test_a_site_that_stays_away_ends_the_command_and_the_totals_are_right(
    command: str, run: Run, served: Served, words: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(remote: RemoteQueue) -> None:
        served.stop()
        remote._connection.silence.patience_s = 0.5

    puts = before_second_put(monkeypatch, stop)
    told = run(*words(command), "--json", stdin=LINES if command == "put" else None)
    assert told.exit_code == 3
    assert "has not replied for" in told.stderr
    shown = [json.loads(line) for line in told.stdout.splitlines()]
    stored = len(shown) if command == "put" else shown[-1]["stored"]
    assert stored == puts[0] == served.queue.next - 1


# --- one put ----------------------------------------------------------------------------------------


def lost_reply(retry: Callable[..., Any], has_patience: bool = True) -> SiteUnreachableError:
    error = SiteUnreachableError("no reply", "")
    error.retry, error.has_patience = retry, has_patience
    return error


def test_a_put_without_a_reply_is_made_again_as_the_same_put() -> None:
    """Each put is stored; the replies of the first two attempts are lost."""
    stored, failures, between = list[str](), iter([True, True, False]), list[int]()

    def put(timeout: float | None) -> str:
        stored.append("product")
        return reply(timeout)

    def reply(timeout: float | None) -> str:
        if next(failures):
            raise lost_reply(reply)
        return "reply"

    assert put_patiently(put, between=lambda: between.append(1)) == "reply"
    assert (stored, len(between)) == (["product"], 2)


def test_a_put_ends_when_patience_is_over_or_it_cannot_be_made_again() -> None:
    for error in (lost_reply(lambda timeout: "reply", has_patience=False), SiteUnreachableError("no reply", "")):

        def put(timeout: float | None, error: Exception = error) -> str:
            raise error

        with pytest.raises(SiteUnreachableError):
            put_patiently(put, attempt_s=0.5)


def test_a_full_station_ends_a_put_at_its_timeout_and_not_at_that_of_an_attempt() -> None:
    given = list[float | None]()

    def blocked(timeout: float | None) -> str:
        given.append(timeout)
        if len(given) < 4:
            raise BlockedError("full")
        return "stored"

    assert put_patiently(blocked, attempt_s=0.5) == "stored"
    assert given == [0.5] * 4
    given.clear()
    assert put_patiently(blocked, 1000.0, attempt_s=0.5) == "stored"
    given.clear()
    with pytest.raises(BlockedError):
        put_patiently(blocked, 0.0, attempt_s=0.5)
    assert given == [0.0]


def test_ctrl_c_takes_effect_between_two_attempts_and_behind_a_put_that_was_counted(path: Path) -> None:
    counted = list[str]()

    def interrupted(timeout: float | None) -> str:
        signal.raise_signal(signal.SIGINT)
        return "stored"

    def away(timeout: float | None) -> str:
        signal.raise_signal(signal.SIGINT)
        raise lost_reply(away)

    with Queue.open(path) as queue, interruptible():
        puts = PatientPuts(queue)
        with pytest.raises(KeyboardInterrupt), puts:
            counted.append(puts.put(interrupted))
        assert counted == ["stored"]
        with pytest.raises(KeyboardInterrupt), puts:
            counted.append(puts.put(away))
        assert counted == ["stored"]
        with puts:
            assert puts.put_many([b"1"], feed="a").stored == 1
