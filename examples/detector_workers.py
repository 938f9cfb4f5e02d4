"""Share detector events between processes, and kill one of them: no event is left undone.

For detector crews. Each event goes to one worker. A worker that dies gives back what it has not acknowledged, within a
second. It may have done part of that work, so results are stored by event number: done twice is stored once.

    python detector_workers.py
"""

import multiprocessing
import sqlite3
import time
from contextlib import closing

import numpy as np

from headrace import Queue

QUEUE, RESULTS = "daq.queue", "daq.sqlite"
EVENTS, CHANNELS = 2000, 64
SPAWN = multiprocessing.get_context("spawn")


def put_events(queue: Queue) -> None:
    """A run of events: pulse heights of 64 channels each, from four crates."""
    heights = np.random.default_rng(seed=1).exponential(100, (EVENTS, CHANNELS)).astype("<f4")
    feeds = [f"daq/crate{number % 4}" for number in range(EVENTS)]
    properties = [{"event": number} for number in range(EVENTS)]
    queue.put_many([each.tobytes() for each in heights], feed=feeds, properties=properties)


def work(name: str) -> None:
    """Sum the pulses of each event. A batch is acknowledged when the loop asks for the next one: after the work."""
    with (
        closing(sqlite3.connect(RESULTS, timeout=60)) as results,
        Queue.open(QUEUE) as queue,
        queue.station("sum").attach() as consumer,
    ):
        for batch in consumer.batches(50, timeout=2):  # without a timeout, it never ends
            sums = [(each.properties["event"], float(np.frombuffer(each.payload, "<f4").sum()), name) for each in batch]
            with results:
                results.executemany("insert or replace into sums values (?, ?, ?)", sums)


def hang() -> None:
    """Take events and never finish them."""
    with Queue.open(QUEUE) as queue, queue.station("sum").attach() as consumer:
        consumer.get(50)
        time.sleep(3600)


def main() -> None:
    with closing(sqlite3.connect(RESULTS)) as results, Queue.create(QUEUE, size="64MiB", exist_ok=True) as queue:
        results.execute("create table if not exists sums (event integer primary key, sum real, worker text)")
        station = queue.station("sum", "daq/**", start="oldest")
        put_events(queue)

        victim = SPAWN.Process(target=hang)
        victim.start()
        while station.statistics().leased == 0:
            time.sleep(0.01)
        victim.kill()  # SIGKILL, while it holds 50 events
        workers = [SPAWN.Process(target=work, args=(f"worker {number}",)) for number in (1, 2, 3)]
        for worker in workers:
            worker.start()
        for process in (victim, *workers):
            process.join()

        counts = station.statistics()
        print(f"{counts.acknowledged} events acknowledged; {counts.redelivered} of them had been held by the victim")
        for worker_name, events in results.execute("select worker, count(*) from sums group by worker"):
            print(f"{worker_name}: {events} events")
        print(f"missing: {EVENTS - results.execute('select count(*) from sums').fetchone()[0]}")


if __name__ == "__main__":
    main()
