"""Programs that get rows: those that work, and those that hang, crash or are missing."""

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from acting import context_of, letters_in

from headrace.pipeline.actions import Counts, DeadLetters, performer
from headrace.pipeline.actions.exec import HANGS_MAX
from headrace.pipeline.actions.prepared import prepared_batches
from headrace.pipeline.actions.programs import Group, Programs
from headrace.pipeline.rules import ExecAction, PipeAction
from support.commandline import is_alive
from support.waiting import until


def rows_of(*payloads: bytes, ident: str = "i") -> pa.RecordBatch:
    count = len(payloads)
    return pa.RecordBatch.from_pydict({
        "sequence": pa.array(range(1, count + 1), pa.int64()), "feed": ["wx/text"] * count,
        "ident": [f"{ident}{place}" for place in range(count)], "payload": pa.array(payloads, pa.binary()),
    })  # fmt: skip


class Bench:
    def __init__(self, root: Path, kind: Any, *command: str, group: Group | None = None, **terms: Any) -> None:
        self.root = root
        action = kind(**{"command": command, "folder": root, "content": "payload", "pause_s": 0.01, **terms})
        self.performer: Any = performer(action, "run-0", None, DeadLetters(root / "dead"), group)
        self.batch = 0

    def put(self, *payloads: bytes, ident: str = "i") -> Counts:
        self.batch += 1
        rows = self.performer.recipe(rows_of(*payloads, ident=ident))
        counts: Counts = self.performer.perform_batches([rows], context_of(self.root, self.batch))
        return counts

    def errors(self) -> dict[int, str]:
        return {letter["sequence"]: letter["error"] for letter in letters_in(self.root / "dead")}


def script(root: Path, text: str) -> str:
    path = root / "script.py"
    path.write_text(text)
    return str(path)


# --- exec -----------------------------------------------------------------------------------------------


def test_a_program_runs_for_each_row(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecAction, "sh", "-c", 'cat > "$1"', "sh", "out-{ident}")
    assert bench.put(b"one", b"", b"x" * 1_000_000) == Counts(3)
    assert [(tmp_path / f"out-i{n}").read_bytes() for n in range(3)] == [b"one", b"", b"x" * 1_000_000]


def test_a_program_may_ignore_its_input(tmp_path: Path) -> None:
    assert Bench(tmp_path, ExecAction, "true").put(b"x" * 1_000_000) == Counts(1)


def test_a_program_that_fails_is_retried_and_then_given_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecAction, "sh", "-c", "echo x >> runs; echo why >&2; exit 3", tries=3)
    assert bench.put(b"a") == Counts(0, failed=1)
    assert (tmp_path / "runs").read_text() == "x\n" * 3
    assert bench.errors() == {1: "sh: it ended with status 3: why"}
    assert bench.put(*[b"a"] * 10).failed == 10
    assert (tmp_path / "runs").read_text().count("x") == 3 + 3 + 3 + 8, "no second tries for one that always fails"


def test_a_program_that_fails_once_is_retried(tmp_path: Path) -> None:
    assert Bench(tmp_path, ExecAction, "sh", "-c", "test -e again && exit 0; touch again; exit 1").put(b"a") == Counts(
        1
    )


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    command = ("sh", "-c", "sleep 1000 & echo $! > pid.part; mv pid.part pid; wait")
    for timeout_s in (0.3, 3, 30):  # until the program gets as far as starting its child
        bench = Bench(tmp_path, ExecAction, *command, timeout_s=timeout_s, tries=1)
        assert bench.put(b"a") == Counts(0, failed=1)
        assert f"still running after {timeout_s} s" in bench.errors()[1]
        if (tmp_path / "pid").exists():
            break
    child = int((tmp_path / "pid").read_text())
    until(lambda: not is_alive(child), "the child is killed")


def test_a_program_that_always_hangs_does_not_delay_the_stream(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecAction, "sleep", "1000", timeout_s=0.1, tries=1)
    assert bench.put(*[b"a"] * 200) == Counts(0, failed=200)
    tried = [sequence for sequence, error in bench.errors().items() if "not tried" not in error]
    assert tried == list(range(1, HANGS_MAX + 1))


def test_a_program_that_does_not_read_its_input_is_killed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecAction, "sleep", "1000", timeout_s=0.2, tries=1)
    assert bench.put(b"x" * 1_000_000).failed == 1
    assert "of 1,000,000 bytes within 0.2 s" in bench.errors()[1]


@pytest.mark.parametrize("kind", [ExecAction, PipeAction])
@pytest.mark.parametrize("command", ["/no/such/program", "/etc/hostname", "/"])
def test_a_missing_program_makes_dead_letters(tmp_path: Path, kind: Any, command: str) -> None:
    bench = Bench(tmp_path, kind, command, tries=100, pause_s=60)
    assert bench.put(b"a", b"b") == Counts(0, failed=2)
    assert "does not start" in bench.errors()[1]
    bench.performer.close()


def test_an_ident_cannot_become_an_option(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ExecAction, "sh", "-c", "exit 0", "sh", "{ident}")
    assert bench.put(b"a", ident="--help") == Counts(0, failed=1)
    assert "would be an option" in bench.errors()[1]


# --- pipe -----------------------------------------------------------------------------------------------


def test_a_program_keeps_running_and_reads_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path, PipeAction, "sh", "-c", "echo $$ >> pids; cat >> out", framing="lines")
    assert bench.put(b"one", b"two\n") == Counts(2)
    assert bench.put(b"three") == Counts(1)
    bench.performer.close()
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\nthree\n"
    assert len((tmp_path / "pids").read_text().split()) == 1


