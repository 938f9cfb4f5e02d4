"""The page, the slow reader and the kernel agree on every offset."""

import contextlib
import errno
import json
import re
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import reader
import share_reader
import signature_reader
import station_reader

from headrace import Queue
from headrace.errors import QueueError
from headrace.kernel import _kernel as kernel
from headrace.log.seams import Disk

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
TABLES = {
    "Record header": reader.RECORD_HEADER,
    "Segment header": reader.SEGMENT_HEADER,
    "The index row": reader.ROW,
    "Name entry": reader.NAME,
    "Cursor slot": reader.CURSOR_SLOT,
    "Cursor cell": reader.CURSOR_CELL,
    "Sample": reader.SAMPLE,
    "Attachment": reader.ATTACHMENT,
    "Directory entry": reader.ENTRY,
    "Clock": reader.CLOCK,
    "Chain header": station_reader.CHAIN_HEADER,
    "Chain cell": station_reader.CHAIN_CELL,
    "Member": station_reader.MEMBER,
    "Consumer": station_reader.CONSUMER,
    "Slot": station_reader.SLOT,
    "Suppliers header": station_reader.SUPPLIERS_HEADER,
    "Supplier": station_reader.SUPPLIER,
    "Slices counters": station_reader.SLICES,
    "Dictionaries": station_reader.DICTIONARY,
    "Signature of the origin": signature_reader.PATH,
    "Share header": share_reader.HEADER,
    "Seat": share_reader.SEAT,
    "Session": share_reader.SESSION,
    "Parked product": share_reader.PARKED,
    "Load sample": share_reader.SAMPLE,
}
WHOLE = {  # tables without a gap, and what they fill
    "Record header": reader.RECORD_HEADER_BYTES,
    "The index row": reader.ROW_BYTES,
    "Name entry": reader.NAME_BYTES,
    "Cursor slot": reader.CURSOR_SLOT_BYTES,
    "Cursor cell": 64,
    "Sample": reader.SAMPLE_BYTES,
    "Attachment": reader.ATTACHMENT_BYTES,
    "Directory entry": reader.ENTRY_BYTES,
    "Clock": reader.CLOCK_BYTES,
    "Control": reader.CONTROL_BYTES,
    "Chain header": station_reader.CHAIN_HEADER_BYTES,
    "Chain cell": station_reader.CHAIN_CELL_BYTES,
    "Member": station_reader.MEMBER_BYTES,
    "Consumer": station_reader.CONSUMER_BYTES,
    "Slot": station_reader.SLOT_BYTES,
    "Suppliers header": station_reader.SUPPLIER_BYTES,
    "Supplier": station_reader.SUPPLIER_BYTES,
    "Slices counters": station_reader.SLICES_BYTES,
    "Dictionaries": station_reader.DICTIONARY_BYTES,
    "Signature of the origin": signature_reader.PATH_BYTES,
    "Share header": share_reader.HEADER_BYTES,
    "Seat": share_reader.SEAT_BYTES,
    "Session": share_reader.SESSION_BYTES,
    "Parked product": share_reader.PARKED_BYTES,
    "Load sample": share_reader.SAMPLE_BYTES,
}
DOCUMENTS = {  # tables of JSON
    "stations.json": station_reader.STATIONS,
    "Station terms": station_reader.STATION,
    "Retired selection": station_reader.RETIRED,
    "channels.json": station_reader.CHANNELS,
    "Channel definition": station_reader.CHANNEL,
    "Slicing": station_reader.SLICING,
    "Compression": station_reader.COMPRESSION,
    "Quality of service": station_reader.QOS,
    "shares.json": share_reader.SHARES,
    "Group terms": share_reader.GROUP,
}


def tables_of_the_page() -> dict[str, dict[str, tuple[int, int]]]:
    """Heading -> field -> (offset, bytes), for every table that has offsets; the parts of the control file as one."""
    tables: dict[str, dict[str, tuple[int, int]]] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").split(":")[0]
        row = re.match(r"\| (\d+) \| (\d+) \| (\w+) \|", line)
        if row:
            tables.setdefault(heading, {})[row[3]] = (int(row[1]), int(row[2]))
    return tables


def documents_of_the_page() -> dict[str, station_reader.Members]:
    """Heading -> member -> (types, default), for every table of JSON with defaults."""
    tables: dict[str, station_reader.Members] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        row = re.match(r"\| (\w+) \| ([\w ]+) \| (none|`[^`]+`) \|", line)
        if row and row[2] in station_reader.TYPES:
            default = station_reader.NONE if row[3] == "none" else json.loads(row[3].strip("`"))
            tables.setdefault(heading, {})[row[1]] = (station_reader.TYPES[row[2]], default)
    return tables


