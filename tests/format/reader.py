"""A slow reader of everything that Headrace writes, from docs/format.md and nothing else.

It imports no part of Headrace. Each table of the page with offsets is here once, as a dict from the name of a field to
its offset and its code for `struct`; everything else follows from the text of the page. Nothing is mapped, cached or
skipped: a file is read as a whole and walked from its beginning.

    read_record(data)            one record, as it lies on disk and travels
    identity_of(product)         what its signature is a hash of
    read_control(directory)      the shared words
    read_names(directory)        place -> name
    read_cursors(directory)      name -> position
    read_segment(directory, …)   one segment: header and rows
    read_queue(directory)        every product below `head`, in the order of sequence
    find_signature(directory, …) the product that the duplicate table has for the signature of a product

Stations and channels have a reader of their own beside this one (station_reader.py), which goes by the same rules.
Invalid data raises Damaged, another version OtherVersion. Read a queue while no process writes to it.
"""

import json
import struct
import uuid
from pathlib import Path
from typing import Any

import xxhash

VERSION = 1
CONTROL_VERSION = 3
CONFIG_FORMAT = 2
Layout = dict[str, tuple[int, str]]
Fields = dict[str, Any]


class Damaged(Exception):  # noqa: N818 - a word of the page
    """These bytes are not what the page says they should be."""


class OtherVersion(Exception):  # noqa: N818
    """These bytes are of a version that the page does not describe."""


# --- the tables of the page -----------------------------------------------------------------------

RECORD_HEADER_BYTES = 56
RECORD_HEADER: Layout = {
    "magic": (0, "2s"), "version": (2, "B"), "flags": (3, "B"), "checksum": (4, "I"), "payload_bytes": (8, "I"),
    "ident_bytes": (12, "H"), "feed_bytes": (14, "B"), "origin_bytes": (15, "B"), "signature": (16, "16s"),
    "created_ns": (32, "Q"), "origin_sequence": (40, "Q"), "previous_delta": (48, "I"),
    "properties_bytes": (52, "H"), "slice": (54, "H"),
}  # fmt: skip
EXPIRES = 1 << 6
PLAIN, WITH_OPTIONS = 1, 2
OPTIONS_BYTES_MAX = 4096
OPTIONS = {  # type: (name, bytes of the value)
    1: ("bound", 4), 2: ("replay", 16), 3: ("hops", 1), 4: ("signed", 72), 128: ("compression", 9), 129: ("fragment", 24),
}  # fmt: skip
MUST_KNOW = 128
NO_SLICE = 65535
SIGNATURE_KINDS = {
    0: "none", 1: "payload blake3", 2: "payload xxh3", 3: "payload md5", 4: "given", 5: "identity blake3",
    6: "identity xxh3", 7: "identity md5",
}  # fmt: skip

SEGMENT_HEADER_BYTES = 256
SEGMENT_HEADER: Layout = {
    "magic": (0, "8s"), "version": (8, "I"), "reserved": (12, "I"), "uuid": (16, "16s"), "file": (32, "Q"),
    "size": (40, "Q"), "number": (48, "Q"), "first": (56, "Q"), "checksum": (64, "Q"), "gap": (72, "56s"),
    "pins": (128, "I"),
}  # fmt: skip
SEGMENT_CHECKED_BYTES = 64

ROW_BYTES = 32
ROW: Layout = {
    "inserted_ns": (0, "Q"), "offset": (8, "I"), "payload_bytes": (12, "I"), "feed": (16, "I"), "sequence": (20, "I"),
    "origin": (24, "H"), "slice": (26, "H"), "priority": (28, "B"), "flags": (29, "B"), "check": (30, "H"),
}  # fmt: skip
ROW_CHECKED_BYTES = 30
ROW_DELETED, ROW_DAMAGED, ROW_EXPIRES, ROW_SIGNED, ROW_CONTINUES, ROW_REVISION = 1, 2, 4, 8, 16, 32
ROW_OPTIONS = 64
ROW_UNPROVEN = 128
ROW_HIDDEN = ROW_DELETED | ROW_DAMAGED | ROW_REVISION

NAME_BYTES = 320
NAME: Layout = {
    "kind": (0, "B"), "bytes": (1, "B"), "reserved": (2, "H"), "checksum": (4, "I"), "last": (8, "Q"),
    "products": (16, "Q"), "payload_bytes": (24, "Q"), "spare": (32, "32s"), "text": (64, "256s"),
}  # fmt: skip
FEED, ORIGIN = 1, 2
FEEDS_BEGIN = 4096
NAMES_STEP = 1024

