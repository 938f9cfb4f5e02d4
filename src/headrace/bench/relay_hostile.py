"""One hostile client at full speed beside fifty honest ones: how much later the honest ones get their replies.

A site with certificates and rules serves them over mutual TLS; each client has a name and rights of its own. An honest
client puts a product and reads it back, some times in a second; its latency is the time of both. The hostile one has
the rights of an honest one, and sends as many calls as fit, without waiting for their replies: puts of 64 KiB, searches
through the whole queue, new stations, hellos, and bytes that are no call. It runs and rests in turn, and the honest
clients do the same all the time.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import zenoh
from zenoh.handlers import Callback

from headrace.bench.processes import processes
from headrace.bench.report import Announce, Figure
from headrace.bench.two_sites import Trust, fill, site_at
from headrace.link.access import principal_key
from headrace.link.certificates import make_certificate
from headrace.link.keys import call_key
from headrace.link.rights import Rule
from headrace.link.session import SessionTerms, open_session
from headrace.queue import AnyQueue, Queue
from headrace.remote.client.connect import connect
from headrace.remote.protocol import calls
from headrace.remote.protocol.envelope import Envelope, encode
from headrace.remote.protocol.hello import HELLO, OLDEST_VERSION, VERSION, Hello

HONEST, PROCESSES, PER_SECOND = 50, 5, 2.0  # clients, and how often each puts and reads
HELD = 50_000  # products in the queue, for searches
RATIO_MAX = 2.0
ROUNDS = 5  # short ones, so that what the machine does besides concerns both parts
_SITE, _HOSTILE = "one", "mallory"
_FLIGHT = 256  # calls of the hostile client that have no reply yet
_PUT_BYTES = 64 << 10
_QUANTILE = 0.99


def hostile(
    certs: Path, place: Path, seconds: float, announce: Announce, kinds: Sequence[int] = range(5)
) -> Iterator[Figure]:
    """The figures; `kinds` are those of the hostile calls. The hostile client runs in one half of each round."""
    names = [f"honest{number}" for number in range(HONEST)]
    for name in (*names, _HOSTILE):
        make_certificate(certs, name)
    trust = Trust(certs, tuple(_rule(name) for name in (*names, _HOSTILE)))
    with ExitStack() as parts:
        queue = parts.enter_context(Queue.create(place / "hostile", size="256MiB", durability="memory", origin=_SITE))
        fill(queue, 150, HELD)
        (endpoint,) = parts.enter_context(site_at(queue.path, [], trust=trust))
        shares = [names[place::PROCESSES] for place in range(PROCESSES)]
        honest = parts.enter_context(processes(_be_honest, [(endpoint, trust, share) for share in shares], 60))
        (evil,) = parts.enter_context(processes(_be_hostile, [(endpoint, trust, kinds)], 60))
        quiet, beside, made = [], [], 0
        for _ in range(ROUNDS):
            announce(f"{HONEST} honest clients")
            quiet += _latencies(honest, seconds)
            announce("and a hostile one")
            evil.send("go")
            beside += _latencies(honest, seconds)
            evil.send("rest")
            made += evil.recv()
        for pipe in (*honest, evil):
            pipe.send("stop")
    before, after = _quantile(quiet), _quantile(beside)
    yield Figure("honest-p99", f"{HONEST} honest clients, put and read, p99", before, "ms")
    yield Figure("beside-hostile-p99", "the same beside a hostile client, p99", after, "ms",
                 beside=f"{made / (ROUNDS * seconds):,.0f} hostile calls/s")  # fmt: skip
    ratio = "p99 beside a hostile client, to p99 without"
    yield Figure("hostile-ratio", ratio, after / before, "times", RATIO_MAX, True)


def _rule(name: str) -> Rule:
    feeds = (f"wx/{name}/**",)
    return Rule((name,), receive=feeds, publish=feeds, station=feeds)


def _latencies(honest: Sequence[Connection], seconds: float) -> list[int]:
    for pipe in honest:
        pipe.send(seconds)
    return [taken for pipe in honest for taken in pipe.recv()]


def _quantile(taken: list[int]) -> float:
    return sorted(taken)[min(len(taken) - 1, int(len(taken) * _QUANTILE))] / 1e6


# --- honest clients -------------------------------------------------------------------------------


def _be_honest(parent: Connection, endpoint: str, trust: Trust, names: Sequence[str]) -> None:
    """Clients, until the parent says stop; for each number of seconds that it sends, nanoseconds of each round trip."""
    with ExitStack() as parts:
        queues = [parts.enter_context(connect(endpoint, tls=trust.tls(name))) for name in names]
        parent.send("ready")
        while (message := parent.recv()) != "stop":
            taken: list[int] = []
            threads = [
                threading.Thread(target=_use, args=(queue, f"wx/{name}/a", message, place / len(names), taken))
                for place, (queue, name) in enumerate(zip(queues, names, strict=True))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            parent.send(taken)


def _use(queue: AnyQueue, feed: str, seconds: float, offset: float, taken: list[int]) -> None:
    begun, due = time.perf_counter(), time.perf_counter() + offset / PER_SECOND
    while due < begun + seconds:
        time.sleep(max(0.0, due - time.perf_counter()))
        before = time.perf_counter_ns()
        sequence = queue.put(os.urandom(150), feed=feed)
        assert isinstance(sequence, int)
        assert len(queue.read_batch(sequence, limit=1)) == 1
        taken.append(time.perf_counter_ns() - before)
        due = max(due + 1 / PER_SECOND, time.perf_counter())


# --- the hostile client ---------------------------------------------------------------------------


def _be_hostile(parent: Connection, endpoint: str, trust: Trust, kinds: Sequence[int]) -> None:
    """Calls at full speed between "go" and "rest", whose number is sent then."""
    terms = SessionTerms("client", connect=(endpoint,), tls=trust.tls(_HOSTILE), timeout_s=30)
    with open_session(terms) as session:
        parent.send("ready")
        while parent.recv() == "go":
            made = 0
            flight = threading.Semaphore(_FLIGHT)
            messages = _Messages(kinds)
            while not parent.poll():
                if flight.acquire(timeout=0.1):
                    _send(session, *messages.next(), flight)
                    made += 1
            parent.recv()
            parent.send(made)


class _Messages:
    """Calls of a client, one kind after another."""

    def __init__(self, kinds: Sequence[int]) -> None:
        self._kinds, self._client, self._number = kinds, os.urandom(16), 0
        self._payload = os.urandom(_PUT_BYTES)

    def next(self) -> tuple[bytes, bytes]:
        """The attachment and the payload."""
        self._number += 1
        number, feed = self._number, f"wx/{_HOSTILE}/a"
        kind = self._kinds[number % len(self._kinds)]
        if kind == 0:
            return self._call(calls.PutOne(feed, str(number)), number), self._payload
        if kind == 1:
            search = f'wx/{_HOSTILE}/** ident ~ "(a|b)*c{number}$"'
            return self._call(calls.ReadProducts(search, "oldest", 1000, 1 << 20), 0), b""
        if kind == 2:
            return self._call(calls.OpenStation(f"s{number}", "oldest", {"selection": feed}), number), b""
        return (encode(Hello(HELLO, OLDEST_VERSION, VERSION)) if kind == 3 else os.urandom(64)), b""

    def _call(self, call: Any, number: int) -> bytes:
        return encode(Envelope(VERSION, self._client, None, number, number, call))


def _send(session: zenoh.Session, head: bytes, payload: bytes, flight: threading.Semaphore) -> None:
    key = principal_key(call_key(_SITE), _HOSTILE)
    ended: Any = Callback(lambda reply: None, flight.release, indirect=False)
    session.get(key, handler=ended, attachment=head, payload=payload, timeout=10.0)
