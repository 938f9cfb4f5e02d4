"""Membership: the stations of a channel, and how they follow it.

A station knows its channel by its terms; the channel's definition knows what each of its stations set itself. Both are
needed: what a station did not set is the channel's, and changes with it. Everything here happens under the lock of the
definitions (`DefinitionFile.changing`), so that a change of a channel and the creation of a station cannot miss each
other.

A change is written first and passed on to the stations then. If a process dies in between, the next change, and the
next opening of the station through its channel, complete it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.channel.assigner import next_number, put_in_force
from headrace.channel.compression import COMPRESSION_OPTIONS, Compression, compression_options, read_compression
from headrace.channel.conflicts import looser, of_qos, tighten, validate
from headrace.channel.context import ChannelContext
from headrace.channel.creation import check_compression
from headrace.channel.document import Definition, DefinitionFile
from headrace.channel.qos import FIELDS, QoS, StationOnly, is_open, read_options, station_terms
from headrace.channel.subtree import Subtree
from headrace.errors import ChannelError, StationMissingError
from headrace.selection import Selection
from headrace.station.conflicts import Conflict, terms_error
from headrace.station.opening import open_station
from headrace.station.station import Station, change_through_channel
from headrace.station.terms import check_options

STATION_ONLY = tuple(StationOnly.__annotations__)  # terms that channels do not have


def list_stations(channel: ChannelContext) -> list[str]:
    stations = channel.stations.document.stations
    return sorted(terms.name for terms in stations if terms.channel == channel.name)


def open_member(channel: ChannelContext, name: str) -> Station:
    """An existing station, with its terms brought up to the channel's."""
    definition = channel.definition
    check_home(definition, channel.log.config.origin)
    station = _existing(channel, name)
    terms = station_terms(_qos_of(definition, name))
    if _differs(station, terms):
        change_through_channel(station, channel.name, terms)
    return station


def add_station(channel: ChannelContext, name: str, selection: Any, options: Mapping[str, Any]) -> Station:
    """Create a station, or open it if it exists on these terms. Its entry is written before it is created."""
    definition = channel.definition
    check_home(definition, channel.log.config.origin)
    own, more = _read(options)
    qos = tighten(definition.qos, msgspec.structs.replace(definition.qos, **own))
    wanted = within(definition, selection)
    if name not in list_stations(channel):
        conflicts = validate(qos, channel.now_ns())
        if conflicts:
            raise terms_error(conflicts)
        _write(channel.file, definition, stations={**_entries(channel, definition), name: _closed(own)})
    start = more.pop("start", "next")
    given = {"selection": wanted, **station_terms(qos), **more}
    return open_station(channel.log, channel.stations, name, given, start=start, channel=channel.name)


def change_station(channel: ChannelContext, name: str, selection: Any, options: Mapping[str, Any]) -> Station:
    station = _existing(channel, name)
    definition = channel.definition
    own, more = _read(options)
    own = _closed({**definition.stations.get(name, {}), **own})
    qos = tighten(definition.qos, msgspec.structs.replace(definition.qos, **own))
    _refuse([each for each in validate(qos, channel.now_ns()) if set(each.options) & set(options)])
    if selection is not None:
        more["selection"] = within(definition, selection)
    _write(channel.file, definition, stations={**_entries(channel, definition), name: own})
    change_through_channel(station, channel.name, {**station_terms(qos), **more})
    return station


def change_channel(channel: ChannelContext, options: Mapping[str, Any]) -> None:
    """Check the new terms with every station, then write them, then pass them on."""
    definition = channel.definition
    compression = _changed_compression(channel, definition, options)
    qos = definition.qos.with_options(of_qos(options))
    new = msgspec.structs.replace(definition, qos=qos, compression=compression)
    conflicts = [each for each in validate(new.qos, channel.now_ns()) if set(each.options) & set(options)]
    members = list_stations(channel)
    for name in members:
        conflicts += _conflicts_at(new, name, conflicts)
    _refuse(conflicts)
    _write(channel.file, new, stations=_entries(channel, definition))
    if compression != definition.compression:
        _renumber(channel)
    for name in members:
        station = open_station(channel.log, channel.stations, name, create=False)
        change_through_channel(station, channel.name, station_terms(_qos_of(new, name)))


# --- compression ----------------------------------------------------------------------------------