def sizes(layout: reader.Layout) -> dict[str, tuple[int, int]]:
    return {field: (offset, struct.calcsize("<" + code)) for field, (offset, code) in layout.items()}


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_of_the_page_is_the_one_of_the_reader(heading: str) -> None:
    assert tables_of_the_page()[heading] == sizes(TABLES[heading])


def test_the_control_tables_of_the_page_are_those_of_the_reader() -> None:
    assert tables_of_the_page()["Control"] == sizes(reader.CONTROL)


def test_the_reader_knows_every_table_with_offsets() -> None:
    assert set(tables_of_the_page()) == {*TABLES, "Control"}


@pytest.mark.parametrize("heading", DOCUMENTS)
def test_a_table_of_json_is_the_one_of_the_reader(heading: str) -> None:
    assert documents_of_the_page()[heading] == DOCUMENTS[heading]
    assert set(documents_of_the_page()) == set(DOCUMENTS)


@pytest.mark.parametrize("heading", tables_of_the_page())
def test_the_fields_of_a_table_follow_each_other_without_a_gap(heading: str) -> None:
    end = 0
    for field, (offset, size) in tables_of_the_page()[heading].items():
        assert offset == end, field
        end = offset + size
    assert end == WHOLE.get(heading, end)


@pytest.mark.parametrize(
    "number",
    [
        f"{reader.CONTROL_BYTES:,} bytes",
        f"{reader.CURSOR_SLOTS * reader.CURSOR_SLOT_BYTES:,} bytes",
        f"`{reader.NAME_BYTES} * n`",
        f"{reader.FEEDS_BEGIN} …",
        f"steps of {reader.NAMES_STEP} entries",
        f"{reader.CURSOR_SLOTS} slots of {reader.CURSOR_SLOT_BYTES} bytes",
        f"bucket, {reader.BUCKET_BYTES} bytes",
        f"0x{reader.STIRRER:X}",
        f"{reader.ENTRIES} entries of {reader.ENTRY_BYTES} bytes",
        f"`n mod {reader.ENTRIES}`",
        f"64 samples of {reader.SAMPLE_BYTES} bytes",
        f"1024 places of {reader.ATTACHMENT_BYTES} bytes",
        f"2 clocks of {reader.CLOCK_BYTES} bytes",
        f"it is 1 … {reader.OPTIONS_BYTES_MAX}",
        *(f"| {kind} | {name} | {size} |" for kind, (name, size) in reader.OPTIONS.items()),
        f"`size - {reader.ROW_BYTES} * (p + 1)`",
        f"begin at byte {reader.SEGMENT_HEADER_BYTES}",
        f"XXH3 of bytes 0-{reader.SEGMENT_CHECKED_BYTES - 1}",
        f"XXH3 of bytes 0-{reader.CELL_CHECKED_BYTES - 1}",
        f"low 16 of XXH3 of bytes 0-{reader.ROW_CHECKED_BYTES - 1}",
        f"{reader.NO_SLICE} none",
        "bits 0, 1 and 5",
        f"{station_reader.SLOTS_AT:,} bytes and {station_reader.SLOT_BYTES} a slot",
        f"`{station_reader.MEMBERS_AT} + {station_reader.MEMBER_BYTES} * m`",
        f"`{station_reader.CONSUMERS_AT} + {station_reader.CONSUMER_BYTES} * c`",
        f"`{station_reader.SLOTS_AT} + {station_reader.SLOT_BYTES} * s`",
        f"{station_reader.MEMBERS} members",
        f"{station_reader.CONSUMERS} consumers",
        f"{station_reader.SLOTS_STEP} at a time, up to {station_reader.SLOTS_MAX:,}",
        f"0x{station_reader.NOWHERE:X}",
        f"XXH3 of bytes 0-{station_reader.CHAIN_CELL_CHECKED_BYTES - 1}",
        "2⁴⁰ + place",
        f"{station_reader.SUPPLIER_SLOTS} slots of {station_reader.SUPPLIER_BYTES} bytes",
        f"{station_reader.SUPPLIER_SLOTS * station_reader.SUPPLIER_BYTES:,} bytes",
        f"byte `{station_reader.SUPPLIER_BYTES} * p`",
        f"| [header](#share-header) | 1 | {share_reader.HEADER_BYTES} |",
        f"| [seats](#seat) | {share_reader.SEATS} | {share_reader.SEAT_BYTES} |",
        f"| [sessions](#session) | {share_reader.SESSIONS} | {share_reader.SESSION_BYTES} |",
        f"| [parked products](#parked-product) | {share_reader.PARKED_PLACES} | {share_reader.PARKED_BYTES} |",
        f"| [samples](#load-sample) | {share_reader.SAMPLES} | {share_reader.SAMPLE_BYTES} |",
        f"{share_reader.NOBODY} none; {share_reader.ELSEWHERE} the group",
        *(f"| {name} | n | {struct.calcsize(code)} |" for name, code in share_reader.COLUMNS.items()),
        ", ".join(f"{number} {reason}" for number, reason in enumerate(share_reader.REASONS)),
        ", ".join(f"{number} {outcome}" for number, outcome in enumerate(share_reader.OUTCOMES)),
    ],
)
def test_the_page_has_every_number_of_the_reader(number: str) -> None:
    assert number in PAGE.read_text()


