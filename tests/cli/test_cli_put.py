"""headrace put: files, standard input, lines."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace import Queue
from headrace.cli.put import BATCH_LINES_MAX, line_batches
from support.commandline import Run, objects
from support.waiting import until


def held(path: Path) -> list[tuple[str, bytes]]:
    with Queue.open(path) as queue:
        return [(product.ident, bytes(product.payload)) for product in queue.read_batch()]


def test_each_file_is_a_product_named_by_the_file(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"alpha")
    (tmp_path / "b.bin").write_bytes(bytes(range(256)))
    result = run("put", path, "a.txt", tmp_path / "b.bin", "--feed", "wx/text")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["       1  wx/text  5 B  a.txt", "       2  wx/text  256 B  b.bin"]
    assert held(path) == [("a.txt", b"alpha"), ("b.bin", bytes(range(256)))]


def test_an_ident_may_be_empty(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n")
    assert run("put", path, "a", "--feed", "x", "--ident", "").exit_code == 0
    assert run("put", path, "a", "--feed", "x", "--ident", "", "--lines").exit_code == 0
    assert held(path) == [("", b"one\ntwo\n"), ("", b"one"), ("", b"two")]


def test_an_empty_file_is_an_empty_product(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert run("put", path, "empty", "--feed", "x").exit_code == 0
    assert held(path) == [("empty", b"")]


def test_a_duplicate_is_reported_and_is_not_an_error(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"same")
    (tmp_path / "b").write_bytes(b"same")
    result = run("put", path, "a", "b", "a", "--feed", "x")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == ["       2  x  4 B  b", "duplicate of 1  x  4 B  a"]
    lines = objects(run("put", path, "a", "--feed", "x", "--json").stdout)
    assert lines == [{"sequence": 1, "feed": "x", "ident": "a", "size": 4, "duplicate": True}]


def test_an_unreadable_file_does_not_stop_the_others(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"alpha")
    (tmp_path / "folder").mkdir()
    result = run("put", path, "missing", "folder", "a", "--feed", "x")
    assert result.exit_code == 2
    assert "headrace: missing is not readable: No such file or directory" in result.stderr
    assert "headrace: folder is not readable: Is a directory" in result.stderr
    assert held(path) == [("a", b"alpha")]


def test_an_unreadable_file_is_json_for_programs(run: Run, path: Path) -> None:
    (told,) = objects(run("put", path, "missing", "--feed", "x", "--json").stderr)
    assert (told["error"], told["exit"]) == ("FileNotFoundError", 2)
    assert told["problem"].startswith("missing is not readable")


def test_many_files_are_summarised(run: Run, path: Path, tmp_path: Path) -> None:
    names = [f"file-{n}" for n in range(30)]
    for name in names:
        (tmp_path / name).write_text(name)
    assert run("put", path, *names, "--feed", "x").stdout == "put 30 products (200 B) under x\n"
    assert run("put", path, *names, "missing", "--feed", "x").stdout == (
        "put 0 products (0 B) under x, 30 duplicates, 1 failed\n"
    )


@pytest.mark.parametrize("words", [[], ["-"]])
def test_standard_input_is_one_product(run: Run, path: Path, words: list[str]) -> None:
    binary = bytes(range(256)) * 3
    assert run("put", path, *words, "--feed", "x", "--ident", "a {name} {{b", stdin=binary).exit_code == 0
    assert held(path) == [("a {name} {{b", binary)]  # as it is: idents of other systems may have braces


def test_empty_standard_input_is_an_error(run: Run, path: Path) -> None:
    result = run("put", path, "--feed", "x", stdin=b"")
    assert result.exit_code == 2
    assert "standard input: it is empty, nothing was put" in result.stderr
    assert held(path) == []


def test_a_payload_that_is_too_large_is_refused_by_name(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(bytes(5 << 20))
    result = run("put", path, "huge", "--feed", "x")
    assert result.exit_code == 2
    assert "headrace: huge: a payload of " in result.stderr


def test_every_optional_fact_of_a_product_is_passed_on(run: Run, path: Path) -> None:
    words = ["--priority", "7", "--slice", "3", "--expiry", "1h", "--property", "run=6", "--property", "ratio=0.5"]
    more = ["--property", "good=true", "--property", "site=KDEN", "--property", 'code="06"', "--property", "raw=06"]
    assert run("put", path, "--feed", "x", *words, *more, stdin=b"content").exit_code == 0
    with Queue.open(path) as queue:
        product = queue.read_batch()[0]
    assert (product.priority, product.slice) == (7, 3)
    assert product.expiry_ns is not None
    assert 3590 < (product.expiry_ns - product.inserted_ns) / 1e9 <= 3600
    assert product.properties == {"run": 6, "ratio": 0.5, "good": True, "site": "KDEN", "code": "06", "raw": "06"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--feed", "a b"], "feed 'a b' has the illegal level 'a b'"),
        (["--feed", ""], "the feed is empty"),
        (["--feed", "x", "--lines", "--ident", "{nome}"], "ident template '{nome}' is invalid"),
        (["--feed", "x", "--lines", "--ident", "{name.__class__}"], "is invalid"),
        (["--feed", "x", "--lines", "--ident", "{"], "is invalid"),
        (["--feed", "x", "--lines", "--ident", "{name}"], "names a file, and standard input is none"),
        (["--feed", "x", "--ident", "i" * 2000], "has 2000 bytes, more than 1024"),
        (["--feed", "x", "--property", "nothing"], "property 'nothing' has no value"),
        (["--feed", "x", "--property", "=1"], "property name '' is invalid"),
        (["--feed", "x", "--priority", "8"], "Invalid value for '--priority'"),
        (["--feed", "x", "--expiry", "tomorrow"], "--expiry 'tomorrow' is not a length of time"),
        ([], "Missing option '--feed'"),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_put(run: Run, path: Path, words: list[str], problem: str) -> None:
    result = run("put", path, *words, stdin=b"content")
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr
    assert held(path) == []


def test_each_line_is_a_product_and_empty_lines_are_skipped(run: Run, path: Path) -> None:
    result = run("put", path, "--lines", "--feed", "x", stdin=b"one\ntwo\n\n\xff\xfe\nlast")
    assert result.stdout == "put 4 products (12 B) under x\n"
    assert held(path) == [("", b"one"), ("", b"two"), ("", b"\xff\xfe"), ("", b"last")]


def test_lines_are_named_by_the_template(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\nb\n")
    assert run("put", path, "log", "--lines", "--feed", "x", "--ident", "{path} {line:03d} {{}}").exit_code == 0
    assert [ident for ident, _ in held(path)] == ["log 001 {}", "log 002 {}"]


def test_the_json_of_lines_has_each_product(run: Run, path: Path) -> None:
    command = ("put", path, "--lines", "--feed", "x", "--ident", "log", "--json")
    lines = objects(run(*command, stdin=b"a\nb\na\n").stdout)
    assert [(line["sequence"], line["duplicate"]) for line in lines] == [(1, False), (2, False), (1, True)]


def test_equal_readings_from_standard_input_are_all_stored(run: Run, path: Path) -> None:
    """Standard input has no name by which a reading could be the same as an earlier one."""
    for _ in range(2):
        run("put", path, "--feed", "room/a", stdin=b"21.5\n")
        run("put", path, "--feed", "room/b", "--lines", stdin=b"21.5\n21.5\n")
    with Queue.open(path) as queue:
        assert [(product.feed, product.ident) for product in queue.read()] == (
            [("room/a", ""), ("room/b", ""), ("room/b", "")] * 2
        )


def test_no_lines_is_not_an_error(run: Run, path: Path) -> None:
    result = run("put", path, "--lines", "--feed", "x", stdin=b"")
    assert (result.exit_code, result.stdout) == (0, "put 0 products (0 B) under x\n")


def test_a_line_that_is_too_long_is_refused_alone(run: Run, path: Path) -> None:
    result = run("put", path, "--lines", "--feed", "x", stdin=b"before\n" + b"x" * (2 << 20) + b"\nafter\n")
    assert result.exit_code == 2
    assert "headrace: standard input, line 2: " in result.stderr
    assert result.stderr.count("headrace: ") == 1
    assert held(path) == [("", b"before"), ("", b"after")]


def test_more_lines_than_fit_into_one_batch_all_arrive(run: Run, path: Path) -> None:
    lines = [b"%d" % n for n in range(15_000)]
    assert run("put", path, "--lines", "--feed", "x", stdin=b"\n".join(lines)).exit_code == 0
    with Queue.open(path) as queue:
        batch = queue.read_batch(limit=20_000)
        assert [bytes(product.payload) for product in batch] == lines


def test_lines_of_a_slow_stream_are_put_as_they_arrive(path: Path, start) -> None:
    read_end, write_end = os.pipe()
    process = start("put", path, "--lines", "--feed", "x", stdin=read_end)
    os.close(read_end)
    with Queue.open(path) as queue:
        for n in (1, 2):
            os.write(write_end, b"line %d\n" % n)
            until(lambda n=n: queue.next == n + 1)
    os.close(write_end)
    assert process.wait(timeout=240) == 0


def test_a_full_station_ends_the_command_at_its_timeout(run: Run, path: Path, tmp_path: Path) -> None:
    with Queue.open(path) as queue:
        queue.station("slow", None, blocking=True, capacity=1, durable=True)
    (tmp_path / "a").write_text("first")
    (tmp_path / "b").write_text("second")
    assert run("put", path, "a", "--feed", "x", "--timeout", "0s").exit_code == 0
    told = run("put", path, "b", "--feed", "x", "--timeout", "50ms")
    assert told.exit_code == 3
    assert "blocking station 'slow' was full" in told.stderr
    assert held(path) == [("a", b"first")]


@pytest.mark.parametrize("option", [["--timeout", "5"], ["--timeout", "1.5"]])
def test_a_timeout_without_a_unit_is_refused(run: Run, path: Path, option: list[str]) -> None:
    told = run("put", path, "--feed", "x", *option, stdin=b"1")
    assert (told.exit_code, held(path)) == (2, [])
    assert f"{option[1]}s" in told.stderr


def test_a_timeout_in_the_middle_says_how_many_products_are_in_the_queue(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.put.BATCH_LINES_MAX", 2)
    with Queue.open(path) as queue:
        queue.station("slow", None, blocking=True, capacity=3)
    told = run("put", path, "--lines", "--feed", "x", "--timeout", "50ms", stdin=b"1\n2\n3\n4\n5\n6\n")
    assert told.exit_code == 3
    assert "put 4 products (4 B) under x" in told.stdout
    assert len(held(path)) == 4


# --- lines of a stream as batches -------------------------------------------------------------------


class Chunks:
    """A stream that returns its bytes in the given pieces."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = iter([chunk for chunk in chunks if chunk])

    def read1(self, size: int = -1, /) -> bytes:
        return next(self._chunks, b"")


