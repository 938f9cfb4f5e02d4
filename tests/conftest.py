"""Fixtures for all tests. Every queue is checked after its test."""

import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, Phase, settings

from headrace import Queue
from headrace.cli.failure import INTERNAL
from headrace.cli.main import headrace
from headrace.guard import FAILURES
from support import grouping
from support.commandline import PROGRAM, Run

if TYPE_CHECKING:
    from support.fleet import Fabric

# The suite tries the same examples in every run, but for constants of modules that happen to be loaded, which Hypothesis
# draws on too; `make soak` tries new ones.
_BRISK = [phase for phase in Phase if phase is not Phase.explain]  # explain traces every line and takes minutes
_ANY_PACE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # a busy machine fails no test
settings.register_profile("suite", derandomize=True, phases=_BRISK, **_ANY_PACE)
settings.register_profile("soak", **_ANY_PACE)

# Sites of tests are found by nobody else, and find nobody else; tests of names set these for themselves.
os.environ.update({"HEADRACE_SCOUTING": "off", "HEADRACE_SITES": ""})

# So are their sockets, for each process that runs tests. The path is short, as sockets require it.
_SOCKETS = tempfile.mkdtemp(prefix="headrace-run-")
os.environ["XDG_RUNTIME_DIR"] = _SOCKETS

# Runs of replays are kept in a folder of the tests, not in that of the user.
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"headrace-tests-{os.getuid()}")

# Files that tests write are closed to others, as keys, passwords and users files have to be.
os.umask(0o027)

# Favour a quick start of Java over speed: the Spark of a test lives for seconds.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# What is collected stays until the end: the garbage collector need not look at it again and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    shutil.rmtree(_SOCKETS, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("soak" if config.option.markexpr == "soak" else "suite")


@pytest.fixture(autouse=True)
def _no_failures_of_other_tests() -> None:
    """A process counts what its threads outlive, and each site lists that."""
    FAILURES.forget()


# Tests of these folders open sites and links; files with these words start, stop or kill processes.
_PROCESS_FOLDERS = {"link", "relay", "remote", "security", "site", "demo", "bench"}
_PROCESS_FILES = ("crash", "kills", "processes", "failpoints", "hang", "steps", "recovery", "durability")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long groups begin first (`support.grouping`).

    Tests with the fixture `spark` get the marker of that name; those of folders and files above get `processes`.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if _PROCESS_FOLDERS & set(item.path.relative_to(Path(__file__).parent).parts) or any(
            word in item.path.name for word in _PROCESS_FILES
        ):
            item.add_marker(pytest.mark.processes)
    items.sort(key=lambda item: grouping.rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return grouping.make_scheduler(config, log)


@pytest.fixture
def make_queue(tmp_path: Path) -> Iterator[Callable[..., Queue]]:
    """Create queues in the directory of the test; each is checked afterwards, unless it was damaged on purpose."""
    made: list[Queue] = []

    def make(name: str = "q", **terms: Any) -> Queue:
        terms.setdefault("size", "2MiB")
        terms.setdefault("origin", "here")
        made.append(Queue.create(tmp_path / name, **terms))
        return made[-1]

    yield make
    for queue in made:
        if (queue.path / "spoilt").exists() or not queue.path.exists():
            queue.close()
            continue
        queue.close()
        with Queue.open(queue.path) as again:
            assert again.check() == []


@pytest.fixture
def queue(make_queue: Callable[..., Queue]) -> Queue:
    return make_queue()


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    """A directory in memory."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="headrace-test-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make_quick(shared_memory: Path, make_queue: Callable[..., Queue]) -> Callable[..., Queue]:
    """As `make_queue`, in memory: for tests that are not about disks."""

    def make(name: str = "q", **terms: Any) -> Queue:
        terms.setdefault("durability", "memory")
        return make_queue(str(shared_memory / name), **terms)

    return make


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator["Fabric"]:
    """Sites in this process; they end with the test."""
    from support.fleet import Fabric

    made = Fabric(tmp_path)
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`headrace` in this process, in the directory of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object, stdin: bytes | str | None = None) -> Result:
        result = CliRunner().invoke(headrace, [str(word) for word in words], input=stdin, prog_name="headrace")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code != INTERNAL, result.output
        return result

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """`headrace` as a process of its own, with the default action for SIGINT; it is killed after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: object, **settings: Any) -> "subprocess.Popen[bytes]":
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([*PROGRAM, *map(str, words)], cwd=tmp_path, **{**pipes, **settings})
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
