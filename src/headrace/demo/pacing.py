"""The pacer of a demonstration: a camera on the other side of the Atlantic, as evenly as it takes its pictures.

A process with a small queue of its own, beside everything else. A thread puts a product for every 5 ms into it, when it
would have arrived: by the simulated way of `headrace bench timing`. A pacer releases them. The process notes when each
one was created, when it arrived, and when it was released, so the jitter before and after is that of the run.
"""

import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.bench.timing_pacer import arrivals_ns
from headrace.demo.plan import PACED, PACER, Plan
from headrace.demo.processes import Report, child_process
from headrace.errors import QueueClosedError
from headrace.kernel import _kernel as kernel
from headrace.queue import Queue
from headrace.timing import Pacer
from headrace.timing.jitter import jitter_of_each
from headrace.units import format_count, format_latency

_DELAY = "200ms"
_SPACING_NS = 5_000_000


def run_pacer(plan: Plan, pipe: Connection) -> None:
    """Release the stream at its moments until the command STOP, and then what is left."""
    with (
        child_process(pipe),
        Queue.create(plan.records / PACER, size="16MiB") as queue,
        Pacer(queue.follow("oldest"), delay=_DELAY, precision="100us") as pacer,
    ):
        pipe.send(Report())
        count = int(plan.seconds * 1e9) // _SPACING_NS
        for target, arguments in ((_put, (queue, count)), (_wait_for_stop, (pipe, pacer))):
            threading.Thread(target=target, args=arguments, daemon=True).start()
        noted: list[npt.NDArray[np.int64]] = []
        for batch in pacer:
            rows = np.empty((3, len(batch)), np.int64)
            rows[0], rows[1], rows[2] = batch.columns["created_ns"], batch.columns["inserted_ns"], time.time_ns()
            noted.append(rows)
        np.save(plan.times_of(PACER), np.concatenate([np.empty((3, 0), np.int64), *noted], axis=1))
        pipe.send(Report(sum(each.shape[1] for each in noted), done=True))


def _put(queue: Queue, count: int) -> None:
    """Put products when they would have arrived."""
    arrivals = arrivals_ns(count, _SPACING_NS)
    begun_ns, created_ns = time.monotonic_ns(), time.time_ns()
    for number in np.argsort(arrivals, kind="stable").tolist():
        kernel.sleep_precisely(begun_ns + int(arrivals[number]), 0)
        try:
            queue.put(b"picture", feed=PACED, created=created_ns + number * _SPACING_NS)
        except QueueClosedError:  # stopped before the end
            return


def _wait_for_stop(pipe: Connection, pacer: Pacer) -> None:
    try:
        pipe.recv()
    except EOFError:  # the run is gone
        pass
    finally:
        pacer.stop()


@dataclass(frozen=True, slots=True)
class Smoothing:
    """The stream before and after the pacer. Times are in seconds: since 1970, and of the jitter after each product."""

    before: npt.NDArray[np.float64]  # two rows: created, jitter
    after: npt.NDArray[np.float64]

    def medians_s(self) -> tuple[float, float]:
        before, after = (float(np.median(each[1])) if each.shape[1] else 0.0 for each in (self.before, self.after))
        return before, after

    def __str__(self) -> str:
        before, after = map(format_latency, self.medians_s())
        count = format_count(self.after.shape[1] + 1, "product")
        return f"{count}; jitter {before} as they arrived, {after} after the pacer"


def smoothing_of(plan: Plan) -> Smoothing:
    created, inserted, released = np.load(plan.times_of(PACER))
    order = np.argsort(inserted, kind="stable")
    return Smoothing(_jitter(created[order], inserted[order]), _jitter(created, released))


def _jitter(created: npt.NDArray[np.int64], moments: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.stack([created[1:] / 1e9, jitter_of_each(created, moments) / 1e9])


def draw_smoothing(axes: Any, smoothing: Smoothing) -> None:
    """Jitter as the products arrived, and after the pacer."""
    medians, start_s = smoothing.medians_s(), float(np.min(smoothing.after[0], initial=np.inf))
    for (times, jitter), colour, words, median in (
        (smoothing.before, "tab:red", "as they arrived", medians[0]),
        (smoothing.after, "tab:blue", f"after a pacer with a delay of {_DELAY}", medians[1]),
    ):
        label = f"{words}: median {format_latency(median)}"
        moments = np.maximum.accumulate(times) - start_s  # products overtake each other
        axes.plot(moments, np.maximum(jitter, 1e-6), color=colour, linewidth=0.9, label=label)
    axes.set(
        yscale="log", ylabel="jitter", xlabel="seconds since the first picture",
        title="Jitter by RTP's formula: a camera across the Atlantic (simulated), a picture every 5 ms",
    )  # fmt: skip
    axes.yaxis.set_major_formatter(lambda seconds, _: _span(seconds))
    low, high = axes.get_ylim()
    axes.set(xlim=(0, None), ylim=(low, high * (high / low) ** 0.25))  # room for a legend
    axes.legend(loc="upper left", fontsize=8, ncols=2)


def _span(seconds: float) -> str:
    return f"{seconds * 1e3:g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:g} µs"