def test_length_framing_separates_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path, PipeAction, "sh", "-c", "cat >> out", framing="length")
    bench.put(b"", b"a\n", b"x" * 300)
    bench.performer.close()
    assert (tmp_path / "out").read_bytes() == b"\0\0\0\0" + b"\0\0\0\2a\n" + b"\0\0\1\x2c" + b"x" * 300


def test_the_number_of_programs_is_limited(tmp_path: Path) -> None:
    group = Group(Programs(3), "run-0")
    bench = Bench(tmp_path, PipeAction, "sh", "-c", 'cat > "$1"', "sh", "out-{ident}", group=group)
    assert bench.put(*[b"%d" % place for place in range(10)]) == Counts(10)
    assert len(group.lines) == 3
    bench.performer.close()
    assert [(tmp_path / f"out-i{place}").read_bytes() for place in range(10)] == [b"%d" % place for place in range(10)]


def test_an_idle_program_is_closed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, PipeAction, "sh", "-c", "echo $$ >> pids; cat > out; touch ended", idle_s=1.0)
    bench.put(b"one")
    until((tmp_path / "ended").exists, "the program ends")
    assert bench.put(b"two") == Counts(1)
    bench.performer.close()
    assert (tmp_path / "out").read_bytes() == b"two"
    assert len(set((tmp_path / "pids").read_text().split())) == 2, "the second batch started another"


CRASHING = """
import os
for line in open(0, "rb", buffering=0):  # nothing is read ahead
    if line == b"bad\\n":
        os.kill(os.getpid(), 9)
    with open("out", "ab") as out:
        out.write(line)
"""


def test_a_row_that_crashes_programs_is_a_dead_letter_and_the_others_are_processed(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, PipeAction, sys.executable, script(tmp_path, CRASHING), framing="lines", tries=2, timeout_s=60
    )
    lines = [b"%d" % place for place in range(50)]
    counts = bench.put(*lines[:20], b"bad", *lines[20:])
    until(lambda: b"49\n" in (tmp_path / "out").read_bytes(), "the last row is processed")
    assert counts.failed == 1
    assert bench.errors()[21].endswith("it was killed by SIGKILL")
    bench.performer.close()
    assert set((tmp_path / "out").read_bytes().split()) == set(lines), "each at least once"


def test_a_program_that_reads_nothing_is_given_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, PipeAction, "sleep", "1000", timeout_s=0.1, tries=2)
    assert bench.put(*[b"a"] * 100) == Counts(0, failed=100)
    assert "did not read" in bench.errors()[1]
    assert "not tried" in bench.errors()[100]
    bench.performer.close()


@pytest.mark.parametrize("status", [0, 1])
def test_a_program_that_ends_at_once_is_given_up(tmp_path: Path, status: int) -> None:
    bench = Bench(tmp_path, PipeAction, "sh", "-c", f"exit {status}", tries=2)
    assert bench.put(b"a", b"b") == Counts(0, failed=2)
    assert f"status {status}" in bench.errors()[1]
    bench.performer.close()


def test_a_program_may_end_after_any_row(tmp_path: Path) -> None:
    """`head` reads its input, writes a line and ends with success; the next row starts another."""
    bench = Bench(tmp_path, PipeAction, "sh", "-c", "head -n 1 >> out", framing="lines")
    for number in range(5):
        assert bench.put(b"%d" % number) == Counts(1)
        until(lambda n=number: (tmp_path / "out").read_bytes().count(b"\n") == n + 1, "the row is processed")
    bench.performer.close()
    assert (tmp_path / "out").read_bytes() == b"0\n1\n2\n3\n4\n"


def test_an_interrupted_batch_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    """Spark loses a task while a program is still reading; then the batch comes again, to the same program."""
    go = tmp_path / "go"
    bench = Bench(
        tmp_path, PipeAction, "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; cat > out", framing="lines"
    )
    prepared = bench.performer.recipe(rows_of(b"a", b"b"))

    def broken() -> Any:
        yield prepared
        raise OSError("a worker was lost")

    with pytest.raises(OSError, match="lost"):
        bench.performer.perform_batches(broken(), context_of(tmp_path, 1))
    go.touch()
    assert bench.put(b"a", b"b") == Counts(2)
    assert bench.put(b"c") == Counts(1)
    bench.performer.close()
    assert (tmp_path / "out").read_bytes() == b"a\nb\na\nb\nc\n"
    assert bench.errors() == {}


def test_programs_end_with_the_pipeline(tmp_path: Path) -> None:
    bench = Bench(tmp_path, PipeAction, "sh", "-c", "echo $$ > pid; cat > out")
    bench.put(b"a")
    until(lambda: (tmp_path / "out").exists(), "the program runs")  # which has written its pid before
    pid = int((tmp_path / "pid").read_text())
    assert is_alive(pid)
    bench.performer.close()
    assert not is_alive(pid)
    assert not [
        name for name in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{name}").endswith("/out")
    ]


def test_large_rows_are_sent_in_messages_of_bounded_size(spark: Any) -> None:
    frame = spark.range(0, 40, 1, 2).selectExpr("id", "repeat('x', 1000000) as text")
    batches = list(prepared_batches(frame, lambda batch: batch))
    assert [row for batch in batches for row in batch["id"].to_pylist()] == list(range(40))
    assert max(batch.nbytes for batch in batches) <= 5 << 20
