"""Stations in the files of a queue: their terms, revisions, and what is trusted when the queue is opened again."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import reader
import station_reader
from side_by_side import assert_same
from spoiler import Spoiler, write_word
from station_reader import NONE, begin_again, chain_path, read_chain, read_stations

from headrace import Queue
from headrace.errors import QueueDamagedError, QueueVersionError
from headrace.station.document import StationDocument
from headrace.station.terms import Retired, StationTerms

MakeQueue = Callable[..., Queue]


def defaults_of(struct_type: type[msgspec.Struct]) -> dict[str, Any]:
    """Member -> default, as JSON has them; NONE if it must be there."""
    fields = msgspec.structs.fields(struct_type)
    found = {f.name: NONE if f.required else msgspec.to_builtins(default_of(f)) for f in fields}
    return found | ({"format": NONE} if "format" in found else {})  # which is looked at first


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()  # type: ignore[operator]


# --- stations.json --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "struct_type"),
    [
        (station_reader.STATIONS, StationDocument),
        (station_reader.STATION, StationTerms),
        (station_reader.RETIRED, Retired),
    ],
)
def test_the_structs_have_the_members_of_the_page(members: station_reader.Members, struct_type: type) -> None:
    assert {name: default for name, (_, default) in members.items()} == {
        name: list(default) if isinstance(default, tuple) else default
        for name, default in defaults_of(struct_type).items()
    }


def test_every_term_of_a_station_is_in_stations_json(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("plain", "wx/**")
    queue.station(
        "all said", "wx/**", blocking=True, capacity=50, prescale=3, order="fifo", deliveries_max=2, hung_after="5s",
        timeout="1m", start_time=1, stop_time=2**60, batch_max=10, pacing="0.5s", consumers_max=3, max_queue=99,
        restore="start",
    )  # fmt: skip
    queue.station("behind", "wx/b/**", after="all said", durable=False)
    queue.station("beside", "wx/**", group="g", distribution="least_loaded").pause()
    document = read_stations(queue.path)
    assert document["next_chain"] == 4
    for name, terms in document["stations"].items():
        assert terms == msgspec.to_builtins(queue.station(name).terms) | {"retired": []}
    said, plain = document["stations"]["all said"], document["stations"]["plain"]
    given = {"name", "chain", "member", "stage", "selection"}
    assert {name for name, (_, default) in station_reader.STATION.items() if plain[name] != default} <= given
    assert (said["capacity"], said["pacing_s"], said["stop_ns"], said["hung_after_s"]) == (50, 0.5, 2**60, 5.0)
    assert (document["stations"]["behind"]["chain"], document["stations"]["behind"]["member"]) == (said["chain"], 1)
    assert list(json.loads((queue.path / "stations.json").read_text())["stations"][0]) == list(station_reader.STATION)


def test_the_number_of_a_chain_is_never_reused(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**").remove()
    queue.station("b", "wx/**")
    document = read_stations(queue.path)
    assert (document["stations"]["b"]["chain"], document["next_chain"]) == (2, 3)
    assert [file.name for file in (queue.path / "stations").iterdir()] == ["2.chain"]


def test_a_selection_that_was_changed_is_kept_for_the_products_before(make_queue: MakeQueue) -> None:
    queue = make_queue()
    station = queue.station("a", "wx/**")
    queue.put(b"x", feed="wx/a")
    before = station.terms.selection
    station.change(selection="de/**")
    terms = read_stations(queue.path)["stations"]["a"]
    assert terms["retired"] == [{"until": 2, "selection": before, "local": False}]
    assert terms["selection"] == station.terms.selection != before


def test_the_control_file_counts_every_change_of_the_stations(make_queue: MakeQueue) -> None:
    queue = make_queue()

    def told() -> int:
        return int(reader.read_control(queue.path)["stations"])

    assert told() == 0
    station = queue.station("a", "wx/**")
    assert told() == 1
    station.change(capacity=5)
    station.pause()
    assert told() == 3
    with station.attach():
        assert told() == 3
    queue.close()
    with Queue.open(queue.path):
        assert told() == 4


def test_a_member_missing_from_stations_json_has_its_default(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**", capacity=3)
    queue.close()
    file = queue.path / "stations.json"
    file.write_text('{"format": 2, "next_chain": 2, "stations": [{"name": "a", "chain": 1, "stage": 1024}]}')
    expected = read_stations(queue.path)["stations"]["a"]
    with Queue.open(queue.path) as again:
        assert msgspec.to_builtins(again.station("a").terms) | {"retired": []} == expected
        assert read_chain(queue.path, 1)["members"][0]["capacity"] == 0


@pytest.mark.parametrize(
    "spoil", [lambda d: d | {"more": 1}, lambda d: d | {"stations": [{}]}, lambda d: [d], lambda d: {}]
)
def test_a_document_that_differs_from_the_page_is_refused(make_queue: MakeQueue, spoil: Callable[[Any], Any]) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    file = queue.path / "stations.json"
    text = file.read_text()
    file.write_text(json.dumps(spoil(json.loads(text))))
    with pytest.raises(reader.Damaged):
        read_stations(queue.path)
    with Queue.open(queue.path) as again, pytest.raises(QueueDamagedError, match=r"stations\.json is invalid"):
        again.stations()
    file.write_text(text)


def test_a_stations_json_of_a_newer_version_is_refused(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    file = queue.path / "stations.json"
    text = file.read_text()
    file.write_text(json.dumps(json.loads(text) | {"format": 3, "something": "new"}))
    with pytest.raises(reader.OtherVersion):
        read_stations(queue.path)
    with Queue.open(queue.path) as again:
        for ask in (again.stations, lambda: again.put(b"x", feed="wx/a")):
            with pytest.raises(QueueVersionError, match=r"stations\.json has format 3.*upgrade"):
                ask()
        file.write_text(text)


def test_a_queue_of_version_1_opens_with_its_stations_at_their_positions(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**", capacity=9, start="oldest")
    for number in range(5):
        queue.put(str(number).encode(), feed="wx/a")
    with queue.station("a").attach() as consumer:
        consumer.ack(consumer.get(2))
    queue.close()
    file, chain = queue.path / "stations.json", queue.path / "stations" / "1.chain"
    document = json.loads(file.read_text())
    (terms,) = document.pop("stations")
    terms = {key: value for key, value in terms.items() if key not in ("chain", "capacity")}
    terms |= {"line": 1, "cue": 9, "distribution": "equal_cue"}
    old = {**document, "format": 1, "next_line": document.pop("next_chain"), "stations": [terms]}
    old.pop("next_chain")
    file.write_text(json.dumps(old))
    chain.write_bytes(b"HRLINE\0\0" + chain.read_bytes()[8:])
    chain.rename(chain.with_suffix(".line"))
    with Queue.open(queue.path) as again:
        station = again.station("a")
        assert (station.terms.chain, station.terms.capacity, station.terms.distribution) == (1, 9, "least_loaded")
        with station.attach() as consumer:
            assert [bytes(product.payload) for product in consumer.get(9)] == [b"2", b"3", b"4"]
    assert read_stations(queue.path)["next_chain"] == 2


def test_a_chain_of_version_1_gets_the_places_of_more_consumers(make_queue: MakeQueue) -> None:
    """Version 1 had 256 of them, and was otherwise the same: what waits, and where the chain is, stay."""
    queue = make_queue()
    queue.station("a", "wx/**", start="oldest")
    for number in range(5):
        queue.put(str(number).encode(), feed="wx/a")
    with queue.station("a").attach() as consumer:
        consumer.ack(consumer.get(2))
    queue.close()
    chain = queue.path / "stations" / "1.chain"
    data = chain.read_bytes()
    narrow = (
        data[:8] + struct.pack("<I", 1) + data[12:312] + bytes(4) + data[316:66_560] + data[station_reader.SLOTS_AT :]
    )
    chain.write_bytes(narrow)
    with Queue.open(queue.path) as again, again.station("a").attach() as consumer:
        assert [bytes(product.payload) for product in consumer.get(9)] == [b"2", b"3", b"4"]
        assert read_chain(queue.path, 1)["consumers_end"] == 1
    assert len(chain.read_bytes()) == len(data)


# --- revisions ------------------------------------------------------------------------------------


def test_a_revision_is_a_hidden_row_with_the_facts_of_its_product(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="payload", hash="md5")
    queue.station("a", "wx/**")
    queue.station("b", "wx/**", after="a")
    queue.put(b"before", feed="wx/a")
    queue.put(
        b"original", feed="wx/a", ident="SAUS70", priority=6, slice=9, expiry="1h", properties={"n": 1, "unit": "hPa"}
    )
    queue.put(b"foreign", feed="wx/b", origin="there", origin_sequence=1 << 40, previous=(1 << 40) - 5)
    with queue.station("a").attach() as consumer:
        batch = consumer.get(3, 1)
        payloads = {1: None, 2: b"revised", 3: b"another"}
        consumer.ack(batch, payloads=[payloads[int(sequence)] for sequence in batch.sequences])
    products = {product["sequence"]: product for product in assert_same(queue)}
    slots = {slot["sequence"]: slot for slot in read_chain(queue.path, 1)["slots"] if slot["state"] == "waiting"}
    assert [p["revision"] for p in products.values()] == [p["hidden"] for p in products.values()] == [
        False, False, False, True, True,
    ]  # fmt: skip
    assert (slots[1]["revision"], slots[1]["revisions"]) == (0, 0)
    own = {
        "sequence",
        "inserted_ns",
        "payload",
        "record",
        "signature",
        "signature_kind",
        "revision",
        "hidden",
        "continues",
    }
    for sequence in (2, 3):
        original, revision = products[sequence], products[slots[sequence]["revision"]]
        assert {word: value for word, value in revision.items() if word not in own} == {
            word: value for word, value in original.items() if word not in own
        }
        assert (revision["signature"], revision["signature_kind"]) == (bytes(16), 0)
        assert revision["payload"] == payloads[sequence]
        assert slots[sequence]["revisions"] == 1
    control = reader.read_control(queue.path)
    assert (control["inserted_products"], control["held_products"]) == (3, 5)
    names = {name["text"]: name for name in reader.read_names(queue.path).values() if name["kind"] == reader.FEED}
    assert (names["wx/a"]["products"], names["wx/a"]["last"]) == (2, 2)
    with queue.station("b").attach() as consumer:
        batch = consumer.get(3, 1)
        assert {int(s): bytes(p.payload) for s, p in zip(batch.sequences, batch, strict=True)} == {
            1: b"before", 2: b"revised", 3: b"another",
        }  # fmt: skip


def test_nothing_is_a_duplicate_of_a_revision_and_no_station_admits_it(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="payload", hash="md5")
    queue.station("a", "wx/**")
    queue.station("other", "wx/**")
    queue.put(b"original", feed="wx/a")
    with queue.station("a").attach() as consumer:
        consumer.ack(consumer.get(1, 1), payloads=[b"revised"])
    assert queue.put(b"revised", feed="wx/a") == 3
    assert [p["revision"] for p in assert_same(queue)] == [False, True, False]
    for name in ("a", "other"):
        queue.station(name).statistics()
    assert [chain["position"] for chain in (read_chain(queue.path, 1), read_chain(queue.path, 2))] == [4, 4]
    assert [chain["in_hand"] for chain in (read_chain(queue.path, 1), read_chain(queue.path, 2))] == [1, 2]


# --- what is trusted ------------------------------------------------------------------------------


@pytest.fixture
def used(make_queue: MakeQueue) -> Path:
    """A closed queue with ten products: three are done, two parked, five wait."""
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**", deliveries_max=2)
    queue.put_many([b"%d" % number for number in range(10)], feed="wx/a")
    with station.attach() as consumer:
        consumer.ack(consumer.get(3, 1))
        for _ in range(2):
            consumer.nack(consumer.get(2, 1), failed=True)
        assert len(consumer.get(5, 1)) == 5
    queue.close()
    return queue.path


def waiting(directory: Path) -> list[int]:
    slots = read_chain(directory, 1)["slots"]
    return sorted(slot["sequence"] for slot in slots if slot["state"] == "waiting")


def test_all_marks_are_trusted_until_the_machine_restarts(used: Path) -> None:
    before = read_chain(used, 1)["slots"]
    assert sorted(slot["state"] for slot in before if slot["mark"]) == ["parked"] * 2 + ["waiting"] * 5
    with Queue.open(used):
        assert [slot["mark"] for slot in read_chain(used, 1)["slots"]] == [slot["mark"] for slot in before]
        assert waiting(used) == [6, 7, 8, 9, 10]


def test_only_the_newest_intact_cell_is_trusted_after_a_restart_of_the_machine(used: Path) -> None:
    assert begin_again(used, 1) == read_chain(used, 1)["low"] == 6
    write_word(used, "boot", bytes(16))
    with Queue.open(used) as again:
        chain = read_chain(used, 1)
        assert (chain["position"], chain["low"], chain["in_hand"], chain["consumers"]) == (6, 6, 0, {})
        assert {slot["state"] for slot in chain["slots"]} == {"free"}
        again.station("a").statistics()
        assert waiting(used) == [6, 7, 8, 9, 10]


def test_a_chain_with_a_damaged_cell_uses_the_other_one(used: Path) -> None:
    for sequence in (7, 8):  # two more saves
        with Queue.open(used) as again, again.station("a").attach() as consumer:
            consumer.ack(consumer.get(1, 1))
            again.put(b"x", feed="de/a")
        assert begin_again(used, 1) == sequence
    at, size = station_reader.CHAIN_HEADER["cells"][0], station_reader.CHAIN_CELL_BYTES
    cells = [struct.unpack_from("<QQ", chain_path(used, 1).read_bytes(), at + place * size) for place in (0, 1)]
    assert [generation % 2 for generation, _ in cells] == [0, 1]
    assert sorted(low for _, low in cells) == [7, 8]
    newest = max((0, 1), key=lambda place: cells[place][0])
    with Spoiler(chain_path(used, 1)) as spoiler:
        for byte in range(size):
            spoiler.flip(at + newest * size + byte, 0x10)
            assert begin_again(used, 1) == 7
            spoiler.flip(at + newest * size + byte, 0x10)
        spoiler.flip(at + newest * size + 8, 1)
    write_word(used, "boot", bytes(16))
    with Queue.open(used) as again:
        assert read_chain(used, 1)["position"] == 7
        again.station("a").statistics()
        assert waiting(used) == [7, 8, 9, 10]


def test_without_an_intact_cell_a_chain_starts_at_the_oldest_product(used: Path) -> None:
    at, size = station_reader.CHAIN_HEADER["cells"][0], station_reader.CHAIN_CELL_BYTES
    with Spoiler(chain_path(used, 1)) as spoiler:
        spoiler.write(at, bytes(2 * size))
    assert begin_again(used, 1) == 0
    write_word(used, "boot", bytes(16))
    with Queue.open(used) as again:
        assert read_chain(used, 1)["position"] == 0
        again.station("a").statistics()
        assert waiting(used) == list(range(1, 11))


@pytest.mark.parametrize("word", ["magic", "number", "uuid"])
def test_a_file_that_is_not_a_chain_is_created_again(used: Path, word: str) -> None:
    with Spoiler(chain_path(used, 1)) as spoiler:
        spoiler.flip(station_reader.CHAIN_HEADER[word][0], 2)
    if word != "number":
        with pytest.raises((reader.Damaged, reader.OtherVersion)):
            read_chain(used, 1)
    with Queue.open(used) as again:
        assert (read_chain(used, 1)["position"], read_chain(used, 1)["in_hand"]) == (1, 0)
        again.station("a").statistics()
        assert waiting(used) == list(range(1, 11))


def test_chain_files_without_a_station_and_stations_that_are_not_durable_are_removed(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    queue.station("passing", "wx/**", durable=False)
    queue.close()
    chain_path(queue.path, 7).write_bytes(b"left over")
    with Queue.open(queue.path) as again:
        assert again.stations() == ["a"]
        assert [file.name for file in (queue.path / "stations").iterdir()] == ["1.chain"]
        assert set(read_stations(queue.path)["stations"]) == {"a"}
