"""A slow reader of stations and channels, from docs/format.md and nothing else; `reader` reads the rest of a queue.

    read_stations(directory)         stations.json, with defaults for what is left out
    read_channels(directory)         channels.json, likewise
    read_chain(directory, number)     one chain file: header, members, consumers and slots, with its lists walked
    begin_again(directory, number)   where a chain begins after a restart of the machine
    read_suppliers(directory, …)     one suppliers file: its places, and whether they are held
    is_locked(file, at)              whether a process holds the open-file-description lock on one byte

Read a chain while no process changes it. Damaged is raised for invalid data, OtherVersion for another version.
"""

import fcntl
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reader import (
    Damaged,
    Fields,
    Layout,
    OtherVersion,
    check,
    check_version,
    fields_of,
    items_of,
    read_control,
    xxh3,
)

NONE: Any = object()  # a member that must be there
Members = dict[str, tuple[tuple[type, ...], Any]]

# --- the tables of the page: members of JSON, their types and defaults ---------------------------

INTEGER, NUMBER, STRING, BOOLEAN, ARRAY, OBJECT = (int,), (int, float), (str,), (bool,), (list,), (dict,)
NULL = (type(None),)
TYPES = {
    "integer": INTEGER, "number": NUMBER, "string": STRING, "boolean": BOOLEAN, "array": ARRAY, "object": OBJECT,
    "integer or null": INTEGER + NULL, "number or null": NUMBER + NULL, "string or null": STRING + NULL,
    "object or null": OBJECT + NULL,
}  # fmt: skip
STATIONS: Members = {
    "format": (INTEGER, NONE),
    "number": (INTEGER, 0),
    "next_chain": (INTEGER, 1),
    "stations": (ARRAY, []),
}
STATION: Members = {
    "name": (STRING, NONE), "chain": (INTEGER, 0), "member": (INTEGER, 0), "stage": (INTEGER, 0),
    "selection": (STRING, "**"), "local": (BOOLEAN, False), "prescale": (INTEGER, 1), "blocking": (BOOLEAN, False),
    "capacity": (INTEGER + NULL, None), "order": (STRING, "priority"), "discard": (STRING, "lifo"),
    "restore": (STRING, "input"), "deliveries_max": (INTEGER, 5), "hung_after_s": (NUMBER, 30.0),
    "durable": (BOOLEAN, True), "paused": (BOOLEAN, False), "group": (STRING + NULL, None),
    "distribution": (STRING, "round_robin"), "timeout_s": (NUMBER + NULL, None), "start_ns": (INTEGER + NULL, None),
    "stop_ns": (INTEGER + NULL, None), "batch_max": (INTEGER + NULL, None), "pacing_s": (NUMBER, 0.0),
    "consumers_max": (INTEGER + NULL, None), "max_queue": (INTEGER + NULL, None), "channel": (STRING + NULL, None),
    "retired": (ARRAY, []),
}  # fmt: skip
RETIRED: Members = {"until": (INTEGER, NONE), "selection": (STRING + NULL, NONE), "local": (BOOLEAN, NONE)}
CHANNELS_FORMAT = 3
CHANNELS: Members = {
    "format": (INTEGER, CHANNELS_FORMAT), "next_number": (INTEGER, 1), "slicings": (INTEGER, 0),
    "channels": (OBJECT, {}),
}  # fmt: skip
CHANNEL: Members = {
    "name": (STRING, NONE), "number": (INTEGER, NONE), "feed": (STRING, NONE), "created_ns": (INTEGER, NONE),
    "qos": (OBJECT, NONE), "slicing": (OBJECT + NULL, None), "compression": (OBJECT + NULL, None),
    "stations": (OBJECT, {}),
}  # fmt: skip
COMPRESSION: Members = {"level": (INTEGER, NONE), "dictionary": (STRING + NULL, None)}
SLICING: Members = {"slices": (INTEGER, NONE), "assign": (STRING, NONE)}
QOS: Members = {
    "reliability": (STRING, "best_effort"), "connections": (STRING, "persistent"), "order": (STRING, "any"),
    "discard": (STRING, "any"), "max_per_consumer": (INTEGER + NULL, None), "max_queue": (INTEGER + NULL, None),
    "timeout_s": (NUMBER + NULL, None), "start_time_ns": (INTEGER + NULL, None),
    "stop_time_ns": (INTEGER + NULL, None), "batch_max": (INTEGER + NULL, None), "pacing_s": (NUMBER + NULL, None),
    "suppliers_max": (INTEGER + NULL, None), "consumers_max": (INTEGER + NULL, None),
    "home": (STRING + NULL, None),
}  # fmt: skip

