"""Stations of a channel: they inherit, may tighten, and follow its changes."""

from typing import Any

import msgspec
import pytest

from headrace import Queue, Selection
from headrace.channel.channel import Channel
from headrace.errors import OptionError, SelectionError, StationExistsError, StationMissingError, TermsError


@pytest.fixture
def channel(queue: Queue) -> Channel:
    return queue.channel("radar", "wx/radar/**", order="fifo", timeout="10s", max_per_consumer=100)


def got(queue: Queue, station: str) -> list[str]:
    with queue.station(station).attach() as consumer:
        batch = consumer.get(100, timeout=0)
        consumer.ack(batch)
        return [product.ident for product in batch]


def test_a_station_inherits_the_terms_of_its_channel(channel: Channel) -> None:
    terms = channel.station("decoder", start="next").terms
    assert (terms.order, terms.timeout_s, terms.capacity, terms.channel) == ("fifo", 10.0, 100, "radar")
    assert channel.stations() == ["decoder"]


def test_a_station_gets_the_products_of_the_subtree(queue: Queue, channel: Channel) -> None:
    channel.station("all", "**")
    channel.station("denver", Selection("**/KFTG", ident="^L2"))
    for feed, ident in [
        ("wx/radar/KFTG", "L2 a"),
        ("wx/radar/KFTG", "L3 b"),
        ("wx/text/KFTG", "L2 c"),
        ("wx/radar", "L2 d"),
    ]:
        queue.put(ident.encode(), feed=feed, ident=ident)
    assert got(queue, "all") == ["L2 a", "L3 b", "L2 d"]
    assert got(queue, "denver") == ["L2 a"]


def test_a_selection_outside_the_subtree_is_refused(queue: Queue, channel: Channel) -> None:
    with pytest.raises(SelectionError, match="selects nothing within the channel's"):
        channel.station("decoder", "wx/text/**")
    assert queue.stations() == []


def test_a_station_may_tighten_and_not_loosen(queue: Queue, channel: Channel) -> None:
    terms = channel.station("decoder", timeout="5s", batch_max=7, max_per_consumer=50).terms
    assert (terms.timeout_s, terms.batch_max, terms.capacity) == (5.0, 7, 50)
    with pytest.raises(TermsError) as told:
        channel.station("greedy", timeout="20s", max_per_consumer=200, order="priority")
    assert [conflict.options for conflict in told.value.conflicts] == [("order",), ("max_per_consumer",), ("timeout",)]
    assert queue.stations() == ["decoder"]


def test_tightened_terms_must_fit_the_inherited_ones(queue: Queue, channel: Channel) -> None:
    with pytest.raises(TermsError, match="a batch of 200 never fills, because a station holds 100"):
        channel.station("decoder", batch_max=200)
    assert queue.stations() == []


def test_a_station_has_terms_beyond_the_quality_of_service(channel: Channel) -> None:
    terms = channel.station("decoder", prescale=3, deliveries_max=2, hung_after="5s").terms
    assert (terms.prescale, terms.deliveries_max, terms.hung_after_s) == (3, 2, 5.0)


@pytest.mark.parametrize(
    ("option", "meant"), [("capacity", "max_per_consumer"), ("blocking", "reliability"), ("durable", "connections")]
)
def test_options_of_plain_stations_suggest_those_of_channels(channel: Channel, option: str, meant: str) -> None:
    with pytest.raises(TermsError, match=f"did you mean {meant}"):
        channel.station("decoder", **{option: True})


def test_a_station_is_opened_by_its_name(queue: Queue, channel: Channel) -> None:
    channel.station("decoder", batch_max=7)
    assert channel.station("decoder").terms.batch_max == 7
    with pytest.raises(StationMissingError):
        channel.station("decodre", create=False)


def test_a_station_is_opened_on_its_terms_and_no_others(queue: Queue, channel: Channel) -> None:
    channel.station("decoder", "**/KFTG", batch_max=7)
    channel.station("decoder", "**/KFTG", batch_max=7)
    with pytest.raises(StationExistsError):
        channel.station("decoder", "**/KFTG", batch_max=6)
    channel.change(max_per_consumer=90)
    assert channel.station("decoder").terms.batch_max == 7


def test_a_station_belongs_to_one_channel(queue: Queue, channel: Channel) -> None:
    queue.station("plain", "wx/**")
    other = queue.channel("other", "wx/radar/**")
    other.station("decoder", batch_max=3)
    with pytest.raises(StationMissingError, match="station 'decoder' belongs to channel 'other', not to 'radar'"):
        channel.station("decoder")
    with pytest.raises(StationMissingError, match="station 'plain' belongs to no channel"):
        channel.station("plain")
    assert channel.stations() == []


# --- changes --------------------------------------------------------------------------------------