def test_the_page_names_every_kind_of_signature() -> None:
    kinds = dict(re.findall(r"\| (\d) \| (none|given|(?:payload|identity) \w+) \|", PAGE.read_text()))
    assert {int(kind): name for kind, name in kinds.items()} == reader.SIGNATURE_KINDS


def test_the_page_names_every_state_of_a_slot() -> None:
    states = dict(re.findall(r"^\| (\d) \| (free|waiting|leased|parked) \|", PAGE.read_text(), re.M))
    assert {int(state): name for state, name in states.items()} == station_reader.STATES


@pytest.mark.parametrize(
    ("field", "numbers"),
    [
        ("order", station_reader.ORDERS),
        ("discard", station_reader.DISCARDS),
        ("restore", station_reader.RESTORES),
        ("distribution", station_reader.DISTRIBUTIONS),
    ],
)
def test_the_page_gives_every_policy_of_a_station_its_number(field: str, numbers: dict[str, int]) -> None:
    assert f"| {field} | {', '.join(f'{number} {policy}' for policy, number in numbers.items())} |" in PAGE.read_text()
    terms = PAGE.read_text().split("### Station terms\n")[1].splitlines()
    (said,) = [line for line in terms if line.startswith(f"| {field} | string |") and "left open" not in line]
    assert re.findall(r"`(\w+)`", said.split("|")[4]) == list(numbers)


