"""The file action: paths, contents, repeated batches, faults, and hostile idents."""

import errno
import os
import random
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from acting import Killed, context_of, killed, letters_in

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions import Counts, DeadLetters, performer
from headrace.pipeline.actions import file_append as append
from headrace.pipeline.actions.file import FilePerformer
from headrace.pipeline.actions.prepared import without
from headrace.pipeline.rules import FileAction
from support.seeds import random_seed


def rows_of(*rows: tuple[str, bytes], **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({
        "sequence": pa.array(range(1, len(rows) + 1), pa.int64()), "feed": ["wx/text"] * len(rows),
        "ident": [ident for ident, _ in rows], "payload": [payload for _, payload in rows], **columns,
    })  # fmt: skip


class Bench:
    """A file action with its folders, fed with Arrow batches."""

    def __init__(self, root: Path, path: str = "{ident}", **terms: Any) -> None:
        self.root, self.files = root, root / "files"
        action = FileAction(**{"path": path, "folder": self.files, "content": "payload", **terms})
        self.performer = FilePerformer(action, "file-0", terms.get("pattern"), DeadLetters(root / "dead"))

    def put(self, batch_id: int, rows: pa.RecordBatch) -> Counts:
        return self.performer.perform_batches([self.performer.recipe(rows)], context_of(self.root, batch_id))

    def held(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.files)): path.read_bytes()
            for path in self.files.rglob("*") if path.is_file() and not path.name.startswith(".headrace")
        }  # fmt: skip

    def letters(self) -> list[dict[str, Any]]:
        return letters_in(self.root / "dead")


def test_rows_are_appended_in_their_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "{feed}/{ident}.txt")
    assert bench.put(0, rows_of(("a", b"1"), ("b", b"2"), ("a", b"3"))) == Counts(3, 2)
    assert bench.put(1, rows_of(("a", b"4"))) == Counts(1, 1)
    assert bench.held() == {"wx/text/a.txt": b"134", "wx/text/b.txt": b"2"}


def test_a_repeated_batch_is_not_appended_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put(0, rows_of(("a", b"1"), ("..", b"x")))
    assert bench.put(0, rows_of(("a", b"1"), ("..", b"x"))) == Counts(1, 1, 1)
    assert (bench.held(), len(bench.letters())) == ({"a": b"1"}, 1)


def test_a_batch_that_another_process_has_finished_is_not_appended_again(tmp_path: Path) -> None:
    bench, other = Bench(tmp_path), Bench(tmp_path)
    rows = rows_of(("a", b"1"))

    def meanwhile() -> Iterator[pa.RecordBatch]:
        other.put(0, rows)
        yield bench.performer.recipe(rows)

    assert bench.performer.perform_batches(meanwhile(), context_of(tmp_path, 0)) == Counts(1, 1)
    assert bench.held() == {"a": b"1"}


def test_a_checkpoint_that_went_back_is_an_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put(5, rows_of(("a", b"1")))
    with pytest.raises(PipelineError, match=r"Spark sends batch 4, .* batch 5 is done.*; remove .*state"):
        bench.put(4, rows_of(("a", b"0")))


def test_json_and_texts_are_lines(tmp_path: Path) -> None:
    rows = rows_of(("a", b"\xff"), ("a", b""), text=["eins", "zwei\n"])
    Bench(tmp_path / "1", content="text").put(0, rows)
    Bench(tmp_path / "2", content="json").put(0, rows)
    assert (tmp_path / "1/files/a").read_bytes() == b"eins\nzwei\n"
    assert (tmp_path / "2/files/a").read_bytes().splitlines()[0] == (
        b'{"sequence":1,"feed":"wx/text","ident":"a","payload":"/w==","text":"eins"}'
    )


def test_each_row_has_a_file_and_none_is_replaced(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mode="each")
    assert bench.put(0, rows_of(("a", b"1"), ("b", b""), ("a", b"other"), ("a", b"1"))) == Counts(3, 2, 1)
    assert bench.held() == {"a": b"1", "b": b""}
    (letter,) = bench.letters()
    assert (letter["sequence"], letter["payload"], letter["rule"], letter["batch"]) == (3, b"other", "r", 0)
    assert "exists with other bytes" in letter["error"]


