"""Station: a selection and a position that consumers share; get one from `Queue.station`.

Consumers attached to one station share its products; several stations each receive everything they select. A station
created with `after=` stands behind another one and receives its products once they are acknowledged, in their latest
revision. Stations of one `group=` stand side by side and share what they select. docs/stations.md explains each option.

Not here: creating a station (opening.py), and getting products (consumer.py).
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Unpack

import msgspec
import numpy as np

from headrace.errors import ConsumersFullError, OptionError, StationError, StationMissingError
from headrace.kernel import _kernel as kernel
from headrace.log.explain import explaining
from headrace.log.log import Log
from headrace.log.read import Start
from headrace.product.batch import Batch
from headrace.selection import Selection
from headrace.station.backlog import count_backlog, pieces_of
from headrace.station.chain import OpenChain
from headrace.station.conflicts import check_terms
from headrace.station.consumer import Consumer
from headrace.station.leases import check_keep
from headrace.station.stations import Stations
from headrace.station.statistics import ConsumerStatistics, Lag, Parked, StationStatistics, table_of_station
from headrace.station.terms import (
    CHANGEABLE,
    Retired,
    StationChanges,
    StationTerms,
    check_options,
    check_sequences,
)

_SAME = (
    "waiting", "leased", "parked", "admitted", "delivered", "acknowledged", "discarded", "expired", "damaged",
    "restored", "redelivered", "parked_total", "rejected",
)  # fmt: skip
_DROPPED = {
    "flowed_around": "flowed_around", "fifo": "dropped_fifo", "priority": "dropped_priority",
    "deadline": "dropped_deadline", "parking_full": "dropped_parking",
}  # fmt: skip


class Station:
    """A handle: it holds only the name, and any number of handles may exist."""

    def __init__(self, log: Log, stations: Stations, name: str) -> None:
        self.name = name
        self._log = log
        self._stations = stations

    @property
    def terms(self) -> StationTerms:
        """The terms in force; StationMissingError if the station was removed."""
        terms = self._stations.document.find(self.name)
        if terms is None:
            raise self._missing()
        return terms

    def _missing(self) -> StationMissingError:
        return StationMissingError(f"station {self.name!r} was removed", "create it again: queue.station(name, …)")

    @property
    def _chain(self) -> OpenChain:
        return self._stations.chain(self.terms.chain)

    def attach(self, keep: float | str | timedelta = "10s") -> Consumer:
        """A new consumer, which shares this station's products with the others.

        `keep` is for remote queues, whose connections break. Here it has no effect.
        """
        check_keep(keep)
        self._log.keep_positions()
        with self._log.locked(), explaining(self._log.path):
            terms, chain = self.terms, self._chain
            if (lacking := chain.lacks(terms)) is not None:
                raise lacking
            self._check_consumers(terms, chain)
            claim = chain.claim(terms.member)
        return Consumer(self._log, self._stations, chain, terms, claim)

    def _check_consumers(self, terms: StationTerms, chain: OpenChain) -> None:
        chain.recover()
        here = sum(member == terms.member for _, member, *_ in chain.kernel.consumers())
        if terms.consumers_max is not None and here >= terms.consumers_max:
            raise ConsumersFullError(
                f"station {self.name!r} has {here} consumer{'' if here == 1 else 's'}, its consumers_max",
                "detach one, or raise consumers_max",
            )

    # --- change -----------------------------------------------------------------------------------

    def change(self, **options: Unpack[StationChanges]) -> None:
        """Change terms while consumers work. A new selection applies to products that are put from now on.

        The terms of a station of a channel are changed through the channel.
        """
        self._change(options, None)

    def _change(self, options: Mapping[str, Any], by_channel: str | None) -> None:
        fields = check_options(options, self._stations.time_ns())
        for field in (*fields, *(["after"] if "after" in options else [])):
            if field not in CHANGEABLE:
                raise OptionError(f"{field} of a station cannot change", "remove the station and create it again")
        function = Selection.of(options.get("selection")).bound(self._stations.functions).function
        with self._log.locked():
            terms = self.terms
            if terms.channel != by_channel:
                raise StationError(
                    f"station {self.name!r} belongs to channel {terms.channel!r}",
                    "change it there: channel.change_station(name, …)",
                )
            if "selection" in fields:
                fields["retired"] = self._retire(terms)
            changed = check_terms(msgspec.structs.replace(terms, **fields))
            beside = [
                msgspec.structs.replace(other, distribution=changed.distribution)
                for other in self._stations.document.stations
                if terms.group is not None and other.group == terms.group and other.name != self.name
            ]
            self._keep_function(terms, changed)
            self._stations.change(self._stations.document.replace(changed, *beside))
        if callable(function):
            give_function(self, function)

    def _keep_function(self, before: StationTerms, after: StationTerms) -> None:
        """The function of the old selection still decides about products that were put before."""
        chain = self._chain
        if before.local and self.name in chain.functions:
            for retired in after.retired:
                if retired.local:
                    chain.old_functions.setdefault((self.name, retired.until), chain.functions[self.name])

    def _retire(self, terms: StationTerms) -> tuple[Retired, ...]:
        """The old selection still decides about products that were put before and not scanned yet."""
        position, tail = self._chain.kernel.position, self._log.kernel.tail
        kept = tuple(retired for retired in terms.retired if retired.until > position)
        return (*kept, Retired(tail, terms.selection, terms.local)) if position < tail else ()

    def pause(self) -> None:
        """Deliver nothing until `resume`; products keep arriving and wait."""
        self._set_paused(True)

    def resume(self) -> None:
        """Deliver again."""
        self._set_paused(False)

    def _set_paused(self, paused: bool) -> None:
        with self._log.locked():
            self._stations.change(self._stations.document.replace(msgspec.structs.replace(self.terms, paused=paused)))

    def seek(self, start: Start) -> int:
        """Move the whole chain to a sequence, "oldest", "next" or a time; returns the position.

        Waiting products are forgotten; leased products stay with their consumers.
        """
        with self._log.locked():
            position = self._log.resolve(start)
            self._chain.kernel.seek(position)
            self._chain.kernel.note_terms()  # another selection may apply there
        return position

    def remove(self) -> None:
        """Remove the station; products that wait there go on to the stations behind it."""
        with self._log.locked():
            terms = self.terms
            self._stations.change(self._stations.document.without(terms.name))

    # --- parked products --------------------------------------------------------------------------

    def parked(self) -> list[Parked]:
        """Products that were parked after too many deliveries, the oldest first."""
        self._log.check_open()
        with explaining(self._log.path):
            self._stations.recover(self._chain)  # the last consumer may have died of its product
            found = self._chain.kernel.slots(self.terms.member, kernel.SLOT_PARKED)
        return sorted((self._describe(*slot) for slot in found), key=lambda parked: parked.sequence)

    def _describe(self, _slot: int, sequence: int, _revision: int, deliveries: int) -> Parked:
        row = self._one(sequence)
        if row is None:
            return Parked(sequence, deliveries, False, "", "", 0)
        product = row[0]
        return Parked(sequence, deliveries, True, product.feed, product.ident, product.size)

    def _one(self, sequence: int) -> Batch | None:
        """The product with this sequence, if the queue still has it."""
        rows = self._log.kernel.rows()
        rows.pick(sequence, 1, 1, sequence + 1, None)
        rows.verify(0, 1)  # time 1: nothing has expired
        self._log.kernel.learn_names()
        return Batch(rows, self._log.kernel.names) if len(rows) else None

    def retry(self, sequences: list[int] | None = None) -> int:
        """Move parked products back to the input, as if new; None: all. Returns their number."""
        return self._unpark(sequences, True)

    def forget(self, sequences: list[int] | None = None) -> int:
        """Give up parked products; None: all. Returns their number."""
        return self._unpark(sequences, False)

    def _unpark(self, sequences: list[int] | None, retry: bool) -> int:
        check_sequences(sequences)
        chosen = None if sequences is None else np.array(sequences, np.uint64)
        self._log.check_open()
        with explaining(self._log.path):
            self._stations.recover(self._chain)
            return self._chain.kernel.unpark(self.terms.member, chosen, retry)

    # --- statistics -------------------------------------------------------------------------------

    def statistics(self) -> StationStatistics:
        """The station now; looks for dead consumers first, and scans the log unless a function decides."""
        self._log.check_open()
        terms, chain = self.terms, self._chain
        with explaining(self._log.path):
            self._stations.recover(chain)
            chain.kernel.drop_evicted()
            self._stations.conduct(chain, calls=False)  # a function of a user may be slow
            member, state = chain.kernel.member(terms.member), chain.kernel.state
            oldest_ns, retries = chain.kernel.in_hand(terms.member)
        if member is None:
            raise self._missing()
        pieces = pieces_of(terms, state["position"], self._log.kernel.head)
        backlog = count_backlog(self._log.kernel, self._log.path, pieces, terms.prescale, self._stations.now_ns())
        return StationStatistics(
            name=terms.name, chain=terms.chain, stage=terms.stage, group=terms.group, channel=terms.channel,
            selection=terms.selection, blocking=terms.blocking, durable=terms.durable, paused=terms.paused,
            prescale=terms.prescale, capacity=terms.capacity, position=state["position"],
            behind=backlog.products, behind_at_least=backlog.at_least, retries=retries,
            consumers=sum(slot[1] == terms.member for slot in chain.kernel.consumers()),
            evicted=member["evicted"] + state["lost_products"],
            evicted_at_most=state["lost_products"] > 0 and not _takes_all(terms),
            evicted_ago_s=_ago_s(max(member["evicted_ns"], state["lost_ns"]), self._now_ns()),
            dropped={cause: member[field] for cause, field in _DROPPED.items()},
            oldest_age_s=_ago_s(oldest_ns or self._inserted_ns(backlog.first), self._now_ns()),
            **{field: member[field] for field in _SAME},
        )  # fmt: skip

    def _now_ns(self) -> int:
        return self._stations.time_ns()

    def _inserted_ns(self, sequence: int) -> int:
        """When a product of the backlog was inserted; of the oldest product held, if it was evicted just now."""
        if not sequence:
            return 0
        batch = self._one(sequence) or self._one(self._log.oldest)
        return 0 if batch is None else int(batch.columns["inserted_ns"][0])

    def lag(self) -> Lag:
        """How far the station is behind: unacknowledged products, and the age of the oldest."""
        return Lag.of(self.statistics())

    def consumers(self) -> list[ConsumerStatistics]:
        """The consumers that are attached."""
        self._log.check_open()
        return self._chain.consumers(self.name, self.terms.member)

    def __repr__(self) -> str:
        return f"<Station {self.name!r} of {self._log.path}>"

    def _repr_html_(self) -> str:
        from headrace.notebook import shown  # notebook.py says why it is imported here

        return shown(f"Station {self.name}", lambda: table_of_station(self.statistics()))


def change_through_channel(station: Station, channel: str, options: Mapping[str, Any]) -> None:
    """`Station.change`, for a station that belongs to this channel."""
    station._change(options, channel)


def give_function(station: Station, function: Any) -> None:
    """Give this process the function of the station's selection."""
    chain, stations = station._chain, station._stations
    chain.functions[station.name] = function
    chain.use(lambda: stations.in_chain(chain.number))


def _ago_s(moment_ns: int, now_ns: int) -> float | None:
    """How long ago that was; None for 0, which means never."""
    return max(0.0, (now_ns - moment_ns) / 1e9) if moment_ns else None


def _takes_all(terms: StationTerms) -> bool:
    """Whether every product of the log is one that the station takes."""
    return terms.prescale == 1 and not terms.retired and not terms.local and terms.selection == str(Selection())