# --- the tables of the page: offsets --------------------------------------------------------------

CHAIN_VERSION = 2
CHAIN_HEADER_BYTES = 1024
CHAIN_HEADER: Layout = {
    "magic": (0, "8s"), "version": (8, "I"), "slots_ready": (12, "I"), "uuid": (16, "16s"), "number": (32, "Q"),
    "gap0": (40, "24s"), "lock": (64, "40s"), "gap1": (104, "24s"), "position": (128, "Q"), "low": (136, "Q"),
    "terms": (144, "Q"), "ticket": (152, "I"), "free": (156, "I"), "oldest": (160, "I"), "newest": (164, "I"),
    "in_hand": (168, "I"), "room": (172, "I"), "waiters": (176, "I"), "torn": (180, "I"), "recoveries": (184, "Q"),
    "lost_products": (192, "Q"), "lost_first": (200, "Q"), "lost_last": (208, "Q"), "damaged_rows": (216, "Q"),
    "admitting": (224, "Q"), "looked_ns": (232, "Q"), "revising": (240, "Q"), "cells": (248, "48s"),
    "revising_from": (296, "Q"), "lost_ns": (304, "Q"), "consumers_end": (312, "I"), "gap3": (316, "I"),
    "surges": (320, "Q"), "gap4": (328, "696s"),
}  # fmt: skip
CHAIN_CELL_BYTES = 24
CHAIN_CELL: Layout = {"generation": (0, "Q"), "low": (8, "Q"), "checksum": (16, "Q")}
CHAIN_CELL_CHECKED_BYTES = 16

MEMBERS_AT, MEMBERS, MEMBER_BYTES = 1024, 64, 512
MEMBER: Layout = {
    "used": (0, "I"), "stage": (4, "I"), "grouped": (8, "I"), "distribution": (12, "I"), "blocking": (16, "I"),
    "paused": (20, "I"), "order": (24, "I"), "discard": (28, "I"), "restore": (32, "I"), "deliveries_max": (36, "I"),
    "capacity": (40, "I"), "prescale": (44, "I"), "prescale_count": (48, "Q"), "hung_after_ns": (56, "Q"),
    "timeout_ns": (64, "Q"), "start_ns": (72, "Q"), "stop_ns": (80, "Q"), "max_queue": (88, "Q"), "later": (96, "Q"),
    "turn": (104, "I"), "present": (108, "I"), "first": (112, "32s"), "last": (144, "32s"), "waiting": (176, "I"),
    "leased": (180, "I"), "parked": (184, "I"), "gap0": (188, "I"), "admitted": (192, "Q"), "delivered": (200, "Q"),
    "acknowledged": (208, "Q"), "discarded": (216, "Q"), "expired": (224, "Q"), "evicted": (232, "Q"), "damaged": (240, "Q"),
    "restored": (248, "Q"), "redelivered": (256, "Q"), "parked_total": (264, "Q"), "flowed_around": (272, "Q"),
    "dropped_fifo": (280, "Q"), "dropped_priority": (288, "Q"), "dropped_deadline": (296, "Q"),
    "dropped_parking": (304, "Q"), "rejected": (312, "Q"),
    "evicted_ns": (320, "Q"), "gap1": (328, "184s"),
}  # fmt: skip
ORDERS = {"any": 0, "fifo": 1, "priority": 3, "deadline": 4}
DISCARDS = {"any": 0, "fifo": 1, "lifo": 2, "priority": 3, "deadline": 4}
RESTORES = {"input": 0, "output": 1, "start": 2, "group": 3}
DISTRIBUTIONS = {"round_robin": 0, "least_loaded": 1}

