"""Dead letters in few files, each letter once, with several writers."""

import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from acting import context_of

from headrace.pipeline.actions import DeadLetters, dead_letters
from headrace.pipeline.actions.dead_letter_files import compact_letters
from headrace.pipeline.actions.prepared import PreparedRow


def write(letters: DeadLetters, root: Path, batch: int, *sequences: int, action: str = "file-0") -> None:
    with letters.writing(context_of(root, batch), action) as writing:
        for sequence in sequences:
            writing.add(PreparedRow([], b"x", None, sequence, "wx", "i"), "bad")


def held(root: Path) -> list[tuple[str, int]]:
    rows = [row for path in (root / "dead").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted((row["action"], row["sequence"]) for row in rows)


def test_letters_are_merged_except_those_of_batches_that_may_be_repeated(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "dead")
    for batch in range(6):
        write(letters, tmp_path, batch, batch * 10, batch * 10 + 1)
        write(letters, tmp_path, batch, batch, action="table-0")
    assert compact_letters(tmp_path / "dead") == 9
    assert len(list((tmp_path / "dead").iterdir())) == 3
    write(letters, tmp_path, 5, 50, 52)  # repeated, and another row fails
    write(letters, tmp_path, 5, action="table-0")  # repeated, and no row fails
    expected = [("file-0", batch * 10 + place) for batch in range(6) for place in (0, 2 if batch == 5 else 1)]
    assert held(tmp_path) == sorted(expected + [("table-0", batch) for batch in range(5)])


def test_letters_are_merged_while_rules_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule merges from time to time, here after every batch."""
    monkeypatch.setattr(dead_letters, "_COMPACT_S", 0.0)
    batches, rules = 15, 3

    def rule(number: int) -> None:
        letters = DeadLetters(tmp_path / "dead")
        for batch in range(batches):
            for _ in range(2):  # the first attempt was not noted
                write(letters, tmp_path, batch, number * 100 + batch, action=f"file-{number}")

    threads = [threading.Thread(target=rule, args=(number,)) for number in range(rules)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held(tmp_path) == [(f"file-{n}", n * 100 + batch) for n in range(rules) for batch in range(batches)]
    assert len(list((tmp_path / "dead").iterdir())) < batches * rules / 2
