"""Station: a selection and a position that consumers share; get one from `Queue.station`.

Several consumers attached to one station share its flow; several stations each see all they select. Stations made with
`after=` stand behind another and see its products when they have been put, in their latest revision; stations of one
`group=` stand side by side and share what they select. docs/stations.md says what each option does.
"""

import time
from typing import Any

import msgspec
import numpy as np

from headrace.errors import OptionError, StationError, StationExistsError, StationMissingError
from headrace.kernel import _kernel as kernel
from headrace.log.explain import explaining
from headrace.log.log import Log
from headrace.log.read import Start
from headrace.product.batch import Batch
from headrace.selection import Selection
from headrace.station.chain import OpenChain
from headrace.station.consumer import Consumer
from headrace.station.registry import StationDocument
from headrace.station.stations import Stations, next_line
from headrace.station.statistics import ConsumerStatistics, Lag, Parked, StationStatistics
from headrace.station.terms import (
    CHANGEABLE,
    GIVEN,
    Retired,
    StationTerms,
    check_options,
    check_station_name,
    check_terms,
)

STAGE_STEP = 1 << 10


def open_station(
    log: Log, stations: Stations, name: str, selection: Any = ..., *, start: Start = "next", **terms_given: Any
) -> "Station":
    """The station called `name`, made on these terms if there is none yet; `Queue.station` explains."""
    check_station_name(name)
    given = {option: value for option, value in {"selection": selection, **terms_given}.items() if value is not ...}
    fields = check_options(given)
    after = given.get("after")
    function = Selection.of(given.get("selection")).function
    with log.locked():
        stations.finish()
        terms = stations.document.find(name)
        if terms is None:
            if not given:
                raise StationMissingError(
                    f"{log.path} has no station {name!r}",
                    "make it by giving its terms: queue.station(name, selection=…)",
                )
            terms = _create(log, stations, name, start, fields, after)
        else:
            _compare(stations.document, terms, fields, after)
    station = Station(log, stations, name)
    if function is not None:
        station.give_function(function)
    return station


def _compare(stations: StationDocument, terms: StationTerms, fields: dict[str, Any], after: str | None) -> None:
    """An existing station is opened only on its own terms."""
    differ = [
        f"{field} {getattr(terms, field)!r}, not {value!r}"
        for field, value in fields.items()
        if field not in GIVEN and getattr(terms, field) != value
    ]
    ahead = stations.find(after) if after is not None else None
    if after is not None and (ahead is None or ahead.line != terms.line or ahead.stage >= terms.stage):
        differ.append(f"another place than after {after!r}")
    if differ:
        raise StationExistsError(
            f"station {terms.name!r} exists with {'; '.join(differ)}",
            "open it without terms, or change it: station.change(…)",
        )


def _create(
    log: Log, stations: Stations, name: str, start: Start, fields: dict[str, Any], after: str | None
) -> StationTerms:
    document, terms = _place(stations.document, StationTerms(name=name, **fields), after)
    position = log.resolve(start)
    if terms.line in {other.line for other in stations.document.stations}:
        if start != "next":
            raise OptionError(
                f"station {name!r} joins a line that is under way, so it cannot start at {start!r}",
                "leave `start` out: it sees what is put from now on",
            )
        if stations.line(terms.line).kernel.position < log.kernel.tail:  # it wants nothing of what was put before
            terms = msgspec.structs.replace(terms, retired=(Retired(log.kernel.tail, None, False),))
    stations.change(document.replace(check_terms(terms)), position)
    return terms


def _place(stations: StationDocument, terms: StationTerms, after: str | None) -> tuple[StationDocument, StationTerms]:
    """Where a new station stands: behind another, beside its group, or in a line of its own."""
    group = [other for other in stations.stations if terms.group is not None and other.group == terms.group]
    if group:
        if any(other.distribution != terms.distribution for other in group):
            raise StationExistsError(
                f"group {terms.group!r} distributes by {group[0].distribution}", "give its stations the same"
            )
        line, stage = group[0].line, group[0].stage
    elif after is not None:
        line, stage = _behind(stations, after)
    else:
        stations, line = next_line(stations)
        stage = STAGE_STEP
    taken = {other.member for other in stations.line(line)}
    if len(taken) == kernel.MEMBERS_MAX:
        raise StationError(
            f"the chain of {terms.name!r} has {kernel.MEMBERS_MAX} stations already", "begin another chain"
        )
    member = min(set(range(kernel.MEMBERS_MAX)) - taken)
    return stations, msgspec.structs.replace(terms, line=line, stage=stage, member=member)


