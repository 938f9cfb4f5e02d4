"""What a session prints: nothing but what a person must know. Each in a process of its own, as users have it."""

import logging
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import accumulators

from headrace import Queue
from headrace.pipeline.run.worker_daemon import LOOKUP
from headrace.pipeline.spark import quiet
from headrace.pipeline.spark.python import DAEMON

PATIENCE_S = 240
READ = """
import sys
from headrace.pipeline import spark_session

spark = spark_session("quiet", "local[2]")
products = spark.read.format("headrace").option("queue", sys.argv[1])
print(products.load().limit(1).collect()[0].sequence, products.load().count())
try:
    products.option("startingOffsets", "9").option("endingOffsets", "3").load().count()
except Exception as error:
    print(str(error).partition(chr(10))[0])
try:
    spark.sql("select r.valu from (select named_struct('value', 1) as r)")
except Exception as error:
    print(error.getCondition())
stream = spark.readStream.format("headrace").option("queue", sys.argv[1]).option("startingOffsets", "earliest").load()
query = stream.writeStream.format("noop").option("checkpointLocation", sys.argv[1] + ".checkpoint").start()
query.processAllAvailable()
query.stop()
spark.stop()
"""
DAEMONS = """
import os
from pathlib import Path
from headrace.pipeline import spark_session

def commands(parent):
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, command = int(stat.parent.name), (stat.parent / "cmdline").read_text().split(chr(0))
            is_child = int(stat.read_text().rpartition(")")[2].split()[1]) == parent
        except (FileNotFoundError, ProcessLookupError):
            continue
        if is_child:
            yield command
            yield from commands(number)

spark = spark_session("daemons", "local[2]")
for command in commands(os.getpid()):
    if "-m" in command:
        print(*command[command.index("-m") + 1 : -1])
spark.stop()
"""
INTERRUPTED = """
import os, signal, threading, time
from py4j.protocol import Py4JNetworkError
from headrace.pipeline import spark_session

spark = spark_session("interrupted", "local[2]")
signal.signal(signal.SIGINT, signal.default_int_handler)
context = spark.sparkContext

def interrupt():
    while not context.statusTracker().getActiveJobsIds():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    spark.range(10**15).selectExpr("sum(id % 3)").collect()
except (KeyboardInterrupt, Py4JNetworkError) as error:  # PySpark may call Java again on the way out
    print("interrupted" if isinstance(error, KeyboardInterrupt) else f"interrupted by {error.__context__!r}")
context.cancelAllJobs()
spark.stop()
"""


def run(program: str, *arguments: str) -> tuple[str, str]:
    """Run a program with an empty standard input; return what it wrote to standard output and error."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.spark
def test_a_session_prints_neither_warnings_nor_tracebacks_and_an_error_begins_with_its_remedy(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q", size="64MiB", dedup="none") as queue:
        for _ in range(30):
            queue.put_many([bytes(1000)] * 1000, feed="x")
    output, errors = run(READ, str(tmp_path / "q"))
    first, problem, rejected = output.splitlines()
    assert first == "1 30000"
    assert problem.startswith("the range ends before it begins: startingOffsets 9")
    assert rejected == "FIELD_NOT_FOUND"
    assert not re.search("incubator|Traceback|BrokenPipe|WARN|QueryContextLogger", errors), errors


@pytest.mark.spark
def test_processes_that_plan_come_from_our_daemon_too() -> None:
    """From Spark's own daemon, each prints a BrokenPipeError after a minute without work, and imports everything."""
    output, _ = run(DAEMONS)
    assert set(output.splitlines()) == {f"{DAEMON} {LOOKUP}"}


@pytest.mark.spark
def test_an_interrupt_while_java_works_is_a_keyboard_interrupt_without_a_traceback_of_py4j() -> None:
    output, errors = run(INTERRUPTED)
    assert output in ("interrupted\n", "interrupted by KeyboardInterrupt()\n")
    assert "while sending command" not in errors


def test_only_the_log_entry_of_an_interrupt_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    quiet.forget_interrupts()
    quiet.forget_interrupts()
    logging.getLogger().error("KeyboardInterrupt while sending command.")
    logging.getLogger().error("something else")
    closing = "Exception occurred while shutting down connection"
    for error in (BrokenPipeError(), ValueError()):
        logging.getLogger("py4j.clientserver").error(closing, exc_info=error)
    sending = "Exception while sending command."
    for failed in (Py4JNetworkError("Answer from Java side is empty"), ValueError()):  # the first: Java has ended
        logging.getLogger().error(sending, exc_info=failed)
    assert [record.getMessage() for record in caplog.records] == ["something else", closing, sending]


def test_a_batch_that_is_abandoned_by_a_stop_is_not_logged_by_py4j(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("py4j.clientserver")
    before = list(log.filters)
    quiet.forget_batches()
    log.error("There was an exception while executing the Python Proxy on the Python Side.")
    log.error("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]
    log.filters = before


@pytest.mark.parametrize(("error", "is_printed"), [(EOFError(), False), (ValueError("bad"), True)])
def test_the_server_for_accumulators_prints_nothing_when_java_has_ended(
    capsys: pytest.CaptureFixture[str], error: Exception, is_printed: bool
) -> None:
    quiet.forget_java()
    server = object.__new__(accumulators.AccumulatorTCPServer)
    try:
        raise error
    except type(error):
        server.handle_error(None, None)  # type: ignore[arg-type]
    assert ("Traceback" in capsys.readouterr().err) == is_printed


@pytest.mark.parametrize(
    ("error", "is_printed"), [(BrokenPipeError(), False), (ConnectionResetError(), False), (ValueError("bad"), True)]
)
def test_a_daemon_prints_why_a_worker_ended_unless_its_connection_was_closed(
    capsys: pytest.CaptureFixture[str], error: Exception, is_printed: bool
) -> None:
    daemon: Any = ModuleType("pyspark.daemon")
    daemon.__spec__ = SimpleNamespace(name="pyspark.daemon")
    quiet.end_silently(daemon)
    try:
        raise error
    except type(error):
        daemon.traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) == is_printed
