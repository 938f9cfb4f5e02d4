"""The Protocols of channels and suppliers, which those of a queue here and of a queue at another site implement.

queue/interface.py has the other Protocols, and says when to use them. Pull suppliers and push consumers are one class:
their thread is in the process that made them, and stands on these Protocols.
"""

from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from headrace.channel.document import Definition
from headrace.channel.qos import ChannelOptions, MemberOptions, QoS
from headrace.channel.supplier import Prepared
from headrace.log.append import Duplicate, Receipt
from headrace.log.columns import PutColumns
from headrace.log.follow import AnyFollower
from headrace.log.log import Wanted
from headrace.log.read import Start
from headrace.log.seams import Timeout
from headrace.product.put import PutFacts
from headrace.station.interface import AnyStation
from headrace.station.terms import Chosen

if TYPE_CHECKING:
    from headrace.channel.channel import ChannelStatistics
    from headrace.channel.pull import PullSupplier
    from headrace.channel.push import PushConsumer
    from headrace.product import Batch, Product


class AnySupplier(Protocol):
    """A push supplier, wherever its channel is: a Supplier, or a RemoteSupplier."""

    @property
    def channel_name(self) -> str: ...
    @property
    def push_s(self) -> float: ...
    def push(
        self, payload: Any, *, feed: str | None = None, ident: str = "", timeout: Timeout = None,
        **facts: Unpack[PutFacts],
    ) -> int | Duplicate: ...  # fmt: skip
    def push_many(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt: ...
    async def push_async(
        self, payload: Any, *, feed: str | None = None, ident: str = "", timeout: Timeout = None,
        **facts: Unpack[PutFacts],
    ) -> int | Duplicate: ...  # fmt: skip
    async def push_many_async(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt: ...
    def prepared(
        self, payload: Any, *, feed: str | None = None, ident: str = "", **facts: Unpack[PutFacts]
    ) -> Prepared: ...
    def prepared_many(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", **facts: Unpack[PutColumns]
    ) -> Prepared: ...
    def close(self) -> None: ...
    def __enter__(self) -> "AnySupplier": ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AnyChannel(Protocol):
    """A feed subtree with a quality of service."""

    name: str

    @property
    def definition(self) -> Definition: ...
    @property
    def feed(self) -> str: ...
    @property
    def qos(self) -> QoS: ...
    def station(
        self, name: str, selection: Chosen = None, *, create: bool = True, **options: Unpack[MemberOptions]
    ) -> AnyStation: ...
    def stations(self) -> list[str]: ...
    def change_station(self, name: str, selection: Chosen = None, **options: Unpack[MemberOptions]) -> AnyStation: ...
    def supplier(self, keep: float | str | timedelta = "10s") -> AnySupplier: ...
    def pull(
        self, function: Callable[[], Any], every: float | str | timedelta = "1s", *, feed: str | None = None,
        **options: Any,
    ) -> "PullSupplier": ...  # fmt: skip
    def consumer(
        self, station: AnyStation | str, callback: "Callable[[Product], Any] | Callable[[Batch], Any]", *,
        batches: bool = False,
    ) -> "PushConsumer": ...  # fmt: skip
    def follow(
        self, start: Start = "next", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: Timeout = None,
    ) -> AnyFollower: ...  # fmt: skip
    def change(self, **options: Unpack[ChannelOptions]) -> None: ...
    def remove(self, *, force: bool = False) -> None: ...
    def statistics(self) -> "ChannelStatistics": ...
