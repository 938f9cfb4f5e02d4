"""One trace, rebalanced in two ways: slice by slice, and by stopping the world, as Kafka's eager protocol does.

20,000 items per second arrive in 256 slices, as keys by Zipf's law; each slice works on its items one after the other.
One item in 20,000 takes long. Ten times a second a slice moves, as in `headrace bench slices` with real nodes.

    slice by slice     the slice that moves ends its item in work, is released, and goes on at the taker: two messages
    stop the world     every member ends the items in work of all of its slices and joins again; when the last one has
                       joined, the leader assigns, and everybody goes on: four messages after the last one has stopped

A message takes a millisecond in both. This is the best case of the second protocol: members hear of the rebalance at
once, not with their next poll or heartbeat, which may be seconds later, and have fetched nothing that they fetch again.
It is a model of that protocol, not a measurement of Kafka.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.bench.report import Figure

Floats = npt.NDArray[np.float64]

SEED = 14
SLICES, NODES, RATE, ZIPF, KEYS = 256, 4, 20_000.0, 1.2, 100_000
SECONDS, MOVES_PER_S = 10.0, 10.0
ITEM_S, LONG_ITEM_S, LONG_SHARE = 0.0001, 0.2, 1 / 20_000
MESSAGE_S = 0.001
LATE_S = 0.001  # an item that is later than without any move by this much was delayed


@dataclass(frozen=True, slots=True)
class Trace:
    """When items of each slice arrive, how long they take, which slice moves when, and who owns what."""

    arrivals: list[Floats]
    services: list[Floats]
    moves: list[tuple[float, int]]
    owners: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Outcome:
    ends: list[Floats]
    pauses_s: Floats  # of each slice that was stopped, each time
    stopped_s: float  # sum over all slices


def make_trace(seconds: float = SECONDS, seed: int = SEED) -> Trace:
    chance = np.random.default_rng(seed)
    number = int(RATE * seconds)
    shares = np.arange(1, KEYS + 1, dtype=np.float64) ** -ZIPF
    of_key = chance.integers(0, SLICES, KEYS)
    slices = of_key[chance.choice(KEYS, number, p=shares / shares.sum())]
    arrivals = np.sort(chance.uniform(0, seconds, number))
    services = chance.exponential(ITEM_S, number)
    services[chance.random(number) < LONG_SHARE] = LONG_ITEM_S
    moments = np.arange(0.5, seconds - 0.5, 1 / MOVES_PER_S)
    moves = [(float(moment), int(chance.integers(SLICES))) for moment in moments]
    by_slice = [np.flatnonzero(slices == number) for number in range(SLICES)]
    return Trace([arrivals[of] for of in by_slice], [services[of] for of in by_slice], moves, np.arange(SLICES) % NODES)


class _Lane:
    """One slice: its items are worked on one after the other."""

    def __init__(self, arrivals: Floats, services: Floats) -> None:
        self._arrivals, self._services = arrivals, services
        self.ends = np.zeros(len(arrivals))
        self._next, self.free_s = 0, 0.0

    def advance(self, until_s: float) -> float:
        """Begin every item that can begin before this moment; when the last of them ends."""
        stop = int(np.searchsorted(self._arrivals, until_s))
        arrivals, services = self._arrivals[self._next : stop], self._services[self._next : stop]
        if len(arrivals):
            sums = np.cumsum(services)
            begins = np.maximum.accumulate(np.maximum(arrivals, self.free_s) - (sums - services)) + (sums - services)
            begun = int(np.searchsorted(begins, until_s))
            ends = begins[:begun] + services[:begun]
            self.ends[self._next : self._next + begun] = ends
            self._next += begun
            if begun:
                self.free_s = float(ends[-1])
        return self.free_s


def play(trace: Trace, protocol: str | None) -> Outcome:
    """The trace without moves, with moves slice by slice (`slice`), or by stopping the world (`world`)."""
    lanes = [_Lane(*each) for each in zip(trace.arrivals, trace.services, strict=True)]
    pauses: list[float] = []
    for moment, moved in trace.moves if protocol else ():
        heard_s = moment + MESSAGE_S
        stopping = range(SLICES) if protocol == "world" else (moved,)
        stops = [max(heard_s, lanes[number].advance(heard_s)) for number in stopping]
        resumed_s = max(stops) + MESSAGE_S * (4 if protocol == "world" else 2)
        for number, stop_s in zip(stopping, stops, strict=True):
            pauses.append(resumed_s - stop_s)
            lanes[number].free_s = resumed_s
    for lane in lanes:
        lane.advance(np.inf)
    return Outcome([lane.ends for lane in lanes], np.array(pauses), float(sum(pauses)))


def run(scale: float) -> Iterator[Figure]:
    """Figures of both protocols on one trace."""
    seconds = max(2.0, SECONDS * min(scale, 1.0))
    trace = make_trace(seconds)
    plain = play(trace, None)
    items = sum(map(len, trace.arrivals))
    for protocol, words in (("slice", "slice by slice"), ("world", "stop the world, best case")):
        outcome = play(trace, protocol)
        late = np.concatenate([after - before for after, before in zip(outcome.ends, plain.ends, strict=True)])
        what = f"{MOVES_PER_S:g} moves/s at {RATE:,.0f} items/s, simulated, {words}"
        name = f"rebalance-{protocol}"
        slices = len(outcome.pauses_s) / len(trace.moves)
        yield Figure(f"{name}-stopped", f"{what}: slices that stop for each move", slices, "slices")
        yield Figure(f"{name}-pause-p50", f"{what}: pause of a slice, p50", _ms(np.median(outcome.pauses_s)), "ms")
        yield Figure(f"{name}-pause-max", f"{what}: longest pause", _ms(outcome.pauses_s.max()), "ms")
        share = 100 * outcome.stopped_s / (SLICES * seconds)
        yield Figure(f"{name}-stopped-time", f"{what}: time that a slice stands still", share, "%")
        yield Figure(f"{name}-late", f"{what}: items that are delayed", 100 * float((late > LATE_S).sum()) / items, "%")
        yield Figure(f"{name}-delay-max", f"{what}: longest delay of an item by moves", _ms(late.max()), "ms")


def _ms(seconds: float | np.floating[npt.NBitBase]) -> float:
    return float(seconds) * 1000
