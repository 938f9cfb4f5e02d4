"""A slow reader of groups of nodes, from docs/format.md and nothing else; `reader` reads the rest of a queue.

    read_shares(directory)          shares.json, with defaults for what is left out
    read_share(directory, number)   one share file: header, slices, taken seats, and the rings in their order

Read a share file while no process changes it. Damaged is raised for invalid data.
"""

import json
import struct
from pathlib import Path

from reader import Fields, Layout, check, fields_of
from station_reader import ARRAY, INTEGER, NONE, NUMBER, STRING, Members, members_of, read_document

SHARES: Members = {"format": (INTEGER, 1), "next_number": (INTEGER, 1), "groups": (ARRAY, [])}
GROUP: Members = {
    "group": (STRING, NONE), "stream": (STRING, NONE), "channel": (INTEGER, NONE), "number": (INTEGER, NONE),
    "id": (STRING, NONE), "slices": (INTEGER, NONE), "only": (STRING, ""), "dead_after_s": (NUMBER, NONE),
    "tries_max": (INTEGER, NONE), "created_ns": (INTEGER, NONE),
}  # fmt: skip
HEADER: Layout = {
    "magic": (0, "8s"), "version": (8, "I"), "slices": (12, "I"), "dead_after_ns": (16, "Q"), "tries_max": (24, "I"),
    "changes": (28, "I"), "term": (32, "Q"), "leader_until": (40, "Q"), "leader": (48, "64s"), "sessions": (112, "Q"),
    "parked": (120, "Q"), "samples": (128, "Q"), "lost": (136, "Q"), "failed": (144, "Q"), "refused": (152, "Q"),
    "cancelled": (160, "Q"), "deaths": (168, "Q"), "lost_last": (176, "Q"), "leader_yields": (184, "B"),
    "reserved": (185, "287s"),
}  # fmt: skip
SEAT: Layout = {
    "instance": (0, "Q"), "heartbeat": (8, "Q"), "joined_ns": (16, "Q"), "version": (24, "Q"), "reported": (32, "Q"),
    "products": (40, "Q"), "busy_ns": (48, "Q"), "sampled": (56, "Q"), "sampled_busy_ns": (64, "Q"),
    "session": (72, "Q"), "in_work": (80, "Q"), "in_work_slice": (88, "I"), "pid": (92, "I"), "draining": (96, "B"),
    "fresh": (97, "B"), "load_bytes": (98, "H"), "reserved": (100, "4s"), "name": (104, "64s"), "user": (168, "64s"),
    "load": (232, "1024s"),
}  # fmt: skip
SESSION: Layout = {
    "number": (0, "Q"), "begun_ns": (8, "Q"), "removed_ns": (16, "Q"), "available_ns": (24, "Q"),
    "ended_ns": (32, "Q"), "slices": (40, "I"), "left": (44, "I"), "waits": (48, "I"), "giver_seat": (52, "H"),
    "taker_seat": (54, "H"), "reason": (56, "B"), "outcome": (57, "B"), "reserved": (58, "6s"), "giver": (64, "64s"),
    "taker": (128, "64s"),
}  # fmt: skip
PARKED: Layout = {
    "sequence": (0, "Q"), "time_ns": (8, "Q"), "slice": (16, "I"), "tries": (20, "I"), "node": (24, "64s"),
    "error": (88, "400s"),
}  # fmt: skip
SAMPLE: Layout = {
    "time_ns": (0, "Q"), "waiting": (8, "Q"), "cpu": (16, "f"), "busy": (20, "f"), "slices": (24, "I"),
    "seat": (28, "I"), "name": (32, "64s"),
}  # fmt: skip
HEADER_BYTES, SEAT_BYTES, SESSION_BYTES, PARKED_BYTES, SAMPLE_BYTES = 472, 1256, 192, 488, 96
SEATS, SESSIONS, PARKED_PLACES, SAMPLES = 4096, 1024, 4096, 32768
COLUMNS = {"words": "Q", "positions": "Q", "suspects": "Q", "products": "Q", "busy_ns": "Q", "fresh": "Q",
           "careful": "Q", "mourned": "Q", "tries": "B"}  # fmt: skip
NOBODY, ELSEWHERE = 65535, 65534
REASONS = ("load", "join", "drain", "idle", "dead", "hand")
OUTCOMES = ("running", "done", "cancelled", "dead")
TEXTS = {"leader", "name", "user", "load", "giver", "taker", "node", "error"}


def read_shares(directory: Path) -> list[Fields]:
    document = read_document(directory / "shares.json", SHARES)
    groups = [members_of(GROUP, each) for each in document["groups"]]
    check(all(each["number"] < document["next_number"] for each in groups), "a group has a number of the future")
    check(len({(each["stream"], each["group"]) for each in groups}) == len(groups), "two groups have the same name")
    return groups


def read_share(directory: Path, number: int) -> Fields:
    data = (directory / "shares" / f"{number}.share").read_bytes()
    header = entry(HEADER, data, 0)
    check(header["magic"] == b"HRSHARE1" and header["version"] == 2, "this is not a share file")
    offset, found = aligned(HEADER_BYTES), {"header": header}
    for name, code in COLUMNS.items():
        size = struct.calcsize("<" + code) * header["slices"]
        found[name] = list(struct.unpack_from(f"<{header['slices']}{code}", data, offset))
        offset += aligned(size)
    seats = [entry(SEAT, data, offset + place * SEAT_BYTES) for place in range(SEATS)]
    offset += aligned(SEATS * SEAT_BYTES)
    rings = ((SESSION, SESSION_BYTES, SESSIONS), (PARKED, PARKED_BYTES, PARKED_PLACES), (SAMPLE, SAMPLE_BYTES, SAMPLES))
    for name, (layout, size, count) in zip(("sessions", "parked", "samples"), rings, strict=True):
        first = 1 if name == "sessions" else 0  # sessions are numbered from 1 on
        numbers = range(max(first, header[name] - count + first), header[name] + first)
        found[name] = [entry(layout, data, offset + each % count * size) for each in numbers]
        offset += aligned(count * size)
    check(offset == len(data), f"the file has {len(data)} bytes, not {offset}")
    found["seats"] = {place: seat | {"load": load_of(seat)} for place, seat in enumerate(seats) if seat["instance"]}
    found["slices"] = [
        {"owner": word & 0xFFFF, "taker": word >> 16 & 0xFFFF, "epoch": word >> 32} for word in found.pop("words")
    ]
    check_owners(found)
    return found


def check_owners(share: Fields) -> None:
    for each in share["slices"]:
        check(each["owner"] in (NOBODY, ELSEWHERE) or each["owner"] in share["seats"], "an owner has no seat")
        check(each["taker"] == NOBODY or each["taker"] in share["seats"], "a taker has no seat")


def load_of(seat: Fields) -> Fields:
    return dict(json.loads(seat["load"][: seat["load_bytes"]])) if seat["load_bytes"] else {}


def entry(layout: Layout, data: bytes, offset: int) -> Fields:
    """One entry; texts without the zeros behind them."""
    fields = fields_of(layout, data, offset)
    return {name: value.rstrip(b"\0").decode() if name in TEXTS else value for name, value in fields.items()}


def aligned(size: int) -> int:
    return (size + 63) // 64 * 64
