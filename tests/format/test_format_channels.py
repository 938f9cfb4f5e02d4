"""Channels in the files of a queue: their terms, and the places of their suppliers."""

import json
import os
import time
from collections.abc import Callable

import msgspec
import pytest
import reader
import station_reader
from dying import at_work, end
from station_reader import NONE, is_locked, read_channels, read_suppliers, suppliers_path

from headrace import Queue
from headrace.channel.compression import Compression
from headrace.channel.document import ChannelDocument, Definition
from headrace.channel.qos import QoS
from headrace.channel.slicing import Slicing
from headrace.errors import QueueVersionError, RejectedError

MakeQueue = Callable[..., Queue]


@pytest.mark.parametrize(
    ("members", "struct_type"),
    [
        (station_reader.CHANNELS, ChannelDocument),
        (station_reader.CHANNEL, Definition),
        (station_reader.QOS, QoS),
        (station_reader.SLICING, Slicing),
        (station_reader.COMPRESSION, Compression),
    ],
)
def test_the_structs_have_the_members_of_the_page(members: station_reader.Members, struct_type: type) -> None:
    defaults = {
        field.name: NONE
        if field.required
        else (field.default if field.default is not msgspec.NODEFAULT else field.default_factory())  # type: ignore[operator,misc]
        for field in msgspec.structs.fields(struct_type)
    }
    assert {name: default for name, (_, default) in members.items()} == defaults


def test_every_term_of_a_channel_is_in_channels_json(make_queue: MakeQueue) -> None:
    queue, before_ns = make_queue(), time.time_ns()
    queue.channel("plain", "**")
    radar = queue.channel(
        "radar", "wx/radar", order="fifo", discard="fifo", max_per_consumer=100, timeout="10s", batch_max=20,
        pacing="0.5s", suppliers_max=5, consumers_max=6, max_queue=200,
    )  # fmt: skip
    radar.station("decode", batch_max=10)
    document = read_channels(queue.path)
    assert document["next_number"] == 3
    channel, plain = document["channels"]["radar"], document["channels"]["plain"]
    assert (plain["feed"], plain["number"], channel["feed"], channel["number"]) == ("**", 1, "wx/radar/**", 2)
    assert plain["qos"] == {name: default for name, (_, default) in station_reader.QOS.items()}
    assert channel["qos"] == msgspec.to_builtins(radar.qos)
    assert channel["stations"] == {"decode": {"batch_max": 10}}
    assert before_ns <= channel["created_ns"] <= time.time_ns()
    terms = station_reader.read_stations(queue.path)["stations"]["decode"]
    assert (terms["channel"], terms["capacity"], terms["batch_max"], terms["order"]) == ("radar", 100, 10, "fifo")
    assert (terms["timeout_s"], terms["pacing_s"], terms["max_queue"], terms["consumers_max"]) == (10.0, 0.5, 200, 6)


