"""What every consumer does with its leases, whether the queue is on this machine or at another site.

A consumer returns products as batches, and only a batch has the leases. `find_leases` finds the batch of a single
product among those that the consumer got lately; `iterate` and `iterate_async` are the loops that `Consumer` and
`RemoteConsumer` offer. They are functions over a consumer's own `get` and acknowledgement, so that neither class
inherits from the other. `get_async` is that of a consumer on this machine, whose wait is in the kernel, and so in a
thread.

Not here: how leases end (consumer.py), and what happens to those of a dead consumer (chain.py: `OpenChain.recover`,
kernel/chain/recovery.pxi).
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.errors import LeaseLostError, OptionError, StationError
from headrace.kernel import _kernel as kernel
from headrace.log.in_thread import started
from headrace.log.seams import Timeout
from headrace.product.batch import Batch, rows_behind
from headrace.product.joined import JoinedBatch, Leases
from headrace.product.product import Product
from headrace.units import parse_age

if TYPE_CHECKING:
    from concurrent.futures import Future

KEEP_S_MAX = 86_400.0  # of `attach`
REMEMBERED = 64  # batches in which the lease of a single product is found

Leased = Batch | Product | Sequence[Product] | Leases
Places = npt.NDArray[np.uint32]  # of products in a batch
Recent = deque[Batch]  # what a consumer got lately, the newest last
AckRest = Callable[[Batch], None]


@dataclass(frozen=True, slots=True)
class Getter:
    """The part of a consumer that `get_async` uses."""

    get: Callable[[int, Timeout, threading.Event], Batch]  # may end with an empty batch once the event is set
    wake: Callable[[], None]  # make a `get` look at the event
    nack: Callable[[Batch], None]


# --- check ------------------------------------------------------------------------------------------


def check_attached(station: str, is_detached: bool, pid: int) -> None:
    """StationError if a consumer, attached by process `pid`, has detached, or if this is a forked child."""
    if is_detached:
        raise StationError(f"this consumer of {station!r} has detached", "attach again: station.attach()")
    if pid != os.getpid():
        raise StationError(
            f"this consumer of {station!r} belongs to process {pid}", "attach again in the child: station.attach()"
        )


def check_keep(keep: float | str | timedelta) -> float:
    """The seconds for which a site keeps the leases of a client whose connection broke; OptionError if invalid."""
    keep_s = parse_age(keep, "keep")
    if keep_s > KEEP_S_MAX:
        raise OptionError(f"keep {keep!r} is too long", "give a day at most")
    return keep_s


def is_failure(error: BaseException | None) -> bool:
    """Whether a `with` block that ends by `error` may have failed because of its products, rather than on request."""
    return isinstance(error, Exception)


def not_a_number(n: Any) -> OptionError:
    """The error for a `get` of `n` products."""
    return OptionError(f"{n!r} is not a number of products", "ask for one or more")


# --- find -------------------------------------------------------------------------------------------


def recent_batches() -> Recent:
    """An empty record of batches; the oldest leaves it when it is full."""
    return deque(maxlen=REMEMBERED)


def find_leases(recent: Recent, what: Leased) -> list[tuple[Batch, Places | None]]:
    """The batches that hold these leases, with the places in each; None stands for the whole batch."""
    if isinstance(what, Leases):
        return list(what.pieces)
    if isinstance(what, JoinedBatch):
        return list(what.pieces())
    if isinstance(what, Batch):
        return [(what, None)]
    found: dict[int, tuple[Batch, list[int]]] = {}
    for product in _products(what):
        batch, place = _find_lease(recent, product)
        found.setdefault(id(batch), (batch, []))[1].append(place)
    return [(batch, np.array(places, np.uint32)) for batch, places in found.values()]


def find_revised(recent: Recent, what: Leased, payloads: Sequence[Any]) -> list[tuple[Batch, Places, list[Any]]]:
    """As `find_leases`, with the new payload of each product; OptionError if their number differs."""
    if isinstance(what, JoinedBatch):
        leases = list(what.leases())
    elif isinstance(what, Batch):
        leases = [(what, place) for place in range(len(what))]
    else:
        leases = [_find_lease(recent, product) for product in _products(what)]
    if not isinstance(payloads, list | tuple) or len(payloads) != len(leases):
        raise OptionError(
            "payloads is not a list with one entry for each product", "give one for each; None: unchanged"
        )
    parts: dict[int, tuple[Batch, list[int], list[Any]]] = {}
    for (batch, place), payload in zip(leases, payloads, strict=True):
        part = parts.setdefault(id(batch), (batch, [], []))
        part[1].append(place)
        part[2].append(payload)
    return [(batch, np.array(places, np.uint32), new) for batch, places, new in parts.values()]


def settle_each(leases: Sequence[tuple[Batch, Places | None]], settle: Callable[[Batch, Places | None], None]) -> None:
    """Settle all of them; a LeaseLostError of one is raised after the others are settled."""
    error = None
    for batch, places in leases:
        try:
            settle(batch, places)
        except LeaseLostError as lost:
            error = lost
    if error is not None:
        raise error


def not_leased(refused: int, count: int, station: str) -> LeaseLostError:
    """The error for products that a consumer acknowledged and does not hold."""
    return LeaseLostError(
        f"{refused} of {count} products were not leased to this consumer of {station!r}; the others are settled",
        "acknowledge each product once, and only what this consumer got",
    )


def check_payloads(payloads: Sequence[Any]) -> None:
    """OptionError for a payload that is not bytes."""
    for payload in payloads:
        try:
            kernel.check_payload(payload)
        except TypeError:
            raise OptionError(f"payload of type {type(payload).__name__} is not bytes", "give bytes") from None


def _find_lease(recent: Recent, product: Product) -> tuple[Batch, int]:
    if not isinstance(product, Product):
        raise OptionError(f"{product!r} is not a product", "give what get() returned")
    if isinstance(product, kernel.RowProduct):
        rows, place = kernel.place_of(product)
        for batch in reversed(recent):
            if rows_behind(batch) is rows:
                return batch, place
    for batch in reversed(recent):  # a copy, or a product that was read elsewhere
        places = np.flatnonzero(batch.sequences == product.sequence)
        if len(places):
            return batch, int(places[0])
    raise StationError(
        f"product {product.sequence} is not in the last {REMEMBERED} batches that this consumer got",
        "acknowledge the whole batch instead, or acknowledge sooner",
    )


def _products(what: Any) -> list[Product]:
    if isinstance(what, Product):
        return [what]
    if isinstance(what, list | tuple):
        return list(what)
    raise OptionError(f"{what!r} is not a lease", "give a batch or products that get() returned")


# --- iterate ----------------------------------------------------------------------------------------


def iterate(get: Callable[[int, Timeout], Batch], ack_rest: AckRest, n: int, timeout: Timeout) -> Iterator[Batch]:
    """Batches of up to `n`; each is acknowledged when the next is asked for. Ends at an empty batch."""
    while len(batch := get(n, timeout)):
        yield batch
        ack_rest(batch)


async def iterate_async(
    get: Callable[[int, Timeout], Awaitable[Batch]], ack_rest: AckRest, n: int, timeout: Timeout
) -> AsyncIterator[Batch]:
    """As `iterate`, for `async for`."""
    while len(batch := await get(n, timeout)):
        yield batch
        ack_rest(batch)


async def get_async(consumer: Getter, n: int, timeout: Timeout) -> Batch:
    """`get` in a thread of its own. If the task is cancelled, products that arrive afterwards go back.

    A cancellation does not wait for the thread, which ends by itself soon after: the event loop goes on meanwhile.
    """
    import asyncio  # slow to load, and loaded already where this runs

    stop = threading.Event()
    future = started(lambda: consumer.get(n, timeout, stop), "get")
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        stop.set()
        started(lambda: _give_back(consumer, future), "give-back")  # when the get has ended
        consumer.wake()
        raise


def _give_back(consumer: Getter, future: "Future[Batch]") -> None:
    with contextlib.suppress(Exception):  # nobody is left to hear of it; `detach` returns what remains
        if len(batch := future.result()):
            consumer.nack(batch)