def test_every_shared_word_is_where_the_page_says(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(size="1MiB", age="1h", dedup="payload", hash="md5")
    for number in range(60):
        queue.put(b"%d" % number * 10_000, feed="wx/a")
    queue.put(b"59" * 10_000, feed="wx/b")  # a duplicate
    queue.put(b"another", feed="wx/b")
    queue.delete("wx/b")
    queue.flush()
    control, state = reader.read_control(queue.path), queue._log.kernel.state
    assert {word: value for word, value in state.items() if word in control} == {
        word: control[word] for word in state if word in control
    }
    assert set(state) - set(control) == {"dedup_bytes"}
    assert min(control[word] for word in ("duplicates", "evicted_products", "deleted_products", "synced_names")) > 0
    assert control["held_products"] == control["tail"] - control["oldest"]
    assert (control["synced"], control["sync_failed"]) == (control["tail"], 0)
    assert control["magic"] == b"HRCONTRL"
    assert len((queue.path / "control").read_bytes()) == kernel.CONTROL_BYTES == reader.CONTROL_BYTES
    assert queue.check() == []


def test_the_locks_are_where_the_page_says(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    holders = []
    for context in (contextlib.nullcontext(), queue._log.kernel.held(), queue._log.kernel.held_for_sync()):
        with context:
            control = reader.read_control(queue.path)
            holders.append([owner_of(control["lock"]), owner_of(control["sync_lock"])])
    me = threading.get_native_id()
    assert holders == [[0, 0], [me, 0], [0, me]]
    for word in ("lock", "sync_lock", "head", "tail"):
        assert reader.CONTROL[word][0] % 64 == 0


def owner_of(lock: bytes) -> int:
    """Thread that holds a mutex of glibc."""
    return int(struct.unpack_from("<i", lock, 8)[0])


def test_the_words_that_readers_watch_are_where_the_page_says(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    before = reader.read_control(queue.path)
    queue._log.kernel.wait_once(queue.next, 0.001)
    asleep = reader.read_control(queue.path)
    queue.put(b"x", feed="wx/a")
    after = reader.read_control(queue.path)
    assert [c["sleepers"] for c in (before, asleep, after)] == [0, 1, 0]
    assert [c["wake"] - before["wake"] for c in (before, asleep, after)] == [0, 0, 1]
    assert [c["head"] for c in (before, asleep, after)] == [1, 1, 2]
    assert before["opened_boot_ns"] == 0
    assert 0 < after["opened_boot_ns"] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_a_failed_flush_is_recorded_where_the_page_says(make_queue: Callable[..., Queue]) -> None:
    class Refusing(Disk):
        def sync_file(self, path: Path) -> None:
            if path.suffix == ".segment":
                raise OSError(errno.EIO, "refused")
            super().sync_file(path)

    queue = make_queue(durability="disk", storage=Refusing())
    with pytest.raises(QueueError):
        queue.put(b"x", feed="wx/a")
    control = reader.read_control(queue.path)
    assert (control["sync_failed"], control["head"], control["tail"]) == (1, 1, 2)
    assert reader.read_queue(queue.path) == []
    with pytest.raises(QueueError, match="an earlier flush failed"):
        queue.close()
    with Queue.open(queue.path) as again:
        assert reader.read_control(queue.path)["sync_failed"] == 0
        assert [bytes(product.payload) for product in again.read_batch("oldest")] == [b"x"]


def test_every_array_of_the_control_file_is_where_the_page_says(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(size="1MiB")
    for number in range(50):
        queue.put(bytes([number]) * 30_000, feed="wx/a")
    control, log = reader.read_control(queue.path), queue._log.kernel
    for number in range(control["segment_oldest"], control["segment_newest"] + 1):
        entry = reader.entry_of(control, number)
        assert entry == log.entry(number) | {"gap": bytes(24), "reserved": bytes(24)}
    samples = reader.items_of(control["samples"], reader.SAMPLE, reader.SAMPLE_BYTES)
    assert [tuple(sample.values()) for sample in samples if sample["boot_ns"]] == log.samples() != []
    assert all(sample["boot_ns"] // 10**9 % 64 in (0, place) for place, sample in enumerate(samples))
    assert max(sample["boot_ns"] for sample in samples) <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    attachments = reader.items_of(control["attachments"], reader.ATTACHMENT, reader.ATTACHMENT_BYTES)
    taken = [
        (place, one["pid"], one["started"], one["roles"], one["attached_ns"])
        for place, one in enumerate(attachments)
        if one["pid"]
    ]
    assert taken == log.attachments() != []
    assert queue.check() == []


def test_a_segment_header_is_where_the_page_says(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    queue.put(b"x", feed="wx/a")
    data = reader.segment_path(queue.path, 1).read_bytes()
    fields = kernel.read_segment_header(data)
    slow = reader.fields_of(reader.SEGMENT_HEADER, data)
    assert fields is not None
    assert fields == {word: slow[word] for word in fields if word != "sound"} | {"sound": True}
    with_a_pin = queue.read_batch("oldest")
    assert reader.fields_of(reader.SEGMENT_HEADER, reader.segment_path(queue.path, 1).read_bytes())["pins"] == 1
    del with_a_pin
    assert reader.fields_of(reader.SEGMENT_HEADER, reader.segment_path(queue.path, 1).read_bytes())["pins"] == 0
    assert queue.check() == []


def test_the_directory_of_a_queue_holds_the_files_of_the_page_and_no_others(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    queue.put(b"x", feed="wx/a")
    control = reader.read_control(queue.path)
    expected = {"queue.json", "control", "names", "cursors", "segments", "segments/0000000000000001.segment"}
    expected.add(reader.table_path(queue.path, control["dedup_table"]).name)
    assert {str(file.relative_to(queue.path)) for file in queue.path.rglob("*")} == expected
    assert (queue.path / "names").stat().st_size % (reader.NAMES_STEP * reader.NAME_BYTES) == 0
    queue.channel("radar", "wx/radar").station("a", "**")
    with queue.channel("radar").supplier():
        expected |= {"stations.json", "stations", "stations/1.chain"}
        expected |= {"channels.json", "channels", "channels/lock", "channels/1.suppliers"}
        assert {str(file.relative_to(queue.path)) for file in queue.path.rglob("*")} == expected
    queue.channel("text", "wx/text", slices=8)
    queue.put(b"x", feed="wx/text")
    expected |= {"channels/2.slices"}
    assert {str(file.relative_to(queue.path)) for file in queue.path.rglob("*")} == expected
    queue.share("text")
    expected |= {"shares.json", "shares", "shares/lock", "shares/wake", "shares/1.share"}
    assert {str(file.relative_to(queue.path)) for file in queue.path.rglob("*")} == expected
    assert queue.check() == []
