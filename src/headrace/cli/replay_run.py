"""Replays onto a feed: runs, which continue after a crash, and commands for them (timing/replay/run.py).

Products are put in parts that are due. Between two parts the position is saved: at most every SAVE_S, before a wait,
and before so much was put that the queue could have evicted what was put since. So a run that was killed puts few
products again, and the queue recognises all of them.
"""

import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headrace.cli.failure import NEGATIVE, OK, notice
from headrace.cli.options import open_queue
from headrace.cli.output import echo_json, show_table
from headrace.cli.replay import Window, identity_of, opened
from headrace.cli.replay_control import command, controlled
from headrace.cli.replay_keys import keys
from headrace.cli.replay_show import shown
from headrace.cli.stream import GapReports, PatientPuts
from headrace.errors import OptionError
from headrace.text import visible
from headrace.timing.replay.marks import ONTO, MarkedBatch, Marks, Stored, new_run
from headrace.timing.replay.run import (
    Run,
    RunFile,
    check_target,
    folder,
    forget_old,
    held,
    parse_run,
    read_run,
    read_runs,
    run_text,
)
from headrace.timing.replay.spacing import speed_text
from headrace.units import format_count, format_time

if TYPE_CHECKING:
    from headrace.product import Batch
    from headrace.queue import AnyQueue
    from headrace.timing.replay import Replay

SAVE_S = 0.01
_DURABLE_S = 1.0


def begin_run(source: str, target: str, window: Window, onto: str | None, relay: bool, as_json: bool) -> int:
    """Replay into a queue, as a new run."""
    marks = Marks(new_run(), ONTO if onto is None else onto, relay)
    with opened(source, window) as (replay, identity), open_queue(target, waits=True) as queue, held(marks.run):
        forget_old()
        now = replay.progress()
        run = Run(
            run_text(marks.run), source, target, identity, window.selection, now.start, now.stop, window.by, marks.onto,
            relay, window.speed, now.position, target_identity=identity_of(queue),
        )  # fmt: skip
        return _Running(replay, queue, RunFile(run), marks, as_json).go()


def continue_run(word: str, words: tuple[str | None, str | None], speed: str | None, as_json: bool) -> int:
    """Go on with a run where it was."""
    run = read_run(number := parse_run(word))
    if any(given is not None for given in words):
        raise OptionError("a run knows its SOURCE and TARGET", f"leave them out: headrace replay --run {word}")
    if run.is_complete:
        return _show_complete(run, as_json)
    window = Window(run.selection, run.start, run.stop, run.by, speed or run.speed)
    with held(number), open_queue(run.target, waits=True) as queue:
        check_target(run, identity_of(queue))
        was_put = _put_since(run, queue)
        with opened(run.source, window, run) as (replay, _):
            marks = Marks(number, run.onto, run.relay)
            return _Running(replay, queue, RunFile(run), marks, as_json, was_put).go()


def _put_since(run: Run, queue: "AnyQueue") -> frozenset[bytes]:
    """The signatures that the run has put since it was saved, for a target that does not recognise duplicates."""
    if not run.target_next:
        return frozenset()
    batches = queue.read(run.target_next, f"** replay {run.run}").batches()
    return frozenset(product.signature for batch in batches for product in batch)