BUCKET_BYTES = 64
SLOTS_IN_BUCKET = 8
STIRRER = 0xD6E8FEB86659FD93
SPREADER = 0x9E3779B97F4A7C15
GIVEN = 4
LOW_48 = (1 << 48) - 1
LOW_64 = (1 << 64) - 1

CURSOR_SLOTS = 1024
CURSOR_SLOT_BYTES = 256
CURSOR_SLOT: Layout = {
    "name_bytes": (0, "H"), "used": (2, "H"), "checksum": (4, "I"), "name": (8, "120s"), "cell_a": (128, "64s"),
    "cell_b": (192, "64s"),
}  # fmt: skip
CURSOR_CELL: Layout = {
    "generation": (0, "Q"), "position": (8, "Q"), "saved_ns": (16, "Q"), "lost_products": (24, "Q"),
    "lost_first": (32, "Q"), "lost_last": (40, "Q"), "unused": (48, "Q"), "checksum": (56, "Q"),
}  # fmt: skip
CELL_CHECKED_BYTES = 56

CONTROL_BYTES = 330_560
CONTROL: Layout = {
    # terms
    "magic": (0, "8s"), "version": (8, "I"), "state": (12, "I"), "uuid": (16, "16s"), "boot": (32, "16s"),
    "size_bytes": (48, "Q"), "age_ns": (56, "Q"), "segment_bytes": (64, "Q"), "secret": (72, "16s"),
    "durability": (88, "I"), "signature_kind": (92, "I"), "origin": (96, "I"), "clean": (100, "I"),
    "sync_failed": (104, "I"), "gap0": (108, "I"), "feeds_end": (112, "Q"), "origins_end": (120, "Q"),
    "gap1": (128, "64s"),
    # locks
    "lock": (192, "40s"), "gap2": (232, "24s"), "sync_lock": (256, "40s"), "gap3": (296, "24s"),
    # what readers watch
    "head": (320, "Q"), "wake": (328, "I"), "sleepers": (332, "I"), "gap4": (336, "48s"),
    # what changes with every put
    "tail": (384, "Q"), "data_end": (392, "Q"), "held_products": (400, "Q"), "inserted_products": (408, "Q"),
    "inserted_bytes": (416, "Q"), "duplicates": (424, "Q"), "gap5": (432, "16s"),
    # what changes with every segment
    "oldest": (448, "Q"), "segment_oldest": (456, "Q"), "segment_newest": (464, "Q"), "next_file": (472, "Q"),
    "spare_file": (480, "Q"), "bytes_total": (488, "Q"), "dedup_table": (496, "Q"), "pending_file": (504, "Q"),
    # what changes seldom
    "opened_boot_ns": (512, "Q"), "synced": (520, "Q"), "synced_file": (528, "Q"), "synced_names": (536, "Q"),
    "evicted_products": (544, "Q"), "evicted_bytes": (552, "Q"), "deleted_products": (560, "Q"),
    "unlinked_pinned": (568, "Q"), "recoveries": (576, "Q"), "stations": (584, "Q"), "requests": (592, "Q"),
    "slicings": (600, "Q"), "gap6": (608, "32s"),
    # arrays
    "samples": (640, "2048s"), "attachments": (2688, "65536s"), "directory": (68224, "262144s"),
    # the clock of the site
    "clock_turn": (330368, "Q"), "gap7": (330376, "56s"), "clocks": (330432, "128s"),
}  # fmt: skip
CLOCK_BYTES = 64
CLOCK: Layout = {
    "boot_ns": (0, "Q"), "utc_ns": (8, "Q"), "rate_ppb": (16, "i"), "then_ppb": (20, "i"), "until_boot_ns": (24, "Q"),
    "bound_ns": (32, "Q"), "drift_ppb": (40, "I"), "source": (44, "I"), "offset_ns": (48, "q"), "reserved": (56, "8s"),
}  # fmt: skip
SAMPLE_BYTES = 32
SAMPLE: Layout = {"boot_ns": (0, "Q"), "products": (8, "Q"), "bytes": (16, "Q"), "duplicates": (24, "Q")}
ATTACHMENT_BYTES = 64
ATTACHMENT: Layout = {
    "pid": (0, "Q"), "started": (8, "Q"), "roles": (16, "Q"), "attached_ns": (24, "Q"), "reserved": (32, "32s"),
}  # fmt: skip
ENTRIES = 2048
ENTRY_BYTES = 128
ENTRY: Layout = {
    "number": (0, "Q"), "first": (8, "Q"), "end": (16, "Q"), "file": (24, "Q"), "size": (32, "Q"),
    "gap": (40, "24s"), "payload_bytes": (64, "Q"), "newest_ns": (72, "Q"), "newest_boot_ns": (80, "Q"),
    "deleted_products": (88, "Q"), "deleted_bytes": (96, "Q"), "reserved": (104, "24s"),
}  # fmt: skip