@pytest.mark.parametrize("contents", [(b"AB", b"ABC"), (b"ABC", b"AB"), (b"", b"A"), (b"A", b"")])
def test_an_existing_file_stays_even_if_one_content_begins_with_the_other(
    tmp_path: Path, contents: tuple[bytes, bytes]
) -> None:
    """A repeated batch has the same outcome."""
    bench = Bench(tmp_path, mode="each")
    for _ in range(3):
        assert bench.put(0, rows_of(*(("a", content) for content in contents))) == Counts(1, 1, 1)
        assert bench.held() == {"a": contents[0]}
        assert [letter["payload"] for letter in bench.letters()] == [contents[1]]


def test_two_rules_do_not_replace_each_others_files(tmp_path: Path) -> None:
    paths = [f"p{number}" for number in range(1000)]
    benches = [Bench(tmp_path / name, mode="each", folder=tmp_path / "shared") for name in ("one", "two")]
    for place, bench in enumerate(benches):
        bench.performer._name = f"file-{place}"

    def put(place: int) -> Counts:
        return benches[place].put(0, rows_of(*((path, b"%d" % place) for path in paths)))

    with ThreadPoolExecutor(2) as pool:
        first = list(pool.map(put, range(2)))
    assert sum(counts.rows for counts in first) == sum(counts.failed for counts in first) == len(paths)
    assert [put(place) for place in range(2)] == first


def test_the_last_row_overwrites_the_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mode="overwrite")
    bench.put(0, rows_of(("a", b"first"), ("a", b"2")))
    assert bench.held() == {"a": b"2"}


@pytest.mark.parametrize("mode", ["append", "each", "overwrite"])
@pytest.mark.parametrize("path", ["{ident}", "{ident:path}", "x/{ident}/y", "{ident:path}/y"])
def test_hostile_idents_stay_below_the_folder(tmp_path: Path, mode: str, path: str) -> None:
    chance = random.Random(random_seed())
    pieces = [
        "..",
        ".",
        "/",
        "//",
        "a",
        "b",
        "\0",
        "\n",
        "%2F",
        "~",
        "-",
        "x" * 300,
        "é" * 200,
        ".headrace-append",
        "\\",
        " ",
    ]
    idents = [
        "../escaped",
        "/etc/escaped",
        "a/../../escaped",
        "..",
        "/",
        "",
        "a\0b",
        "x" * 5000,
        "a/" * 3000 + "b",
        "a",
        "a/b",
    ]
    idents += ["".join(chance.choices(pieces, k=chance.randint(1, 8))) for _ in range(300)]
    (tmp_path / "outer").mkdir()
    bench = Bench(tmp_path / "outer", path, mode=mode)
    counts = bench.put(0, rows_of(*((ident, b"%d" % place) for place, ident in enumerate(idents))))
    assert counts.rows + counts.failed == len(idents)
    assert counts.failed == len(bench.letters())
    assert {each.name for each in tmp_path.iterdir()} == {"outer"}
    assert {each.name for each in (tmp_path / "outer").iterdir()} <= {"files", "dead", "state", ".headrace"}
    assert not Path("/etc/escaped").exists()
    if mode == "append":
        assert sum(map(len, bench.held().values())) == sum(
            len(b"%d" % place) for place in set(range(len(idents))) - {row["sequence"] - 1 for row in bench.letters()}
        )


def test_a_path_that_would_be_both_file_and_folder_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "{ident:path}")
    assert bench.put(0, rows_of(("a", b"1"), ("a/b", b"2"), ("c/d", b"3"), ("c", b"4"))).failed == 2
    assert bench.put(1, rows_of(("a/b", b"2"), ("c", b"4"), ("a", b"5"))).failed == 2
    assert bench.held() == {"a": b"15", "c/d": b"3"}


def fail_at(monkeypatch: pytest.MonkeyPatch, code: int, bytes_before: int) -> None:
    """A disk that takes so many bytes and no more."""
    real, left = append.Spool.chunks, [bytes_before]

    def chunks(self: Any, path: str) -> Any:
        for chunk in real(self, path):
            if left[0] < len(chunk):
                yield chunk[: left[0]]
                raise OSError(code, os.strerror(code), path)
            left[0] -= len(chunk)
            yield chunk

    monkeypatch.setattr(append.Spool, "chunks", chunks)


