"""A program that makes every kind of remote call until it is told to stop, and writes down what it knows.

    python faulty_client.py ENDPOINT FOLDER RUN CLOCK_S

Each kind of call has a thread, a connection and a ledger, `FOLDER/KIND.RUN`: a line for each thing that the program
knows, written before it does the next, so that a kill leaves a true account. The clock of the program is wrong by CLOCK_S
seconds. The file `FOLDER/stop` ends the producers, `FOLDER/end` everything.

    begin NAME          a product that is about to be put; its name is its payload
    done NAME           its put has returned
    got NAME            a consumer got it
    acked NAME          its acknowledgement has returned
    unsure NAME         the lease was lost: it may be acknowledged, or is delivered again
    late SECONDS        a call took so much longer than its timeout
    crash WHY           something that must not happen
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT_S = 0.5


def shift_clock(seconds: float) -> None:
    """Before anything is imported that reads the clock."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)


class Ledger:
    """A file that is written line by line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, word: str, *names: object) -> None:
        os.write(self._file, b"".join(f"{word} {name}\n".encode() for name in names))


class Client:
    def __init__(self, endpoint: str, folder: Path, run: str) -> None:
        self._endpoint, self._folder, self._run = endpoint, folder, run
        self._made = 0

    def is_told(self, word: str) -> bool:
        return (self._folder / word).exists()

    def start(self, kind: str, act: Callable[[str, Any, Ledger], None]) -> threading.Thread:
        def work() -> None:
            import headrace

            ledger = Ledger(self._folder / f"{kind}.{self._run}")
            try:
                with headrace.connect(self._endpoint, patience="2min") as queue:
                    act(kind, queue, ledger)
            except BaseException as error:
                ledger.note("crash", repr(error))
                raise

        thread = threading.Thread(target=work, name=kind)
        thread.start()
        return thread

    # --- producers --------------------------------------------------------------------------------

    def produce(self, kind: str, queue: Any, ledger: Ledger) -> None:
        put, number = self._putter(kind, queue), 0
        while not self.is_told("stop"):
            names = [f"{kind}.{self._run}.{number + place}" for place in range(3 if kind.endswith("many") else 1)]
            number += len(names)
            ledger.note("begin", *names)
            _until_done(lambda: put(names), ledger)  # noqa: B023 - it is called now
            ledger.note("done", *names)
            time.sleep(0.01)

    def _putter(self, kind: str, queue: Any) -> Callable[[list[str]], Any]:
        """Every other product has an ident."""

        def facts(names: list[str]) -> dict[str, Any]:
            number = int(names[0].rpartition(".")[2])
            return {"ident": names[0] if number % 2 else "", "timeout": TIMEOUT_S, "expiry": "1h"}

        if kind.startswith("push"):
            supplier = queue.channel("pushed").supplier(keep="3s")
            if kind == "push":
                return lambda names: supplier.push(names[0].encode(), **facts(names))
            return lambda names: supplier.push_many([name.encode() for name in names], **facts(names))
        if kind == "put":
            return lambda names: queue.put(names[0].encode(), feed="m/put", **facts(names))
        return lambda names: queue.put_many([name.encode() for name in names], feed="m/put", **facts(names))

    def pull(self, kind: str, queue: Any, ledger: Ledger) -> None:
        number = 0

        def next_product() -> bytes:
            nonlocal number
            number += 1
            name = f"{kind}.{self._run}.{number}"
            ledger.note("begin", name)
            return name.encode()

        with queue.channel("pulled").pull(next_product, every=0.02) as supplier:
            pushed = 0
            while not self.is_told("stop") or supplier.statistics().pending:
                time.sleep(0.05)
                now = supplier.statistics().pushed
                ledger.note("done", *(f"{kind}.{self._run}.{each + 1}" for each in range(pushed, now)))
                pushed = now
                if not supplier.statistics().running:
                    raise RuntimeError(supplier.statistics().latest_failure)

    # --- consumers --------------------------------------------------------------------------------

    def consume(self, kind: str, queue: Any, ledger: Ledger) -> None:
        from headrace import LeaseLostError, SiteUnreachableError

        with queue.station("all").attach(keep="3s") as consumer:
            while not self.is_told("end"):
                begun_s = time.monotonic()
                batch = consumer.get(20, timeout=TIMEOUT_S)
                _note_late(begun_s, ledger)
                names = [bytes(product.payload).decode() for product in batch]
                ledger.note("got", *names)
                while names:
                    try:
                        consumer.ack(batch)
                        ledger.note("acked", *names)
                    except SiteUnreachableError:
                        continue
                    except LeaseLostError:
                        ledger.note("unsure", *names)
                    break

    def follow(self, kind: str, queue: Any, ledger: Ledger) -> None:
        """Everything, in its order; each timeout ends the follower, and the next one goes on at its position."""
        from headrace import SiteUnreachableError

        position = 1
        while not self.is_told("end"):
            begun_s: float | None = None  # to open a follower is a call without a timeout
            try:
                follower = queue.follow(position, "m/**", timeout=TIMEOUT_S)
                begun_s = time.monotonic()
                for batch in follower:
                    ledger.note("got", *(bytes(product.payload).decode() for product in batch))
                    position, begun_s = batch.next, time.monotonic()
                position = follower.position
            except SiteUnreachableError:
                continue
            finally:
                _note_late(begun_s, ledger)

    def watch(self, kind: str, queue: Any, ledger: Ledger) -> None:
        """Who is there, by one stream over all faults, whose events must add up; and a member that never comes."""
        from headrace import MemberAbsentError, SiteUnreachableError

        stream, here = queue.members(timeout=TIMEOUT_S), set()
        while not self.is_told("end"):
            begun_s = time.monotonic()
            try:
                for event in stream:
                    if (event.kind, event.reason) == ("changed", "restarted"):  # another run of a site that was there
                        (before,) = (key for key in here if key[:2] == event.member.key[:2])
                        here.remove(before)
                        here.add(event.member.key)
                    if (event.kind == "joined") == (event.member.key in here):
                        raise RuntimeError(f"{event} does not follow from {here}")
                    (here.discard if event.kind == "left" else here.add)(event.member.key)
                    ledger.note("done", f"{kind}.{self._run}.{event}")
                    begun_s = time.monotonic()
                _note_late(begun_s, ledger)
                begun_s = time.monotonic()
                queue.wait_for("site:nobody", TIMEOUT_S)
            except (SiteUnreachableError, MemberAbsentError):
                _note_late(begun_s, ledger)


def _until_done(put: Callable[[], Any], ledger: Ledger) -> None:
    """Make a put, and the same put again until it has returned."""
    from headrace import SiteUnreachableError

    while True:
        begun_s = time.monotonic()
        try:
            put()
            return
        except SiteUnreachableError as error:
            assert error.retry is not None
            retry = error.retry
            put = lambda: retry(timeout=TIMEOUT_S)  # noqa: E731, B023
        finally:
            _note_late(begun_s, ledger)


def _note_late(begun_s: float | None, ledger: Ledger) -> None:
    late_s = 0.0 if begun_s is None else time.monotonic() - begun_s - TIMEOUT_S
    if late_s > 0:
        ledger.note("late", f"{late_s:.2f}")


if __name__ == "__main__":
    shift_clock(float(sys.argv[4]))
    client = Client(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    acts = dict.fromkeys(("put", "putmany", "push", "pushmany"), client.produce)
    acts |= {
        "pull": client.pull,
        "get": client.consume,
        "get2": client.consume,
        "follow": client.follow,
        "members": client.watch,
    }
    for thread in [client.start(kind, act) for kind, act in acts.items()]:
        thread.join()
