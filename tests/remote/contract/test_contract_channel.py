"""Channels, suppliers, push consumers and pull suppliers: the same tests on a local and on a remote queue."""

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from headrace import Duplicate, Product
from headrace.errors import (
    ChannelEndedError,
    ChannelError,
    ChannelExistsError,
    ChannelInUseError,
    ChannelMissingError,
    ChannelNameError,
    FeedError,
    OptionError,
    RejectedError,
    StationMissingError,
    SuppliersFullError,
    TermsError,
)
from headrace.queue import AnyChannel, AnyQueue, AnySupplier
from headrace.station.conflicts import Conflict
from support.serving import idents, work
from support.waiting import until


@pytest.fixture
def channel(queue: AnyQueue) -> AnyChannel:
    return queue.channel("radar", "wx/radar")


@pytest.fixture
def supplier(channel: AnyChannel) -> Iterator[AnySupplier]:
    with channel.supplier() as supplying:
        yield supplying


# --- terms ------------------------------------------------------------------------------------------


def test_a_channel_is_created_once_and_opened_by_its_name(queue: AnyQueue) -> None:
    made = queue.channel("radar", "wx/radar", order="fifo", timeout=timedelta(seconds=10), suppliers_max=3)
    assert (made.feed, made.qos.order, made.qos.timeout_s, made.qos.suppliers_max) == ("wx/radar/**", "fifo", 10.0, 3)
    assert queue.channel("radar").definition == made.definition
    assert queue.channel("radar", "wx/radar/**", order="fifo", timeout="10s", suppliers_max=3).name == "radar"
    assert queue.channels() == ["radar"]
    with pytest.raises(ChannelExistsError, match="timeout 10 s, not 20 s"):
        queue.channel("radar", "wx/radar", order="fifo", timeout="20s", suppliers_max=3)
    with pytest.raises(ChannelMissingError, match="has no channel 'lidar'"):
        queue.channel("lidar")
    with pytest.raises(ChannelNameError):
        queue.channel("no/such name", "wx")


def test_every_conflict_of_the_terms_is_named(queue: AnyQueue) -> None:
    with pytest.raises(TermsError) as raised:
        queue.channel("radar", "wx/radar", discard="fifo", timeout=0)
    assert len(raised.value.conflicts) == 2
    assert all(isinstance(each, Conflict) and each.remedy for each in raised.value.conflicts)
    assert queue.channels() == []


def test_a_start_and_a_stop_time_travel(queue: AnyQueue) -> None:
    begin = datetime(2100, 1, 1, tzinfo=UTC)
    made = queue.channel("later", "wx", start_time=begin, stop_time=begin + timedelta(hours=1))
    assert made.qos.start_time_ns == int(begin.timestamp()) * 10**9
    assert made.qos.stop_time_ns == made.qos.start_time_ns + 3600 * 10**9


def test_a_channel_changes_and_its_stations_with_it(channel: AnyChannel) -> None:
    station = channel.station("decoder", "**/KFTG", batch_max=5)
    channel.change(timeout="20s")
    assert (channel.qos.timeout_s, station.terms.timeout_s, station.terms.batch_max) == (20.0, 20.0, 5)
    channel.change(timeout=None)
    assert station.terms.timeout_s is None
    assert channel.change_station("decoder", batch_max=4).terms.batch_max == 4
    with pytest.raises(OptionError, match="feed of a channel cannot change"):
        channel.change(feed="other")
    with pytest.raises(TermsError, match="decoder"):
        channel.change(batch_max=2)


def test_a_station_of_a_channel_may_only_tighten(queue: AnyQueue) -> None:
    channel = queue.channel("radar", "wx/radar", timeout="10s")
    with pytest.raises(TermsError, match="timeout"):
        channel.station("slow", timeout="20s")
    assert channel.station("quick", timeout="5s").terms.timeout_s == 5.0
    with pytest.raises(StationMissingError):
        channel.station("slow", create=False)
    assert (channel.stations(), channel.station("quick").terms.selection) == (["quick"], "wx/radar/**")