def _changed_compression(
    channel: ChannelContext, definition: Definition, options: Mapping[str, Any]
) -> Compression | None:
    """How the channel compresses with these options changed; those that are not given stay."""
    given = {option: options[option] for option in COMPRESSION_OPTIONS if option in options}
    if not given:
        return definition.compression
    if "compress" in given and given["compress"] is None:
        given = {"dictionary": None, **given}  # without compression there is none
    compression, faults = read_compression({**compression_options(definition.compression), **given})
    _refuse(faults)
    if compression is not None:
        document, subtree = channel.file.read(), Subtree.of(definition.feed)
        check_compression(channel.log.dictionaries, document, definition.name, subtree, compression)
    return compression


def _renumber(channel: ChannelContext) -> None:
    """Make every process read the channels again before its next append."""
    kernel, document = channel.log.kernel, channel.file.read()
    document = msgspec.structs.replace(document, slicings=next_number(kernel, document))
    channel.file.write(document)
    put_in_force(kernel, document)


# --- what a station sets --------------------------------------------------------------------------


def _read(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of QoS that the options set, and the terms that only stations have."""
    more = {option: value for option, value in options.items() if option in STATION_ONLY}
    own, faults = read_options({option: value for option, value in options.items() if option not in more})
    _refuse(faults)
    return own, more


def _closed(own: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not left open."""
    options = {field: option for option, field in FIELDS.items()}
    return {field: value for field, value in own.items() if not is_open(options[field], value)}


def _qos_of(definition: Definition, name: str) -> QoS:
    own = definition.stations.get(name, {})
    return tighten(definition.qos, msgspec.structs.replace(definition.qos, **own))


def _conflicts_at(new: Definition, name: str, known: list[Conflict]) -> list[Conflict]:
    """The conflicts of one station with the new terms, beyond those that are known already."""
    own = new.stations.get(name, {})
    wanted = msgspec.structs.replace(new.qos, **own)
    found = looser(new.qos, wanted) or [each for each in validate(wanted) if each not in known]
    own_options = {option for option, field in FIELDS.items() if field in own}
    return [
        Conflict(each.options, f"station {name!r}: {each.problem}", f"change that station first, or {each.remedy}")
        for each in found
        if own_options & set(each.options)
    ]


def check_home(definition: Definition, site: str) -> None:
    """ChannelError if products of the channel are to be taken at another site, because its queue decides the order."""
    home = definition.qos.home
    if home not in (None, site):
        raise ChannelError(
            f"channel {definition.name!r} has its order at its home, site {home}, and this is the queue of site {site}",
            f'take its products there: connect("site:{home}").channel("{definition.name}"); to put them here is fine',
        )


def within(definition: Definition, selection: Any) -> Selection:
    """A selection, within the subtree of the channel."""
    wanted = Selection.of(selection)
    return wanted.replace(feed=Subtree.of(definition.feed).narrow(wanted.feed))


# --- stations and entries -------------------------------------------------------------------------


def _existing(channel: ChannelContext, name: str) -> Station:
    if channel.stations.document.find(name) is None:
        hint = "create it: channel.station(name), or headrace station create --channel"
        raise StationMissingError(f"channel {channel.name!r} has no station {name!r}", hint)
    station = open_station(channel.log, channel.stations, name, create=False)
    if station.terms.channel != channel.name:
        belongs = f"channel {station.terms.channel!r}" if station.terms.channel else "no channel"
        raise StationMissingError(
            f"station {name!r} belongs to {belongs}, not to {channel.name!r}",
            "open it where it belongs, or choose another name",
        )
    return station


def _differs(station: Station, terms: Mapping[str, Any]) -> bool:
    return any(getattr(station.terms, field) != value for field, value in check_options(terms).items())


def _entries(channel: ChannelContext, definition: Definition) -> dict[str, Any]:
    """What each station set, without stations that were removed."""
    members = set(list_stations(channel))
    return {name: own for name, own in definition.stations.items() if name in members}


def _write(file: DefinitionFile, definition: Definition, stations: dict[str, Any]) -> None:
    definitions = file.read()
    changed = msgspec.structs.replace(definition, stations=stations)
    file.write(msgspec.structs.replace(definitions, channels={**definitions.channels, definition.name: changed}))


def _refuse(conflicts: list[Conflict]) -> None:
    if conflicts:
        raise terms_error(conflicts)