def fields_of(layout: Layout, data: bytes, at: int = 0) -> Fields:
    """Every field of a table, read from `data` at byte `at`."""
    try:
        return {name: struct.unpack_from("<" + code, data, at + offset)[0] for name, (offset, code) in layout.items()}
    except struct.error as error:
        raise Damaged(f"cut short at byte {at}: {error}") from None


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


def low32(number: int) -> int:
    return number & 0xFFFFFFFF


def low16(number: int) -> int:
    return number & 0xFFFF


def round8(size: int) -> int:
    return (size + 7) // 8 * 8


def text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damaged(f"{data!r} is not UTF-8: {error}") from None


def check(condition: bool, what: str) -> None:
    if not condition:
        raise Damaged(what)


def check_version(found: int, where: str, known: int = VERSION) -> None:
    if found != known:
        raise OtherVersion(f"{where} has version {found}, this reader knows {known}")


# --- the record -----------------------------------------------------------------------------------


def read_record(data: bytes, at: int = 0) -> Fields:
    """The product in the record that begins at byte `at` of `data`; `record` holds exactly its bytes."""
    header = fields_of(RECORD_HEADER, data, at)
    check(header["magic"] == b"HR", f"no record at byte {at}")
    if header["version"] != WITH_OPTIONS:
        check_version(header["version"], f"the record at byte {at}", PLAIN)
    expires = bool(header["flags"] & EXPIRES)

    feed_at = at + RECORD_HEADER_BYTES
    origin_at = feed_at + header["feed_bytes"]
    ident_at = origin_at + header["origin_bytes"]
    properties_at = ident_at + header["ident_bytes"]
    expires_at = properties_at + header["properties_bytes"]
    options_at = options_end = expires_at + (8 if expires else 0)
    if header["version"] == WITH_OPTIONS:
        check(options_at + 2 <= len(data), f"the record at byte {at} ends before its options")
        options_at += 2
        options_end = options_at + struct.unpack_from("<H", data, options_at - 2)[0]
    payload_at = at + round8(options_end - at)
    end = payload_at + header["payload_bytes"]
    check(end <= len(data), f"the record at byte {at} ends at {end}, behind the last byte {len(data)}")

    first_four = struct.unpack_from("<I", data, at)[0]
    expected = low32(xxh3(data[at + 8 : end])) ^ first_four
    check(header["checksum"] == expected, f"the record at byte {at} has a wrong checksum")

    delta = header["previous_delta"]
    return {
        "feed": text_of(data[feed_at:origin_at]),
        "origin": text_of(data[origin_at:ident_at]),
        "ident": text_of(data[ident_at:properties_at]),
        "properties": read_properties(data[properties_at:expires_at]),
        "expiry_ns": struct.unpack_from("<Q", data, expires_at)[0] if expires else None,
        "options": read_options(data[options_at:options_end], header["version"]),
        "payload": data[payload_at:end],
        "signature": header["signature"],
        "signature_kind": header["flags"] >> 3 & 7,
        "priority": header["flags"] & 7,
        "created_ns": header["created_ns"],
        "origin_sequence": header["origin_sequence"],
        "previous": header["origin_sequence"] - delta if delta else None,
        "slice": None if header["slice"] == NO_SLICE else header["slice"],
        "record": data[at:end],
    }


def identity_of(product: Fields) -> bytes:
    """The bytes of which a signature of kind 5, 6 or 7 is a hash, up to and including the payload."""
    feed, ident, origin = (product[name].encode() for name in ("feed", "ident", "origin"))
    if ident:
        head = struct.pack("<4H", len(feed), len(ident), 0, 0) + feed + ident
    else:
        head = struct.pack("<4H2Q", len(feed), 0, len(origin), 0, product["origin_sequence"], product["created_ns"])
        head += feed + origin
    return head + product["payload"]


