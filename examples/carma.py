"""The monitor system of a telescope array: antennas supply a channel from other machines, programs consume it.

For crews of telescopes and detectors. Each antenna, the site and each consumer is a process of its own; they share
only the site's endpoint, which may be on another machine. A reading is worth nothing after a second, so the channel has
a timeout: a consumer that is too slow misses readings, which are counted. `headrace bench channels` has all of CARMA.

    python carma.py
    python carma.py tcp/denver.example.org:7447
"""

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import headrace

ANTENNAS, READINGS, EVERY_S, BYTES = 4, 6, 0.5, 34_000
SPAWN = multiprocessing.get_context("spawn")
SITE = """
[site]
name = "carma"
queue = "carma.queue"
listen = ["tcp/127.0.0.1:0"]
[log]
level = "warning"
"""


def antenna(endpoint: str, number: int) -> None:
    """Push a reading every half second. A push that gets no reply in time is given up: the next one is newer."""
    with headrace.connect(endpoint) as queue, queue.channel("monitor").supplier() as supplier:
        for _ in range(READINGS):
            due_s = time.monotonic() + EVERY_S
            try:
                supplier.push(bytes(BYTES), feed=f"array/monitor/antenna{number}", timeout=EVERY_S)
            except headrace.SiteUnreachableError as error:
                print(f"antenna {number}: {error}")
            time.sleep(max(0.0, due_s - time.monotonic()))


def consumer(endpoint: str, station: str) -> None:
    """Receive everything; it goes on by itself if the link breaks or the site restarts."""
    with headrace.connect(endpoint, on_loss="wait") as queue, queue.station(station).attach() as readings:
        for batch in readings.batches(50, timeout=3):  # without a timeout, it never ends
            time.sleep(0.001 * len(batch))  # your work


def observe(endpoint: str) -> None:
    with headrace.connect(endpoint) as queue:
        monitor = queue.channel("monitor", "array/monitor", order="fifo", timeout="1s", suppliers_max=50)
        stations = [monitor.station(name) for name in ("display", "archive")]
        processes = [SPAWN.Process(target=consumer, args=(endpoint, station.name)) for station in stations]
        processes += [SPAWN.Process(target=antenna, args=(endpoint, number)) for number in range(ANTENNAS)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print(f"so far, over all runs: {monitor.statistics().pushed} pushed")
        for counts in (station.statistics() for station in stations):
            print(f"{counts.name}: {counts.acknowledged} received, {counts.expired} expired, {counts.waiting} waiting")


def main() -> None:
    if len(sys.argv) > 1:
        return observe(sys.argv[1])
    Path("carma.toml").write_text(SITE)
    serve = [sys.executable, "-m", "headrace", "serve", "carma.toml", "--json"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as site:
        try:
            observe(json.loads(next(iter(site.stdout or ())))["endpoints"][0])
        finally:
            site.terminate()


if __name__ == "__main__":
    main()
