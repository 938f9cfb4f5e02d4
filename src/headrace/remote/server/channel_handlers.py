"""ChannelHandlers: execute calls about channels, their stations, and the suppliers that a site holds for its clients.

A client that may receive all of a channel, or publish some of it, may see its terms. One that may publish some of it
may become a supplier, and each push is checked against what it may publish (queue_handlers.py). To create, change or
remove a channel needs the right `manage`. Its stations are like all others (station_handlers.py): a client may have its
own, unless the suppliers of the channel wait for its stations, or are rejected there (reliability, max_queue).
"""

from collections.abc import Mapping
from typing import Any

from headrace.channel.channel import Channel
from headrace.channel.membership import within
from headrace.channel.qos import QoS
from headrace.channel.subtree import Subtree
from headrace.queue import Queue
from headrace.remote.protocol import channel_calls as calls
from headrace.remote.protocol import replies
from headrace.remote.protocol.replies import Details, Done
from headrace.remote.server.clients import Clients
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.station_handlers import StationHandlers


class ChannelHandlers:
    """One for a site. Each method executes a call and finishes it."""

    def __init__(self, queue: Queue, clients: Clients, stations: StationHandlers) -> None:
        self._queue, self._clients, self._stations = queue, clients, stations

    def _channel(self, pending: PendingCall, name: str, *, to_change: bool = False) -> Channel:
        """The channel, if the client may use it, or change it."""
        if name not in self._queue.channels():
            pending.client.access.check_absent(f"channel {name!r}")
        channel = self._queue.channel(name)
        pending.client.access.check_channel(name, channel.feed)
        if to_change:
            pending.client.access.check_manage(f"channel {name!r}", channel.feed)
        return channel

    # --- channels ---------------------------------------------------------------------------------

    def list(self, pending: PendingCall, call: calls.ListChannels) -> None:
        """The channels that the client may use; it learns of no others."""
        names = self._queue.channels()
        access = pending.client.access
        pending.finish(replies.NameList([name for name in names if access.has_channel(self._queue.channel(name).feed)]))

    def open(self, pending: PendingCall, call: calls.OpenChannel) -> None:
        """Open or create a channel. An error names the terms of one that exists, so the client must have access."""
        if call.feed is None or call.name in self._queue.channels():
            self._channel(pending, call.name)
        if call.name not in self._queue.channels() and call.feed is not None:
            pending.client.access.check_manage(f"channel {call.name!r}", Subtree.of(call.feed).pattern)
        self._queue.channel(call.name, call.feed, **_given(call.options))
        pending.finish(Done())

    def describe(self, pending: PendingCall, call: calls.DescribeChannel) -> None:
        channel = self._channel(pending, call.name)
        if call.what == "stations":
            pending.finish(replies.NameList(list(self._stations.known_of(pending, channel.stations()))))
        elif call.what == "statistics":
            pending.finish(Details(channel_statistics=pending.client.access.visible_channel(channel.statistics())))
        else:
            pending.finish(Details(channel=channel.definition))

    def change(self, pending: PendingCall, call: calls.ChangeChannel) -> None:
        self._channel(pending, call.name, to_change=True).change(**_given(call.options))
        pending.finish(Done())

    def remove(self, pending: PendingCall, call: calls.RemoveChannel) -> None:
        self._channel(pending, call.name, to_change=True).remove(force=call.force)
        pending.finish(Done())

    # --- stations ---------------------------------------------------------------------------------

    def open_station(self, pending: PendingCall, call: calls.OpenMember) -> None:
        """Open a station that the client may know, or create one."""
        channel = self._channel(pending, call.channel)

        def make(is_new: bool) -> None:
            channel.station(call.name, call.selection, create=call.create, **_given(call.options))

        selection = within(channel.definition, call.selection)
        stops = _stops_writers(channel.qos, call.options)
        self._stations.make(pending, call.name, selection, call.options, make, stops_writers=stops)
        pending.finish(Done())

    def change_station(self, pending: PendingCall, call: calls.ChangeMember) -> None:
        channel = self._channel(pending, call.channel)
        self._stations.check_own(pending, call.name)
        stops = _stops_writers(channel.qos, call.options)
        if call.selection is not None or stops:
            selection = within(channel.definition, call.selection)
            pending.client.access.check_new_station(call.name, selection, stops_writers=stops)
        channel.change_station(call.name, call.selection, **_given(call.options))
        pending.finish(Done())

    # --- suppliers --------------------------------------------------------------------------------

    def open_supplier(self, pending: PendingCall, call: calls.OpenSupplier) -> None:
        channel = self._channel(pending, call.channel)
        pending.client.access.check_publish_some(channel.feed)
        self._clients.check_room(pending.client)
        number = self._clients.supply(pending.client, channel.supplier(), call.keep_s)
        pending.finish(replies.Supplying(number, channel.feed))

    def close_supplier(self, pending: PendingCall, call: calls.CloseSupplier) -> None:
        self._clients.close_suppliers(pending.client, call.supplier)
        pending.finish(Done())


def _stops_writers(qos: QoS, options: Mapping[str, Any]) -> bool:
    """Whether a station with these options makes suppliers wait, or has their pushes rejected."""
    reliability, max_queue = options.get("reliability"), options.get("max_queue")
    return "persistent" in (qos.reliability, reliability) or qos.max_queue is not None or max_queue is not None


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options from a call; the channel checks each of them."""
    return dict(options)