def test_a_change_reaches_the_stations_that_inherit(queue: Queue, channel: Channel) -> None:
    channel.station("decoder", batch_max=7)
    channel.station("archive", timeout="5s")
    channel.change(timeout="8s", batch_max=10)
    decoder, archive = queue.station("decoder").terms, queue.station("archive").terms
    assert (decoder.timeout_s, decoder.batch_max) == (8.0, 7)
    assert (archive.timeout_s, archive.batch_max) == (5.0, 10)


def test_options_that_a_change_leaves_open_are_open_for_stations_too(queue: Queue, channel: Channel) -> None:
    channel.station("decoder", batch_max=7)
    channel.change(timeout=None, order=None, max_per_consumer=None)
    terms = queue.station("decoder").terms
    assert (terms.timeout_s, terms.order, terms.capacity, terms.batch_max) == (None, "priority", None, 7)


def test_a_change_that_is_tighter_than_a_station_is_refused(queue: Queue, channel: Channel) -> None:
    channel.station("archive", timeout="5s")
    channel.station("decoder", max_per_consumer=80, timeout="9s")
    with pytest.raises(TermsError) as told:
        channel.change(timeout="3s", max_per_consumer=50)
    assert [conflict.problem for conflict in told.value.conflicts] == [
        "station 'archive': timeout 5 s exceeds the channel's 3 s",
        "station 'decoder': max_per_consumer 80 exceeds the channel's 50",
        "station 'decoder': timeout 9 s exceeds the channel's 3 s",
    ]
    assert channel.qos.timeout_s == 10.0
    assert queue.station("archive").terms.timeout_s == 5.0


def test_a_change_must_fit_the_terms_of_each_station(channel: Channel) -> None:
    channel.station("decoder", batch_max=70)
    with pytest.raises(TermsError, match="station 'decoder': a batch of 70 never fills"):
        channel.change(max_per_consumer=50)


def test_the_terms_of_a_station_can_be_changed(queue: Queue, channel: Channel) -> None:
    channel.station("decoder", timeout="5s")
    channel.change_station("decoder", timeout="7s", batch_max=4)
    assert queue.station("decoder").terms.timeout_s == 7.0
    with pytest.raises(TermsError, match="exceeds the channel's 10 s"):
        channel.change_station("decoder", timeout="11s")
    channel.change_station("decoder", timeout=None)
    channel.change(timeout="3s")
    assert (queue.station("decoder").terms.timeout_s, queue.station("decoder").terms.batch_max) == (3.0, 4)


def test_the_selection_of_a_station_can_change_within_the_subtree(queue: Queue, channel: Channel) -> None:
    channel.station("decoder", batch_max=4)
    channel.change_station("decoder", "**/KFTG")
    queue.put(b"1", feed="wx/radar/KFTG", ident="1")
    queue.put(b"2", feed="wx/radar/KCYS", ident="2")
    assert got(queue, "decoder") == ["1"]


def test_an_interrupted_change_is_completed(queue: Queue, channel: Channel) -> None:
    """As if the process had died between the definition and the station."""
    channel.station("decoder", batch_max=7)
    path = queue.path / "channels.json"
    document: Any = msgspec.json.decode(path.read_bytes())
    document["channels"]["radar"]["qos"]["timeout_s"] = 4.0
    path.write_bytes(msgspec.json.encode(document))
    assert queue.station("decoder").terms.timeout_s == 10.0
    assert channel.station("decoder").terms.timeout_s == 4.0


def test_an_entry_without_its_station_is_ignored(queue: Queue, channel: Channel) -> None:
    channel.station("decoder", timeout="5s")
    queue.station("decoder").remove()
    assert channel.stations() == []
    channel.change(timeout="3s")
    assert channel.station("decoder", batch_max=2).terms.timeout_s == 3.0


def test_the_group_of_a_station_cannot_change(channel: Channel) -> None:
    channel.station("decoder", batch_max=2)
    with pytest.raises(OptionError):
        channel.change_station("decoder", group="together")


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_sum_up_the_stations(queue: Queue, channel: Channel) -> None:
    channel.station("first", batch_max=100)
    channel.station("second", discard="lifo", max_per_consumer=2)
    with channel.supplier() as supplier, queue.station("first").attach() as consumer:
        supplier.push_many([b"%d" % n for n in range(5)], feed="wx/radar/KFTG", ident="i")
        supplier.push(b"0", feed="wx/radar/KFTG", ident="i")
        consumer.ack(consumer.get(2, timeout=0))
        told = channel.statistics()
    assert (told.name, told.feed) == ("radar", "wx/radar/**")
    assert (told.suppliers, told.stations, told.consumers) == (1, 2, 1)
    assert (told.pushed, told.duplicates, told.rejected) == (5, 1, 0)
    assert (told.waiting, told.delivered, told.acknowledged) == (3 + 2, 2, 2)
    assert told.dropped["flowed_around"] == 3
    assert {"expired", "evicted"} <= set(told.dropped)
