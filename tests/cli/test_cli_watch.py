"""headrace watch, alone and beside processes that put products."""

import base64
import os
import pty
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import Queue
from support.commandline import Run, environment, fill, objects, spoil
from support.waiting import until


def test_each_product_is_a_line(run: Run, path: Path) -> None:
    fill(path, 2)
    lines = run("watch", path, "--from", "oldest", "--count", "2").stdout.splitlines()
    sequence, inserted, size, unit, _age, _age_unit, feed, *ident = lines[1].split()
    assert (sequence, size, unit, feed, ident) == ("2", "9", "B", "wx/text", ["ident", "2"])
    assert inserted.endswith("Z")


def test_each_product_is_an_object_for_programs(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put(b"content", feed="wx/text", ident="SAUS70", priority=6, properties={"run": 6}, slice=2)
    (told,) = objects(run("watch", path, "--from", "oldest", "--count", "1", "--json").stdout)
    assert (told["sequence"], told["feed"], told["ident"], told["size"]) == (1, "wx/text", "SAUS70", 7)
    assert (told["priority"], told["properties"], told["slice"], told["origin"]) == (6, {"run": 6}, 2, "here")
    assert len(told["signature"]) == 32
    assert told["bound_s"] is None
    assert told["age_s"] >= 0


def test_only_selected_products_are_shown(run: Run, path: Path) -> None:
    fill(path, 12, "wx/text")
    with Queue.open(path) as queue:
        queue.put(b"echo", feed="wx/radar/KFTG", ident="ident 1")
    words = ["--from", "oldest", "--timeout", "0s", "--json"]
    assert [p["sequence"] for p in objects(run("watch", path, "--select", "wx/radar/*", *words).stdout)] == [13]
    assert [p["sequence"] for p in objects(run("watch", path, "--ident", " 1$", *words).stdout)] == [1, 13]


@pytest.mark.parametrize(("start", "first"), [("3", 3), ("oldest", 1), ("1h", 1), ("2020-01-01", 1)])
def test_watch_starts_at_the_given_position(run: Run, path: Path, start: str, first: int) -> None:
    fill(path, 4)
    shown = objects(run("watch", path, "--from", start, "--timeout", "0s", "--json").stdout)
    assert [product["sequence"] for product in shown] == list(range(first, 5))


def test_watch_waits_for_a_time_in_the_future(run: Run, path: Path) -> None:
    with Queue.open(path) as queue, ThreadPoolExecutor(1) as threads:
        queue.put(b"before", feed="wx/text")
        start = datetime.now(UTC) + timedelta(seconds=1)
        words = ["--from", start.isoformat(), "--count", "1", "--timeout", "2min", "--json"]
        shown = threads.submit(run, "watch", path, *words)
        until(lambda: queue.put(b"%d" % queue.next, feed="wx/text") and shown.done(), "the watch has shown a product")
        (told,) = objects(shown.result().stdout)
        assert queue.read_batch(told["sequence"])[0].inserted >= start
        assert told["sequence"] == 1 or queue.read_batch(told["sequence"] - 1)[0].inserted < start


def test_products_from_before_the_start_are_not_shown_by_default(run: Run, path: Path) -> None:
    fill(path, 4)
    result = run("watch", path, "--timeout", "0s")
    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--from", "sometime"], "start 'sometime' is invalid"),
        (["--from", str(1 << 70)], "is out of range"),
        (["--in-order", "2h"], "hold of 2h is out of range"),
        (["--ident", "("], "is not a regular expression"),
        (["--select", "a/b*"], "has the illegal level 'b*'"),
        (["--select", "a b"], "there is no clause 'b'"),
        (["--timeout", "5 apples"], "--timeout '5 apples' is not a length of time"),
        (["--count", "0"], "Invalid value for '--count'"),
        (["--cursor", ""], "cursor name '' is invalid"),
    ],
)
def test_invalid_options_are_refused(run: Run, path: Path, words: list[str], problem: str) -> None:
    result = run("watch", path, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


def test_a_cursor_continues_where_the_last_watch_ended(run: Run, path: Path) -> None:
    fill(path, 5)
    words = ["--cursor", "archive", "--from", "oldest", "--timeout", "0s", "--json"]
    first = objects(run("watch", path, *words, "--count", "2").stdout)
    rest = objects(run("watch", path, *words).stdout)
    assert [p["sequence"] for p in first] == [1, 2]
    assert [p["sequence"] for p in rest] == [3, 4, 5]


def test_a_cursor_advances_past_products_that_do_not_match(run: Run, path: Path) -> None:
    fill(path, 5)
    run("watch", path, "--cursor", "radar", "--from", "oldest", "--timeout", "0s", "--select", "wx/radar/**")
    with Queue.open(path) as queue:
        assert queue.cursor("radar").position == 6


def lose_some(path: Path) -> int:
    """Make a queue lose its oldest products; the oldest that is left."""
    with Queue.open(path) as queue:
        for n in range(60):
            queue.put(n.to_bytes(1) * 100_000, feed="x")
        assert queue.oldest > 1
        return queue.oldest


def test_a_lost_range_is_reported_exactly(run: Run, path: Path) -> None:
    oldest = lose_some(path)
    result = run("watch", path, "--from", "1", "--count", "1")
    assert f"headrace: lost 1-{oldest - 1} ({oldest - 1} products)" in result.stderr
    assert result.stdout.split()[0] == str(oldest)


def test_a_lost_range_is_an_object_for_programs(run: Run, path: Path) -> None:
    oldest = lose_some(path)
    result = run("watch", path, "--from", "1", "--count", "1", "--json", "--cursor", "late")
    assert objects(result.stderr) == [{"lost": {"first": 1, "last": oldest - 1, "products": oldest - 1}}]
    with Queue.open(path) as queue:
        assert queue.cursor("late").state.lost_products == oldest - 1


def test_a_damaged_product_is_reported_and_skipped(run: Run, path: Path) -> None:
    fill(path, 3)
    spoil(path, b"product 2")
    result = run("watch", path, "--from", "oldest", "--timeout", "0s", "--json")
    assert result.exit_code == 1
    assert [p["sequence"] for p in objects(result.stdout)] == [1, 3]
    assert objects(result.stderr) == [{"damaged": {"first": 2, "last": 2}}]


def test_control_characters_of_an_ident_do_not_reach_the_terminal(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put(b"x", feed="x", ident="\x1b[31m [bold]two\nlines")
    (line,) = run("watch", path, "--from", "oldest", "--count", "1").stdout.splitlines()
    assert line.endswith(r"\x1b[31m [bold]two\nlines")


# --- real processes -------------------------------------------------------------------------------


def test_a_watch_shows_what_another_process_puts(path: Path, start) -> None:
    watcher = start("watch", path, "--count", "3", "--timeout", "30s", "--json")
    with Queue.open(path) as queue:
        until(lambda: queue.statistics().readers)
    for n in range(3):
        put = start("put", path, "--feed", "wx/text", "--ident", f"number {n}", stdin=subprocess.PIPE)
        put.communicate(b"content %d" % n, timeout=60)
        assert put.returncode == 0
    out, err = watcher.communicate(timeout=240)
    assert (watcher.returncode, err) == (0, b"")
    assert [p["ident"] for p in objects(out.decode())] == ["number 0", "number 1", "number 2"]


def test_a_line_appears_at_once_and_ctrl_c_ends_cleanly(path: Path, start) -> None:
    watcher = start("watch", path, "--cursor", "c")
    with Queue.open(path) as queue:
        until(lambda: queue.statistics().readers)
        queue.put(b"x", feed="x", ident="first")
        assert b"first" in watcher.stdout.readline()
        until(lambda: queue.cursor("c").position == 2)
        watcher.send_signal(signal.SIGINT)
        out, err = watcher.communicate(timeout=240)
        assert (watcher.returncode, out, err.strip()) == (130, b"", b"")
        assert queue.statistics().readers == 0


def test_a_watch_ends_quietly_when_it_is_terminated(path: Path, start) -> None:
    watcher = start("watch", path)
    with Queue.open(path) as queue:
        until(lambda: queue.statistics().readers)
        watcher.send_signal(signal.SIGTERM)
        assert watcher.communicate(timeout=240) == (b"", b"")
        assert watcher.returncode == 143
        assert queue.statistics().readers == 0


def test_a_watch_ends_quietly_when_its_output_is_closed(path: Path, start) -> None:
    """It does not wait for another product first."""
    fill(path, 3)
    watcher = start("watch", path, "--from", "oldest")
    assert b"ident 1" in watcher.stdout.readline()
    watcher.stdout.close()
    assert watcher.wait(timeout=240) == 141
    assert watcher.stderr.read() == b""


def test_a_pipe_that_is_closed_during_a_long_output_ends_it_quietly(path: Path, start) -> None:
    fill(path, 5000)
    watcher = start("watch", path, "--from", "oldest", "--timeout", "0s", "--json")
    watcher.stdout.readline()
    watcher.stdout.close()
    assert watcher.wait(timeout=240) == 141
    assert watcher.stderr.read() == b""


def test_tables_have_frames_on_a_terminal(path: Path, start) -> None:
    main, terminal = pty.openpty()
    process = start("queue", "info", path, stdout=terminal, env=environment(TERM="xterm", COLUMNS="100"))
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(main, 65536):
            shown += chunk
    except OSError:  # the other side is closed
        pass
    os.close(main)
    assert process.wait(timeout=240) == 0
    assert "╭".encode() in shown


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"METAR KDEN\r\r\nA3002=\n", ["METAR KDEN", "A3002="]),
        (b"\x1b[31mred\x07\x9b", ["000000  1b 5b 33 31 6d 72 65 64 07 9b                    |.[31mred..|"]),
        ("\x1b]0;title\x07\u202e\u00fc".encode(), ["\\x1b]0;title\\x07\\u202e\u00fc"]),
        (b"a\0b", ["000000  61 00 62                                         |a.b|"]),
        (b"x" * 2047 + "\u00fc".encode(), ["x" * 2047, "\u2026 1 B more: headrace cat"]),
        (b"", [""]),
    ],
    ids=["bulletin", "not-utf-8", "control", "zero", "cut", "empty"],
)
def test_a_payload_is_shown_safely_and_bounded(run: Run, path: Path, payload: bytes, shown: list[str]) -> None:
    with Queue.open(path) as queue:
        queue.put(payload, feed="wx/text")
    result = run("watch", path, "--from", "oldest", "--timeout", "0s", "--payload")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.strip() for line in lines[1:]] == shown
    assert not any(character in result.stdout for character in "\x1b\x07\u202e")


