"""Snapshot: all that a queue and its stations tell at one moment.

Counters only; what happens per second is for frame.py, which has two of these. A camera looks once whenever it is told
to, and never by itself.
"""

import time
from dataclasses import dataclass

from headrace.cli.station.standing import every, in_order
from headrace.errors import NotAQueueError, QueueMissingError
from headrace.kernel import _kernel as kernel
from headrace.log.config import read_config
from headrace.log.explain import explain
from headrace.log.statistics import Statistics
from headrace.queue import Queue
from headrace.station import ConsumerStatistics, StationStatistics


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment. Numbers of a queue in use may be a few products apart from each other."""

    path: str
    time_ns: int
    at_s: float  # by a clock that only goes forward
    queue: Statistics
    stations: list[StationStatistics]
    consumers: list[ConsumerStatistics]


class Camera:
    """Takes snapshots of one open queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._uuid = queue.config.uuid

    def take(self) -> Snapshot:
        """HeadraceError if the queue is gone, was replaced, or cannot be read any more."""
        self._check_there()
        try:
            return self._look()
        except kernel.KernelError as error:
            raise explain(error, self._queue.path) from None

    def _check_there(self) -> None:
        """What is mapped would go on to answer after the directory has gone."""
        path = self._queue.path
        try:
            config = read_config(path)
        except NotAQueueError:
            raise QueueMissingError(
                f"the queue {path} has gone away meanwhile", "begin again when it is back"
            ) from None
        if config.uuid != self._uuid:
            raise QueueMissingError(f"there is another queue at {path} now", "begin again to see that one")

    def _look(self) -> Snapshot:
        told = every(self._queue, lambda station: (station.statistics(), station.consumers()))
        return Snapshot(
            path=str(self._queue.path),
            time_ns=time.time_ns(),
            at_s=time.monotonic(),
            queue=self._queue.statistics(),
            stations=in_order(statistics for statistics, _ in told),
            consumers=[consumer for _, consumers in told for consumer in consumers],
        )