def test_reliability_and_connections_make_stations_blocking_and_durable(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.channel("a", "wx/a", reliability="persistent").station("blocking", "**")
    queue.channel("b", "wx/b", connections="best_effort").station("passing", "**")
    stations = station_reader.read_stations(queue.path)["stations"]
    assert (stations["blocking"]["blocking"], stations["blocking"]["durable"]) == (True, True)
    assert (stations["passing"]["blocking"], stations["passing"]["durable"]) == (False, False)


def test_a_channels_json_of_a_newer_version_is_refused(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.channel("radar", "wx/radar")
    file = queue.path / "channels.json"
    text = file.read_text()
    file.write_text(json.dumps(json.loads(text) | {"format": 4, "something": "new"}))
    with pytest.raises(reader.OtherVersion):
        read_channels(queue.path)
    with pytest.raises(QueueVersionError, match=r"channels\.json has format 4.*upgrade"):
        queue.channels()
    file.write_text(text)
    assert queue.channels() == list(read_channels(queue.path)["channels"])


def test_the_slices_of_a_channel_are_in_channels_json(make_queue: MakeQueue) -> None:
    queue = make_queue()
    assert queue.channel("plain", "**").definition.slicing is None
    queue.channel("radar", "wx/radar", slices=12, assign="property:station")
    queue.channel("lightning", "wx/lightning", assign="grid:lat,lon,4x8")
    document = read_channels(queue.path)
    said = {name: channel["slicing"] for name, channel in document["channels"].items()}
    assert said == {
        "plain": None,
        "radar": {"slices": 12, "assign": "property:station"},
        "lightning": {"slices": 32, "assign": "grid:lat,lon,4x8"},
    }
    assert document["slicings"] == 2
    queue.channel("radar").remove()
    assert read_channels(queue.path)["slicings"] == 3 == reader.read_control(queue.path)["slicings"]


def test_the_counters_of_slices_are_where_the_page_says(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.channel("radar", "wx/radar", slices=8)
    queue.put_many([b"a", b"b", b"c"], feed="wx/radar", ident=["", "with", ""])
    counters = station_reader.read_slices(queue.path, 1)
    assert (counters["next"], counters["spread"]) == (2, 2)
    queue.channel("text", "wx/text", assign="round_robin")
    queue.put(b"d", feed="wx/text")
    counters = station_reader.read_slices(queue.path, 2)
    assert (counters["next"], counters["spread"]) == (1, 0)


def test_a_channels_json_of_format_1_is_upgraded(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.channel("radar", "wx/radar", timeout="10s")
    file = queue.path / "channels.json"
    old = json.loads(file.read_text())
    del old["slicings"], old["channels"]["radar"]["slicing"], old["channels"]["radar"]["compression"]
    file.write_text(json.dumps(old | {"format": 1}))
    assert queue.channel("radar").definition.slicing is None
    queue.channel("lightning", "wx/lightning", slices=8)
    assert {name: bool(each["slicing"]) for name, each in read_channels(queue.path)["channels"].items()} == {
        "radar": False,
        "lightning": True,
    }


def test_the_words_of_a_supplier_are_where_the_page_says(make_queue: MakeQueue) -> None:
    queue, before_ns = make_queue(dedup="payload", hash="md5"), time.time_ns()
    radar = queue.channel("radar", "wx/radar", max_queue=3)
    radar.station("a", "**")
    assert not suppliers_path(queue.path, 1).exists()
    with radar.supplier() as one, radar.supplier() as another:
        one.push(b"x")
        one.push(b"x")
        another.push_many([b"y", b"z"])
        with pytest.raises(RejectedError):
            another.push(b"more")
        places = read_suppliers(queue.path, 1)
        assert [(p["products"], p["duplicates"], p["rejected"]) for p in places.values()] == [(1, 1, 0), (2, 0, 1)]
        assert [(place, p["pid"], p["held"]) for place, p in places.items()] == [
            (1, os.getpid(), True),
            (2, os.getpid(), True),
        ]
        assert all(before_ns <= p["since_ns"] <= time.time_ns() for p in places.values())
    after = read_suppliers(queue.path, 1)
    assert after == {place: words | {"held": False, "left_ns": words["since_ns"]} for place, words in places.items()}


def test_a_dead_supplier_frees_its_place_and_its_counters_remain(make_queue: MakeQueue) -> None:
    queue = make_queue()
    radar = queue.channel("radar", "wx/radar")

    def work() -> object:
        supplier = radar.supplier()
        supplier.push(b"from the child")
        return supplier

    with at_work(work) as child:
        place = read_suppliers(queue.path, 1)[1]
        assert (place["pid"], place["held"], place["products"]) == (child, True, 1)
        end(child)
        assert read_suppliers(queue.path, 1)[1] == place | {"held": False}
    with radar.supplier() as supplier:
        supplier.push(b"from here")
        again = read_suppliers(queue.path, 1)
        assert [(p["pid"], p["held"], p["products"]) for p in again.values()] == [(os.getpid(), True, 2)]
        assert not is_locked(suppliers_path(queue.path, 1), 0)
