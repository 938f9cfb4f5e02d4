"""The Protocols that a queue on this machine and a queue at another site both implement.

    AnyQueue      headrace.Queue       RemoteQueue       what `headrace.connect` returns
    AnyCursor     headrace.Cursor      RemoteCursor
    AnyFollower   Follower             RemoteFollower
    AnyStation    headrace.Station     RemoteStation
    AnyConsumer   headrace.Consumer    RemoteConsumer
    AnyChannel    headrace.Channel     RemoteChannel
    AnySupplier   Supplier             RemoteSupplier
    AnyShare      Share                RemoteShare       a group of processing nodes
    AnySeat       Seat                 RemoteSeat

Annotate a function with one of these if it works with either; annotate it with the class if it needs the files of the
queue. `delete`, `resize`, `check` and `repair` need the files, so they are not here: `local_queue` gives access to
them, or the error that says where to run the command. The local classes explain each method; docs/remote.md
lists the differences. `tests/remote/contract` runs one suite over both implementations.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Unpack

from headrace.channel.interface import AnyChannel
from headrace.channel.qos import ChannelOptions
from headrace.errors import QueueError
from headrace.log.append import Duplicate, Receipt
from headrace.log.columns import PutColumns, Texts
from headrace.log.config import QueueConfig
from headrace.log.cursor import CursorState
from headrace.log.follow import AnyFollower
from headrace.log.log import Wanted
from headrace.log.read import Start
from headrace.log.reading import Reading
from headrace.log.seams import Timeout
from headrace.log.statistics import Statistics
from headrace.log.weights import Weights
from headrace.product.batch import Batch
from headrace.product.put import PutFacts
from headrace.queue.member_stream import MemberStream
from headrace.queue.members import Member
from headrace.queue.queue import Queue
from headrace.share.interface import AnyShare, ShareOptions
from headrace.station.interface import AnyStation
from headrace.station.terms import Given, StationOptions
from headrace.timing.replay.replay import Replay
from headrace.timing.replay.source import By


class AnyCursor(Protocol):
    """A named, durable position."""

    name: str

    @property
    def state(self) -> CursorState: ...
    @property
    def position(self) -> int: ...
    def read(self, selection: Wanted = None, *, limit: int | None = None) -> Reading: ...
    def read_batch(
        self, selection: Wanted = None, *, limit: int = 10_000, bytes_limit: int | str = "64MiB"
    ) -> Batch: ...
    def follow(
        self, selection: Wanted = None, *, limit: int = 10_000, bytes_limit: int | str = "64MiB",
        timeout: float | str | None = None,
    ) -> AnyFollower: ...  # fmt: skip
    def commit(self, batch: Batch) -> None: ...
    def save(self, position: int) -> None: ...
    def seek(self, start: Start) -> int: ...
    def remove(self) -> None: ...
    def __iter__(self) -> Iterator[Batch]: ...


class AnyQueue(Protocol):
    """A queue, wherever its files are. `path` is its directory, or the endpoint it was connected to."""

    path: Path

    @property
    def config(self) -> QueueConfig: ...
    def put(
        self, payload: Any, *, feed: str, ident: str = "", timeout: Timeout = None, **facts: Unpack[PutFacts]
    ) -> int | Duplicate: ...
    def put_many(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt: ...
    async def put_async(
        self, payload: Any, *, feed: str, ident: str = "", timeout: Timeout = None, **facts: Unpack[PutFacts]
    ) -> int | Duplicate: ...
    async def put_many_async(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt: ...
    def put_batch(self, batch: Batch, keep: Any = None, timeout: Timeout = None) -> Receipt: ...
    def flush(self) -> None: ...

    def read(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int | None = None, stop: int | None = None
    ) -> Reading: ...
    def read_batch(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", stop: int | None = None,
    ) -> Batch: ...  # fmt: skip
    def follow(
        self, start: Start = "next", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: Timeout = None,
    ) -> AnyFollower: ...  # fmt: skip
    def replay(
        self, start: Start = "oldest", stop: Start | None = "next", selection: Wanted = None, *, speed: float | str = 1,
        by: By = "inserted",
    ) -> Replay: ...  # fmt: skip
    def weigh(self, start: int, stop: int, selection: Wanted = None, limit: int | None = None) -> Weights: ...
    def resolve(self, start: Start) -> int: ...
    @property
    def oldest(self) -> int: ...
    @property
    def next(self) -> int: ...
    @property
    def origins(self) -> list[str]: ...

    def cursor(self, name: str, start: Start = "oldest") -> AnyCursor: ...
    def cursors(self) -> list[str]: ...
    def station(
        self, name: str, selection: Given = ..., *, start: Start = "next", create: bool = True,
        **terms: Unpack[StationOptions],
    ) -> AnyStation: ...  # fmt: skip
    def stations(self) -> list[str]: ...
    def channel(self, name: str, feed: str | None = None, **terms: Unpack[ChannelOptions]) -> AnyChannel: ...
    def channels(self) -> list[str]: ...
    def share(
        self, stream: str, group: str = "main", *, create: bool = True, **terms: Unpack[ShareOptions]
    ) -> AnyShare: ...
    def shares(self) -> list[tuple[str, str]]: ...

    def statistics(self) -> Statistics: ...
    @property
    def is_alive(self) -> bool: ...
    def wait_alive(self, timeout: Timeout = None) -> bool: ...
    def members(self, role: str | None = None, *, timeout: Timeout = None) -> MemberStream: ...
    def wait_for(self, member: str, timeout: Timeout = None) -> Member: ...
    async def wait_for_async(self, member: str, timeout: Timeout = None) -> Member: ...
    def wanted(self, feed: str) -> bool: ...
    def wanted_by(self, feed: str) -> list[str]: ...
    def close(self) -> None: ...
    async def __aenter__(self) -> "AnyQueue": ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __enter__(self) -> "AnyQueue": ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def local_queue(queue: AnyQueue) -> Queue:
    """The queue, if its files are on this machine; QueueError otherwise."""
    if isinstance(queue, Queue):
        return queue
    raise needs_files(str(queue.path))


def needs_files(where: str) -> QueueError:
    """The error for an operation that needs the files of a queue at another site."""
    return QueueError(
        f"this operation needs the files of the queue, which are not on this machine: {where} is an endpoint",
        "run it on the machine of the site, with the directory of the queue",
    )
