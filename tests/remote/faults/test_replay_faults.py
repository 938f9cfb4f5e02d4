"""Replays of a site that restarts; late participants that are killed again and again."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.serving import Served, put, when
from support.waiting import until

LATE = """
import sys, headrace
where, file = sys.argv[1:]
with open(file, "a+") as results:
    results.seek(0)
    lines = [line for line in results.read().splitlines(keepends=True) if line.endswith("\\n")]  # the last may be cut
    results.truncate(sum(map(len, lines)))
    position = int(lines[-1].split()[-1]) + 1 if lines else 1
    with headrace.connect(where) as queue:
        for batch in queue.replay(position, None, speed="max"):
            assert batch.lost is None
            results.write(" ".join(map(str, batch.sequences.tolist())) + "\\n")
            results.flush()
"""


@pytest.mark.parametrize("place", ["local", "remote"])
def test_a_participant_that_is_killed_gets_what_it_missed_and_then_live_products(
    served: Served, tmp_path: Path, place: str
) -> None:
    """Killed while it catches up, and while it is live. Its position is beside its results: no gap, no repetition."""
    put(served.queue, *map(str, range(500)))
    where = str(served.queue.path) if place == "local" else f"{served.endpoint}?site={served.name}"
    file, ended = tmp_path / "results", threading.Event()
    file.touch()

    def produce() -> None:
        while not ended.wait(0.001):
            served.queue.put(b"live", feed="a")

    def found() -> list[int]:
        return [int(word) for line in file.read_text().splitlines() for word in line.split()]

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for turn in range(3):
            with subprocess.Popen([sys.executable, "-c", LATE, where, str(file)]) as late:
                seen = len(found())
                until(lambda before=seen: len(found()) > before, "products come")
                if turn:  # live by now
                    until(lambda: len(found()) >= served.queue.next - 200, "it has caught up")
                late.kill()
    finally:
        ended.set()
        producer.join()
    whole = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    sequences = [int(word) for line in whole for word in line.split()]
    assert len(sequences) > 500
    assert sequences == list(range(1, len(sequences) + 1))


def test_a_replay_goes_on_after_its_source_was_restarted_and_then_live(served: Served) -> None:
    put(served.queue, *map(str, range(300)))
    remote = served.connect()
    replay = remote.replay("oldest", None, speed="max")
    follower: Any = replay._source._follower  # type: ignore[attr-defined]
    follower._terms = replace(follower._terms, limit=50)  # small pages
    found: list[int] = []
    stopped = False
    for batch in replay:
        found += batch.sequences.tolist()
        if len(found) >= 100 and not stopped:
            stopped = True
            served.stop()
            when(lambda: remote._connection.silence.is_silent, served.start)
        if len(found) == 300:
            served.queue.put(b"live", feed="a")
        if len(found) == 301:
            break
    assert found == list(range(1, 302))
