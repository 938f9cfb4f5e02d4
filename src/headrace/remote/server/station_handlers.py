"""StationHandlers: execute calls about stations, and attach remote consumers to them.

Every handler checks first what the client may receive (`access.py`). Get, Settle and Revise reach a handler only if
their consumer does not exist; otherwise that consumer executes them (`consumer.py`).
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from headrace.errors import StationMissingError
from headrace.queue import Queue
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.replies import Details, Done, NotAttached, Number
from headrace.remote.server.clients import Clients, end_all
from headrace.remote.server.pending_call import PendingCall
from headrace.selection import Selection
from headrace.station import Station, StationTerms


class StationHandlers:
    """One for a site. Each method executes a call and finishes it."""

    def __init__(self, queue: Queue, clients: Clients) -> None:
        self._queue, self._clients = queue, clients

    def _station(self, pending: PendingCall, name: str) -> Station:
        """The station, if the client may receive what it hands out."""
        try:
            station = self._queue.station(name, create=False)
        except StationMissingError:  # the client has a handle, so the station existed
            hint = "create it again: queue.station(name, …)"
            raise StationMissingError(f"station {name!r} was removed", hint) from None
        pending.client.access.check_station(station.terms)
        return station

    def _terms(self) -> Iterator[StationTerms]:
        """The terms of all stations, by name."""
        for name in self._queue.stations():
            with contextlib.suppress(StationMissingError):  # removed meanwhile
                yield self._queue.station(name, create=False).terms

    # --- stations ---------------------------------------------------------------------------------

    def list(self, pending: PendingCall, call: calls.ListStations) -> None:
        """The stations that the client may use; it learns of no others."""
        names = [terms.name for terms in self._terms() if pending.client.access.has_station(terms)]
        pending.finish(replies.NameList(names))

    def open(self, pending: PendingCall, call: calls.OpenStation) -> None:
        """Open or create a station.

        Errors name the terms of a station that exists, and of stations that it joins. So the client must have access to
        all of them first.
        """
        options: dict[str, Any] = dict(call.options)
        access, group = pending.client.access, options.get("group")
        exists = False
        for terms in self._terms():
            exists = exists or terms.name == call.name
            if terms.name in (call.name, options.get("after")) or (group is not None and terms.group == group):
                access.check_station(terms)
        create = call.create and (bool(options) or not exists)
        if create:
            access.check_selection(Selection.of(options.get("selection")))
        self._queue.station(call.name, options.pop("selection", ...), start=call.start, create=create, **options)
        pending.finish(Done())

    def describe(self, pending: PendingCall, call: calls.DescribeStation) -> None:
        station = self._station(pending, call.name)
        if call.what == "terms":
            told = Details(terms=station.terms)
        elif call.what == "statistics":
            told = Details(station=station.statistics())
        elif call.what == "consumers":
            told = Details(consumers=station.consumers())
        else:
            told = Details(parked=station.parked())
        pending.finish(told)

    def change(self, pending: PendingCall, call: calls.ChangeStation) -> None:
        station = self._station(pending, call.name)
        if "selection" in call.options:
            pending.client.access.check_selection(Selection.of(call.options["selection"]))  # type: ignore[arg-type]
        options: dict[str, Any] = dict(call.options)
        station.change(**options)
        pending.finish(Done())

    def pause(self, pending: PendingCall, call: calls.PauseStation) -> None:
        station = self._station(pending, call.name)
        (station.pause if call.paused else station.resume)()
        pending.finish(Done())

    def seek(self, pending: PendingCall, call: calls.SeekStation) -> None:
        """Move a station. All stations of its chain move with it, so the client must have access to all of them."""
        station = self._station(pending, call.name)
        chain = station.terms.chain
        for terms in self._terms():
            if terms.chain == chain:
                pending.client.access.check_station(terms)
        pending.finish(Number(station.seek(call.start)))

    def remove(self, pending: PendingCall, call: calls.RemoveStation) -> None:
        self._station(pending, call.name).remove()
        pending.finish(Done())

    def unpark(self, pending: PendingCall, call: calls.Unpark) -> None:
        station = self._station(pending, call.name)
        pending.finish(Number((station.retry if call.retry else station.forget)(call.sequences)))

    # --- consumers --------------------------------------------------------------------------------

    def attach(self, pending: PendingCall, call: calls.Attach) -> None:
        station = self._station(pending, call.station)
        self._clients.check_room()
        consumer = station.attach()
        number = self._clients.attach(pending.client, consumer, call.keep_s)
        pending.finish(replies.Attached(number, consumer.statistics().place))

    def detach(self, pending: PendingCall, call: calls.Detach) -> None:
        """Reply once the leases are back."""
        served = self._clients.detach(pending.client, call.attachment)
        if served is not None:
            served.end(call.died, call.failed)
        pending.finish(Done())

    def leave(self, pending: PendingCall, call: calls.Leave) -> None:
        end_all(self._clients.detach_all(pending.client), call.died, call.failed)
        self._clients.close_suppliers(pending.client, died=call.died)
        pending.client.has_left = not call.died
        pending.finish(Done())

    def miss(self, pending: PendingCall, call: calls.Get | calls.Settle | calls.Revise) -> None:
        """A call for a consumer that does not exist."""
        pending.finish(NotAttached())

    def interrupt(self, pending: PendingCall, call: calls.Interrupt) -> None:
        served = pending.client.consumers.get(call.attachment)
        if served is not None:
            served.interrupt()
        pending.finish(Done())

    def describe_consumer(self, pending: PendingCall, call: calls.DescribeConsumer) -> None:
        served = pending.client.consumers.get(call.attachment)
        if served is None:
            pending.finish(NotAttached())
        else:
            pending.finish(Details(consumers=[served.consumer.statistics()]))
