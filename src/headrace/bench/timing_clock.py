"""The clock, as a part of `headrace bench timing`: how right it is, what a liar does to it, what it costs.

resolution   the smallest difference that two readings of the clock of a queue have
loopback     a real keeper, four real UDP servers that serve the time of this machine: how far the clock is from it,
             for the first half of the run all are honest, then one lies by half a second
put          a put with and without a clock
machines     the three machines of NaradaBrokering's figures 12 to 14, simulated for an hour each: the clock of the
             system trails by 19,235, 544,461 and 1 ms, servers are far, near and near, crystals are off and wander
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from headrace.bench.report import Announce, Figure
from headrace.log.clock_words import NTP, ClockWords
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.testing.ntp import SimulatedServer
from headrace.testing.ntp_udp import UdpServer
from headrace.testing.ntp_world import Link, World
from headrace.timing.clock.association import Association
from headrace.timing.clock.keeper import Keeper
from headrace.timing.clock.ntp import Ntp
from headrace.timing.clock.terms import ClockTerms

NOT_MEASURED = [
    "time servers in the Internet: those of the loopback run are on this machine, those of the machines are simulated",
]
LIE_NS = 500_000_000
LOOPBACK_S = 12.0
PUTS = 50_000
_MS = 1_000_000
_LOOK_S = 0.005


@dataclass(frozen=True, slots=True)
class Kind:
    """A machine of the paper, and its way to the servers."""

    name: str
    trails_ns: int
    off_ppb: int
    link: Link


MACHINES = (
    Kind("Cardiff", 19_235 * _MS, 42_000, Link(14 * _MS, 18 * _MS, 2 * _MS)),
    Kind("Indiana", 544_461 * _MS, -27_000, Link(3 * _MS, 3 * _MS, 400_000)),
    Kind("third", _MS, 8_000, Link(200_000, 200_000, 50_000)),
)


@dataclass(slots=True)
class Story:
    """A clock over time."""

    name: str
    times_s: list[float] = field(default_factory=list)
    errors_ms: list[float] = field(default_factory=list)  # from the truth
    bounds_ms: list[float] = field(default_factory=list)
    changes_ms: list[float] = field(default_factory=list)  # of the offset, since the first one
    lie_s: float | None = None  # from then on one server lies


def run(folder: Path, scale: float, progress: Announce, plot: Path | None = None) -> Iterator[Figure]:
    """All figures; a picture at `plot`."""
    with Queue.create(folder / "clock", size="64MiB", dedup="none") as queue:
        progress("the resolution of the clock")
        yield from _resolution(log_of(queue).kernel.now_ns)
        progress("a put with and without a clock")
        yield from _puts(folder, max(1000, int(PUTS * min(1.0, scale))))
        progress("a clock by four servers on loopback, one of which begins to lie")
        real = loopback(queue, max(2.0, LOOPBACK_S * scale))
    yield from _loopback_figures(real)
    progress("the machines of NaradaBrokering's figures 12 to 14, simulated")
    stories = [simulated(kind, max(300.0, 3600.0 * min(1.0, scale))) for kind in MACHINES]
    for story in stories:
        settled = story.errors_ms[len(story.errors_ms) // 4 :]
        yield Figure(
            f"clock-{story.name.lower()}", f"{story.name}, simulated: largest error after a quarter of an hour",
            max(map(abs, settled)), "ms", beside="NaradaBrokering: offsets change by up to 5 ms",
        )  # fmt: skip
    if plot is not None:
        from headrace.bench.timing_clock_plot import save_plot  # matplotlib takes a second to load

        save_plot(plot, real, stories)


# --- resolution and cost --------------------------------------------------------------------------


def _resolution(now_ns: Callable[[], int]) -> Iterator[Figure]:
    readings = [now_ns() for _ in range(20_000)]
    steps = sorted(b - a for a, b in pairwise(readings) if b > a)
    yield Figure("clock-resolution", "smallest difference of two readings", steps[0] / 1000, "µs", 1.0, True)
    yield Figure("clock-reading", "one reading from Python, median", steps[len(steps) // 2] / 1000, "µs", 1.0, True)


def _puts(folder: Path, count: int) -> Iterator[Figure]:
    took: dict[bool, list[float]] = {False: [], True: []}
    with ExitStack() as parts:
        queues = {
            kept: parts.enter_context(Queue.create(folder / f"puts-{kept}", size="64MiB", dedup="none"))
            for kept in took
        }
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        words = ClockWords(boot_ns, time.time_ns() + _MS, 37_000, 37_000, boot_ns, 5 * _MS, 15_000, NTP)
        log_of(queues[True]).write_clock(words)
        for _ in range(5):
            for kept, queue in queues.items():
                took[kept].append(_put(queue, count))
    bare, kept_us = min(took[False]), min(took[True])
    yield Figure("put-system", "a put of 150 B, stamped by the clock of the system", bare, "µs")
    yield Figure("put-clock", "a put of 150 B, stamped by the clock, with its bound", kept_us, "µs", bare * 1.1, True)


def _put(queue: Queue, count: int) -> float:
    payload, put, begun = bytes(150), queue.put, time.perf_counter()
    for _ in range(count):
        put(payload, feed="a/b")
    return (time.perf_counter() - begun) / count * 1e6


# --- loopback -------------------------------------------------------------------------------------


def loopback(queue: Queue, seconds: float) -> Story:
    """The clock of a queue beside that of the system, which the servers serve."""
    story, log = Story("loopback"), log_of(queue)
    with ExitStack() as parts:
        servers = [UdpServer(SimulatedServer(stated_ns=20_000)) for _ in range(4)]
        for each in servers:
            parts.callback(each.close)
        terms = ClockTerms("ntp", tuple(each.name for each in servers), 1.0)
        keeper = Keeper(queue.path, log, terms, burst_s=0.1)
        parts.callback(keeper.close)
        while keeper.state is None or keeper.state.situation != "synchronised":
            time.sleep(_LOOK_S)
        begun_s, first_ns = time.monotonic(), 0
        while (passed_s := time.monotonic() - begun_s) < seconds:
            if story.lie_s is None and passed_s > seconds / 2:
                servers[0].behaviour, story.lie_s = SimulatedServer(LIE_NS, stated_ns=20_000), passed_s
            before_ns = time.time_ns()
            now_ns, bound_ns = log.kernel.now_and_bound()
            error_ns = now_ns - (before_ns + time.time_ns()) // 2
            first_ns = first_ns or error_ns
            _note(story, passed_s, error_ns, bound_ns, error_ns - first_ns)
            time.sleep(_LOOK_S)
    return story


def _loopback_figures(story: Story) -> Iterator[Figure]:
    lie_at = next(place for place, at_s in enumerate(story.times_s) if at_s >= (story.lie_s or 0.0))
    honest, lied = story.errors_ms[:lie_at], story.errors_ms[lie_at:]
    beside = "NaradaBrokering: 1 to 30 ms"
    yield Figure(
        "clock-honest", "four honest servers on loopback: largest error", max(map(abs, honest)), "ms", 1.0, True, beside
    )
    yield Figure("clock-liar", "one of the four lies by 500 ms: largest error", max(map(abs, lied)), "ms", 1.0, True)
    outside = sum(abs(error) > bound for error, bound in zip(story.errors_ms, story.bounds_ms, strict=True))
    yield Figure("clock-outside", f"readings of {len(story.times_s):,} outside the bound", outside, "readings", 0, True)
    yield Figure("clock-bound", "bound at the end", story.bounds_ms[-1], "ms")


# --- the machines of the paper --------------------------------------------------------------------


def simulated(kind: Kind, seconds: float, seed: int = 12) -> Story:
    """The clock of one machine, polled every 16 s after the first eight polls."""
    story, world = Story(kind.name), World(random.Random(seed), kind.off_ppb, -kind.trails_ns)
    ntp = Ntp([Association(str(place), 16.0) for place in range(4)])
    servers: Sequence[tuple[SimulatedServer | None, Link]] = [(SimulatedServer(stated_ns=_MS // 2), kind.link)] * 4
    begun_ns, first_ns, number = world.boot_ns, 0, 0
    while (world.boot_ns - begun_ns) / 1e9 < seconds:
        world.poll(ntp, list(servers))
        world.run(2.0 if number < 8 else 16.0)
        number += 1
        if world.words.boot_ns:
            offset_ns = world.words.at(world.boot_ns) - world.boot_ns
            first_ns = first_ns or offset_ns
            bound_ns = world.words.bound_at(world.boot_ns)
            _note(story, (world.boot_ns - begun_ns) / 1e9, world.error_ns, bound_ns, offset_ns - first_ns)
    return story


def _note(story: Story, at_s: float, error_ns: int, bound_ns: int, change_ns: int) -> None:
    story.times_s.append(at_s)
    story.errors_ms.append(error_ns / 1e6)
    story.bounds_ms.append(bound_ns / 1e6)
    story.changes_ms.append(change_ns / 1e6)