def test_a_station_by_its_name_alone_has_everything_in_the_channel(queue: AnyQueue, channel: AnyChannel) -> None:
    station = channel.station("all")
    assert (station.terms.selection, station.terms.channel) == ("wx/radar/**", "radar")
    assert channel.station("all").name == "all"
    queue.station("free")
    with pytest.raises(StationMissingError, match="belongs to no channel"):
        channel.station("free")
    with pytest.raises(StationMissingError):
        channel.consumer("missing", print)
    assert channel.stations() == ["all"]


def test_a_channel_with_stations_is_removed_by_force_only(queue: AnyQueue, channel: AnyChannel) -> None:
    channel.station("decoder", "**")
    with pytest.raises(ChannelInUseError, match="decoder"):
        channel.remove()
    channel.remove(force=True)
    assert (queue.channels(), queue.stations()) == ([], [])
    with pytest.raises(ChannelMissingError):
        channel.statistics()


# --- suppliers --------------------------------------------------------------------------------------


def test_a_supplier_pushes_below_its_channel(queue: AnyQueue, supplier: AnySupplier) -> None:
    assert supplier.push(b"1") == 1
    assert supplier.push(b"2", feed="wx/radar/KFTG", ident="two", priority=6) == 2
    assert supplier.push(b"2", feed="wx/radar/KFTG", ident="two") == Duplicate(2)
    receipt = supplier.push_many([b"3", b"4"], ident=["three", "four"])
    assert (receipt.stored, receipt.first) == (2, 3)
    assert [product.feed for product in queue.read()] == ["wx/radar", "wx/radar/KFTG", "wx/radar", "wx/radar"]
    with pytest.raises(FeedError, match="not in the channel's wx/radar/"):
        supplier.push(b"5", feed="wx/text")
    with pytest.raises(FeedError, match="not in the channel's wx/radar/"):
        supplier.push_many([b"5", b"6"], feed=["wx/radar", "wx/text"])
    assert queue.next == 5


def test_what_suppliers_do_is_counted(queue: AnyQueue, supplier: AnySupplier) -> None:
    channel = queue.channel("radar")
    channel.station("decoder", "**")
    supplier.push(b"1", ident="one")
    supplier.push(b"1", ident="one")
    supplier.push_many([b"2", b"3"], ident=["two", "three"])
    told = channel.statistics()
    assert (told.suppliers, told.stations, told.pushed, told.duplicates) == (1, 1, 3, 1)
    assert (told.waiting, told.feed) == (3, "wx/radar/**")


def test_suppliers_max_counts_all_suppliers(queue: AnyQueue) -> None:
    channel = queue.channel("radar", "wx/radar", suppliers_max=2)
    first = channel.supplier()
    with channel.supplier(), pytest.raises(SuppliersFullError, match="has 2 suppliers"):
        channel.supplier()
    first.close()
    with pytest.raises(ChannelError, match="closed"):
        first.push(b"")
    assert channel.statistics().suppliers == 0
    channel.supplier().close()


def test_the_timeout_of_a_channel_becomes_an_expiry(queue: AnyQueue) -> None:
    channel = queue.channel("radar", "wx/radar", timeout="1h")
    with channel.supplier() as supplier:
        supplier.push(b"1")
        supplier.push(b"2", expiry="1min")
        supplier.push_many([b"3", b"4"], expiry="2h")
        supplier.push_many([b"5", b"6"], expiry=[0, 1 << 62])
    lives_s = [(product.expiry_ns - product.inserted_ns) / 1e9 for product in queue.read()]
    assert lives_s == pytest.approx([3600, 60, 3600, 3600, 3600, 3600], abs=5)