class _Running:
    """A run in this process."""

    def __init__(
        self, replay: "Replay", queue: "AnyQueue", file: RunFile, marks: Marks, as_json: bool,
        was_put: frozenset[bytes] = frozenset(),
    ) -> None:  # fmt: skip
        """`was_put` are signatures of products that are not put again, from `file.run.target_next` on."""
        self._was_put, self._still_to_come = was_put, len(was_put)
        self._replay, self._queue, self._file, self._marks, self._as_json = replay, queue, file, marks, as_json
        run = file.run
        self._puts = PatientPuts(queue)
        self._counts = Stored(run.products, run.stored, run.duplicates, run.expired, run.refused)
        self._gaps = GapReports(as_json)
        self._lost, self._damaged, self._lap = run.lost, run.damaged, run.lap
        self._position = run.position  # behind the last product that was put
        self._bytes_max = queue.config.size // 8
        self._recognises = queue.config.dedup != "none"
        self._unsaved_bytes, self._is_saved = 0, True
        self._is_between = True  # two batches, none of which was put in part
        self._saved_s = self._durable_s = time.monotonic()

    def go(self) -> int:
        """Put everything that is due until the end, a command or a signal; the exit code."""
        self._save(durable=True)
        self._replay.on_wait = self._save_before
        complete = False
        try:
            with controlled(self._replay, self._marks.run), keys(self._replay), self._shown():
                for batch in self._replay:
                    self._take(batch)
                complete = self._replay.is_ended
        finally:  # also when Ctrl-C or an error ends it
            self._save(durable=True, is_complete=complete)
            _show_result(self._file.run, self._as_json)
        return _exit_code(self._file.run)

    def _shown(self) -> Any:
        return shown(self._replay, as_json=self._as_json, bar=True)

    def _take(self, batch: "Batch") -> None:
        if batch.lost is not None:
            self._gaps.lost(batch.lost)
        lap = self._lap + self._replay.progress().lap
        marked = MarkedBatch(batch, self._marks, self._refuse, lap=lap, was_put=self._was_put)
        with self._puts:
            self._is_between = False
            self._counts += self._counted(marked.put(self._puts))
            self._is_between = True
        self._still_to_come -= marked.recognised
        self._position = batch.next
        self._unsaved_bytes, self._is_saved = self._unsaved_bytes + batch.payload_bytes, False
        now_s = time.monotonic()
        if now_s - self._saved_s >= SAVE_S or self._unsaved_bytes >= self._bytes_max:
            self._save(durable=now_s - self._durable_s >= _DURABLE_S)

    def _counted(self, counts: Stored) -> Stored:
        """A product of a queue that the target has already was stored by this run, by a process killed before a save.

        A table may have a row twice, and gives rows again that were counted: there a duplicate says no more than that.
        """
        return counts.with_duplicates_stored() if self._file.run.identity else counts

    def _save_before(self, wait_s: float | None) -> None:
        """A run that waits or is paused has its position saved."""
        if not self._is_saved and (wait_s is None or wait_s >= SAVE_S):
            self._save()

    def _refuse(self, text: str) -> None:
        notice(text, self._as_json, refused=text)

    def _save(self, *, durable: bool = False, is_complete: bool = False) -> None:
        now, counts = self._replay.progress(), self._counts
        self._file.save(
            durable=durable, position=self._position, speed=speed_text(now.speed), is_complete=is_complete,
            products=counts.products, stored=counts.stored, duplicates=counts.duplicates, expired=counts.expired,
            refused=counts.refused, lost=self._lost + now.lost, damaged=self._damaged + now.damaged,
            lap=self._lap + now.lap, target_next=self._target_next(),
        )  # fmt: skip
        self._saved_s, self._unsaved_bytes, self._is_saved = time.monotonic(), 0, True
        self._durable_s = self._saved_s if durable else self._durable_s

    def _target_next(self) -> int:
        """Where products that a killed process has put begin: those of the last one are still ahead, for a while."""
        if self._recognises:
            return 0
        return self._queue.next if self._is_between and self._still_to_come <= 0 else self._file.run.target_next


# --- what is shown --------------------------------------------------------------------------------


def _exit_code(run: Run) -> int:
    return NEGATIVE if run.lost or run.damaged or run.refused else OK


def _show_complete(run: Run, as_json: bool) -> int:
    """There is nothing to continue; the exit code is that with which the run ended."""
    if as_json:
        echo_json({"result": _values(run)})
    else:
        click.echo(f"run {run.run} is complete, and nothing was done now; its result: {_counts_text(run)}")
    return _exit_code(run)


def _show_result(run: Run, as_json: bool) -> None:
    if as_json:
        echo_json({"result": _values(run)})
        return
    click.echo(_counts_text(run))
    if not run.is_complete:
        click.echo(f"run {run.run} is not complete; continue it: headrace replay --run {run.run}")


def _counts_text(run: Run) -> str:
    """`655 products, 655 new, 0 duplicates, 3 expired`."""
    text = f"{format_count(run.products, 'product')}, {run.stored:,} new, {format_count(run.duplicates, 'duplicate')}"
    more = {"expired": run.expired, "refused": run.refused, "lost": run.lost, "damaged": run.damaged}
    return text + "".join(f", {count:,} {cause}" for cause, count in more.items() if count)


def _values(run: Run) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(run)
    values["complete"] = values.pop("is_complete")
    return values


def send_command(word: str | None, text: str, as_json: bool) -> int:
    """`--control`: command the process that replays a run, and show its progress."""
    if word is None:
        raise OptionError("--control needs the run", "headrace replay --run RUN --control COMMAND; --runs lists them")
    told = command(number := parse_run(word), text)
    if as_json:
        echo_json(told)
        return OK
    place = told["time"] or _place_text(told, is_table=not read_run(number).identity)
    words = [place, told["speed"], format_count(told["products"], "product")]
    words += [name for name in ("paused", "live") if told[name]]
    click.echo("  ".join(words))
    return OK


def _place_text(told: dict[str, Any], *, is_table: bool) -> str:
    """Where a replay is that has put nothing since its begin or its last seek. Positions of a table are times."""
    position = told["position"]
    if position <= told["start"]:
        return "before the first product"
    if told["stop"] is not None and position >= told["stop"]:
        return "at the end"
    return f"before {format_time(position)}" if is_table else f"before product {position}"


def list_runs(as_json: bool) -> int:
    """`--runs`."""
    runs = read_runs()
    if as_json:
        echo_json({"runs": [_values(run) for run in runs]})
        return OK
    rows = [
        (run.run, "complete" if run.is_complete else "not complete", visible(run.source), visible(run.target),
         _counts_text(run))
        for run in runs
    ]  # fmt: skip
    show_table(f"runs in {folder()}", ("run", "state", "source", "target", "products"), rows)
    return OK