CONSUMERS_AT, CONSUMERS, CONSUMER_BYTES = 33792, 1024, 128
CONSUMER: Layout = {
    "used": (0, "I"), "member": (4, "I"), "epoch": (8, "Q"), "pid": (16, "Q"), "attached_ns": (24, "Q"),
    "heartbeat_ns": (32, "Q"), "leased": (40, "Q"), "delivered": (48, "Q"), "acknowledged": (56, "Q"), "left_ns": (64, "Q"),
    "gap": (72, "56s"),
}  # fmt: skip
CONSUMER_LOCKS_AT = 1 << 40

SLOTS_AT, SLOTS_STEP, SLOTS_MAX, SLOT_BYTES = 164864, 1024, 262144, 64
SLOT: Layout = {
    "sequence": (0, "Q"), "revision": (8, "Q"), "wanted": (16, "Q"), "expires_ns": (24, "Q"), "inserted_ns": (32, "Q"),
    "mark": (40, "Q"), "next": (48, "I"), "older": (52, "I"), "newer": (56, "I"), "deliveries": (60, "B"),
    "revisions": (61, "B"), "priority": (62, "B"), "restarts": (63, "B"),
}  # fmt: skip
STATES = {0: "free", 1: "waiting", 2: "leased", 3: "parked"}
NOWHERE = 0xFFFFFFFF
PRIORITIES = 8

SUPPLIER_SLOTS, SUPPLIER_BYTES = 1025, 64
SUPPLIERS_HEADER: Layout = {"magic": (0, "8s"), "format": (8, "Q"), "used": (16, "Q"), "reserved": (24, "40s")}
SLICES_BYTES = 64
SLICES: Layout = {
    "magic": (0, "8s"), "format": (8, "Q"), "next": (16, "Q"), "spread": (24, "Q"), "reserved": (32, "32s"),
}  # fmt: skip
SUPPLIER: Layout = {
    "pid": (0, "Q"), "since_ns": (8, "Q"), "products": (16, "Q"), "duplicates": (24, "Q"), "rejected": (32, "Q"),
    "left_ns": (40, "Q"), "reserved": (48, "16s"),
}  # fmt: skip
DICTIONARY_BYTES = 48
DICTIONARY: Layout = {
    "magic": (0, "8s"), "version": (8, "H"), "feed_bytes": (10, "H"), "content_bytes": (12, "I"), "digest": (16, "32s"),
}  # fmt: skip


# --- JSON -----------------------------------------------------------------------------------------


def read_stations(directory: Path) -> Fields:
    """The content of stations.json; `stations` maps a name to its terms."""
    document = read_document(directory / "stations.json", STATIONS, 2)
    found = [members_of(STATION, terms) for terms in document["stations"]]
    for terms in found:
        terms["retired"] = [members_of(RETIRED, retired) for retired in terms["retired"]]
        check(terms["member"] < MEMBERS, f"station {terms['name']!r} is member {terms['member']}")
        check(1 <= terms["chain"] < document["next_chain"], f"station {terms['name']!r} has chain {terms['chain']}")
    stations = {terms["name"]: terms for terms in found}
    check(len(stations) == len(found), "two stations have the same name")
    check(len({(s["chain"], s["member"]) for s in found}) == len(found), "two stations have the same place")
    return document | {"stations": stations}


def read_channels(directory: Path) -> Fields:
    """The content of channels.json."""
    document = read_document(directory / "channels.json", CHANNELS, CHANNELS_FORMAT)
    channels = {}
    for name, definition in document["channels"].items():
        channel = members_of(CHANNEL, definition)
        check(channel["name"] == name, f"channel {name!r} calls itself {channel['name']!r}")
        for said in channel["stations"].values():
            members_of(QOS, said)
        if channel["slicing"] is not None:
            channel["slicing"] = members_of(SLICING, channel["slicing"])
        if channel["compression"] is not None:
            channel["compression"] = members_of(COMPRESSION, channel["compression"])
        channels[name] = channel | {"qos": members_of(QOS, channel["qos"])}
    return document | {"channels": channels}


def read_document(file: Path, members: Members, version: int = 1) -> Fields:
    document = json.loads(file.read_bytes(), parse_constant=_refuse)
    if isinstance(document, dict) and document.get("format", version) != version:
        raise OtherVersion(f"{file.name} has format {document['format']}, this reader knows {version}")
    return members_of(members, document)


