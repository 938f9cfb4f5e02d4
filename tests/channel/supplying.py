"""Suppliers and consumers of a channel as programs, each with a ledger that survives its death.

    python supplying.py supply ENDPOINT CHANNEL LEDGER NAME PRODUCTS BYTES TIMEOUT_S
    python supplying.py consume ENDPOINT STATION LEDGER MOST

A supplier writes a line before each push and one after it. If a push ends without a reply, it repeats the push: the same
product, under the same ident, with more time, so that repetitions do not fill the link. A consumer writes a line for each product, before it acknowledges it. It ends when its
standard input does and nothing waits.
"""

import json
import sys
import threading

import headrace
from headrace.errors import LeaseLostError, RejectedError, SiteUnreachableError
from headrace.queue import AnyQueue, Duplicate


class Ledger:
    def __init__(self, path: str) -> None:
        self._file = open(path, "a", buffering=1)  # noqa: SIM115 - as long as the process

    def note(self, *what: object) -> None:
        self._file.write(json.dumps(what) + "\n")


def supply(queue: AnyQueue, channel: str, path: str, name: str, products: int, size: int, timeout_s: float) -> None:
    ledger = Ledger(path)
    with queue.channel(channel).supplier() as supplier:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(products):
            ident, ends, left_s = f"{name}/{number}", False, timeout_s
            ledger.note("begins", ident)
            while not ends:
                try:
                    outcome = supplier.push(bytes(size), ident=ident, timeout=left_s or None)
                    at = outcome.of if isinstance(outcome, Duplicate) else outcome
                    ledger.note("stored", ident, at)
                    ends = True
                except RejectedError:
                    ledger.note("refused", ident)
                    ends = True
                except SiteUnreachableError:
                    ledger.note("repeats", ident)
                    left_s *= 4


def consume(queue: AnyQueue, station: str, path: str, most: int) -> None:
    ledger, ends = Ledger(path), threading.Event()
    with queue.station(station, create=False).attach(keep="1s") as consumer:
        print("ready", flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
        while True:
            try:
                batch = consumer.get(most, timeout=0.2)
                for product in batch:
                    ledger.note("received", product.ident, product.sequence)
                consumer.ack(batch)
                if not len(batch) and ends.is_set():
                    return
            except LeaseLostError:
                ledger.note("lost leases")


if __name__ == "__main__":
    role, endpoint, about, path, *more = sys.argv[1:]
    with headrace.connect(endpoint, patience="60s") as connected:
        if role == "supply":
            supply(connected, about, path, more[0], int(more[1]), int(more[2]), float(more[3]))
        else:
            consume(connected, about, path, int(more[0]))
