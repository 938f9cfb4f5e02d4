"""RemoteStation: a station of a site's queue; get one from `RemoteQueue.station`.

It implements `AnyStation`. It holds the name of the station and nothing else: every method is a call.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from headrace.log.read import Start
from headrace.remote.client.arguments import selection_text, start_text, value_text
from headrace.remote.client.connection import Connection
from headrace.remote.client.consumer import RemoteConsumer
from headrace.remote.protocol.calls import (
    Attach,
    ChangeStation,
    DescribeStation,
    PauseStation,
    RemoveStation,
    SeekStation,
    Unpark,
)
from headrace.remote.protocol.replies import Attached, Details, Done, Number
from headrace.station.leases import check_keep
from headrace.station.statistics import ConsumerStatistics, Lag, Parked, StationStatistics
from headrace.station.terms import StationChanges, StationTerms, check_options, check_sequences

if TYPE_CHECKING:
    from headrace.remote.client.queue import RemoteQueue


class RemoteStation:
    """A handle. Any number of them may exist."""

    def __init__(self, queue: "RemoteQueue", connection: Connection, name: str) -> None:
        self.name, self._queue = name, queue
        self._connection = connection

    def _tell(self, what: str) -> Details:
        return self._connection.ask(DescribeStation(self.name, what), Details)[0]

    @property
    def terms(self) -> StationTerms:
        terms = self._tell("terms").terms
        assert terms is not None
        return terms

    def attach(self, keep: float | str | timedelta = "10s") -> RemoteConsumer:
        """Become a consumer of the station. If the connection breaks, the site keeps the leases for the time `keep`."""
        keep_s = check_keep(keep)
        attached, _ = self._connection.once(Attach(self.name, keep_s), Attached)
        return RemoteConsumer(self._queue, self.name, self._connection, attached, keep_s)

    # --- change -----------------------------------------------------------------------------------

    def change(self, **options: Unpack[StationChanges]) -> None:
        """Change terms while consumers work. A new selection decides about products put from now on."""
        self._connection.once(ChangeStation(self.name, options_of(options)), Done)

    def pause(self) -> None:
        """Hand nothing out until `resume`; products go on to wait."""
        self._connection.once(PauseStation(self.name, True), Done)

    def resume(self) -> None:
        self._connection.once(PauseStation(self.name, False), Done)

    def seek(self, start: Start) -> int:
        """Go to a sequence, "oldest", "next" or a time, with all stations of the chain; the position that results."""
        return self._connection.once(SeekStation(self.name, start_text(start)), Number)[0].value

    def remove(self) -> None:
        """Remove the station; products that wait there go on to the stations behind it."""
        self._connection.once(RemoveStation(self.name), Done)

    # --- parked products --------------------------------------------------------------------------

    def parked(self) -> list[Parked]:
        """Products set aside after too many deliveries, the oldest first."""
        return self._tell("parked").parked or []

    def retry(self, sequences: list[int] | None = None) -> int:
        """Bring parked products back to the input, as if new; None: all. Returns their number."""
        return self._unpark(sequences, True)

    def forget(self, sequences: list[int] | None = None) -> int:
        """Give parked products up; None: all. Returns their number."""
        return self._unpark(sequences, False)

    def _unpark(self, sequences: list[int] | None, retry: bool) -> int:
        check_sequences(sequences)
        return self._connection.once(Unpark(self.name, sequences, retry), Number)[0].value

    # --- inspect ----------------------------------------------------------------------------------

    def statistics(self) -> StationStatistics:
        told = self._tell("statistics").station
        assert told is not None
        return told

    def lag(self) -> Lag:
        """How far the station is behind: products not acknowledged yet, and the age of the oldest."""
        return Lag.of(self.statistics())

    def consumers(self) -> list[ConsumerStatistics]:
        """The consumers that are attached."""
        return self._tell("consumers").consumers or []

    def _repr_html_(self) -> str:
        """Without a call: a look must not wait for a site that does not reply."""
        from headrace.notebook import facts_table  # notebook.py says why it is imported here

        return facts_table(f"Station {self.name}", [("of", self._queue)])

    def __repr__(self) -> str:
        return f"<RemoteStation {self.name!r} of {self._queue.path}>"


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The terms of a station as they travel; OptionError, as for a local station, if one is invalid."""
    given = {name: value for name, value in options.items() if value is not ...}
    check_options({name: value for name, value in given.items() if name != "selection"})
    if "selection" in given:
        given["selection"] = selection_text(given["selection"])
    return {name: value_text(value) for name, value in given.items()}