def members_of(members: Members, said: Any) -> Fields:
    """Every member of an object, given or by default."""
    check(isinstance(said, dict), f"{said!r} is not an object")
    check(set(said) <= set(members), f"unknown members: {sorted(set(said) - set(members))}")
    found = {}
    for name, (types, default) in members.items():
        value = said.get(name, default)
        check(value is not NONE, f"{name} is missing")
        check(type(value) in types, f"{name} is {value!r}")
        found[name] = value
    return found


def _refuse(word: str) -> None:
    raise Damaged(f"{word} is not JSON")


# --- the chain file --------------------------------------------------------------------------------


def chain_path(directory: Path, number: int) -> Path:
    return directory / "stations" / f"{number}.chain"


def read_chain(directory: Path, number: int) -> Fields:
    """Header, `members` and `consumers` that are used, by place, and all `slots`; lists and counts must fit the marks."""
    data = chain_path(directory, number).read_bytes()
    chain = read_chain_header(directory, number, data)
    members = items_of(data[MEMBERS_AT : MEMBERS_AT + MEMBERS * MEMBER_BYTES], MEMBER, MEMBER_BYTES)
    consumers = items_of(data[CONSUMERS_AT:SLOTS_AT], CONSUMER, CONSUMER_BYTES)
    slots_end = SLOTS_AT + chain["slots_ready"] * SLOT_BYTES
    check(slots_end <= len(data), f"the chain has no room for {chain['slots_ready']} slots")
    chain["members"] = {place: list_ends(member) for place, member in enumerate(members) if member["used"]}
    chain["consumers"] = {place: consumer for place, consumer in enumerate(consumers) if consumer["used"]}
    chain["slots"] = [slot | read_mark(slot["mark"]) for slot in items_of(data[SLOTS_AT:slots_end], SLOT, SLOT_BYTES)]
    check_chain(chain)
    return chain


def read_chain_header(directory: Path, number: int, data: bytes) -> Fields:
    chain = fields_of(CHAIN_HEADER, data)
    check(chain["magic"] == b"HRCHAIN\0", "this is not a chain file")
    check_version(chain["version"], "the chain file", CHAIN_VERSION)
    check(chain["uuid"] == read_control(directory)["uuid"], "the chain belongs to another queue")
    check(chain["number"] == number, f"the chain calls itself {chain['number']}")
    check(
        chain["slots_ready"] % SLOTS_STEP == 0 and chain["slots_ready"] <= SLOTS_MAX, "the number of slots is invalid"
    )
    chain["cells"] = [chain["cells"][:CHAIN_CELL_BYTES], chain["cells"][CHAIN_CELL_BYTES:]]
    return chain


def list_ends(member: Fields) -> Fields:
    """The member with `first` and `last` as eight numbers each."""
    return member | {end: struct.unpack(f"<{PRIORITIES}I", member[end]) for end in ("first", "last")}


def read_mark(mark: int) -> Fields:
    check(mark & 0xFF in STATES, f"mark {mark:#x} has an unknown state")
    return {
        "state": STATES[mark & 0xFF],
        "member": mark >> 8 & 0xFF,
        "consumer": mark >> 16 & 0xFFFF,
        "ticket": mark >> 32,
    }


def walk(chain: Fields, place: int, step: str) -> Iterator[int]:
    """The slots of a list, from `place` on."""
    for _ in range(len(chain["slots"]) + 1):
        if place == NOWHERE:
            return
        check(place < len(chain["slots"]), f"a list leads to slot {place}")
        yield place
        place = chain["slots"][place][step]
    raise Damaged(f"the list by {step} goes round in circles")


def waiting_list(chain: Fields, member: int, priority: int) -> list[int]:
    """The slots that wait at a station with one priority, the first one first."""
    if not chain["members"][member]["present"] >> priority & 1:
        return []
    places = list(walk(chain, chain["members"][member]["first"][priority], "next"))
    check(places[-1] == chain["members"][member]["last"][priority], "a waiting list ends elsewhere than it says")
    return places


