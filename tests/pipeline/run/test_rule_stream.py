"""RuleStream, checkpoints and jobs without Spark: which failures are retried, and when; locks of checkpoints."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.rules import load_rules
from headrace.pipeline.run.checkpoint import flush_entries, locked_checkpoint, remove_unfinished_entries
from headrace.pipeline.run.job import Job
from headrace.pipeline.run.stream import SLOW_STARTS_MAX, RuleStream, pause_s, worst
from headrace.pipeline.run.terms import starting_offsets
from headrace.pipeline.source.options import read_options
from headrace.pipeline.spark.failures import SLOW_START
from headrace.testing.clock import MockClock

FULL = "headrace.errors.TargetError: the disk is full"
INVALID = "headrace.errors.PipelineError: the rows do not fit"


@dataclass
class FakeQuery:
    """What RuleStream needs of Spark's StreamingQuery."""

    isActive: bool = True  # noqa: N815
    error: str | None = None
    lastProgress: Any = None  # noqa: N815
    status: dict[str, str] = field(default_factory=lambda: {"message": "Processing new data"})

    def exception(self) -> Any:
        return self.error

    def fail(self, error: str) -> None:
        self.isActive, self.error = False, error

    def stop(self) -> None:
        self.isActive = False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    clock = MockClock()
    time = SimpleNamespace(monotonic=lambda: clock.elapsed_ns() / 1e9)
    monkeypatch.setattr("headrace.pipeline.run.stream.time", time)
    return clock


def started(attempts_max: int | None = None) -> RuleStream:
    stream = RuleStream("a", FakeQuery, attempts_max)  # type: ignore[arg-type]
    stream.start()
    return stream


def fail(stream: RuleStream, error: str) -> None:
    stream.query.fail(error)  # type: ignore[union-attr]
    stream.update()


def test_pauses_double_up_to_a_minute() -> None:
    assert [pause_s(attempts) for attempts in (1, 2, 3, 6, 7, 1000)] == [1, 2, 4, 32, 60, 60]


def test_a_permanent_failure_ends_a_stream_at_once(clock: MockClock) -> None:
    stream = started()
    fail(stream, INVALID)
    assert (stream.state, stream.failure, stream.retries) == ("failed", "the rows do not fit", 0)


def test_a_transient_failure_is_retried_after_its_pause(clock: MockClock) -> None:
    stream = started()
    fail(stream, FULL)
    stream.update()
    assert (stream.state, stream.failure, stream.query) == ("retrying", "the disk is full", None)
    clock.advance(1)
    stream.update(may_begin=False)
    assert stream.query is None
    stream.update()
    stream.update()
    assert (stream.state, stream.retries) == ("retrying", 1), "no batch has succeeded yet"
    stream.query.lastProgress = {}  # type: ignore[union-attr]
    stream.update()
    assert (stream.state, stream.failure, stream.attempts) == ("running", "", 0)


def test_attempts_without_a_successful_batch_are_limited(clock: MockClock) -> None:
    stream = started(attempts_max=3)
    for _ in range(3):
        fail(stream, FULL)
        clock.advance(60)
        stream.update()
    assert (stream.state, stream.retries) == ("failed", 2)


def test_a_process_that_does_not_start_in_time_does_not_count_as_an_attempt(clock: MockClock) -> None:
    stream = started(attempts_max=3)
    for _ in range(SLOW_STARTS_MAX - 1):
        fail(stream, "org.apache.spark.SparkException: Python worker failed to connect back.")
        assert (stream.state, stream.failure) == ("retrying", SLOW_START)
        clock.advance(60)
        stream.update()
    fail(stream, "org.apache.spark.SparkException: Python worker failed to connect back.")
    assert (stream.state, stream.retries, stream.attempts) == ("failed", SLOW_STARTS_MAX - 1, 0)


def test_an_error_at_the_start_is_recorded_and_not_raised(clock: MockClock) -> None:
    def begin() -> Any:
        raise PermissionError(13, "Permission denied")

    stream = RuleStream("a", begin, None)
    stream.start()
    assert (stream.state, stream.failure) == ("retrying", "PermissionError: [Errno 13] Permission denied")


