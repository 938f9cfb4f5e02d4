"""Queues that a Spark process has open, by address.

Spark reuses its Python workers from task to task, so a queue is opened once per process and stays open. A worker on
the machine of the queue maps its folder; a worker on another machine, where that folder does not exist, connects to
the site, and waits for it for half a minute.

A path may lead to another queue from one moment to the next. A task or a query that begins uses the queue that is
there (`current_queue`), if it is the one that was planned (`planned_queue`). A stream belongs to the queue that it
began with, and ends if that is no longer in its place (`queue_of_stream`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import OptionError, QueueMissingError, QueueMovedError
from headrace.link.login import Login
from headrace.queue import AnyQueue, Queue
from headrace.queue.queue import log_of
from headrace.remote.client.connect import connect_within

LOGIN_OPTIONS = {  # fields of a login, as options
    "user": "user", "password_file": "passwordFile", "authority": "authority", "certificate": "certificate",
    "key": "key",
}  # fmt: skip
AGAIN = "run the query again"
_PATIENCE_S = 30.0
CHECKPOINT = "bring the old queue back, or give its new path; to read another queue, start with a new checkpoint"


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """Where a queue is: its folder, the endpoint of its site, or both; and who logs in there.

    It is part of plans, and sent to executors: it has the names of files with secrets, and no secret.
    """

    queue: str | None
    site: str | None
    login: Login = field(default_factory=Login)

    def options(self) -> dict[str, str]:
        """The options by which Spark's source and sink know this address."""
        login = {LOGIN_OPTIONS[field]: value for field, value in self.login.given().items()}
        given = {"queue": self.queue, "site": self.site}
        return {name: value for name, value in given.items() if value is not None} | login

    def __str__(self) -> str:
        return self.queue or self.site or ""


_open: dict[tuple[int, QueueAddress], AnyQueue] = {}  # by process id: a forked child must not use its parent's queues


def open_queue(address: QueueAddress) -> AnyQueue:
    """Return the queue at `address`; it stays open until this process ends."""
    key = (os.getpid(), address)
    if key not in _open:
        _open[key] = _opened(address)
    return _open[key]


def current_queue(address: QueueAddress) -> AnyQueue:
    """Return the queue that is at `address` now, even if this process has opened another one there before."""
    queue = open_queue(address)
    if isinstance(queue, Queue) and not queue.is_alive:
        del _open[os.getpid(), address]
        return open_queue(address)
    return queue


def planned_queue(address: QueueAddress, uuid: str, hint: str) -> AnyQueue:
    """Return the queue at `address`, for a task. QueueMovedError: it is gone, or not the one that was planned."""
    try:
        queue = current_queue(address)
    except QueueMissingError:
        raise QueueMovedError(f"the queue {address} was moved or deleted after the query had started", hint) from None
    if queue.config.uuid != uuid:
        raise QueueMovedError(f"the queue {address} was replaced by another one after the query had started", hint)
    return queue


def queue_of_stream(address: QueueAddress) -> AnyQueue:
    """Return the queue that this process opened first at `address`. QueueMovedError: it is no longer there."""
    queue = open_queue(address)
    if isinstance(queue, Queue):
        with moved_means(CHECKPOINT):
            log_of(queue).check_open()
    return queue


@contextmanager
def moved_means(hint: str) -> Iterator[None]:
    """A QueueMovedError has this hint: to restart the program is not enough for a stream with a checkpoint."""
    try:
        yield
    except QueueMovedError as error:
        raise QueueMovedError(error.problem, hint) from None  # else the other hint is printed, too


def _opened(address: QueueAddress) -> AnyQueue:
    if address.queue is not None and (address.site is None or Path(address.queue).is_dir()):
        return Queue.open(address.queue)
    if address.site is None:
        raise OptionError("neither queue nor site is given", "give one of them")
    tls, user = address.login.read()
    return connect_within(address.site, _PATIENCE_S, tls, user, refused_s=None)  # the site may be restarting
