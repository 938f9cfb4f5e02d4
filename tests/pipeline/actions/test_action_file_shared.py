"""Appends of many rules to one folder: one journal for all, dead letters by rule, and the same guarantee."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.pipeline.actions import DeadLetters
from headrace.pipeline.actions.file_append import RECORD
from headrace.pipeline.actions.file_shared import SharedAppend
from headrace.pipeline.actions.prepared import SCHEMA
from pipeline.actions.acting import Killed, context_of, killed, letters_in


def prepared(*rows: tuple[str, bytes]) -> Iterator[pa.RecordBatch]:
    """Rows of a path and a content each."""
    columns = {
        "texts": [[path] for path, _ in rows], "content": [content for _, content in rows],
        "error": [None] * len(rows), "sequence": list(range(len(rows))), "feed": ["a"] * len(rows),
        "ident": ["i"] * len(rows),
    }  # fmt: skip
    yield pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def appended(root: Path, batch_id: int) -> list[tuple[int, int]]:
    """Append a row for each of two rules, one of which has an invalid row too; the rows and failures of each."""
    action = SharedAppend(root / "files", DeadLetters(root / "letters"))
    rows = [("one", prepared(("x", b"1\n"), ("../y", b"bad"))), ("two", prepared(("x", b"2\n"), ("z", b"3\n")))]
    return [(counts.rows, counts.failed) for counts in action.perform(rows, context_of(root, batch_id))]


def test_rules_append_to_shared_files_and_each_has_its_counts_and_dead_letters(tmp_path: Path) -> None:
    assert appended(tmp_path, 0) == [(1, 1), (2, 0)]
    assert (tmp_path / "files" / "x").read_bytes() == b"1\n2\n"
    assert (tmp_path / "files" / "z").read_bytes() == b"3\n"
    assert [letter["rule"] for letter in letters_in(tmp_path / "letters")] == ["one"]


def test_a_batch_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    appended(tmp_path, 0)
    assert appended(tmp_path, 0) == [(0, 0), (0, 0)]
    assert appended(tmp_path, 1) == [(1, 1), (2, 0)]
    assert (tmp_path / "files" / "x").read_bytes() == b"1\n2\n" * 2


def test_a_batch_that_was_killed_before_its_end_is_undone_for_all_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path, 0)
    with monkeypatch.context() as patched:
        patched.setattr("headrace.pipeline.actions.journal.Journal.mark", killed)
        patched.setattr("headrace.pipeline.actions.file_append.undo_unfinished", lambda _: None)
        with pytest.raises(Killed):
            appended(tmp_path, 1)
    assert (tmp_path / "files" / RECORD).exists()
    assert (tmp_path / "files" / "x").read_bytes() == b"1\n2\n" * 2
    appended(tmp_path, 1)
    assert (tmp_path / "files" / "x").read_bytes() == b"1\n2\n" * 2
    assert len(letters_in(tmp_path / "letters")) == 2
