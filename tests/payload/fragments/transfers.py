"""Helpers for tests of transfers: a sender and a receiver on one queue, in this process."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.payload.fragments.receiver import FileReceiver, Received, ReceiverStatistics
from headrace.payload.fragments.sender import Sender, SenderStatistics, Sent
from headrace.payload.fragments.source import list_sources
from headrace.queue import AnyQueue

FEED = "lab/files"
FRAGMENT_BYTES = 61_440  # in queues of up to 16 MiB
LIMIT_S = 20.0  # a safety net


def make_file(path: Path, size: int, seed: int = 1) -> Path:
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


def send(queue: AnyQueue, *paths: Path, **options: Any) -> tuple[SenderStatistics, list[Sent]]:
    """Send, and return when receivers have everything."""
    sent: list[Sent] = []
    sources, _ = list_sources(list(paths))
    settings: dict[str, Any] = {"timeout_s": LIMIT_S, "on_sent": sent.append, **options}
    return Sender(queue, FEED, sources, **settings).run(), sent


class Receiving:
    """A receiver in a thread, for a `with`."""

    def __init__(self, queue: AnyQueue, root: Path, **options: Any) -> None:
        self.received: list[Received] = []
        self.receiver = FileReceiver(queue, root, FEED, **{"on_received": self.received.append, **options})
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.receiver.run()
        except Exception as error:  # noqa: BLE001 - raised in the thread of the test
            self.error = error

    @property
    def statistics(self) -> ReceiverStatistics:
        return self.receiver.statistics

    def __enter__(self) -> "Receiving":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.receiver.stop()
        self._thread.join(LIMIT_S)
        if kind is None and self.error is not None:
            raise self.error

    def join(self) -> None:
        """Wait until it has ended by itself."""
        self._thread.join(LIMIT_S)


class Altered:
    """A queue whose puts pass through a function that may change the payloads."""

    def __init__(self, queue: AnyQueue, alter: Callable[[list[Any], dict[str, Any]], list[Any]]) -> None:
        self._queue, self._alter = queue, alter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put_many(self, payloads: list[Any], **facts: Any) -> Any:
        return self._queue.put_many(self._alter(payloads, facts), **facts)
