"""What tests of the command line share: the command in this process, and the real program in its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace import Queue
from headrace.cli.main import headrace
from support.commandline import Run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`headrace` in this process, inside the test's directory."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object, stdin: bytes | str | None = None) -> Result:
        result = CliRunner().invoke(headrace, [str(word) for word in words], input=stdin, prog_name="headrace")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A small queue, closed; it must check clean in the end, unless it was spoilt on purpose."""
    path = tmp_path / "q"
    Queue.create(path, size="4MiB", origin="here").close()
    yield path
    if path.exists() and not (tmp_path / "spoilt").exists():
        with Queue.open(path) as queue:
            assert queue.check() == []
