"""What a site does with a consumer that it holds for a remote client, beyond what the consumer offers to programs.

A consumer of a remote client never waits by itself: threads of the site that serve all of them try a `get` whenever
there may be something to get (remote/server/gets.py). They need to know where a consumer gets its products from, and
how long its station wants a batch to fill. Batches are settled by their places, because that is what a client sends.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.kernel import _kernel as kernel
from headrace.product.batch import Batch
from headrace.station.consumer import Consumer

Places = npt.NDArray[np.uint32]
Origin = tuple[kernel.Chain, int]  # where products come from: a chain, and a member of it

find_ready = kernel.find_ready


def never_call(consumer: Consumer) -> None:
    """From now on a `get` calls no functions of users, which may be slow: `scan_by_functions` does."""
    consumer._calls = False


def waits_for_functions(consumer: Consumer) -> bool:
    """Whether functions of users have to decide about products before the station of a consumer gets them."""
    return consumer._chain.calls and consumer._kernel.position < consumer._log.kernel.head


def scan_by_functions(consumer: Consumer) -> bool:
    """Scan the log for the station of a consumer for a moment; whether that got somewhere, and there is more."""
    before = consumer._kernel.position
    consumer._stations.conduct(consumer._chain)
    return before < consumer._kernel.position < consumer._log.kernel.head


def origin_of(consumer: Consumer) -> Origin:
    """The station of a consumer, as the kernel knows it."""
    return consumer._kernel, consumer._member


def now_ns_of(consumer: Consumer) -> int:
    """The time by the queue's own clock; 0 if it has none."""
    return consumer._stations.now_ns()


def terms_number(consumer: Consumer) -> int:
    """Another one after every change of terms in the chain of a consumer."""
    return int(consumer._kernel.terms_number)


def pacing_of(consumer: Consumer) -> float:
    """For how long a batch may fill once its first product waits, in seconds, by the terms that hold now."""
    if consumer._terms_seen != consumer._kernel.terms_number:
        consumer._read_terms()
    return consumer._pacing_s


def count_waiting(consumer: Consumer, n: int) -> tuple[int, bool]:
    """How many products wait at the station, and whether they are as many as a `get` of `n` can return."""
    consumer._stations.conduct(consumer._chain, calls=False)
    waiting = consumer._kernel.waiting(consumer._member)
    return waiting, waiting >= min(n, consumer._batch_max)


def get_in_time(consumer: Consumer, n: int, timeout: float, within_s: float) -> Batch:
    """As `get`; products that expire `within_s`, before they arrive, count as expired.

    A station that is always behind would otherwise hand out only products that are about to expire, and none of them
    would arrive in time. Products that have more than half of the station's timeout left are handed out in any case,
    so that an estimate that is too pessimistic is corrected.
    """
    ahead_ns = min(int(within_s * 1e9), consumer._timeout_ns // 2)
    if not ahead_ns or consumer._start_ns > consumer._stations.time_ns():
        return consumer.get(n, timeout)
    return consumer._get(n, timeout, ahead_ns=ahead_ns)


def place_of(consumer: Consumer) -> int:
    """Its slot in the chain."""
    return consumer._place


def settle(consumer: Consumer, batch: Batch, places: Places | None, how: str) -> None:
    """`ack`, `discard`, `nack` or `failed` for these places of a batch."""
    consumer._settle(batch, places, kernel.SETTLE[how])


def revise(consumer: Consumer, batch: Batch, places: Places, payloads: list[Any]) -> None:
    """Acknowledge these places with these payloads; None: unchanged."""
    consumer._settle_revised(batch, places, payloads)


def deadlines(consumer: Consumer) -> tuple[int, int, int]:
    """The time by which products expire, the timeout of the station, and its stop time, in nanoseconds; 0: none."""
    return consumer._stations.time_ns(), consumer._timeout_ns, consumer._stop_ns
