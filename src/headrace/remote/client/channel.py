"""RemoteChannel: a channel of a site's queue; get one from `RemoteQueue.channel`.

It implements `AnyChannel`. It holds the name of the channel and nothing else: the definition and its stations are at
the site, which enforces the terms. Push consumers and pull suppliers have their thread here, as on a local queue.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from headrace.channel.channel import ChannelStatistics, refuse_fixed
from headrace.channel.document import Definition
from headrace.channel.membership import check_home, within
from headrace.channel.pull import PullSupplier
from headrace.channel.push import PushConsumer
from headrace.channel.qos import ChannelOptions, MemberOptions, QoS
from headrace.log.log import Wanted
from headrace.log.read import Start
from headrace.log.seams import Timeout
from headrace.remote.client.arguments import plain_options, selection_text
from headrace.remote.client.connection import Connection
from headrace.remote.client.follower import RemoteFollower
from headrace.remote.client.station import RemoteStation
from headrace.remote.client.supplier import RemoteSupplier
from headrace.remote.protocol.channel_calls import (
    ChangeChannel,
    ChangeMember,
    DescribeChannel,
    OpenMember,
    RemoveChannel,
)
from headrace.remote.protocol.replies import Details, Done, NameList
from headrace.station.interface import AnyStation
from headrace.station.leases import check_keep
from headrace.station.terms import Chosen
from headrace.units import parse_age

if TYPE_CHECKING:
    from headrace.product import Batch, Product
    from headrace.remote.client.queue import RemoteQueue


class RemoteChannel:
    """A handle. Any number of them may exist."""

    def __init__(self, queue: "RemoteQueue", connection: Connection, name: str) -> None:
        self.name, self._queue = name, queue
        self._connection = connection

    def _tell(self, what: str) -> Details:
        return self._connection.ask(DescribeChannel(self.name, what), Details)[0]

    @property
    def definition(self) -> Definition:
        """The channel as it is now."""
        definition = self._tell("definition").channel
        assert definition is not None
        return definition

    @property
    def feed(self) -> str:
        """The subtree, `wx/radar/**`."""
        return self.definition.feed

    @property
    def qos(self) -> QoS:
        """The terms now."""
        return self.definition.qos

    # --- stations ---------------------------------------------------------------------------------

    def station(
        self, name: str, selection: Chosen = None, *, create: bool = True, **options: Unpack[MemberOptions]
    ) -> RemoteStation:
        """The station `name` of this channel, opened or created as `Channel.station` does."""
        wanted = None if selection is None else selection_text(selection)
        self._connection.once(OpenMember(self.name, name, wanted, plain_options(options), create), Done)
        return RemoteStation(self._queue, self._connection, name)

    def stations(self) -> list[str]:
        """The names of its stations."""
        return self._connection.ask(DescribeChannel(self.name, "stations"), NameList)[0].values

    def change_station(self, name: str, selection: Chosen = None, **options: Unpack[MemberOptions]) -> RemoteStation:
        """Change what a station sets itself; an option set to None or `any` is inherited again."""
        wanted = None if selection is None else selection_text(selection)
        self._connection.once(ChangeMember(self.name, name, wanted, plain_options(options)), Done)
        return RemoteStation(self._queue, self._connection, name)

    def follow(
        self, start: Start = "next", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: Timeout = None,
    ) -> RemoteFollower:  # fmt: skip
        """Batches of the channel, as `Channel.follow`."""
        definition = self.definition
        check_home(definition, self._queue.config.origin)
        wanted = within(definition, selection)
        return self._queue.follow(start, wanted, limit=limit, bytes_limit=bytes_limit, timeout=timeout)

    # --- suppliers and consumers ------------------------------------------------------------------

    def supplier(self, keep: float | str | timedelta = "10s") -> RemoteSupplier:
        """A push supplier. If the connection breaks, the site keeps its slot for the time `keep`."""
        return RemoteSupplier(self._connection, self.name, check_keep(keep))

    def pull(
        self, function: Callable[[], Any], every: float | str | timedelta = "1s", *, feed: str | None = None,
        **options: Any,
    ) -> PullSupplier:  # fmt: skip
        """A pull supplier: a thread of this process calls `function` at an interval and pushes what it returns."""
        every_s = parse_age(every, "every")
        return PullSupplier(self.supplier(), function, every_s, {"feed": feed, **options})

    def consumer(
        self, station: AnyStation | str, callback: "Callable[[Product], Any] | Callable[[Batch], Any]", *,
        batches: bool = False,
    ) -> PushConsumer:  # fmt: skip
        """A push consumer: a thread of this process calls `callback` with each product or batch of a station."""
        name = station if isinstance(station, str) else station.name
        return PushConsumer(self.station(name, create=False), callback, batches=batches)

    # --- change -----------------------------------------------------------------------------------

    def change(self, **options: Unpack[ChannelOptions]) -> None:
        """Change some options, for the channel and for the stations that inherit them."""
        refuse_fixed(options)
        self._connection.once(ChangeChannel(self.name, plain_options(options)), Done)

    def remove(self, *, force: bool = False) -> None:
        """Remove the channel; with `force` its stations too. Its products stay in the queue."""
        self._connection.once(RemoveChannel(self.name, force), Done)

    def statistics(self) -> ChannelStatistics:
        """The channel now, with the sums over its stations."""
        told = self._tell("statistics").channel_statistics
        assert told is not None
        return told

    def _repr_html_(self) -> str:
        """Without a call: a look must not wait for a site that does not reply."""
        from headrace.notebook import facts_table  # notebook.py says why it is imported here

        return facts_table(f"Channel {self.name}", [("of", self._queue)])

    def __repr__(self) -> str:
        return f"<RemoteChannel {self.name!r} of {self._queue.path}>"
