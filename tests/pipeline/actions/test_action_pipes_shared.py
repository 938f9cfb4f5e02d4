"""Pipes with the same command line: one program gets the rows of all of them, whatever is killed."""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from acting import context_of, letters_in

from headrace.pipeline.actions import Counts, DeadLetters
from headrace.pipeline.actions.action import Context
from headrace.pipeline.actions.pipe import PipePerformer, perform_pipes
from headrace.pipeline.actions.prepared import PreparedRow, Sender
from headrace.pipeline.actions.programs import Programs, groups_of, sharing
from headrace.pipeline.rules import PipeAction
from headrace.pipeline.rules.template import template
from support.seeds import random_seed
from support.waiting import until

DECODER = """
import fcntl, os, sys
with open(sys.argv[1] + ".pids", "a") as pids:
    pids.write(f"{os.getpid()}\\n")
lock = open(sys.argv[1] + ".lock", "a")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if another one writes to the file
for line in open(0, "rb", buffering=0):  # nothing is read ahead
    with open(sys.argv[1], "ab") as out:
        out.write(line)
"""


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "decoder.py").write_text(DECODER)
    return (sys.executable, str(tmp_path / "decoder.py"), str(tmp_path / "out"))


def pipes(root: Path, programs: Programs, **actions: Any) -> dict[str, PipePerformer]:
    """A performer for each action, with the groups that a pipeline would make."""
    made = {
        rule: PipeAction(**{"folder": root, "content": "payload", "framing": "lines", "pause_s": 0.01, **terms})
        for rule, terms in actions.items()
    }
    groups = groups_of(made, programs)
    letters = DeadLetters(root / "dead")
    return {rule: PipePerformer(action, "pipe-0", None, letters, groups[rule]) for rule, action in made.items()}


def batch(performer: PipePerformer, *payloads: bytes) -> list[pa.RecordBatch]:
    count = len(payloads)
    rows = pa.RecordBatch.from_pydict({
        "sequence": pa.array(range(1, count + 1), pa.int64()), "feed": ["wx/text"] * count, "ident": ["i"] * count,
        "payload": pa.array(payloads, pa.binary()),
    })  # fmt: skip
    return [performer.recipe(rows)]


def context(root: Path, rule: str, batch_id: int) -> Context:
    made = context_of(root, batch_id)
    return Context(rule, batch_id, made.address, root / "state" / rule, made.application)


def test_rules_with_the_same_command_share_one_program(tmp_path: Path, command: tuple[str, ...]) -> None:
    programs = Programs()
    fixed = (*command[:2], str(tmp_path / "{ident}ut").replace("{ident}", "o"))
    made = pipes(tmp_path, programs, a={"command": command}, b={"command": fixed, "timeout_s": 5.0})
    for number in range(3):
        for rule, each in made.items():
            counts = each.perform_batches(
                batch(each, b"%s%d" % (rule.encode(), number)), context(tmp_path, rule, number)
            )
            assert counts == Counts(1)
    programs.close()
    assert (tmp_path / "out").read_bytes() == b"a0\nb0\na1\nb1\na2\nb2\n"
    assert len((tmp_path / "out.pids").read_text().split()) == 1
    assert letters_in(tmp_path / "dead") == []


def test_rows_of_one_query_come_in_the_order_of_their_products(tmp_path: Path, command: tuple[str, ...]) -> None:
    programs = Programs()
    made = pipes(tmp_path, programs, a={"command": command}, b={"command": command})
    senders = [Sender(rule, "pipe-0", each) for rule, each in made.items()]
    rows = [
        (senders[number % 2], PreparedRow(list(command), b"%d" % number, None, number, "f", "i"))
        for number in range(20)
    ]
    counts = perform_pipes(rows, made["a"].group, DeadLetters(tmp_path / "dead"), "pipes", context_of(tmp_path))
    programs.close()
    assert counts == dict.fromkeys(senders, Counts(10))
    assert (tmp_path / "out").read_bytes() == b"".join(b"%d\n" % number for number in range(20))


def test_a_dead_letter_belongs_to_the_rule_of_its_row(tmp_path: Path) -> None:
    programs = Programs()
    made = pipes(tmp_path, programs, a={"command": ("false",), "tries": 1}, b={"command": ("false",), "tries": 2})
    senders = [Sender(rule, "pipe-0", each) for rule, each in made.items()]
    rows = [(senders[number % 2], PreparedRow(["false"], b"x", None, number, "f", "i")) for number in range(4)]
    counts = perform_pipes(rows, made["a"].group, DeadLetters(tmp_path / "dead"), "pipes", context_of(tmp_path))
    programs.close()
    assert counts == dict.fromkeys(senders, Counts(0, failed=2))
    assert [(each["rule"], each["sequence"]) for each in letters_in(tmp_path / "dead")] == [
        ("a", 0), ("b", 1), ("a", 2), ("b", 3),
    ]  # fmt: skip


