"""The journal of a checkpoint, used by several processes at once; and what is flushed when a batch counts as done."""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import action_kills
import pytest

from headrace.pipeline.actions import DeadLetters
from headrace.pipeline.actions.dead_letters import CAUSES_MAX, OTHER_CAUSES, add_causes
from headrace.pipeline.actions.disk import make_folder
from headrace.pipeline.actions.file import FilePerformer
from headrace.pipeline.actions.journal import life
from headrace.pipeline.rules import FileAction


def test_threads_agree_on_a_life(tmp_path: Path) -> None:
    """A rule with a watermark and a decoder has two queries, which begin together."""
    barrier = Barrier(2)

    def ask(state: Path) -> str:
        barrier.wait()
        return life(state)

    with ThreadPoolExecutor(2) as pool:
        for trial in range(200):
            state = tmp_path / str(trial)
            one, other = pool.map(ask, [state, state])
            assert one == other == (state / "life").read_text()
            assert os.listdir(state) == ["life"]


ASKING = """
import sys
from pathlib import Path
from headrace.pipeline.actions.journal import life
print("ready", flush=True)
for trial in sys.stdin:
    print(life(Path(sys.argv[1], trial.strip())), flush=True)
"""


def test_processes_agree_on_a_life(tmp_path: Path) -> None:
    """Each trial starts in both at once: as soon as both have replied to the one before."""
    started = [
        subprocess.Popen([sys.executable, "-c", ASKING, str(tmp_path)], stdin=-1, stdout=-1, text=True, bufsize=1)
        for _ in "ab"
    ]
    pipes = [(process.stdin, process.stdout) for process in started]
    try:
        assert [replies.readline() for _, replies in pipes if replies] == ["ready\n", "ready\n"]
        for trial in range(50):
            for requests, _ in pipes:
                assert requests is not None
                requests.write(f"{trial}\n")
            one, other = (replies.readline() for _, replies in pipes if replies)
            assert one == other != ""
    finally:
        for process in started:
            process.communicate(timeout=240)


Names = dict[str, set[str]]


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> Names:
    """By folder: the names that it had when it was flushed. Files that were flushed have none."""
    names: Names = defaultdict(set)

    def noting(real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            names[path] |= set(os.listdir(path)) if os.path.isdir(path) else set()
            real(descriptor)

        return sync

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, noting(getattr(os, name)))
    return names


def unflushed(root: Path, names: Names) -> set[str]:
    """Files that a power failure may remove."""
    held = [path for path in root.rglob("*") if not path.name.startswith((".headrace", ".staging"))]
    return {str(path.relative_to(root)) for path in held if path.name not in names[str(path.parent)]}


def test_a_folder_is_made_with_those_above_it(tmp_path: Path, flushed: Names) -> None:
    make_folder(tmp_path / "a/b/c")
    make_folder(tmp_path / "a/b/c")
    assert unflushed(tmp_path, flushed) == set()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file/x")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


def test_new_folders_of_appended_files_are_flushed(tmp_path: Path, flushed: Names) -> None:
    action = FileAction(path="x/{ident}/y", folder=tmp_path / "deep/files", content="payload")
    performer = FilePerformer(action, "file-0", None, DeadLetters(tmp_path / "tables/dead"))
    context = action_kills.context_of(tmp_path / "checkpoint", "one", 0)
    assert performer.perform_batches([performer.recipe(action_kills.batch_of(0))], context).failed
    assert unflushed(tmp_path, flushed) == set()


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_new_folders_of_tables_are_flushed(
    tmp_path: Path, flushed: Names, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr(action_kills, "BATCHES", 1)
    action_kills.table(tmp_path, format)
    assert unflushed(tmp_path, flushed) == {"checkpoint"}, "the test's own"
    if format == "delta":
        assert set(map(str, (tmp_path / "table/_delta_log").glob("*.json"))) <= set(flushed)


def test_causes_beyond_the_limit_are_counted_together() -> None:
    total = {f"cause {number}": 1 for number in range(CAUSES_MAX - 1)}
    assert add_causes(total, {"cause 0": 2, "late": 3}) == ["late"]
    assert add_causes(total, {"later": 4, "latest": 5, "late": 1}) == [OTHER_CAUSES]
    assert (total["cause 0"], total["late"], total[OTHER_CAUSES]) == (3, 4, 9)
    assert len(total) == CAUSES_MAX + 1
