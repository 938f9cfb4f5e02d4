"""`headrace bench relay`: products from one site to another, over loopback.

Two sites run in two processes, as `headrace serve` runs them, with queues in memory that reject duplicates. A third
process puts. The measurements:

    backlog   all products are stored before the second site requests them; over TCP, and with `shared_memory = true`
              for sites on one machine
    live      the second site is subscribed while products are put at full speed
    latency   from before the put at one site to after the read at the other, at several rates
    audio     NaradaBrokering's experiment: 252 bytes every 30 ms to up to a thousand subscribers, each with its own
              session

For comparison, the same run sends the same bytes through a plain socket and through plain Zenoh, in messages as large
as our pages. Neither of them stores anything or gives any guarantee.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import zenoh
from zenoh.handlers import Callback, FifoChannel

from headrace.bench.anchors import ANCHORS
from headrace.bench.processes import processes
from headrace.bench.report import Figure
from headrace.bench.two_sites import (
    FEED,
    PLAIN,
    Trust,
    fill,
    note_latency,
    put_at,
    settle,
    site_at,
    two_queues,
    until_held,
)
from headrace.link.keys import OWN, live_key
from headrace.link.session import SessionTerms, locators, may_share_memory, open_session
from headrace.relay.messages.page import decode_head

LARGE = 1_000_000
BACKLOG = {
    150: (1_000_000, 500_000.0),
    13_600: (50_000, 100_000.0),
    LARGE: (800, 1.0),
}  # size: number of products, goal
RATES = (1, 200, 5_000)
SUBSCRIBERS = (100, 400, 700, 1_000)
SESSIONS_EACH = 500  # subscribers in one process
NOT_MEASURED = [
    "LDM and NaradaBrokering themselves: their figures come from elsewhere",
    "several machines, real networks, TLS, compression, durability on disk",
    "filters with conditions: headrace bench match measures them",
    "shared memory, if this process may not lock 129 MiB of memory (ulimit -l)",
    "latency at nine of ten subscribers: they only count messages, so that Python is not the bottleneck",
    "subscribers on other machines: they share the two cores with the site; their CPU time is shown beside the figure",
]
_AUDIO_BYTES, _AUDIO_S = 252, 0.03
_NOTING = 10  # one subscriber in ten records latencies; the others count
_STREAM_BYTES = 1 << 20

Progress = Callable[[str], None]


def run(place: Path, scale: float, progress: Progress) -> Iterator[Figure]:
    progress("plain socket and plain Zenoh")
    plain = _socket_rate(scale), _zenoh_rate(scale)
    beside = f"plain socket here: {plain[0] / 1e9:.2f} GB/s, plain Zenoh {plain[1] / 1e9:.2f} in messages of 1 MiB"
    for size, (count, goal) in BACKLOG.items():
        progress(f"backlog of {size} B products")
        beside_it = f"{ANCHORS[f'backlog-{size}']}; {beside}" if size < LARGE else beside
        for shared in (False, True) if may_share_memory() else (False,):
            trust = Trust(shared_memory=shared)
            rate = backlog(place, size, max(20_000_000 // (size + 900), int(count * scale)), trust)
            name, what = (f"backlog-{size}-shared", "in shared memory") if shared else (f"backlog-{size}", "over TCP")
            value, unit = (rate * LARGE / 1e9, "GB/s") if size == LARGE else (rate, "/s")
            yield Figure(name, f"backlog, {size:,} B, {what}", value, unit, goal, beside="" if shared else beside_it)
    progress("live at full speed")
    yield from _live_figures(place, max(2_000, int(600_000 * scale)))
    for per_second in RATES:
        progress(f"latency at {per_second}/s")
        yield from _latency(place, per_second, scale)
    for subscribers in SUBSCRIBERS:
        progress(f"{subscribers} subscribers")
        yield from _audio(place, max(2, int(subscribers * min(1.0, scale * 2))), scale)


# --- two sites -----------------------------------------------------------------------------------


def backlog(place: Path, size: int, count: int, trust: Trust = PLAIN) -> float:
    """Products per second, timed once the receiving queue is full and evicts, as it does at any site after a while."""
    used = (size + 100) * count >> 20
    with two_queues(place, max(64, 2 * used), max(16, used // 4)) as (first, second):
        fill(first, size, count)
        with (
            site_at(first.path, [], trust=trust) as where,
            site_at(second.path, where, "oldest", trust),
        ):
            begun, before = until_held(second, int(count * 0.4)), second.next - 1
            return (count - before) / (until_held(second, count) - begun)


def live(place: Path, count: int, trust: Trust = PLAIN) -> tuple[float, float, float]:
    """Products per second that arrive and that are put, and how many seconds the last one is behind its put."""
    with (
        two_queues(place, 1024) as (first, second),
        site_at(first.path, [], trust=trust) as where,
        site_at(second.path, where, trust=trust),
    ):
        settle(first, second)
        begun, before = time.perf_counter(), second.next - 1
        fill(first, 150, count)
        put = time.perf_counter()
        ended = until_held(second, before + count)
    return count / (ended - begun), count / (put - begun), ended - put


def _live_figures(place: Path, count: int) -> Iterator[Figure]:
    arrived, put, behind_s = live(place, count)
    beside = f"{ANCHORS['live-150']}; put here at {put:,.0f}/s"
    yield Figure("live-150", "live at full speed, 150 B", arrived, "/s", 200_000, beside=beside)
    yield Figure(
        "live-behind", "arrival of the last product after its put", behind_s * 1e3, "ms", beside="LDM: 0.5-0.9 s"
    )


# --- latency -------------------------------------------------------------------------------------


def latencies(place: Path, per_second: int, scale: float, trust: Trust = PLAIN) -> list[int]:
    """Nanoseconds from before each put to after its read at the other site, in order of size."""
    count = max(20, int(min(per_second * 10, 20_000) * scale)) if per_second > 1 else max(5, int(20 * scale))
    with (
        two_queues(place, 256) as (first, second),
        site_at(first.path, [], trust=trust) as where,
        site_at(second.path, where, trust=trust),
    ):
        settle(first, second)
        with processes(note_latency, [(second.path, count)]) as (reader,):
            put_at(first, per_second, count)
            return sorted(reader.recv())


def share_of(taken: list[int], share: float) -> float:
    """A quantile of sorted nanoseconds, in milliseconds."""
    return taken[min(len(taken) - 1, int(len(taken) * share))] / 1e6


def _latency(place: Path, per_second: int, scale: float) -> Iterator[Figure]:
    taken, anchor = latencies(place, per_second, scale), ANCHORS.get(f"relay-{per_second}", "")
    for name, share, goal in (("p50", 0.5, 0.5), ("p99", 0.99, 5.0), ("max", 1.0, None)):
        what = f"latency at {per_second:,}/s, {name}"
        yield Figure(f"latency-{per_second}-{name}", what, share_of(taken, share), "ms", goal, True, anchor)


# --- many subscribers ----------------------------------------------------------------------------


def _audio(place: Path, subscribers: int, scale: float) -> Iterator[Figure]:
    """One site, a product of 252 B every 30 ms, and subscribers with one session each."""
    count = max(20, int(300 * scale))
    shares = [min(SESSIONS_EACH, subscribers - begin) for begin in range(0, subscribers, SESSIONS_EACH)]
    with (
        two_queues(place, 64) as (first, _),
        site_at(first.path, []) as where,
        processes(_listen, [(where[0], share, count) for share in shares], 120) as pipes,
    ):
        for pipe in pipes:
            pipe.send("go")
        time.sleep(0.5)
        begun = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, begun + number * _AUDIO_S - time.perf_counter()))
            first.put(number.to_bytes(8, "little") + bytes(_AUDIO_BYTES - 8), feed=FEED)
        results = [pipe.recv() for pipe in pipes]
    taken = sorted(latency for latencies, _, _ in results for latency in latencies)
    came = sum(len(latencies) + others for latencies, others, _ in results)
    late = sum(latency > 100_000_000 for latency in taken) / max(1, len(taken))
    spent = sum(seconds for _, _, seconds in results) / (count * _AUDIO_S)
    cost = f"the subscribers took {spent:.2f} cores; {came:,} of {count * subscribers:,} messages arrived"
    yield Figure(f"audio-{subscribers}-mean", f"{subscribers:,} subscribers, mean latency",
                 sum(taken) / max(1, len(taken)) / 1e6, "ms", 20, True, f"{ANCHORS['audio']}; {cost}")  # fmt: skip
    yield Figure(
        f"audio-{subscribers}-late", f"{subscribers:,} subscribers, later than 100 ms", 100 * late, "%", 1, True
    )


def _listen(parent: Connection, endpoint: str, sessions: int, count: int) -> None:
    """Open sessions with one subscription each; send latencies of some, the number of other pages, and CPU time."""
    taken: list[int] = []

    def note(sample: zenoh.Sample) -> None:
        taken.append(time.time_ns() - decode_head(sample.attachment.to_bytes()).sent_ns if sample.attachment else 0)

    heard = live_key("one", OWN, FEED)
    opened = [open_session(SessionTerms("client", connect=(endpoint,), timeout_s=60)) for _ in range(sessions)]
    noting = [session.declare_subscriber(heard, Callback(note, indirect=False)) for session in opened[::_NOTING]]
    others = [session for place, session in enumerate(opened) if place % _NOTING]
    counting = [session.declare_subscriber(heard, FifoChannel(count + 1)) for session in others]
    parent.send("ready")
    parent.recv()
    begun, end = time.process_time(), time.monotonic() + count * _AUDIO_S + 10
    while len(taken) < count * len(noting) and time.monotonic() < end:
        time.sleep(0.1)
    spent = time.process_time() - begun
    came = sum(sum(1 for _ in iter(subscriber.try_recv, None)) for subscriber in counting)
    parent.send((taken, came, spent))


# --- comparison ----------------------------------------------------------------------------------


def _socket_rate(scale: float) -> float:
    """Bytes per second through a plain socket, from one process to another."""
    messages = max(20, int(2_000 * scale))
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, processes(_drain, [(listener.getsockname()[1], messages)]) as (reader,):
        connection, _ = listener.accept()
        data, begun = os.urandom(_STREAM_BYTES), time.perf_counter()
        for _ in range(messages):
            connection.sendall(data)
        spent: float = reader.recv() - begun
        connection.close()
    return messages * _STREAM_BYTES / spent


def _drain(parent: Connection, port: int, messages: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        parent.send("ready")
        room, left = memoryview(bytearray(_STREAM_BYTES)), messages * _STREAM_BYTES
        while left:
            left -= connection.recv_into(room)
        parent.send(time.perf_counter())


def _zenoh_rate(scale: float) -> float:
    """Bytes per second through plain Zenoh, with a publisher that waits for its subscriber."""
    messages = max(20, int(1_000 * scale))
    with (
        open_session(SessionTerms("router", listen=("tcp/127.0.0.1:0",))) as session,
        processes(_count_messages, [(locators(session)[0], messages)]) as (reader,),
    ):
        publisher = session.declare_publisher("bench", congestion_control=zenoh.CongestionControl.BLOCK)
        data, begun = os.urandom(_STREAM_BYTES), time.perf_counter()
        for _ in range(messages):
            publisher.put(data)
        spent: float = reader.recv() - begun
    return messages * _STREAM_BYTES / spent


def _count_messages(parent: Connection, endpoint: str, messages: int) -> None:
    came: list[float] = []
    with open_session(SessionTerms("client", connect=(endpoint,))) as session:
        session.declare_subscriber("bench", lambda sample: came.append(len(sample.payload.to_bytes())))
        time.sleep(0.5)
        parent.send("ready")
        end = time.monotonic() + 60
        while len(came) < messages and time.monotonic() < end:
            time.sleep(0.0005)
        parent.send(time.perf_counter())
