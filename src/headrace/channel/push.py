"""Push consumer: a thread calls a function with the products of a station.

A product is acknowledged when the callback returns. If the callback raises, the product goes back as failed: it is
delivered again, to any consumer, and parked after the station's `deliveries_max`. After each failure in a row the
thread pauses longer, so that a broken callback does not spin.

With `batches` the callback gets whole batches, of up to `batch_max` products and with the station's pacing; if it
raises, the whole batch goes back.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from headrace.channel.worker import Worker
from headrace.errors import HeadraceError, LeaseLostError, QueueClosedError, StationMissingError
from headrace.product.batch import Batch
from headrace.station.interface import AnyStation

BATCH_DEFAULT = 100
PAUSE_S, PAUSE_S_MAX = 0.05, 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PushStatistics:
    """What a push consumer has done so far."""

    delivered: int  # products that were passed to the callback
    acknowledged: int
    failures: int  # exceptions of the callback, and errors of the station
    latest_failure: str
    running: bool


class PushConsumer:
    """A function that is called; get one from `Channel.consumer`. End it with `stop`, or use it in a `with`."""

    def __init__(self, station: AnyStation, callback: Callable[[Any], Any], *, batches: bool = False) -> None:
        self._station, self._callback, self._batches = station, callback, batches
        self._consumer = station.attach()
        self._lost = False  # declared dead: attach again
        self._delivered = self._acknowledged = 0
        what = f"push consumer of station {station.name!r}"
        self._worker = Worker(f"headrace-push-{station.name}", what, self._run, _log)
        self._worker.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the current batch and detach; False if that takes longer than `timeout` seconds."""
        self._worker.ending.set()
        self._consumer.interrupt()
        return self._worker.stop(timeout)

    def statistics(self) -> PushStatistics:
        return PushStatistics(
            delivered=self._delivered,
            acknowledged=self._acknowledged,
            failures=self._worker.errors.count,
            latest_failure=self._worker.errors.latest,
            running=self._worker.is_running,
        )

    def __enter__(self) -> "PushConsumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<PushConsumer of {self._station.name!r}, {'running' if self._worker.is_running else 'ended'}>"

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        worker = self._worker
        try:
            while not worker.ending.is_set():
                self._step()
                if worker.failures_in_a_row:
                    worker.ending.wait(min(PAUSE_S * 2 ** min(worker.failures_in_a_row, 16), PAUSE_S_MAX))
        except (StationMissingError, QueueClosedError) as error:
            worker.fail("it ends", error)
        finally:
            self._consumer.detach()

    def _step(self) -> None:
        """Process one batch, or record one error."""
        try:
            if self._lost:
                self._consumer = self._station.attach()
                self._lost = False
                if self._worker.ending.is_set():  # `stop` may have interrupted the old consumer
                    return
            batch = self._consumer.get(self._station.terms.batch_max or (BATCH_DEFAULT if self._batches else 1))
            if len(batch):
                (self._call_with_batch if self._batches else self._call_with_each)(batch)
        except LeaseLostError as error:
            self._worker.fail("its leases are lost; the products are delivered again", error)
            self._lost = True
            self._consumer.detach()
        except (StationMissingError, QueueClosedError):
            raise
        except HeadraceError as error:
            self._worker.fail("the station failed", error)
        except Exception as error:  # noqa: BLE001 - the thread goes on, whatever it was
            self._worker.fail("an unexpected error", error)

    def _call_with_each(self, batch: Batch) -> None:
        for product in batch:
            if self._call(product, 1):
                self._consumer.ack(product)
                self._acknowledged += 1
            else:
                self._consumer.nack(product, failed=True)

    def _call_with_batch(self, batch: Batch) -> None:
        if self._call(batch, len(batch)):
            self._consumer.ack(batch)
            self._acknowledged += len(batch)
        else:
            self._consumer.nack(batch, failed=True)

    def _call(self, what: Any, products: int) -> bool:
        """Call the callback; whether it returned."""
        self._delivered += products
        try:
            self._callback(what)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._worker.fail("the callback failed", error)
            return False
        self._worker.failures_in_a_row = 0
        return True