def read_options(block: bytes, version: int) -> dict[int, bytes]:
    """Type -> value, in order."""
    check(bool(block) == (version == WITH_OPTIONS), "a record of version 2 has no options")
    check(len(block) <= OPTIONS_BYTES_MAX, "the options are too long")
    options: dict[int, bytes] = {}
    at = 0
    while at < len(block):
        check(at + 2 <= len(block), "the options are cut short")
        kind, size = block[at], block[at + 1]
        value = block[at + 2 : at + 2 + size]
        check(len(value) == size, "the options are cut short")
        check(kind > max(options, default=0), "the options are out of order")
        if kind in OPTIONS:
            check(size == OPTIONS[kind][1], f"option {OPTIONS[kind][0]} has {size} bytes")
        options[kind] = value
        at += 2 + size
    if 129 in options:
        number, count = struct.unpack_from("<2I", options[129], 16)
        check(number < count, f"fragment {number} of {count}")
    return options


def time_of(clock: Fields, boot_ns: int) -> int:
    """UTC by the words of a clock."""
    passed = max(0, boot_ns - clock["boot_ns"])
    slewed = min(passed, max(0, clock["until_boot_ns"] - clock["boot_ns"]))
    corrections = (slewed * clock["rate_ppb"] / 1e9, (passed - slewed) * clock["then_ppb"] / 1e9)
    return int(clock["utc_ns"]) + passed + sum(map(int, corrections))


def read_properties(block: bytes) -> dict[str, int | float | str | bool]:
    properties = {}
    at = 0
    while at < len(block):
        check(at + 4 <= len(block), "the property block is cut short")
        kind, name_bytes, value_bytes = struct.unpack_from("<BBH", block, at)
        value_at = at + 4 + name_bytes
        end = value_at + value_bytes
        check(end <= len(block), "the property block is cut short")
        name = text_of(block[at + 4 : value_at])
        check(name not in properties, f"property {name!r} occurs twice")
        properties[name] = read_value(kind, block[value_at:end])
        at = end
    check(list(properties) == sorted(properties, key=str.encode), "the properties are out of order")
    return properties


def read_value(kind: int, value: bytes) -> int | float | str | bool:
    if kind == 1 and len(value) == 8:
        return int(struct.unpack("<q", value)[0])
    if kind == 2 and len(value) == 8:
        return float(struct.unpack("<d", value)[0])
    if kind == 3:
        return text_of(value)
    if kind == 4 and len(value) == 1:
        return value != b"\0"
    raise Damaged(f"a property of kind {kind} with {len(value)} bytes")


# --- control, names, cursors ----------------------------------------------------------------------


def read_control(directory: Path) -> Fields:
    """Every word of the control file, its arrays as bytes; it must belong to its queue.json."""
    terms = json.loads((directory / "queue.json").read_text())
    if terms["format"] != CONFIG_FORMAT:
        raise OtherVersion(f"queue.json has format {terms['format']}, this reader knows {CONFIG_FORMAT}")
    data = (directory / "control").read_bytes()
    check(data[:8] == b"HRCONTRL", "this is not a control file")
    check(data[8:12] != bytes(4), "the control file has version 0")
    check_version(struct.unpack_from("<I", data, 8)[0], "the control file", CONTROL_VERSION)
    check(len(data) == CONTROL_BYTES, f"the control file has {len(data)} bytes instead of {CONTROL_BYTES}")
    control = fields_of(CONTROL, data)
    check(control["uuid"] == uuid.UUID(terms["uuid"]).bytes, "the control file belongs to another queue")
    return control


def items_of(array: bytes, layout: Layout, size: int) -> list[Fields]:
    """An array of the control file as a list."""
    return [fields_of(layout, array, at) for at in range(0, len(array), size)]


def read_names(directory: Path) -> dict[int, Fields]:
    """Place -> entry, for every place that is taken; `text` is the name."""
    control = read_control(directory)
    data = (directory / "names").read_bytes()
    names = {}
    for place in [*range(control["origins_end"]), *range(FEEDS_BEGIN, control["feeds_end"])]:
        entry = fields_of(NAME, data, place * NAME_BYTES)
        text = entry["text"][: entry["bytes"]]
        kind = ORIGIN if place < FEEDS_BEGIN else FEED
        check(entry["kind"] == kind and len(text) > 0, f"name {place} is of kind {entry['kind']}")
        check(entry["checksum"] == low32(xxh3(text)) ^ kind, f"name {place} has a wrong checksum")
        names[place] = entry | {"text": text_of(text)}
    return names


