"""StationHandlers: execute calls about stations, and attach remote consumers to them.

Every handler checks first what the client may do with the station (`access.py`), and whose it is (`owners.py`). Get,
Settle and Revise reach a handler only if their consumer does not exist; otherwise that consumer executes them
(`consumer.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.errors import StationMissingError
from headrace.queue import Queue
from headrace.queue.queue import log_of, stations_of
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.replies import Details, Done, NotAttached, Number
from headrace.remote.server.clients import Clients, end_all
from headrace.remote.server.owners import Owners
from headrace.remote.server.pending_call import PendingCall
from headrace.selection import Selection
from headrace.station import Station, StationTerms


class StationHandlers:
    """One for a site. Each method executes a call and finishes it."""

    def __init__(self, queue: Queue, clients: Clients, owners: Owners) -> None:
        self._queue, self._clients, self._owners = queue, clients, owners

    def _station(self, pending: PendingCall, name: str) -> Station:
        """The station, if the client may know of it."""
        try:
            station = self._queue.station(name, create=False)
        except StationMissingError:  # the client has a handle, so the station existed
            hint = "create it again: queue.station(name, …)"
            raise StationMissingError(f"station {name!r} was removed", hint) from None
        pending.client.access.check_station(station.terms)
        return station

    def _own(self, pending: PendingCall, name: str) -> Station:
        """The station, if the client may change it."""
        station = self._station(pending, name)
        self._check_change(pending, station.terms)
        return station

    def _check_change(self, pending: PendingCall, terms: StationTerms) -> None:
        pending.client.access.check_change(terms, self._owners.of_station(terms))

    def _terms(self) -> list[StationTerms]:
        """The terms of all stations, by name; none is opened, because any call may ask for them."""
        log_of(self._queue).check_open()
        return sorted(stations_of(self._queue).document.stations, key=lambda terms: terms.name)

    # --- stations ---------------------------------------------------------------------------------

    def list(self, pending: PendingCall, call: calls.ListStations) -> None:
        """The stations that the client may use; it learns of no others."""
        names = [terms.name for terms in self._terms() if pending.client.access.has_station(terms)]
        pending.finish(replies.NameList(names))

    def open(self, pending: PendingCall, call: calls.OpenStation) -> None:
        """Open or create a station."""
        options: dict[str, Any] = dict(call.options)
        given = options.pop("selection", ...)
        stops = bool(options.get("blocking")) or options.get("max_queue") is not None

        def make(is_new: bool) -> None:
            self._queue.station(call.name, given, start=call.start, create=call.create and is_new, **options)

        selection = Selection.of(call.options.get("selection"))  # type: ignore[arg-type]
        self.make(pending, call.name, selection, options, make, stops_writers=stops, create=call.create)
        pending.finish(Done())

    def make(
        self, pending: PendingCall, name: str, selection: Selection, options: Mapping[str, Any],
        make: Callable[[bool], None], *, stops_writers: bool, create: bool = True,
    ) -> None:  # fmt: skip
        """Open or create a station by `make`, which gets whether it is new; a new one belongs to the client.

        Errors name the terms of a station that exists, and of stations that it joins. So the client must know all of
        them. A new station takes products from those behind it and beside it: those must be the client's to change.
        """
        access, group = pending.client.access, options.get("group")
        with self._owners.changing:
            all_terms = self._terms()
            is_new = all(terms.name != name for terms in all_terms)
            for terms in all_terms:
                joins = terms.name == options.get("after") or (group is not None and terms.group == group)
                if terms.name == name or (joins and not is_new):
                    access.check_station(terms)
                elif joins:
                    self._check_change(pending, terms)
            if is_new and create:
                access.check_new_station(name, selection, stops_writers=stops_writers)
                self._check_quota(pending)
            make(is_new)
            if is_new:
                self._note(pending, self._queue.station(name, create=False).terms)

    def _check_quota(self, pending: PendingCall) -> None:
        owner = pending.client.access.owner
        if owner is not None:
            pending.client.principal.check("stations", self._owners.stations_of(owner, self._terms()))

    def _note(self, pending: PendingCall, terms: StationTerms) -> None:
        """The client has made this station."""
        owner = pending.client.access.owner
        if owner is not None:
            self._owners.note_station(terms, owner, self._terms())

    def describe(self, pending: PendingCall, call: calls.DescribeStation) -> None:
        station = self._station(pending, call.name)
        if call.what == "terms":
            told = Details(terms=station.terms)
        elif call.what == "statistics":
            told = Details(station=station.statistics())
        elif call.what == "consumers":
            told = Details(consumers=[pending.client.access.visible_consumer(each) for each in station.consumers()])
        else:
            told = Details(parked=station.parked())
        pending.finish(told)

    def change(self, pending: PendingCall, call: calls.ChangeStation) -> None:
        """Change terms. What the client may not make, it may not turn a station into."""
        station = self._own(pending, call.name)
        options: dict[str, Any] = dict(call.options)
        selection = Selection.of(options.get("selection", station.terms.selection))
        stops = bool(options.get("blocking")) or options.get("max_queue") is not None
        pending.client.access.check_new_station(call.name, selection, stops_writers=stops)
        station.change(**options)
        pending.finish(Done())

    def pause(self, pending: PendingCall, call: calls.PauseStation) -> None:
        station = self._own(pending, call.name)
        (station.pause if call.paused else station.resume)()
        pending.finish(Done())

    def seek(self, pending: PendingCall, call: calls.SeekStation) -> None:
        """Move a station. All stations of its chain move with it, so the client must be able to change all of them."""
        station = self._own(pending, call.name)
        chain = station.terms.chain
        for terms in self._terms():
            if terms.chain == chain:
                self._check_change(pending, terms)
        pending.finish(Number(station.seek(call.start)))

    def remove(self, pending: PendingCall, call: calls.RemoveStation) -> None:
        with self._owners.changing:
            self._own(pending, call.name).remove()
            self._owners.forget_station(call.name)
        pending.finish(Done())

    def unpark(self, pending: PendingCall, call: calls.Unpark) -> None:
        station = self._own(pending, call.name)
        pending.finish(Number((station.retry if call.retry else station.forget)(call.sequences)))

    def check_own(self, pending: PendingCall, name: str) -> None:
        """Whether the client may change this station, if it exists."""
        self._own(pending, name)

    def known_of(self, pending: PendingCall, names: Iterable[str]) -> Sequence[str]:
        """Those of these stations that the client may know."""
        known = {terms.name for terms in self._terms() if pending.client.access.has_station(terms)}
        return [name for name in names if name in known]

    # --- consumers --------------------------------------------------------------------------------

    def attach(self, pending: PendingCall, call: calls.Attach) -> None:
        station = self._station(pending, call.station)
        owner = self._owners.of_station(station.terms)
        pending.client.access.check_consume(station.terms, owner)
        self._clients.check_room(pending.client)
        consumer = station.attach()
        number = self._clients.attach(
            pending.client, consumer, call.keep_s, lambda: self._check_consume(pending, station)
        )
        pending.finish(replies.Attached(number, consumer.statistics().place))

    def _check_consume(self, pending: PendingCall, station: Station) -> None:
        """Once more, after the terms of the station have changed: it may hand out other products by now."""
        terms = station.terms
        pending.client.access.check_consume(terms, self._owners.of_station(terms))

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
            pending.finish(Details(consumers=[pending.client.access.visible_consumer(served.consumer.statistics())]))