def test_a_java_that_has_ended_is_raised() -> None:
    def begin() -> Any:
        raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        RuleStream("a", begin, None).start()


@pytest.mark.parametrize(("attempts_max", "ended", "stopped"), [(None, "stopped", "stopped"), (3, "done", "stopped")])
def test_a_stream_is_done_only_if_it_ends_by_itself(attempts_max: int | None, ended: str, stopped: str) -> None:
    first, second = started(attempts_max), started(attempts_max)
    first.query.stop()  # type: ignore[union-attr]
    first.update()
    second.stop()
    assert (first.state, second.state) == (ended, stopped)


def test_the_state_of_a_rule_is_that_of_its_worst_stream(clock: MockClock) -> None:
    running, retrying = started(), started()
    fail(retrying, FULL)
    assert worst([running, retrying]) is retrying


# --- checkpoints ----------------------------------------------------------------------------------------


def test_a_checkpoint_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "checkpoint"
    with locked_checkpoint(folder), pytest.raises(PipelineError, match="another process runs a pipeline"):
        locked_checkpoint(folder).__enter__()
    with locked_checkpoint(folder):
        pass


def test_a_checkpoint_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TargetError, match="file"):
        locked_checkpoint(tmp_path / "file").__enter__()


def test_unfinished_entries_are_removed_and_others_stay(tmp_path: Path) -> None:
    for name, text in {
        "metadata": "id", "offsets/0": "v1", "offsets/1": "", "offsets/.2.abc.tmp": "v1", "commits/0": "v1",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    remove_unfinished_entries(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"metadata", "offsets/0", "commits/0"}


def test_an_entry_that_cannot_be_flushed_stops_the_batch(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="offsets/0 was not flushed"):
        flush_entries(tmp_path, 0)


# --- jobs ---------------------------------------------------------------------------------------------


class ThrownByJavaError(Py4JJavaError):  # type: ignore[misc]
    """What py4j raises if Java throws an exception; the real one asks Java for its text."""

    def __init__(self) -> None:
        self.java_exception = None

    def __str__(self) -> str:
        return "An error occurred while calling o7.isActive.\n: java.lang.IllegalStateException: no such query"


def waiting_job(folder: Path, error: Exception) -> Job:
    (folder / "rules.toml").write_text(
        '[pipeline]\nsite = "tcp/127.0.0.1:1"\n[[rule]]\nname = "a"\nselect = "x"\ntable = "a"\n'
    )

    class Failing(Job):
        def _has_ended(self) -> bool:
            raise error

    return Failing(load_rules(folder / "rules.toml"), None)  # type: ignore[arg-type]


def test_a_job_says_that_java_has_ended_only_if_it_has(tmp_path: Path) -> None:
    job = waiting_job(tmp_path, ThrownByJavaError())
    with pytest.raises(PipelineError, match=r"how the rules are doing: .*no such query; start the pipeline again"):
        job.wait(1)
    assert "no such query" in job.statuses[0].failure
    with pytest.raises(PipelineError, match=r"the Java process of Spark has ended; .*driver.memory"):
        waiting_job(tmp_path, Py4JNetworkError("closed")).wait(1)


def test_a_job_whose_java_ends_by_the_same_signal_has_not_failed(tmp_path: Path) -> None:
    job = waiting_job(tmp_path, Py4JNetworkError("closed"))

    def signalled() -> bool:
        job.ending.set()
        raise Py4JNetworkError("closed")

    job._has_ended = signalled  # type: ignore[method-assign]
    assert job.wait(1)
    assert not job.has_failed


@pytest.mark.parametrize("start", ["10us", "0.5ms", "90s", "100w", "now", "oldest"])
def test_every_start_that_rules_accept_is_understood_by_the_source(start: str, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(
        f'[pipeline]\nsite = "tcp/127.0.0.1:1"\nfrom = "{start}"\n[[rule]]\nname = "a"\nselect = "x"\ntable = "a"\n'
    )
    terms = load_rules(tmp_path / "rules.toml").pipeline
    read_options({"queue": "q", "startingOffsets": starting_offsets(terms)})