def test_many_lines_of_a_payload_are_cut(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put(b"a\n" * 100, feed="wx/text")
    lines = run("watch", path, "--from", "oldest", "--timeout", "0s", "--payload").stdout.splitlines()
    assert len(lines) == 1 + 40 + 1
    assert "121 B more" in lines[-1]


def test_the_beginning_of_a_payload_is_in_the_json(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put(b"\0" * 5000, feed="wx/text")
    (told,) = objects(run("watch", path, "--from", "oldest", "--timeout", "0s", "--payload", "--json").stdout)
    assert (base64.b64decode(told["payload"]), told["size"]) == (b"\0" * 2048, 5000)


def put_unordered(path: Path) -> None:
    """Products whose idents say in which order they were created; the first of them arrives last."""
    with Queue.open(path) as queue:
        for ident in "3241":
            queue.put(b"x", feed="wx/text", ident=ident, created=1_700_000_000_000_000_000 + int(ident) * 1_000_000)


@pytest.mark.parametrize("option", ["--in-order", "--pace"])
def test_products_are_shown_in_the_order_of_their_creation(run: Run, path: Path, option: str) -> None:
    put_unordered(path)
    shown = objects(run("watch", path, "--from", "oldest", "--timeout", "0s", option, "50ms", "--json").stdout)
    assert [(product["ident"], product["late"]) for product in shown] == [(ident, False) for ident in "1234"]
    text = run("watch", path, "--from", "oldest", "--timeout", "0s", option, "50ms").stdout
    assert text.splitlines()[0].split()[1].startswith("2023-11-14")  # the time of creation
    result = run("watch", path, "--in-order", "1s", "--pace", "1s")
    assert (result.exit_code, "contradicts" in result.stderr) == (2, True)


def test_a_cursor_of_an_ordered_watch_misses_nothing(run: Run, path: Path) -> None:
    put_unordered(path)
    words = ["--cursor", "c", "--from", "oldest", "--timeout", "0s", "--json", "--in-order", "50ms"]
    assert [each["ident"] for each in objects(run("watch", path, *words, "--count", "3").stdout)] == ["1", "2", "3"]
    with Queue.open(path) as queue:
        assert queue.cursor("c").position == 3  # where product 4 is
    assert [each["ident"] for each in objects(run("watch", path, *words).stdout)] == ["1", "4"]
