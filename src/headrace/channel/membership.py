"""Membership: the stations of a channel, and how they follow it.

A station knows its channel by its terms; the channel's definition knows what each of its stations said itself. Both
are needed: what a station did not say is the channel's, and changes with it. Everything here is done while the
definitions are locked (`DefinitionFile.changing`), so that a change of a channel and the creation of a station cannot
miss each other.

A change is written first and handed on to the stations then. If that is cut short, the next change, and the next
opening of the station through its channel, make up for it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.channel.conflicts import validate
from headrace.channel.document import Definition, DefinitionFile
from headrace.channel.qos import FIELDS, Conflict, QoS, read_options, station_terms, terms_error
from headrace.channel.subtree import Subtree
from headrace.channel.tightening import is_open, looser, tighten
from headrace.errors import StationMissingError
from headrace.selection import Selection
from headrace.station.opening import open_station
from headrace.station.station import Station
from headrace.station.terms import check_options

if TYPE_CHECKING:
    from headrace.channel.channel import Channel

# Terms of a station that no quality of service speaks of.
STATION_ONLY = ("prescale", "restore", "deliveries_max", "hung_after", "after", "group", "distribution", "start")


def list_stations(channel: "Channel") -> list[str]:
    stations = channel.all_stations.document.stations
    return sorted(terms.name for terms in stations if terms.channel == channel.name)


def open_member(channel: "Channel", name: str) -> Station:
    """A station that exists, on the terms that it should have."""
    station = _existing(channel, name)
    definition = channel.definition
    terms = station_terms(_qos_of(definition, name))
    if _differs(station, terms):
        station.change(**terms, channel=channel.name)
    return station


def add_station(
    channel: "Channel", file: DefinitionFile, name: str, selection: Any, options: Mapping[str, Any]
) -> Station:
    """Create a station, or open it if it is there on these terms. Its entry is written first, and void without it."""
    definition = channel.definition
    said, more = _read(options)
    qos = tighten(definition.qos, msgspec.structs.replace(definition.qos, **said))
    wanted = _within(definition, selection)
    if name not in list_stations(channel):
        conflicts = validate(qos, channel.now_ns())
        if conflicts:
            raise terms_error(conflicts)
        _write(file, definition, stations={**_entries(channel, definition), name: _spoken(said)})
    return open_station(
        channel.log, channel.all_stations, name, wanted, channel=channel.name, **station_terms(qos), **more
    )


def change_station(
    channel: "Channel", file: DefinitionFile, name: str, selection: Any, options: Mapping[str, Any]
) -> Station:
    station = _existing(channel, name)
    definition = channel.definition
    said, more = _read(options)
    spoken = _spoken({**definition.stations.get(name, {}), **said})
    qos = tighten(definition.qos, msgspec.structs.replace(definition.qos, **spoken))
    _refuse([each for each in validate(qos, channel.now_ns()) if set(each.options) & set(options)])
    if selection is not None:
        more["selection"] = _within(definition, selection)
    _write(file, definition, stations={**_entries(channel, definition), name: spoken})
    station.change(**station_terms(qos), **more, channel=channel.name)
    return station


def change_channel(channel: "Channel", file: DefinitionFile, options: Mapping[str, Any]) -> None:
    """Agree on the new terms with every station before anything is written."""
    definition = channel.definition
    new = msgspec.structs.replace(definition, qos=definition.qos.with_options(options))
    conflicts = [each for each in validate(new.qos, channel.now_ns()) if set(each.options) & set(options)]
    members = list_stations(channel)
    for name in members:
        conflicts += _conflicts_at(new, name, conflicts)
    _refuse(conflicts)
    _write(file, new, stations=_entries(channel, definition))
    for name in members:
        open_station(channel.log, channel.all_stations, name).change(
            **station_terms(_qos_of(new, name)), channel=channel.name
        )


# --- what a station says --------------------------------------------------------------------------


def _read(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of QoS that the options say, and the terms that only stations have."""
    more = {option: value for option, value in options.items() if option in STATION_ONLY}
    said, faults = read_options({option: value for option, value in options.items() if option not in more})
    _refuse(faults)
    return said, more


def _spoken(said: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is left open."""
    options = {field: option for option, field in FIELDS.items()}
    return {field: value for field, value in said.items() if not is_open(options[field], value)}


def _qos_of(definition: Definition, name: str) -> QoS:
    said = definition.stations.get(name, {})
    return tighten(definition.qos, msgspec.structs.replace(definition.qos, **said))


def _conflicts_at(new: Definition, name: str, known: list[Conflict]) -> list[Conflict]:
    """What one station has against the new terms, beyond what is known already."""
    said = new.stations.get(name, {})
    wanted = msgspec.structs.replace(new.qos, **said)
    found = looser(new.qos, wanted) or [each for each in validate(wanted) if each not in known]
    own = {option for option, field in FIELDS.items() if field in said}
    return [
        Conflict(each.options, f"station {name!r}: {each.problem}", f"change that station first, or {each.remedy}")
        for each in found
        if own & set(each.options)
    ]


def _within(definition: Definition, selection: Any) -> Selection:
    wanted = Selection.of(selection)
    return wanted.replace(feed=Subtree.of(definition.feed).narrow(wanted.feed))


# --- stations and entries -------------------------------------------------------------------------


def _existing(channel: "Channel", name: str) -> Station:
    station = open_station(channel.log, channel.all_stations, name)
    if station.terms.channel != channel.name:
        belongs = f"channel {station.terms.channel!r}" if station.terms.channel else "no channel"
        raise StationMissingError(
            f"station {name!r} belongs to {belongs}, not to {channel.name!r}",
            "open it where it belongs, or choose another name",
        )
    return station


def _differs(station: Station, terms: Mapping[str, Any]) -> bool:
    return any(getattr(station.terms, field) != value for field, value in check_options(terms).items())


def _entries(channel: "Channel", definition: Definition) -> dict[str, Any]:
    """What stations said, without those that are gone."""
    members = set(list_stations(channel))
    return {name: said for name, said in definition.stations.items() if name in members}


def _write(file: DefinitionFile, definition: Definition, stations: dict[str, Any]) -> None:
    definitions = file.read()
    changed = msgspec.structs.replace(definition, stations=stations)
    file.write(msgspec.structs.replace(definitions, channels={**definitions.channels, definition.name: changed}))


def _refuse(conflicts: list[Conflict]) -> None:
    if conflicts:
        raise terms_error(conflicts)
