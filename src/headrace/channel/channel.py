"""Channel: a feed subtree with a quality of service that its stations inherit.

    radar = queue.channel("radar", "wx/radar/**", order="fifo", timeout="10s")
    decoder = radar.station("decoder", batch_max=50)           inherits, and may tighten
    with radar.supplier() as supplier:
        supplier.push(volume, feed="wx/radar/nexrad2/KFTG")
    radar.consumer(decoder, decode)                            calls decode(product), in a thread

Channels may overlap: each is a view of the queue's one log, and a product belongs to every channel whose subtree has
its feed. A station belongs to one channel, or to none. Nothing is created unless all of it can be agreed on.

Not here: the file of the definitions (definitions.py), and how a change reaches the stations (membership.py).
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.channel import membership
from headrace.channel.conflicts import agree
from headrace.channel.document import ChannelDocument, Definition, DefinitionFile
from headrace.channel.pull import PullSupplier
from headrace.channel.push import PushConsumer
from headrace.channel.qos import FIELDS, QoS, option_text
from headrace.channel.slots import look
from headrace.channel.subtree import Subtree
from headrace.channel.supplier import Supplier, suppliers_file
from headrace.errors import (
    ChannelExistsError,
    ChannelInUseError,
    ChannelMissingError,
    ChannelNameError,
    OptionError,
    TermsError,
)
from headrace.log.log import Log
from headrace.log.names import check_name
from headrace.station.opening import open_station
from headrace.station.station import Station
from headrace.station.stations import Stations
from headrace.units import parse_age

if TYPE_CHECKING:
    from headrace.product import Batch, Product

CHANNELS_MAX = 1024


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """A channel at one moment; sums are over its stations."""

    name: str
    feed: str
    suppliers: int  # that are there now
    stations: int
    consumers: int
    pushed: int  # products stored by suppliers, ever
    duplicates: int
    rejected: int  # products that suppliers could not push because of max_queue
    waiting: int
    leased: int
    parked: int
    delivered: int
    acknowledged: int
    dropped: Mapping[str, int]  # products that a station did not deliver, by cause


class Channel:
    """A channel; get one from `Queue.channel`. It may be used from several threads."""

    def __init__(self, log: Log, all_stations: Stations, file: DefinitionFile, name: str) -> None:
        self.log = log
        self.all_stations = all_stations  # of the queue, those of other channels included
        self.name = name
        self._file = file

    @property
    def definition(self) -> Definition:
        """What the channel is now; another process may have changed it."""
        return definition_of(self.log.path, self._file.read(), self.name)

    @property
    def feed(self) -> str:
        """The subtree, `wx/radar/**`."""
        return self.definition.feed

    @property
    def qos(self) -> QoS:
        return self.definition.qos

    def now_ns(self) -> int:
        """The time of day, by the clock of the queue."""
        return self.all_stations.now_ns() or time.time_ns()

    # --- stations ---------------------------------------------------------------------------------

    def station(self, name: str, selection: Any = None, **options: Any) -> Station:
        """The station `name` of this channel.

        Without selection and options it must exist. With any, it is created, or opened if it exists on the same
        terms. The selection counts within the channel's subtree; options are those of the QoS, each at least as tight
        as the channel's (TermsError names those that are not), and the terms of a station that no QoS speaks of.
        """
        with self._file.changing():
            if selection is None and not options:
                return membership.open_member(self, name)
            return membership.add_station(self, self._file, name, selection, options)

    def stations(self) -> list[str]:
        """The names of its stations."""
        return membership.list_stations(self)

    def change_station(self, name: str, selection: Any = None, **options: Any) -> Station:
        """Change what a station says itself; an option set to None, or `any`, is inherited again."""
        with self._file.changing():
            return membership.change_station(self, self._file, name, selection, options)

    # --- suppliers and consumers ------------------------------------------------------------------

    def supplier(self) -> Supplier:
        """A push supplier; SuppliersFullError if `suppliers_max` are there."""
        return Supplier(self)

    def pull(
        self, function: Callable[[], Any], every: float | str | timedelta = "1s", *, feed: str | None = None,
        **options: Any,
    ) -> PullSupplier:  # fmt: skip
        """A pull supplier: call `function` at an interval, in a thread, and push what it returns (pull.py)."""
        return PullSupplier(self.supplier(), function, parse_age(every, "every"), {"feed": feed, **options})

    def consumer(
        self, station: Station | str, callback: "Callable[[Product], Any] | Callable[[Batch], Any]", *,
        batches: bool = False,
    ) -> PushConsumer:  # fmt: skip
        """A push consumer of a station: call `callback` with each product, or with each batch, in a thread (push.py).

        Pull consumers come from the station itself: `station.attach()`.
        """
        name = station if isinstance(station, str) else station.name
        return PushConsumer(self.station(name), callback, batches=batches)

    # --- change -----------------------------------------------------------------------------------

    def change(self, **options: Any) -> None:
        """Change some options, for the channel and for the stations that inherit them.

        TermsError, and nothing changed, if they contradict each other or a station has said what would be looser than
        the channel then. An option set to None is left open.
        """
        if "feed" in options:
            raise OptionError("the feed of a channel cannot be changed", "remove the channel and create another one")
        with self._file.changing():
            membership.change_channel(self, self._file, options)

    def remove(self, *, force: bool = False) -> None:
        """Forget the channel; with `force` its stations too. Its products stay in the queue."""
        with self._file.changing() as definitions:
            definition = definition_of(self.log.path, definitions, self.name)
            stations = self.stations()
            if stations and not force:
                raise ChannelInUseError(
                    f"channel {self.name!r} has the stations {', '.join(stations)}",
                    "remove them first, or remove the channel with force",
                )
            for name in stations:
                open_station(self.log, self.all_stations, name).remove()
            rest = {name: each for name, each in definitions.channels.items() if name != self.name}
            self._file.write(msgspec.structs.replace(definitions, channels=rest))
            suppliers_file(self.log.path, definition).unlink(missing_ok=True)

    # --- tell -------------------------------------------------------------------------------------

    def statistics(self) -> ChannelStatistics:
        definition = self.definition
        suppliers, pushed = look(suppliers_file(self.log.path, definition))
        told = [open_station(self.log, self.all_stations, name).statistics() for name in self.stations()]
        dropped: dict[str, int] = {}
        for each in told:
            for cause, count in {**each.dropped, "expired": each.expired, "evicted": each.evicted}.items():
                dropped[cause] = dropped.get(cause, 0) + count
        return ChannelStatistics(
            name=self.name,
            feed=definition.feed,
            suppliers=len(suppliers),
            stations=len(told),
            consumers=sum(each.consumers for each in told),
            pushed=pushed.products,
            duplicates=pushed.duplicates,
            rejected=pushed.rejected,
            waiting=sum(each.waiting for each in told),
            leased=sum(each.leased for each in told),
            parked=sum(each.parked for each in told),
            delivered=sum(each.delivered for each in told),
            acknowledged=sum(each.acknowledged for each in told),
            dropped=dropped,
        )

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} of {self.feed}>"


# --- open and list --------------------------------------------------------------------------------


def open_channel(log: Log, stations: Stations, name: str, feed: str | None = None, **options: Any) -> Channel:
    """The channel `name` of a queue.

    Without a feed and options it must exist. With a feed it is created, or opened if it exists on the same terms;
    ChannelExistsError names what differs. TermsError lists every conflict among the options.
    """
    check_name(name, "channel", ChannelNameError)
    path, file = log.path, DefinitionFile(log.path)
    channel = Channel(log, stations, file, name)
    if feed is None and not options:
        definition_of(path, file.read(), name)
        return channel
    with file.changing() as definitions:
        existing = definitions.channels.get(name)
        if existing is not None and _is_same(existing, feed, options):
            return channel
        qos = agree(options, channel.now_ns())
        if existing is not None:
            raise _exists(existing, feed, qos)
        if feed is None:
            raise ChannelMissingError(f"{path} has no channel {name!r}", "to create it, say its feed")
        file.write(_with_new(definitions, name, Subtree.of(feed).pattern, qos, channel.now_ns()))
    return channel


def list_channels(path: Path) -> list[str]:
    """The names of all channels."""
    return sorted(DefinitionFile(path).read().channels)


def definition_of(path: Path, definitions: ChannelDocument, name: str) -> Definition:
    definition = definitions.channels.get(name)
    if definition is None:
        known = ", ".join(sorted(definitions.channels))
        hint = f"its channels are: {known}" if known else "create it with: headrace channel create"
        raise ChannelMissingError(f"{path} has no channel {name!r}", hint)
    return definition


def _is_same(existing: Definition, feed: str | None, options: Mapping[str, Any]) -> bool:
    """Whether this is what the channel was created with, also if it could not be agreed on any more today."""
    with contextlib.suppress(TermsError):
        same_feed = feed is None or Subtree.of(feed).pattern == existing.feed
        return same_feed and QoS.of(**options) == existing.qos
    return False


def _exists(existing: Definition, feed: str | None, qos: QoS) -> ChannelExistsError:
    differences = [
        f"{option} {option_text(option, getattr(existing.qos, field))}, not {option_text(option, getattr(qos, field))}"
        for option, field in FIELDS.items()
        if getattr(existing.qos, field) != getattr(qos, field)
    ]
    if feed is not None and Subtree.of(feed).pattern != existing.feed:
        differences.insert(0, f"feed {existing.feed}, not {feed}")
    return ChannelExistsError(
        f"there is a channel {existing.name!r} on other terms: it has {'; '.join(differences)}",
        "open it by its name alone, change it, or choose another name",
    )


def _with_new(definitions: ChannelDocument, name: str, feed: str, qos: QoS, now_ns: int) -> ChannelDocument:
    if len(definitions.channels) >= CHANNELS_MAX:
        raise ChannelNameError(f"there are {CHANNELS_MAX} channels already", "remove one: headrace channel remove")
    number = definitions.next_number
    new = Definition(name=name, number=number, feed=feed, created_ns=now_ns, qos=qos)
    return msgspec.structs.replace(definitions, next_number=number + 1, channels={**definitions.channels, name: new})
