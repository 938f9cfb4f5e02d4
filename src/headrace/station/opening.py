"""Opening a station: find it by name, or create it on the terms given.

An existing station is opened only on its own terms; StationExistsError names every difference. A new one gets its
place: behind another station (`after`), beside the others of its group, or in a chain of its own. Everything happens
under the queue's lock, so that two processes cannot create the same station.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from headrace.errors import OptionError, StationError, StationExistsError, StationMissingError
from headrace.kernel import _kernel as kernel
from headrace.log.log import Log
from headrace.log.read import Start
from headrace.selection import Selection
from headrace.station.conflicts import check_terms
from headrace.station.document import StationDocument
from headrace.station.station import Station, give_function
from headrace.station.stations import Stations
from headrace.station.terms import GIVEN, Retired, StationTerms, check_options, check_station_name

STAGE_STEP = 1 << 10  # between stages, so that stations fit in between later


def open_station(
    log: Log, stations: Stations, name: str, options: Mapping[str, Any] = MappingProxyType({}), *,
    start: Start = "next", create: bool = True, channel: str | None = None,
) -> Station:  # fmt: skip
    """The station `name`, created on these terms if it does not exist; `Queue.station` explains the options."""
    check_station_name(name)
    given = {option: value for option, value in options.items() if value is not ...}
    fields = check_options(given, stations.time_ns())
    if channel is not None:
        fields["channel"] = channel
    after = given.get("after")
    function = Selection.of(given.get("selection")).bound(stations.functions).function
    with log.locked():
        stations.finish()
        terms = stations.document.find(name)
        if terms is not None:
            _compare(stations.document, terms, fields, after)
        elif create:
            _create(log, stations, name, start, fields, after)
        else:
            raise StationMissingError(
                f"{log.path} has no station {name!r}", "create it: queue.station(name, selection)"
            )
    station = Station(log, stations, name)
    if callable(function):
        give_function(station, function)
    return station


def _compare(stations: StationDocument, terms: StationTerms, fields: dict[str, Any], after: str | None) -> None:
    """StationExistsError if the options given differ from the terms in force."""
    differ = [
        f"{field} {getattr(terms, field)!r}, not {value!r}"
        for field, value in fields.items()
        if field not in GIVEN and getattr(terms, field) != value
    ]
    ahead = stations.find(after) if after is not None else None
    if after is not None and (ahead is None or ahead.chain != terms.chain or ahead.stage >= terms.stage):
        differ.append(f"a place that is not after {after!r}")
    if differ:
        raise StationExistsError(
            f"station {terms.name!r} exists with {'; '.join(differ)}",
            "open it without terms, or change it: station.change(…)",
        )


def _create(log: Log, stations: Stations, name: str, start: Start, fields: dict[str, Any], after: str | None) -> None:
    document, terms = _place(stations.document, StationTerms(name=name, **fields), after)
    position = log.resolve(start)
    if terms.chain in stations.document.chains:
        if start != "next":
            raise OptionError(
                f"station {name!r} joins a running chain and cannot start at {start!r}",
                "omit `start`: the station receives products that are put from now on",
            )
        if stations.chain(terms.chain).kernel.position < log.kernel.tail:  # it wants nothing that was put before
            terms = msgspec.structs.replace(terms, retired=(Retired(log.kernel.tail, None, False),))
    stations.change(document.replace(check_terms(terms)), position)


def _place(stations: StationDocument, terms: StationTerms, after: str | None) -> tuple[StationDocument, StationTerms]:
    """The chain, stage and member number of a new station."""
    group = [other for other in stations.stations if terms.group is not None and other.group == terms.group]
    if group:
        if any(other.distribution != terms.distribution for other in group):
            raise StationExistsError(
                f"group {terms.group!r} has distribution {group[0].distribution}", "give its stations the same one"
            )
        chain, stage = group[0].chain, group[0].stage
    elif after is not None:
        chain, stage = _behind(stations, after)
    else:
        chain, stage = stations.next_chain, STAGE_STEP
        stations = msgspec.structs.replace(stations, next_chain=chain + 1)
    taken = {other.member for other in stations.chain(chain)}
    if len(taken) == kernel.MEMBERS_MAX:
        raise StationError(
            f"the chain of {terms.name!r} has {kernel.MEMBERS_MAX} stations, the maximum", "begin a new chain"
        )
    member = min(set(range(kernel.MEMBERS_MAX)) - taken)
    return stations, msgspec.structs.replace(terms, chain=chain, stage=stage, member=member)


def _behind(stations: StationDocument, after: str) -> tuple[int, int]:
    """The chain of the station `after`, and a stage right behind it."""
    ahead = stations.find(after)
    if ahead is None:
        raise StationMissingError(f"there is no station {after!r} to stand behind", "create that one first")
    later = [other.stage for other in stations.chain(ahead.chain) if other.stage > ahead.stage]
    stage = (ahead.stage + min(later)) // 2 if later else ahead.stage + STAGE_STEP
    if stage in (ahead.stage, *later):
        raise StationError(f"there is no room between {after!r} and the next station", "stand behind the next one")
    return ahead.chain, stage