def test_a_push_is_rejected_at_max_queue(queue: AnyQueue) -> None:
    channel = queue.channel("radar", "wx/radar", max_queue=2)
    station = channel.station("decoder", "**")
    with channel.supplier() as supplier:
        supplier.push_many([b"1", b"2"], ident=["1", "2"])
        with pytest.raises(RejectedError):
            supplier.push(b"3", ident="3")
        with pytest.raises(RejectedError):  # however it arrives
            queue.put(b"3", feed="wx/radar", ident="3")
        assert channel.statistics().rejected == 1
        assert work(station) == ["1", "2"]
        assert supplier.push(b"3", ident="3") == 3


def test_nothing_is_pushed_after_the_stop_time(queue: AnyQueue) -> None:
    channel = queue.channel("radar", "wx/radar")
    with channel.supplier() as supplier:
        supplier.push(b"1")
        stop_ns = _end_soon(channel)
        until(lambda: time.time_ns() >= stop_ns, "the stop time")
        with pytest.raises(ChannelEndedError, match="ended at its stop_time"):
            supplier.push(b"2")
        with pytest.raises(ChannelEndedError):
            supplier.push_many([b"2"])
    assert queue.next == 2


def _end_soon(channel: AnyChannel) -> int:
    """Give the channel a stop time, which must not have passed when the change is validated."""
    for delay_s in (0.05, 1, 20):
        with suppress(TermsError):
            channel.change(stop_time=datetime.now(UTC) + timedelta(seconds=delay_s))
            break
    assert channel.qos.stop_time_ns is not None
    return channel.qos.stop_time_ns


def test_a_supplier_of_a_removed_channel_is_told(queue: AnyQueue, supplier: AnySupplier) -> None:
    queue.channel("radar").remove()
    with pytest.raises(ChannelMissingError):
        supplier.push(b"1")
    queue.channel("radar", "wx/radar")
    with pytest.raises(ChannelMissingError, match="another one created"):
        supplier.push(b"1")


# --- threads ----------------------------------------------------------------------------------------


def test_a_push_consumer_gets_what_a_pull_supplier_returns(queue: AnyQueue, channel: AnyChannel) -> None:
    station = channel.station("decoder", "**")
    numbers, got = iter(range(5)), list[str]()

    def poll() -> dict[str, object] | None:
        number = next(numbers, None)
        return None if number is None else {"payload": str(number).encode(), "ident": f"n{number}"}

    def take(product: Product) -> None:
        got.append(product.ident)

    with channel.pull(poll, every="1ms") as supplier, channel.consumer(station, take) as consumer:
        until(lambda: len(got) == 5, "five products")
        until(lambda: consumer.statistics().acknowledged == 5, "five acknowledgements")
        assert supplier.statistics().pushed == 5
    assert got == [f"n{number}" for number in range(5)]
    assert station.statistics().acknowledged == 5


def test_a_callback_that_raises_gets_its_product_again(channel: AnyChannel, supplier: AnySupplier) -> None:
    station = channel.station("decoder", "**")
    supplier.push_many([b"1", b"2"], ident=["1", "2"])
    failures, got = iter([True]), list[str]()

    def take(product: Product) -> None:
        if next(failures, False):
            raise ValueError("once")
        got.append(product.ident)

    with channel.consumer("decoder", take):
        until(lambda: sorted(got) == ["1", "2"], "both products")
    assert station.parked() == []


def test_a_consumer_with_batches_gets_batches(channel: AnyChannel, supplier: AnySupplier) -> None:
    channel.station("decoder", "**")
    supplier.push_many([b""] * 3, ident=list("abc"))
    got = list[str]()
    with channel.consumer("decoder", lambda batch: got.extend(idents(batch)), batches=True):
        until(lambda: got == ["a", "b", "c"], "the batch")


def test_an_invalid_product_of_a_pull_supplier_is_counted_and_left_out(channel: AnyChannel) -> None:
    results = iter([[{"payload": b"1"}, {"payload": b"2", "feed": "elsewhere"}, {"payload": b"3"}]])
    with channel.pull(lambda: next(results, None), every="1ms") as supplier:
        until(lambda: supplier.statistics().pushed == 2, "the valid ones")
        assert supplier.statistics().failures == 1
        assert "not in the channel's" in supplier.statistics().latest_failure
