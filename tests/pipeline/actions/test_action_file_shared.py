"""Files of many rules in one folder: one journal for all, dead letters by rule, and the same guarantee."""

from pathlib import Path

import pytest

from headrace.pipeline.actions import DeadLetters
from headrace.pipeline.actions.file import FilePerformer
from headrace.pipeline.actions.file_append import RECORD
from headrace.pipeline.actions.file_shared import SharedAppend, SharedPlacing
from headrace.pipeline.actions.prepared import PreparedRow, Sender
from headrace.pipeline.rules import FileAction
from pipeline.actions.acting import Killed, context_of, killed, letters_in


def row(sequence: int, path: str, content: bytes) -> PreparedRow:
    return PreparedRow([path], content, None, sequence, "a", "i")


def appended(root: Path, batch_id: int) -> list[tuple[int, int]]:
    """Append rows of two rules, of which one has an invalid row; the rows and failures of each."""
    action = SharedAppend(root / "files", DeadLetters(root / "letters"))
    one, two = Sender("one", "file-0", None), Sender("two", "file-1", None)
    rows = [
        (one, row(1, "x", b"1\n")), (two, row(1, "x", b"2\n")), (one, row(2, "../y", b"bad")), (two, row(3, "z", b"3\n")),
    ]  # fmt: skip
    counts = action.perform(rows, context_of(root, batch_id))
    return [(counts[each].rows, counts[each].failed) if each in counts else (0, 0) for each in (one, two)]


def test_rules_append_to_shared_files_and_each_has_its_counts_and_dead_letters(tmp_path: Path) -> None:
    assert appended(tmp_path, 0) == [(1, 1), (2, 0)]
    assert (tmp_path / "files" / "x").read_bytes() == b"1\n2\n"
    assert (tmp_path / "files" / "z").read_bytes() == b"3\n"
    assert [(each["rule"], each["action"]) for each in letters_in(tmp_path / "letters")] == [("one", "file-0")]


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


def test_of_all_rules_that_overwrite_a_file_the_last_row_wins(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "letters")

    def sender(rule: str, mode: str) -> Sender:
        action = FileAction(path="x", folder=tmp_path / "files", mode=mode)  # type: ignore[arg-type]
        return Sender(rule, "file-0", FilePerformer(action, "file-0", None, letters))

    one, two, each = sender("one", "overwrite"), sender("two", "overwrite"), sender("each", "each")
    rows = [
        (one, row(1, "x", b"1")), (two, row(1, "x", b"2")), (each, row(1, "own", b"a")), (one, row(2, "x", b"3")),
        (each, row(2, "own", b"b")),
    ]  # fmt: skip
    counts = SharedPlacing(tmp_path / "files", letters).perform(rows, context_of(tmp_path))
    assert ((tmp_path / "files" / "x").read_bytes(), (tmp_path / "files" / "own").read_bytes()) == (b"3", b"a")
    assert [(counts[each].rows, counts[each].failed) for each in (one, two, each)] == [(2, 0), (1, 0), (1, 1)]
    assert [letter["rule"] for letter in letters_in(tmp_path / "letters")] == ["each"]
