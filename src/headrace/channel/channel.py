"""Channel: a feed subtree with a quality of service that its stations inherit.

    radar = queue.channel("radar", "wx/radar/**", order="fifo", timeout="10s")
    decoder = radar.station("decoder", batch_max=50)           inherits, and may only tighten
    with radar.supplier() as supplier:
        supplier.push(volume, feed="wx/radar/nexrad2/KFTG")
    radar.consumer(decoder, decode)                            calls decode(product), in a thread

Channels may overlap: each is a view of the queue's one log, and a product belongs to every channel whose subtree
contains its feed. A station belongs to one channel, or to none. Nothing is created before all conflicts are resolved.

Not here: the file of the definitions (document.py), and how a change reaches the stations (membership.py).
"""

import contextlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from headrace.channel import membership
from headrace.channel.assigner import counters_path, next_number, put_in_force, spread_products
from headrace.channel.compression import COMPRESSION_OPTIONS, Compression, compression_options, read_compression
from headrace.channel.conflicts import agree, of_qos
from headrace.channel.context import ChannelContext, definition_of
from headrace.channel.creation import agree_on_new
from headrace.channel.document import ChannelDocument, Definition, DefinitionFile
from headrace.channel.pull import PullSupplier
from headrace.channel.push import PushConsumer
from headrace.channel.qos import FIELDS, ChannelOptions, MemberOptions, QoS, is_open, option_text
from headrace.channel.slicing import SLICING_OPTIONS, Slicing, read_slicing, slicing_texts
from headrace.channel.slots import connected_suppliers
from headrace.channel.subtree import Subtree
from headrace.channel.supplier import Supplier
from headrace.errors import (
    ChannelExistsError,
    ChannelInUseError,
    ChannelMissingError,
    ChannelNameError,
    OptionError,
    TermsError,
)
from headrace.log.cursor import check_name
from headrace.log.follow import Follower
from headrace.log.log import Log, Wanted
from headrace.log.read import Start
from headrace.log.seams import Timeout
from headrace.station.interface import AnyStation
from headrace.station.leases import check_keep
from headrace.station.opening import open_station
from headrace.station.station import Station
from headrace.station.stations import Stations
from headrace.station.terms import Chosen
from headrace.units import parse_age

if TYPE_CHECKING:
    from headrace.product import Batch, Product


class ChannelStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A channel now; counts of products are sums over its stations."""

    name: str
    feed: str
    suppliers: int  # connected now
    stations: int
    consumers: int
    pushed: int  # products that suppliers stored, in all
    duplicates: int
    rejected: int  # products that suppliers could not push, because of max_queue
    waiting: int
    leased: int
    parked: int
    delivered: int
    acknowledged: int
    dropped: Mapping[str, int]  # products that a station did not deliver, by cause
    spread: int = 0  # products of all puts that got their slice round robin, for lack of what `assign` needs


class Channel:
    """A channel; get one from `Queue.channel`. Several threads may use it."""

    def __init__(self, context: ChannelContext) -> None:
        self.name = context.name
        self._context, self._file = context, context.file

    @property
    def definition(self) -> Definition:
        """The channel as it is now; another process may have changed it."""
        return self._context.definition

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
    ) -> Station:
        """The station `name` of this channel.

        A station that exists is opened, if it has the terms given. Otherwise it is created, without a selection for
        everything in the channel; with `create=False` it must exist. The selection applies within the channel's
        subtree. Options are those of the QoS, each at least as tight as the channel's (TermsError names those that are
        not), and the terms that only stations have.
        """
        with self._file.changing():
            is_new = create and self._context.stations.document.find(name) is None
            if selection is None and not options and not is_new:
                return membership.open_member(self._context, name)
            return membership.add_station(self._context, name, selection, options)

    def stations(self) -> list[str]:
        """The names of its stations."""
        return membership.list_stations(self._context)

    def change_station(self, name: str, selection: Chosen = None, **options: Unpack[MemberOptions]) -> Station:
        """Change what a station sets itself; an option set to None or `any` is inherited again."""
        with self._file.changing():
            return membership.change_station(self._context, name, selection, options)

    # --- suppliers and consumers ------------------------------------------------------------------

    def supplier(self, keep: float | str | timedelta = "10s") -> Supplier:
        """A push supplier; SuppliersFullError if `suppliers_max` are connected. `keep` is for channels elsewhere."""
        check_keep(keep)
        return Supplier(self._context)

    def pull(
        self, function: Callable[[], Any], every: float | str | timedelta = "1s", *, feed: str | None = None,
        **options: Any,
    ) -> PullSupplier:  # fmt: skip
        """A pull supplier: a thread calls `function` at an interval and pushes what it returns (pull.py)."""
        every_s = parse_age(every, "every")
        return PullSupplier(self.supplier(), function, every_s, {"feed": feed, **options})

    def consumer(
        self, station: AnyStation | str, callback: "Callable[[Product], Any] | Callable[[Batch], Any]", *,
        batches: bool = False,
    ) -> PushConsumer:  # fmt: skip
        """A push consumer: a thread calls `callback` with each product or batch of a station (push.py).

        Pull consumers come from the station itself: `station.attach()`.
        """
        name = station if isinstance(station, str) else station.name
        return PushConsumer(self.station(name, create=False), callback, batches=batches)

    def follow(
        self, start: Start = "next", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: Timeout = None,
    ) -> Follower:  # fmt: skip
        """Batches of the channel, as `Queue.follow`; the selection applies within its subtree.

        ChannelError if the channel has its `home` at another site.
        """
        definition = self.definition
        membership.check_home(definition, self._context.log.config.origin)
        wanted = membership.within(definition, selection)
        return self._context.log.follow(start, wanted, limit=limit, bytes_limit=bytes_limit, timeout=timeout)

    # --- change -----------------------------------------------------------------------------------

    def change(self, **options: Unpack[ChannelOptions]) -> None:
        """Change some options, for the channel and for the stations that inherit them.

        TermsError, without any change, if they contradict each other, or if a station has set an option that would be
        looser than the channel's. An option set to None is left open.
        """
        refuse_fixed(options)
        with self._file.changing():
            membership.change_channel(self._context, options)

    def remove(self, *, force: bool = False) -> None:
        """Remove the channel; with `force` its stations too. Its products stay in the queue.

        ChannelInUseError, also with `force`, while groups of processing nodes share it: they would wait for products
        that have no slices any more.
        """
        context = self._context
        with self._file.changing() as document:
            definition = context.definition
            groups, stations = context.groups(self.name), self.stations()
            if groups:
                raise ChannelInUseError(
                    f"channel {self.name!r} has groups of processing nodes: {', '.join(groups)}",
                    "delete them first: headrace slices delete",
                )
            if stations and not force:
                raise ChannelInUseError(
                    f"channel {self.name!r} has stations: {', '.join(stations)}",
                    "remove them first, or remove the channel with force",
                )
            for name in stations:
                open_station(context.log, context.stations, name, create=False).remove()
            rest = {name: each for name, each in document.channels.items() if name != self.name}
            slicings = document.slicings
            if definition.slicing is not None or definition.compression is not None:
                slicings = next_number(context.log.kernel, document)
            self._file.write(msgspec.structs.replace(document, slicings=slicings, channels=rest))
            put_in_force(context.log.kernel, self._file.read())
            counters_path(context.log.path, definition).unlink(missing_ok=True)
            context.suppliers_file(definition).unlink(missing_ok=True)

    # --- statistics -------------------------------------------------------------------------------

    def statistics(self) -> ChannelStatistics:
        """The channel now, with the sums over its stations."""
        context, definition = self._context, self.definition
        suppliers, pushed = connected_suppliers(context.suppliers_file(definition))
        stations = [
            open_station(context.log, context.stations, name, create=False).statistics() for name in self.stations()
        ]
        dropped: dict[str, int] = {}
        for each in stations:
            for cause, count in {**each.dropped, "expired": each.expired, "evicted": each.evicted}.items():
                dropped[cause] = dropped.get(cause, 0) + count
        return ChannelStatistics(
            name=self.name,
            feed=definition.feed,
            suppliers=len(suppliers),
            stations=len(stations),
            consumers=sum(each.consumers for each in stations),
            pushed=pushed.products,
            duplicates=pushed.duplicates,
            rejected=pushed.rejected,
            waiting=sum(each.waiting for each in stations),
            leased=sum(each.leased for each in stations),
            parked=sum(each.parked for each in stations),
            delivered=sum(each.delivered for each in stations),
            acknowledged=sum(each.acknowledged for each in stations),
            dropped=dropped,
            spread=spread_products(context.log.path, definition),
        )

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} of {self.feed}>"

    def _repr_html_(self) -> str:
        from headrace.notebook import shown  # notebook.py says why it is imported here

        return shown(f"Channel {self.name}", self._table)

    def _table(self) -> str:
        from headrace.notebook import facts_table

        definition = self.definition
        set_options = ((option, getattr(definition.qos, field)) for option, field in FIELDS.items())
        terms = [(option, option_text(option, value)) for option, value in set_options if not is_open(option, value)]
        terms += slicing_texts(definition.slicing).items()
        terms += compression_options(definition.compression).items()
        stations = ", ".join(self.stations()) or "none"
        return facts_table(f"Channel {self.name}", [("feed", definition.feed), *terms, ("stations", stations)])


# --- open and list --------------------------------------------------------------------------------


def open_channel(
    log: Log, stations: Stations, groups: Callable[[str], list[str]], name: str, feed: str | None = None,
    **options: Unpack[ChannelOptions],
) -> Channel:  # fmt: skip
    """The channel `name` of a queue. `groups` says which groups of processing nodes share a channel.

    Without a feed and options it must exist. With a feed it is created, or opened if it exists on the same terms;
    ChannelExistsError names every difference. TermsError lists every conflict of the options.
    """
    check_name(name, "channel", ChannelNameError)
    path, file = log.path, DefinitionFile(log.path)
    context = ChannelContext(log, stations, file, name, groups)
    channel = Channel(context)
    if feed is None and not options:
        definition_of(path, file.read(), name)
        put_in_force(log.kernel, file.read())
        return channel
    with file.changing() as document:
        put_in_force(log.kernel, document)
        existing = document.channels.get(name)
        if existing is not None and _is_same(existing, feed, options):
            return channel
        if existing is not None:
            raise _exists(existing, feed, *agree(options, context.now_ns()))
        if feed is None:
            agree(options, context.now_ns())
            raise ChannelMissingError(f"{path} has no channel {name!r}", "to create it, give its feed")
        subtree, now_ns = Subtree.of(feed), context.now_ns()
        qos, slicing, compression = agree_on_new(document, log.dictionaries, name, subtree, options, now_ns)
        if slicing is not None or compression is not None:
            document = msgspec.structs.replace(document, slicings=next_number(log.kernel, document))
        file.write(_with_new(document, name, subtree.pattern, qos, slicing, compression, now_ns))
        put_in_force(log.kernel, document)
    return channel


def list_channels(path: Path) -> list[str]:
    """The names of all channels."""
    return sorted(DefinitionFile(path).read().channels)


def _is_same(existing: Definition, feed: str | None, options: Mapping[str, Any]) -> bool:
    """Whether the channel was created with these terms, even if they would be refused now (a past stop_time)."""
    with contextlib.suppress(TermsError):
        same_feed = feed is None or Subtree.of(feed).pattern == existing.feed
        slicing, faults = read_slicing(options)
        compression, more_faults = read_compression(options)
        same_others = (slicing, compression) == (existing.slicing, existing.compression)
        return same_feed and not faults + more_faults and same_others and QoS.of(**of_qos(options)) == existing.qos
    return False


def refuse_fixed(options: Mapping[str, Any]) -> None:
    """OptionError if one of these options of a channel never changes."""
    for option in ("feed", "home", *SLICING_OPTIONS):
        if option in options:
            subject = "feed of a channel" if option == "feed" else f"option {option} of a channel"
            raise OptionError(f"the {subject} cannot change", "remove the channel and create another one")


def _exists(
    existing: Definition, feed: str | None, qos: QoS, slicing: Slicing | None, compression: Compression | None
) -> ChannelExistsError:
    differences = [
        f"{option} {option_text(option, getattr(existing.qos, field))}, not {option_text(option, getattr(qos, field))}"
        for option, field in FIELDS.items()
        if getattr(existing.qos, field) != getattr(qos, field)
    ]
    ours = slicing_texts(slicing) | compression_options(compression)
    theirs = slicing_texts(existing.slicing) | compression_options(existing.compression)
    differences += [
        f"{option} {theirs.get(option, 'none')}, not {ours.get(option, 'none')}"
        for option in SLICING_OPTIONS + COMPRESSION_OPTIONS
        if ours.get(option) != theirs.get(option)
    ]
    if feed is not None and Subtree.of(feed).pattern != existing.feed:
        differences.insert(0, f"feed {existing.feed}, not {feed}")
    return ChannelExistsError(
        f"channel {existing.name!r} exists on other terms: it has {'; '.join(differences)}",
        "open it by its name alone, change it, or choose another name",
    )


def _with_new(
    document: ChannelDocument, name: str, feed: str, qos: QoS, slicing: Slicing | None,
    compression: Compression | None, now_ns: int,
) -> ChannelDocument:  # fmt: skip
    number = document.next_number
    new = Definition(
        name=name, number=number, feed=feed, created_ns=now_ns, qos=qos, slicing=slicing, compression=compression
    )
    return msgspec.structs.replace(document, next_number=number + 1, channels={**document.channels, name: new})