def _behind(stations: StationDocument, after: str) -> tuple[int, int]:
    """Line and stage right behind the station `after`."""
    ahead = stations.find(after)
    if ahead is None:
        raise StationMissingError(f"there is no station {after!r} to stand behind", "make that one first")
    later = [other.stage for other in stations.line(ahead.line) if other.stage > ahead.stage]
    stage = (ahead.stage + min(later)) // 2 if later else ahead.stage + STAGE_STEP
    if stage in (ahead.stage, *later):
        raise StationError(f"there is no room between {after!r} and the next station", "stand behind the next one")
    return ahead.line, stage


class Station:
    """A handle: it holds nothing but the name, and any number of them may exist."""

    def __init__(self, log: Log, stations: Stations, name: str) -> None:
        self.name = name
        self.log = log
        self._stations = stations

    @property
    def terms(self) -> StationTerms:
        terms = self._stations.document.find(self.name)
        if terms is None:
            raise self._missing()
        return terms

    def _missing(self) -> StationMissingError:
        return StationMissingError(f"station {self.name!r} was removed", "make it anew: queue.station(name, …)")

    @property
    def _line(self) -> OpenChain:
        return self._stations.line(self.terms.line)

    def attach(self) -> Consumer:
        """Become one of the consumers that share this station's products."""
        self.log.keep_positions()
        with self.log.locked(), explaining(self.log.path):
            terms, line = self.terms, self._line
            if terms.local and self.name not in line.functions:
                raise OptionError(
                    f"the selection of station {self.name!r} has a function that this process does not know",
                    "give it: queue.station(name, selection=…)",
                )
            self._check_consumers(terms, line)
            claim = line.claim(terms.member)
        return Consumer(self, self._stations, line, terms, claim)

    def _check_consumers(self, terms: StationTerms, line: OpenChain) -> None:
        line.look_after()
        here = sum(member == terms.member for _, member, *_ in line.kernel.consumers())
        if terms.consumers_max is not None and here >= terms.consumers_max:
            raise StationError(
                f"station {self.name!r} has {here} consumers, as many as it admits",
                "detach one, or raise consumers_max",
            )

    def give_function(self, function: Any) -> None:
        """Tell this process the function of the station's selection."""
        line = self._line
        line.functions[self.name] = function
        line.use(lambda: self._stations.in_line(line.number))

    # --- change -----------------------------------------------------------------------------------

    def change(self, **options: Any) -> None:
        """Change terms while consumers work. A new selection decides about products put from now on.

        The terms of a station that belongs to a channel are changed through the channel, which names itself.
        """
        by_channel = options.pop("channel", None)
        fields = check_options(options)
        for field in (*fields, *(["after"] if "after" in options else [])):
            if field not in CHANGEABLE:
                raise OptionError(f"{field} of a station cannot be changed", "remove the station and make it anew")
        function = Selection.of(options.get("selection")).function
        with self.log.locked():
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
        if function is not None:
            self.give_function(function)

    def _keep_function(self, before: StationTerms, after: StationTerms) -> None:
        """The function of a selection that retires goes on to decide about what was put before."""
        line = self._line
        if before.local and self.name in line.functions:
            for retired in after.retired:
                if retired.local:
                    line.old_functions.setdefault((self.name, retired.until), line.functions[self.name])

    def _retire(self, terms: StationTerms) -> tuple[Retired, ...]:
        """The old selection still decides about what was put before and has not been looked at."""
        position, tail = self._line.kernel.position, self.log.kernel.tail
        kept = tuple(retired for retired in terms.retired if retired.until > position)
        return (*kept, Retired(tail, terms.selection, terms.local)) if position < tail else ()

    def pause(self) -> None:
        """Hand nothing out until `resume`; products go on to wait."""
        self._set_paused(True)

    def resume(self) -> None:
        self._set_paused(False)

    def _set_paused(self, paused: bool) -> None:
        with self.log.locked():
            self._stations.change(self._stations.document.replace(msgspec.structs.replace(self.terms, paused=paused)))

    def seek(self, start: Start) -> int:
        """Go to a sequence, "oldest", "next" or a time, with all stations of the line; the position.

        What waits is forgotten, what consumers hold stays with them.
        """
        with self.log.locked():
            position = self.log.resolve(start)
            self._line.kernel.seek(position)
            self._line.kernel.note_terms()  # another of its selections may hold there
        return position

    def remove(self) -> None:
        """Forget the station; what waits there goes on to the stations behind it."""
        with self.log.locked():
            terms = self.terms
            self._stations.change(self._stations.document.without(terms.name))

    def forsake(self) -> None:
        """A consumer has left: a station that is not durable goes with the last one."""
        terms = self._stations.document.find(self.name)
        if terms is None or terms.durable:
            return
        with self.log.locked():
            line = self._line
            line.look_after()
            if not any(member == terms.member for _, member, *_ in line.kernel.consumers()):
                self._stations.change(self._stations.document.without(self.name))

    # --- parked products --------------------------------------------------------------------------

    def parked(self) -> list[Parked]:
        """Products laid aside after too many deliveries, the oldest first."""
        with explaining(self.log.path):
            found = self._line.kernel.slots(self.terms.member, kernel.SLOT_PARKED)
        return sorted((self._describe(*slot) for slot in found), key=lambda parked: parked.sequence)

    def _describe(self, place: int, sequence: int, revision: int, deliveries: int) -> Parked:
        row = self._one(sequence)
        if row is None:
            return Parked(sequence, deliveries, False, "", "", 0)
        product = row[0]
        return Parked(sequence, deliveries, True, product.feed, product.ident, len(product.payload))

    def _one(self, sequence: int) -> Batch | None:
        """The product of one sequence, if the queue still has it."""
        rows = self.log.kernel.rows()
        rows.pick(sequence, 1, 1, sequence + 1, None)
        rows.verify(0, 1)  # at the beginning of time: nothing has expired
        self.log.kernel.learn_names()
        return Batch(rows, self.log.kernel.names) if len(rows) else None

    def retry(self, sequences: list[int] | None = None) -> int:
        """Bring parked products back to the input, as if new; None: all. How many there were."""
        return self._unpark(sequences, True)

    def forget(self, sequences: list[int] | None = None) -> int:
        """Give parked products up; None: all. How many there were."""
        return self._unpark(sequences, False)

    def _unpark(self, sequences: list[int] | None, retry: bool) -> int:
        if sequences is not None and not all(0 <= sequence < 1 << 63 for sequence in sequences):
            raise OptionError(f"{sequences!r} are not sequences", "give those that parked() lists")
        chosen = None if sequences is None else np.array(sequences, np.uint64)
        with explaining(self.log.path):
            return self._line.kernel.unpark(self.terms.member, chosen, retry)

    # --- tell -------------------------------------------------------------------------------------

    def statistics(self) -> StationStatistics:
        """Everything the station can tell of itself; looks at the log and after dead consumers first."""
        terms, line = self.terms, self._line
        with explaining(self.log.path):
            self._stations.look_after(line)
            self._stations.conduct(line)
            member, state = line.kernel.member(terms.member), line.kernel.state
            oldest, retries = line.kernel.in_hand(terms.member)
        if member is None:
            raise self._missing()
        behind = self.log.kernel.count_between(state["position"], self.log.kernel.head)
        dropped = {"flowed_around": "flowed_around", "fifo": "dropped_fifo", "priority": "dropped_priority",
                   "deadline": "dropped_deadline", "parking_full": "dropped_parking"}  # fmt: skip
        same = ("waiting", "leased", "parked", "admitted", "delivered", "acknowledged", "discarded", "expired",
                "damaged", "restored", "redelivered", "parked_total", "rejected")  # fmt: skip
        return StationStatistics(
            name=terms.name, line=terms.line, stage=terms.stage, group=terms.group, channel=terms.channel,
            selection=terms.selection, blocking=terms.blocking, durable=terms.durable, paused=terms.paused,
            prescale=terms.prescale, capacity=terms.capacity, position=state["position"], behind=behind,
            retries=retries,
            consumers=sum(place[1] == terms.member for place in line.kernel.consumers()),
            evicted=member["evicted"] + state["lost_products"],
            dropped={cause: member[field] for cause, field in dropped.items()},
            oldest_age_s=self._age_s(oldest or (state["position"] if behind else 0)),
            **{field: member[field] for field in same},
        )  # fmt: skip

    def _age_s(self, sequence: int) -> float | None:
        batch = self._one(sequence) if sequence else None
        if batch is None:
            return None
        now_ns = self._stations.now_ns() or time.time_ns()
        return max(0.0, (now_ns - int(batch.columns["inserted_ns"][0])) / 1e9)

    def lag(self) -> Lag:
        """How far the station is behind: products not acknowledged yet, and the age of the oldest."""
        return Lag.of(self.statistics())

    def consumers(self) -> list[ConsumerStatistics]:
        """Who is attached."""
        member, line = self.terms.member, self._line
        return [
            ConsumerStatistics(
                self.name, place, pid, attached_ns, beat_age_ns / 1e9, leased, delivered, acknowledged,
                line.is_alive(place) and not line.kernel.hung(place),
            )
            for place, number, _, pid, attached_ns, beat_age_ns, leased, delivered, acknowledged
            in line.kernel.consumers()
            if number == member
        ]  # fmt: skip

    def __repr__(self) -> str:
        return f"<Station {self.name!r} of {self.log.path}>"
