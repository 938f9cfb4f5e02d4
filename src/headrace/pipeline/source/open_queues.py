"""Queues that a Spark process has open, by address.

Spark reuses its Python workers from task to task, so a queue is opened once per process and stays open. A worker on
the machine of the queue maps its folder; a worker on another machine, where that folder does not exist, connects to
the site.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import OptionError
from headrace.link.login import Login
from headrace.queue import AnyQueue, Queue
from headrace.remote import connect

LOGIN_OPTIONS = {  # fields of a login, as options
    "user": "user", "password_file": "passwordFile", "authority": "authority", "certificate": "certificate",
    "key": "key",
}  # fmt: skip


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


def _opened(address: QueueAddress) -> AnyQueue:
    if address.queue is not None and (address.site is None or Path(address.queue).is_dir()):
        return Queue.open(address.queue)
    if address.site is None:
        raise OptionError("neither queue nor site is given", "give one of them")
    tls, user = address.login.read()
    return connect(address.site, tls=tls, user=user)