def test_rules_that_frame_rows_differently_do_not_share(tmp_path: Path) -> None:
    command = ("sh", "-c", "echo $$ >> pids; cat > /dev/null")
    programs = Programs()
    made = pipes(tmp_path, programs, a={"command": command}, b={"command": command, "framing": "length"})
    for rule, each in made.items():
        each.perform_batches(batch(each, b"x"), context(tmp_path, rule, 0))
    programs.close()
    assert len((tmp_path / "pids").read_text().split()) == 2


def test_the_limit_is_for_the_programs_of_all_rules(tmp_path: Path) -> None:
    programs = Programs(3)
    actions = {f"r{n}": {"command": ("sh", "-c", 'cat > "$1"', "sh", f"out{n}")} for n in range(10)}
    made = pipes(tmp_path, programs, **actions)
    for number in range(2):
        for rule, each in made.items():
            each.perform_batches(batch(each, rule.encode()), context(tmp_path, rule, number))
            assert sum(len(performer.group.lines) for performer in made.values()) <= 3
    programs.close()
    assert [(tmp_path / f"out{n}").read_text() for n in range(10)] == [f"r{n}\n" for n in range(10)]


def test_a_program_that_hangs_does_not_hold_up_programs_of_other_rules(tmp_path: Path) -> None:
    programs = Programs(1)
    made = pipes(tmp_path, programs, hung={"command": ("sh", "-c", "touch ready; exec sleep 1000"), "tries": 1},
                 free={"command": ("cat",)})  # fmt: skip
    rows = batch(made["hung"], b"x" * 10)
    thread = threading.Thread(target=made["hung"].perform_batches, args=(rows, context(tmp_path, "hung", 0)))
    thread.start()
    until((tmp_path / "ready").exists, "the program runs")
    assert made["free"].perform_batches(batch(made["free"], b"y"), context(tmp_path, "free", 0)) == Counts(1)
    assert thread.is_alive()
    (line,) = made["hung"].group.lines.values()
    assert line.program is not None
    os.killpg(line.program._process.pid, signal.SIGKILL)
    thread.join(60)
    assert not thread.is_alive()
    programs.close()


@pytest.mark.processes
def test_each_row_is_read_at_least_once_by_one_program_at_a_time_whatever_is_killed(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    chance = random.Random(random_seed())
    programs = Programs()
    made = pipes(tmp_path, programs, a={"command": command, "tries": 50}, b={"command": command, "tries": 50})
    batches, rows = 6, 40

    def perform(rule: str) -> None:
        for number in range(batches):
            payloads = [b"%s%d.%d" % (rule.encode(), number, place) for place in range(rows)]
            counted[rule] += (
                made[rule].perform_batches(batch(made[rule], *payloads), context(tmp_path, rule, number)).rows
            )

    counted = Counter[str]()
    threads = [threading.Thread(target=perform, args=(rule,)) for rule in made]
    for thread in threads:
        thread.start()
    kills = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(chance.uniform(0.02, 0.2))
        for line in list(made["a"].group.lines.values()):
            program = line.program
            if program is not None and kills < 20:
                with suppress(ProcessLookupError):
                    os.killpg(program._process.pid, signal.SIGKILL)
                    kills += 1
    programs.close()
    written = Counter((tmp_path / "out").read_bytes().split())
    wanted = {b"%s%d.%d" % (r.encode(), n, p) for r in made for n in range(batches) for p in range(rows)}
    assert set(written) == wanted
    assert letters_in(tmp_path / "dead") == []
    assert counted == dict.fromkeys(made, batches * rows)
    assert sum(written.values()) - len(wanted) <= kills, "only the row that a program read last comes again"
    print(f"{kills} kills, {sum(written.values()) - len(wanted)} rows twice")


def test_actions_that_may_have_equal_command_lines_are_in_one_group() -> None:
    chance = random.Random(random_seed())
    arguments = ["a", "ab", "b", "{ident}", "a{ident}", "{ident}b", "a{ident}b", "a{1|}", "{0}{feed}", ""]
    actions = [
        PipeAction(command=tuple(chance.choice(arguments) for _ in range(chance.randrange(1, 4)))) for _ in range(60)
    ]
    firsts = sharing(actions)
    values = ["a", "b", "ab", "bb", "x"]
    rows = [{"ident": ident, "feed": feed} for ident in values for feed in values]
    seen: dict[tuple[str, ...], int] = {}
    for number, action in enumerate(actions):
        for row in rows:
            expanded = tuple(template(each, "argument", "(.*)").text(row) for each in action.command)
            first = seen.setdefault(expanded, firsts[number])
            assert first == firsts[number], (expanded, action)
    assert all(first <= number for number, first in enumerate(firsts))
    assert sharing([PipeAction(command=("d", f"x{n}")) for n in range(50)]) == list(range(50))