def check_chain(chain: Fields) -> None:
    """Every list and every count is the one that follows from the marks."""
    slots = chain["slots"]
    by_state = {state: [p for p, slot in enumerate(slots) if slot["state"] == state] for state in STATES.values()}
    in_hand = sorted(by_state["waiting"] + by_state["leased"], key=lambda place: slots[place]["sequence"])
    check(sorted(walk(chain, chain["free"], "next")) == by_state["free"], "the list of free slots is wrong")
    forth, back = list(walk(chain, chain["oldest"], "newer")), list(walk(chain, chain["newest"], "older"))
    check(forth == back[::-1] and sorted(forth) == sorted(in_hand), "the list of products in hand is wrong")
    check([slots[p]["sequence"] for p in forth] == [slots[p]["sequence"] for p in in_hand], "it is out of order")
    check(chain["in_hand"] == len(in_hand), f"{chain['in_hand']} products are counted in hand, {len(in_hand)} are")
    low = min([chain["position"], *(slots[place]["sequence"] for place in in_hand)])
    check(chain["low"] == low, f"everything below {chain['low']} counts as settled, but the marks say {low}")
    for number, member in chain["members"].items():
        listed = [place for priority in range(PRIORITIES) for place in waiting_list(chain, number, priority)]
        counted = {state: [p for p in by_state[state] if slots[p]["member"] == number] for state in by_state}
        check(sorted(listed) == counted["waiting"], f"the waiting lists of member {number} are wrong")
        for count in ("waiting", "leased", "parked"):
            check(member[count] == len(counted[count]), f"member {number} counts {member[count]} {count}")
    for place in by_state["leased"]:
        check(slots[place]["consumer"] in chain["consumers"], f"slot {place} is leased to nobody")
    for number, consumer in chain["consumers"].items():
        held = sum(slots[place]["consumer"] == number for place in by_state["leased"])
        check(consumer["leased"] == held, f"consumer {number} counts {consumer['leased']} products, it holds {held}")


def begin_again(directory: Path, number: int) -> int:
    """The position that is believed after a restart of the machine; 0 if no cell is whole."""
    cells = read_chain_header(directory, number, chain_path(directory, number).read_bytes())["cells"]
    whole = [cell for cell in (fields_of(CHAIN_CELL, cell) for cell in cells if is_whole(cell)) if cell["generation"]]
    return int(max(whole, key=lambda cell: cell["generation"])["low"]) if whole else 0


def is_whole(cell: bytes) -> bool:
    return bool(fields_of(CHAIN_CELL, cell)["checksum"] == xxh3(cell[:CHAIN_CELL_CHECKED_BYTES]))


# --- suppliers and locks --------------------------------------------------------------------------


def suppliers_path(directory: Path, number: int) -> Path:
    return directory / "channels" / f"{number}.suppliers"


def read_suppliers(directory: Path, number: int) -> dict[int, Fields]:
    """Place -> its words, for every place ever taken; `held` is whether a supplier holds it."""
    file = suppliers_path(directory, number)
    data = file.read_bytes()
    check(len(data) == SUPPLIER_SLOTS * SUPPLIER_BYTES, f"the suppliers file has {len(data)} bytes")
    header = fields_of(SUPPLIERS_HEADER, data)
    check(header["magic"] == b"HRSUPPLR", "this is not a suppliers file")
    check_version(header["format"], "the suppliers file")
    places = range(1, header["used"] + 1)
    return {
        place: fields_of(SUPPLIER, data, place * SUPPLIER_BYTES) | {"held": is_locked(file, place * SUPPLIER_BYTES)}
        for place in places
    }


def read_slices(directory: Path, number: int) -> Fields:
    """The counters of the slices of a channel."""
    data = (directory / "channels" / f"{number}.slices").read_bytes()
    check(len(data) == SLICES_BYTES, f"the slices file has {len(data)} bytes")
    counters = fields_of(SLICES, data)
    check(counters["magic"] == b"HRSLICES", "this is not a slices file")
    check_version(counters["format"], "the slices file")
    return counters


def is_locked(file: Path, at: int) -> bool:
    """Whether a process holds the open-file-description lock on the byte `at`."""
    flock = struct.Struct("hhqqi4x")
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        asked = flock.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
        return bool(flock.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)
