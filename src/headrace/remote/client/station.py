"""RemoteStation: a station of a site's queue; get one from `RemoteQueue.station`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.errors import OptionError
from headrace.remote.client.arguments import selection_text, start_text, value_text
from headrace.remote.client.connection import Connection
from headrace.remote.client.consumer import RemoteConsumer
from headrace.remote.protocol.calls import (
    KEEP_S_MAX,
    Attach,
    ChangeStation,
    PauseStation,
    RemoveStation,
    SeekStation,
    TellStation,
    Unpark,
)
from headrace.remote.protocol.replies import Attached, Done, Number, Told
from headrace.station.station import Station
from headrace.station.statistics import ConsumerStatistics, Parked, StationStatistics
from headrace.station.terms import StationTerms, check_options
from headrace.units import parse_age

if TYPE_CHECKING:
    from headrace.log.read import Start
    from headrace.remote.client.queue import RemoteQueue

_SEQUENCE_MAX = (1 << 63) - 1


class RemoteStation(Station):
    """As a Station."""

    def __init__(self, queue: "RemoteQueue", connection: Connection, name: str) -> None:
        self.name, self.queue = name, queue
        self._connection = connection

    def _tell(self, what: str) -> Told:
        return self._connection.ask(TellStation(self.name, what), Told)[0]

    @property
    def terms(self) -> StationTerms:
        terms = self._tell("terms").terms
        assert terms is not None
        return terms

    def attach(self, keep: float | str | timedelta = "10s") -> RemoteConsumer:
        """Become a consumer at the site. If the connection breaks, the site keeps our leases for the time `keep`."""
        keep_s = parse_age(keep, "keep")
        if keep_s > KEEP_S_MAX:
            raise OptionError(f"keep {keep!r} is too long", "give a day at most")
        attached, _ = self._connection.once(Attach(self.name, keep_s), Attached)
        return RemoteConsumer(self, self._connection, attached, keep_s)

    def give_function(self, function: Any) -> None:
        selection_text(function)  # which says why not

    # --- change -----------------------------------------------------------------------------------

    def change(self, **options: Any) -> None:
        self._connection.once(ChangeStation(self.name, options_of(options)), Done)

    def _set_paused(self, paused: bool) -> None:
        self._connection.once(PauseStation(self.name, paused), Done)

    def seek(self, start: "Start") -> int:
        return self._connection.once(SeekStation(self.name, start_text(start)), Number)[0].value

    def remove(self) -> None:
        self._connection.once(RemoveStation(self.name), Done)

    def forsake(self) -> None:
        """The site sees to it when a consumer leaves."""

    # --- parked products --------------------------------------------------------------------------

    def parked(self) -> list[Parked]:
        return self._tell("parked").parked or []

    def _unpark(self, sequences: list[int] | None, retry: bool) -> int:
        if sequences is not None and not all(0 <= sequence <= _SEQUENCE_MAX for sequence in sequences):
            raise OptionError(f"{sequences!r} are not sequences", "give those that parked() lists")
        return self._connection.once(Unpark(self.name, sequences, retry), Number)[0].value

    # --- tell -------------------------------------------------------------------------------------

    def statistics(self) -> StationStatistics:
        told = self._tell("statistics").station
        assert told is not None
        return told

    def consumers(self) -> list[ConsumerStatistics]:
        return self._tell("consumers").consumers or []


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The terms of a station as they travel; OptionError, as for a local one, if they cannot be."""
    given = {name: value for name, value in options.items() if value is not ...}
    check_options({name: value for name, value in given.items() if name != "selection"})
    if "selection" in given:
        given["selection"] = selection_text(given["selection"])
    return {name: value_text(value) for name, value in given.items()}