def read_cursors(directory: Path) -> dict[str, Fields]:
    """Name -> the cell that counts."""
    data = (directory / "cursors").read_bytes()
    check(len(data) == CURSOR_SLOTS * CURSOR_SLOT_BYTES, f"the cursors file has {len(data)} bytes")
    cursors = {}
    for number in range(CURSOR_SLOTS):
        slot = fields_of(CURSOR_SLOT, data, number * CURSOR_SLOT_BYTES)
        if slot["used"]:
            name = slot["name"][: slot["name_bytes"]]
            check(slot["checksum"] == low32(xxh3(name)), f"the name in slot {number} has a wrong checksum")
            cells = [cell for cell in (slot["cell_a"], slot["cell_b"]) if is_whole_cell(cell)]
            check(bool(cells), f"slot {number} has no whole cell")
            cursors[text_of(name)] = max((fields_of(CURSOR_CELL, c) for c in cells), key=lambda c: c["generation"])
    return cursors


def is_whole_cell(cell: bytes) -> bool:
    fields = fields_of(CURSOR_CELL, cell)
    return bool(fields["generation"] and fields["checksum"] == xxh3(cell[:CELL_CHECKED_BYTES]))


# --- segments -------------------------------------------------------------------------------------


def segment_path(directory: Path, file: int) -> Path:
    return directory / "segments" / f"{file:016x}.segment"


def entry_of(control: Fields, number: int) -> Fields:
    entry = fields_of(ENTRY, control["directory"], number % ENTRIES * ENTRY_BYTES)
    check(entry["number"] == number, f"entry {number} of the directory calls itself {entry['number']}")
    return entry


def read_segment(directory: Path, entry: Fields, owner: bytes) -> bytes:
    """The bytes of a segment file whose header is intact and agrees with its entry."""
    data = segment_path(directory, entry["file"]).read_bytes()
    header = fields_of(SEGMENT_HEADER, data)
    check(header["magic"] == b"HRSEGMNT", "this is not a segment file")
    check_version(header["version"], "the segment file")
    check(header["checksum"] == xxh3(data[:SEGMENT_CHECKED_BYTES]), "the segment header has a wrong checksum")
    check(header["uuid"] == owner, "the segment belongs to another queue")
    check(len(data) == header["size"], f"the segment has {len(data)} bytes instead of {header['size']}")
    for field in ("file", "size", "number", "first"):
        check(header[field] == entry[field], f"header and directory differ in {field}")
    return data


def read_row(segment: bytes, place: int) -> Fields:
    """A row as it is stored; `whole` is whether its check is correct."""
    at = len(segment) - ROW_BYTES * (place + 1)
    row = fields_of(ROW, segment, at)
    return row | {"whole": row["check"] == low16(xxh3(segment[at : at + ROW_CHECKED_BYTES]))}


def read_queue(directory: Path) -> list[Fields]:
    """Every product below `head`, with what its row knows; those that are `hidden` from readers are among them.

    One that a repair has marked damaged comes with its sequence only.
    """
    control = read_control(directory)
    names = read_names(directory)
    products = []
    for number in range(control["segment_oldest"], control["segment_newest"] + 1):
        entry = entry_of(control, number)
        segment = read_segment(directory, entry, control["uuid"])
        end = min(entry["end"] or control["head"], control["head"])
        expected: int | None = SEGMENT_HEADER_BYTES
        for sequence in range(entry["first"], end):
            row = read_row(segment, sequence - entry["first"])
            product = read_product(segment, row, sequence, expected, names)
            products.append(product)
            expected = None if product["damaged"] else row["offset"] * 8 + round8(len(product["record"]))
    return products