@given(some.lists(some.binary(max_size=40).map(lambda b: b.replace(b"x", b"\n")), max_size=20))
def test_lines_do_not_depend_on_the_chunks_of_the_stream(chunks: list[bytes]) -> None:
    lines = [line for batch in line_batches(Chunks(chunks), 1000) for line in batch]
    expected = [(n, line) for n, line in enumerate(b"".join(chunks).split(b"\n"), 1) if line]
    assert lines == expected


@given(some.lists(some.sampled_from([b"a", b"bb", b"\n", b"cccccc", b"d\n"]), max_size=30))
def test_a_line_that_is_too_long_is_kept_up_to_one_byte_past_the_limit(chunks: list[bytes]) -> None:
    lines = [line for batch in line_batches(Chunks(chunks), 4) for line in batch]
    whole = [(n, line) for n, line in enumerate(b"".join(chunks).split(b"\n"), 1) if line]
    assert lines == [(n, line[:5]) for n, line in whole]


def test_a_batch_is_bounded() -> None:
    batches = list(line_batches(Chunks([b"a\n" * (BATCH_LINES_MAX * 2 + 1)]), 1000))
    assert [len(batch) for batch in batches] == [BATCH_LINES_MAX, BATCH_LINES_MAX, 1]


def test_complete_lines_are_returned_before_more_is_read() -> None:
    batches = line_batches(Chunks([b"one\ntw", b"o\n"]), 1000)
    assert next(batches) == [(1, b"one")]
    assert next(batches) == [(2, b"two")]


def test_a_put_that_waits_says_for_whom(path: Path, start: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    with Queue.open(path) as queue:
        queue.station("decode", "**", blocking=True, capacity=1)
        queue.put(b"first", feed="x")
        process = start("put", path, "--feed", "x", stdin=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"second")
        process.stdin.close()
        process.stdin = None
        told = process.stderr.readline().decode()
        assert told == "headrace: waiting for station decode: 1 of 1 waiting, no consumer attached\n"
        with queue.station("decode").attach() as consumer:
            consumer.ack(consumer.get())
            assert process.wait(timeout=60) == 0
