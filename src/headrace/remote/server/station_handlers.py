"""StationHandlers: answers calls about stations, and attaches remote consumers to them."""

import contextlib
from collections.abc import Iterator
from typing import Any

from headrace.errors import StationMissingError
from headrace.queue import Queue
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.replies import Done, Number, Told, Unattached
from headrace.remote.server.clients import Clients
from headrace.remote.server.pending_call import PendingCall
from headrace.selection import Selection
from headrace.station import Station, StationTerms


class StationHandlers:
    """One for a site."""

    def __init__(self, queue: Queue, clients: Clients) -> None:
        self._queue, self._clients = queue, clients

    def _station(self, errand: PendingCall, name: str) -> Station:
        """A handle, if whoever asks may receive what the station hands out."""
        try:
            station = self._queue.station(name)
        except StationMissingError:  # the client has a handle, so it existed
            hint = "create it again: queue.station(name, …)"
            raise StationMissingError(f"station {name!r} was removed", hint) from None
        errand.client.rights.check_station(station.terms)
        return station

    def _terms(self) -> Iterator[StationTerms]:
        """Of all stations, by name."""
        for name in self._queue.stations():
            with contextlib.suppress(StationMissingError):  # removed meanwhile
                yield self._queue.station(name).terms

    # --- stations ---------------------------------------------------------------------------------

    def list(self, errand: PendingCall, call: calls.ListStations) -> None:
        """Those that may be used; nobody learns of others."""
        names = [terms.name for terms in self._terms() if errand.client.rights.has_station(terms)]
        errand.finish(replies.Listed(names))

    def open(self, errand: PendingCall, call: calls.OpenStation) -> None:
        """Neither its terms, if it is there, nor those of stations that it joins are told to whoever may not know."""
        options: dict[str, Any] = dict(call.options)
        rights, group = errand.client.rights, options.get("group")
        for terms in self._terms():
            if terms.name in (call.name, options.get("after")) or (group is not None and terms.group == group):
                rights.check_station(terms)
        if options:
            rights.check_selection(Selection.of(options.get("selection")))
        self._queue.station(call.name, options.pop("selection", ...), start=call.start, **options)
        errand.finish(Done())

    def tell(self, errand: PendingCall, call: calls.TellStation) -> None:
        station = self._station(errand, call.name)
        if call.what == "terms":
            told = Told(terms=station.terms)
        elif call.what == "statistics":
            told = Told(station=station.statistics())
        elif call.what == "consumers":
            told = Told(consumers=station.consumers())
        else:
            told = Told(parked=station.parked())
        errand.finish(told)

    def change(self, errand: PendingCall, call: calls.ChangeStation) -> None:
        station = self._station(errand, call.name)
        if "selection" in call.options:
            errand.client.rights.check_selection(Selection.of(call.options["selection"]))  # type: ignore[arg-type]
        station.change(**call.options)
        errand.finish(Done())

    def pause(self, errand: PendingCall, call: calls.PauseStation) -> None:
        station = self._station(errand, call.name)
        (station.pause if call.paused else station.resume)()
        errand.finish(Done())

    def seek(self, errand: PendingCall, call: calls.SeekStation) -> None:
        """All stations of its chain move with it."""
        station = self._station(errand, call.name)
        chain = station.terms.chain
        for terms in self._terms():
            if terms.chain == chain:
                errand.client.rights.check_station(terms)
        errand.finish(Number(station.seek(call.start)))

    def remove(self, errand: PendingCall, call: calls.RemoveStation) -> None:
        self._station(errand, call.name).remove()
        errand.finish(Done())

    def unpark(self, errand: PendingCall, call: calls.Unpark) -> None:
        station = self._station(errand, call.name)
        errand.finish(Number((station.retry if call.retry else station.forget)(call.sequences)))

    # --- consumers --------------------------------------------------------------------------------

    def attach(self, errand: PendingCall, call: calls.Attach) -> None:
        station = self._station(errand, call.station)
        self._clients.check_room()
        consumer = station.attach()
        number = self._clients.attach(errand.client, consumer, call.keep_s)
        errand.finish(replies.Attached(number, consumer.statistics().place))

    def detach(self, errand: PendingCall, call: calls.Detach) -> None:
        """Answered when the leases are back."""
        attachment = self._clients.detach(errand.client, call.attachment)
        if attachment is not None:
            attachment.end(call.died)
            attachment.join()
        errand.finish(Done())

    def leave(self, errand: PendingCall, call: calls.Leave) -> None:
        left = self._clients.detach_all(errand.client)
        for attachment in left:
            attachment.end()
        for attachment in left:
            attachment.join()
        errand.finish(Done())

    def miss(self, errand: PendingCall, call: calls.Get | calls.Settle | calls.Revise) -> None:
        """A call for an attachment that is not there."""
        errand.finish(Unattached())

    def interrupt(self, errand: PendingCall, call: calls.Interrupt) -> None:
        attachment = errand.client.attachments.get(call.attachment)
        if attachment is not None:
            attachment.consumer.interrupt()
        errand.finish(Done())

    def tell_consumer(self, errand: PendingCall, call: calls.TellConsumer) -> None:
        attachment = errand.client.attachments.get(call.attachment)
        if attachment is None:
            errand.finish(Unattached())
        else:
            errand.finish(Told(consumers=[attachment.consumer.statistics()]))