def read_product(segment: bytes, row: Fields, sequence: int, expected: int | None, names: dict[int, Fields]) -> Fields:
    """The product of one row; its record must begin at `expected`, if that is known."""
    check(row["sequence"] == low32(sequence), f"the row of {sequence} belongs to another sequence")
    check(row["whole"], f"the row of {sequence} does not fit its check")
    if row["flags"] & ROW_DAMAGED:
        return {"sequence": sequence, "deleted": False, "damaged": True, "revision": False, "hidden": True}
    check(expected in (None, row["offset"] * 8), f"the record of {sequence} is not behind the one before")
    product = read_record(segment, row["offset"] * 8)
    said_twice = {
        "payload_bytes": len(product["payload"]),
        "feed": product["feed"],
        "origin": product["origin"],
        "slice": NO_SLICE if product["slice"] is None else product["slice"],
        "priority": product["priority"],
        "expires": product["expiry_ns"] is not None,
        "signed": product["signature_kind"] != 0,
    }
    by_row = row | {
        "feed": names.get(row["feed"], {}).get("text"),
        "origin": names.get(row["origin"], {}).get("text"),
        "expires": bool(row["flags"] & ROW_EXPIRES),
        "signed": bool(row["flags"] & ROW_SIGNED),
    }
    for field, value in said_twice.items():
        check(by_row[field] == value, f"row and record of {sequence} differ in {field}")
    revision = bool(row["flags"] & ROW_REVISION)
    check(not (revision and by_row["signed"]), f"revision {sequence} has a signature")
    return product | {
        "sequence": sequence,
        "inserted_ns": row["inserted_ns"],
        "deleted": bool(row["flags"] & ROW_DELETED),
        "damaged": False,
        "revision": revision,
        "hidden": bool(row["flags"] & ROW_HIDDEN),
        "continues": bool(row["flags"] & ROW_CONTINUES),
        "unproven": bool(row["flags"] & ROW_UNPROVEN),
    }


# --- the duplicate table --------------------------------------------------------------------------


def table_path(directory: Path, dedup_table: int) -> Path:
    return directory / f"signatures-{dedup_table:016x}"


def scope_of(kind: int, origin: int, unproven: bool) -> int:
    """Among which products a signature is compared: 0 all; otherwise those with the same scope."""
    return origin << 8 | 128 * unproven | kind if kind == GIVEN or unproven else 0


def buckets_of(signature: bytes, secret: bytes, buckets: int, scope: int = 0) -> tuple[int, int, int]:
    """The two buckets in which a signature can lie, and its tag."""
    s0, s1 = struct.unpack("<QQ", signature)
    s0 ^= scope * SPREADER & LOW_64
    k0, k1 = struct.unpack("<QQ", secret)
    product = (s0 ^ k0) * (s1 ^ k1)
    mixed = (product & LOW_64) ^ (product >> 64)
    again = (mixed ^ (mixed >> 32)) * STIRRER & LOW_64
    return mixed * buckets >> 64, again * buckets >> 64, mixed & 0xFFFF


def find_signature(directory: Path, product: Fields) -> int | None:
    """The sequence of the held product with the signature of this one, as the duplicate table leads to it."""
    control = read_control(directory)
    if control["signature_kind"] == 0:
        return None
    buckets = control["dedup_table"] & ((1 << 40) - 1)
    table = table_path(directory, control["dedup_table"]).read_bytes()
    check(len(table) == buckets * BUCKET_BYTES, f"the duplicate table has {len(table)} bytes for {buckets} buckets")
    numbers = {name["text"]: place for place, name in read_names(directory).items() if place < FEEDS_BEGIN}
    kind, unproven = product["signature_kind"], product.get("unproven", False)
    scope = scope_of(kind, numbers[product["origin"]], unproven)
    first, second, tag = buckets_of(product["signature"], control["secret"], buckets, scope)
    for bucket in (first, second):
        for slot in struct.unpack_from(f"<{SLOTS_IN_BUCKET}Q", table, bucket * BUCKET_BYTES):
            sequence = control["tail"] - ((control["tail"] - slot) & LOW_48)
            fits = slot != 0 and slot >> 48 == tag and control["oldest"] <= sequence < control["tail"]
            if fits and has_signature(directory, control, sequence, product["signature"], kind, scope):
                return int(sequence)
    return None


def has_signature(directory: Path, control: Fields, sequence: int, signature: bytes, kind: int, scope: int) -> bool:
    for number in range(control["segment_oldest"], control["segment_newest"] + 1):
        entry = entry_of(control, number)
        if entry["first"] <= sequence < (entry["end"] or control["tail"]):
            segment = read_segment(directory, entry, control["uuid"])
            row = read_row(segment, sequence - entry["first"])
            fits = row["sequence"] == low32(sequence) and row["whole"]
            if not fits or row["flags"] & (ROW_DELETED | ROW_DAMAGED):
                return False
            record = fields_of(RECORD_HEADER, segment, row["offset"] * 8)
            there = record["flags"] >> 3 & 7
            there_scope = scope_of(there, row["origin"], bool(row["flags"] & ROW_UNPROVEN))
            return bool((record["signature"], there, there_scope) == (signature, kind, scope))
    return False