def test_a_full_disk_leaves_the_files_unchanged(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put(0, rows_of(("a", b"old"), ("b", b"old")))
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, errno.ENOSPC, 6)
        with pytest.raises(PipelineError, match=r"was not written: No space left on device; free some space"):
            bench.put(1, rows_of(("a", b"four"), ("b", b"four"), ("c", b"four")))
    assert bench.held() == {"a": b"old", "b": b"old"}
    assert bench.put(1, rows_of(("a", b"four"), ("c", b"four"))) == Counts(2, 2)
    assert bench.held() == {"a": b"oldfour", "b": b"old", "c": b"four"}


def test_a_file_that_others_write_to_is_not_truncated(tmp_path: Path) -> None:
    """A writer was killed, and another program appended without the lock."""
    bench = Bench(tmp_path)
    bench.put(0, rows_of(("a", b"old")))
    record = append.Record(
        1, str(tmp_path / "state/file-0.json"), [append.Touched("a", 3, 5, (bench.files / "a").stat().st_ino)]
    )
    (bench.files / append.RECORD).write_bytes(append.msgspec.json.encode(record))
    (bench.files / "a").write_bytes(b"oldXX and more")
    with pytest.raises(PipelineError, match=r"files/a has 14 bytes, more than the 5 that .*remove .headrace-append"):
        bench.put(1, rows_of(("a", b"XX")))
    assert bench.held()["a"] == b"oldXX and more"


def test_a_finished_batch_is_not_undone(tmp_path: Path) -> None:
    """A writer was killed between its mark in the journal and the removal of its record."""
    bench = Bench(tmp_path)
    bench.put(0, rows_of(("a", b"old")))
    record = append.Record(0, str(tmp_path / "state/file-0.json"), [append.Touched("a", append.NEW, 3, 0)])
    (bench.files / append.RECORD).write_bytes(append.msgspec.json.encode(record))
    bench.put(1, rows_of(("a", b"new")))
    assert bench.held() == {"a": b"oldnew"}
    assert not (bench.files / append.RECORD).exists()


def kill_before_the_first_byte(bench: Bench, rows: pa.RecordBatch) -> None:
    """As a kill between the record and the bytes that it announces."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(append, "_write", killed)
        patch.setattr(append, "undo_unfinished", lambda folder: None)
        bench.put(0, rows)
    assert (bench.files / append.RECORD).exists()


def test_a_file_that_another_program_has_created_since_is_not_removed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    kill_before_the_first_byte(bench, rows_of(("a", b"ours")))
    theirs = bench.files / "b"
    theirs.write_bytes(b"not")
    theirs.rename(bench.files / "a")
    bench.put(0, rows_of(("a", b"ours")))
    assert bench.held() == {"a": b"notours"}


def test_a_file_that_another_program_has_written_to_since_stops_the_pipeline(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    kill_before_the_first_byte(bench, rows_of(("a", b"ours")))
    (bench.files / "a").write_bytes(b"not")
    with pytest.raises(
        PipelineError, match=r"a continues after byte 0 with bytes that are not from the pipeline.*remove"
    ):
        bench.put(0, rows_of(("a", b"ours")))
    assert bench.held() == {"a": b"not"}


def test_the_bytes_of_a_killed_writer_are_undone(tmp_path: Path) -> None:
    """Also after a power failure, when a file has the right size and the wrong bytes."""
    bench = Bench(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    bench.files.mkdir()
    (bench.files / "link").symlink_to(tmp_path / "elsewhere" / "file")
    kill_before_the_first_byte(bench, rows_of(("a", b"ours"), ("b", b"ours"), ("link", b"ours")))
    (bench.files / "a").write_bytes(b"ou")
    (bench.files / "b").write_bytes(b"ou\0\0")
    (bench.files / "link").write_bytes(b"our")
    with append.append_lock(bench.files):
        append.undo_unfinished(bench.files)
    assert bench.held() == {}
    assert (bench.files / "link").is_symlink()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_that_is_removed_before_it_is_written_is_not_created_again(tmp_path: Path) -> None:
    """It would not be in the record, and a repeated batch would write to it again."""
    bench = Bench(tmp_path)
    real = append.replace_file
    with pytest.MonkeyPatch.context() as patch:

        def replace_file(path: Path, data: bytes, storage: Any) -> None:
            real(path, data, storage)
            (bench.files / "a").unlink(missing_ok=True)

        patch.setattr(append, "replace_file", replace_file)
        with pytest.raises(TargetError, match=r"a was removed or replaced before a batch was written to it"):
            bench.put(0, rows_of(("a", b"1")))
    assert bench.put(0, rows_of(("a", b"1"))) == Counts(1, 1)
    assert bench.held() == {"a": b"1"}


def test_nothing_is_left_of_a_batch_that_cannot_be_recorded(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def full(path: Path, data: bytes, storage: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append, "replace_file", full)
        with pytest.raises(PipelineError, match="No space left on device; free some space"):
            bench.put(0, rows_of(("a", b"1"), ("b", b"1")))
    assert bench.held() == {}


@pytest.mark.parametrize("mode", ["append", "each", "overwrite"])
def test_an_invalid_folder_is_an_error(tmp_path: Path, mode: str) -> None:
    (tmp_path / "files").write_text("in the way")
    with pytest.raises(PipelineError, match=r"files was not created: File exists"):
        Bench(tmp_path, mode=mode).put(0, rows_of(("a", b"1")))


def test_a_file_size_limit_leaves_the_files_unchanged(tmp_path: Path) -> None:
    """A limit of the operating system's: a write is cut short, the next one fails."""
    bench = Bench(tmp_path)
    bench.put(0, rows_of(("a", b"x" * 60_000), ("b", b"old")))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(PipelineError, match=r"was not written: File too large"):
            bench.put(1, rows_of(("b", b"new"), ("a", b"y" * 60_000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert bench.held() == {"a": b"x" * 60_000, "b": b"old"}
    bench.put(1, rows_of(("b", b"new"), ("a", b"y" * 60_000)))
    assert bench.held() == {"a": b"x" * 60_000 + b"y" * 60_000, "b": b"oldnew"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("mode", ["append", "each", "overwrite"])
def test_a_folder_without_write_permission_is_an_error(tmp_path: Path, mode: str) -> None:
    (tmp_path / "files").mkdir(mode=0o500)
    with pytest.raises(PipelineError, match=r"Permission denied; change its owner or its permissions"):
        Bench(tmp_path, mode=mode).put(0, rows_of(("a", b"1")))


BODY = b"METAR KDEN 060053Z=\r\r\n"


@pytest.mark.parametrize(
    ("payload", "kept"),
    [
        (b"\x01\r\r\n123 \r\r\nSAUS70 KWBC 060000\r\r\n" + BODY + b"\x03", b"METAR KDEN 060053Z="),
        (b"SAUS70 KWBC 060000 RRA\r\r\nMTRDEN\r\r\n" + BODY, BODY),
        (b"ISIE01 EGRR 060000\r\r\nBUFR\x01\x86\xa0\x03rest", b"BUFR\x01\x86\xa0\x03rest"),
        (b"no heading\r\r\n\x03", b"no heading\r\r\n\x03"),
        (b"", b""),
    ],
)
def test_the_heading_is_removed(payload: bytes, kept: bytes) -> None:
    assert without(payload, ["wmo"]) == kept


def test_control_characters_are_removed_but_for_line_feeds() -> None:
    assert without(b"\x01a\r\r\nb\tc\x7f\xc3\xa9\x03", ["controls"]) == b"a\nbc\xc3\xa9"


def test_rows_come_from_spark_in_their_order(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(1, 5001, 1, 4).selectExpr(
        "id as sequence", "'wx/text' as feed", "concat('i', id % 7) as ident", "cast(concat(id, '\n') as binary) as payload",
        "cast(X'61ff' as string) as broken",
    )  # fmt: skip
    action = FileAction(path="{ident}/{broken}", folder=tmp_path / "files", content="payload")
    made = performer(action, "file-0", None, DeadLetters(tmp_path / "dead"))
    context = context_of(tmp_path, 0)
    assert made.perform(frame, context) == Counts(5000, 7)
    assert made.perform(frame.limit(1), context) == Counts(5000, 7), "a finished batch is not read again"
    held = {path.parent.name: path.read_bytes() for path in (tmp_path / "files").rglob("a\ufffd")}
    assert held == {f"i{n}": b"".join(b"%d\n" % each for each in range(1, 5001) if each % 7 == n) for n in range(7)}
    with pytest.raises(PipelineError, match="no column 'nothing'"):
        performer(
            FileAction(path="{nothing}", folder=tmp_path, content="payload"), "f", None, DeadLetters(tmp_path)
        ).perform(frame, context)
