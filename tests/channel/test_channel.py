"""Channels: created once, on agreed terms, and known to every process."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import Queue
from headrace.channel.document import ChannelFiles, DefinitionFile
from headrace.channel.qos import QoS
from headrace.errors import (
    ChannelExistsError,
    ChannelInUseError,
    ChannelMissingError,
    ChannelNameError,
    FeedError,
    OptionError,
    QueueDamagedError,
    QueueVersionError,
    TermsError,
)
from headrace.queue.queue import log_of
from headrace.testing import MockClock

NOW_NS = 1_800_000_000 * 10**9


def document(queue: Queue) -> Any:
    return msgspec.json.decode((queue.path / "channels.json").read_bytes())


# --- create and open ------------------------------------------------------------------------------


def test_a_queue_has_no_channels_at_first(queue: Queue) -> None:
    assert queue.channels() == []
    with pytest.raises(ChannelMissingError, match="has no channel 'radar'; create it: headrace channel create"):
        queue.channel("radar")


def test_a_channel_is_a_subtree_with_a_quality_of_service(queue: Queue) -> None:
    channel = queue.channel("radar", "wx/radar", order="fifo", timeout="10s")
    assert (channel.name, channel.feed) == ("radar", "wx/radar/**")
    assert channel.qos == QoS(order="fifo", timeout_s=10.0)
    assert queue.channels() == ["radar"]
    assert ChannelFiles().check(log_of(queue).kernel, queue.path) == []


def test_a_channel_survives_a_reopening(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    said = {"order": "deadline", "timeout": "1min", "max_per_consumer": 10, "stop_time": "2199-01-01", "pacing": 0.5,
            "batch_max": 5, "suppliers_max": 3}  # fmt: skip
    qos = queue.channel("radar", "wx/radar/**", **said).qos
    queue.close()
    with Queue.open(queue.path) as again:
        assert again.channels() == ["radar"]
        assert again.channel("radar").qos == qos == QoS.of(**said)


def test_an_existing_channel_is_opened_on_the_same_terms(queue: Queue) -> None:
    queue.channel("radar", "wx/radar/**", timeout="1min")
    before = document(queue)
    assert queue.channel("radar", "wx/radar", timeout=60).qos.timeout_s == 60.0
    assert queue.channel("radar", timeout="60s").feed == "wx/radar/**"
    assert document(queue) == before


def test_opening_a_channel_on_other_terms_names_the_differences(queue: Queue) -> None:
    queue.channel("radar", "wx/radar/**", timeout="1min")
    with pytest.raises(
        ChannelExistsError, match=r"it has feed wx/radar/\*\*, not wx/text; order any, not fifo; timeout 60 s, not open"
    ):
        queue.channel("radar", "wx/text", order="fifo")


def test_a_channel_can_be_opened_on_its_terms_after_its_stop_time(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(NOW_NS)
    queue = make_queue(clock=clock)
    terms = {"feed": "a", "stop_time": NOW_NS + 10**9}
    queue.channel("c", **terms)
    clock.advance(5)
    assert queue.channel("c", **terms).qos.stop_time_ns == NOW_NS + 10**9


def test_a_channel_with_conflicting_terms_is_not_created(queue: Queue) -> None:
    with pytest.raises(TermsError) as told:
        queue.channel("radar", "wx/radar", reliability="persistent", discard="fifo", timeout=0, ordr="fifo")
    assert len(told.value.conflicts) == 4
    assert queue.channels() == []
    assert DefinitionFile(queue.path).read().channels == {}


def test_options_without_a_feed_do_not_create(queue: Queue) -> None:
    with pytest.raises(ChannelMissingError, match="to create it, give its feed"):
        queue.channel("radar", order="fifo")


@pytest.mark.parametrize("name", ["", "a/b", "a\n", " a", "x" * 121, 7, "\ud800"])
def test_an_invalid_name_is_refused(queue: Queue, name: Any) -> None:
    with pytest.raises(ChannelNameError):
        queue.channel(name, "wx")


def test_an_invalid_feed_is_refused(queue: Queue) -> None:
    with pytest.raises(FeedError, match="is not a subtree"):
        queue.channel("radar", "wx/*/x")


def test_channels_may_overlap(queue: Queue) -> None:
    queue.channel("all", "**")
    queue.channel("radar", "wx/radar/**", reliability="persistent")
    queue.channel("radar too", "wx/radar/**")
    assert queue.channels() == ["all", "radar", "radar too"]


def test_the_error_for_a_missing_channel_lists_the_existing_ones(queue: Queue) -> None:
    queue.channel("radar", "wx/radar")
    with pytest.raises(ChannelMissingError, match="its channels are: radar"):
        queue.channel("radra")


CREATE = """
import sys
from headrace import Queue
with Queue.open(sys.argv[1]) as queue:
    sys.stdin.readline()
    for number in range(20):
        queue.channel(f"channel {number}", "wx/radar/**", batch_max=number + 1)
        queue.channel(f"{sys.argv[2]} {number}", "wx")
"""


def test_two_processes_create_channels_at_once(queue: Queue) -> None:
    """They agree on those that both create, and lose none of those that one creates."""
    processes = [
        subprocess.Popen([sys.executable, "-c", CREATE, str(queue.path), who], stdin=subprocess.PIPE, text=True)
        for who in ("one", "two")
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(240) for process in processes] == [0, 0]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert len(queue.channels()) == 60
    numbers = [definition["number"] for definition in document(queue)["channels"].values()]
    assert sorted(numbers) == list(range(1, 61))


# --- the file -------------------------------------------------------------------------------------


def spoil(queue: Queue, text: bytes) -> None:
    (queue.path / "channels.json").write_bytes(text)
    (queue.path / "spoilt").touch()  # the fixture need not find the queue clean


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"format": 1, "chanels": {}}', b'{"format": 1, "channels": {"a": 1}}', b"\xff"]
)
def test_a_damaged_file_is_an_error_with_a_remedy(queue: Queue, text: bytes) -> None:
    spoil(queue, text)
    with pytest.raises(QueueDamagedError, match=r"channels\.json is invalid.*restore it from a backup"):
        queue.channels()
    assert len(ChannelFiles().check(log_of(queue).kernel, queue.path)) == 1


def test_an_unknown_option_in_the_file_is_an_error(queue: Queue) -> None:
    queue.channel("radar", "wx/radar")
    spoilt = document(queue)
    spoilt["channels"]["radar"]["qos"]["colour"] = "red"
    spoil(queue, msgspec.json.encode(spoilt))
    with pytest.raises(QueueDamagedError, match="colour"):
        queue.channel("radar")


def test_a_channel_under_a_wrong_name_is_damage(queue: Queue) -> None:
    queue.channel("radar", "wx/radar")
    spoilt = document(queue)
    spoilt["channels"]["text"] = spoilt["channels"]["radar"]
    spoil(queue, msgspec.json.encode(spoilt))
    with pytest.raises(QueueDamagedError, match="channel 'text' has the name 'radar' inside"):
        queue.channel("radar")


def test_a_newer_format_is_an_error(queue: Queue) -> None:
    spoil(queue, b'{"format": 4, "rivers": {}}')
    with pytest.raises(QueueVersionError, match="has format 4; this Headrace knows up to 3; upgrade"):
        queue.channels()


def test_a_process_that_died_while_writing_leaves_the_old_file(queue: Queue) -> None:
    queue.channel("radar", "wx/radar")
    (queue.path / "channels.json.part").write_bytes(b"{")
    assert queue.channels() == ["radar"]
    queue.channel("text", "wx/text")
    assert queue.channels() == ["radar", "text"]
    assert not (queue.path / "channels.json.part").exists()


# --- change and remove ----------------------------------------------------------------------------


def test_a_change_applies_to_every_open_channel(queue: Queue) -> None:
    channel = queue.channel("radar", "wx/radar", timeout="10s")
    with Queue.open(queue.path) as other:
        other.channel("radar").change(timeout="30s", order="fifo")
    assert channel.qos == QoS(timeout_s=30.0, order="fifo")


def test_a_change_to_none_leaves_an_option_open(queue: Queue) -> None:
    channel = queue.channel("radar", "wx/radar", timeout="10s", order="fifo")
    channel.change(timeout=None, order=None)
    assert channel.qos == QoS()


def test_a_conflicting_change_changes_nothing(queue: Queue) -> None:
    channel = queue.channel("radar", "wx/radar", max_per_consumer=10)
    with pytest.raises(TermsError, match="batch of 11 never fills"):
        channel.change(batch_max=11, timeout="1s")
    assert channel.qos == QoS(max_per_consumer=10)


def test_a_channel_past_its_stop_time_can_be_changed(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(NOW_NS)
    channel = make_queue(clock=clock).channel("c", "a", stop_time=NOW_NS + 10**9)
    clock.advance(5)
    channel.change(order="fifo")
    with pytest.raises(TermsError, match="is in the past"):
        channel.change(stop_time=NOW_NS + 2 * 10**9)
    channel.change(stop_time=NOW_NS + 60 * 10**9)


def test_the_feed_of_a_channel_cannot_change(queue: Queue) -> None:
    with pytest.raises(OptionError, match="the feed of a channel cannot change"):
        queue.channel("radar", "wx/radar").change(feed="wx/text")


def test_a_removed_channel_is_missing_everywhere(queue: Queue) -> None:
    channel = queue.channel("radar", "wx/radar")
    queue.channel("radar").remove()
    assert queue.channels() == []
    for use in (lambda: channel.qos, channel.supplier, channel.statistics, channel.remove):
        with pytest.raises(ChannelMissingError):
            use()


def test_a_new_channel_with_an_old_name_is_another_channel(queue: Queue) -> None:
    old = queue.channel("radar", "wx/radar")
    supplier = old.supplier()
    old.remove()
    queue.channel("radar", "wx/radar")
    with pytest.raises(ChannelMissingError, match="was removed, and another one created"):
        supplier.push(b"x")
    assert queue.channel("radar").statistics().suppliers == 0
    supplier.close()


def test_a_channel_with_stations_is_removed_only_by_force(queue: Queue) -> None:
    channel = queue.channel("radar", "wx/radar")
    channel.station("decoder", batch_max=3)
    queue.station("other", "wx/**")
    with pytest.raises(ChannelInUseError, match="has stations: decoder"):
        channel.remove()
    assert queue.channels() == ["radar"]
    channel.remove(force=True)
    assert queue.channels() == []
    assert queue.stations() == ["other"]


def test_removing_leaves_no_files(queue: Queue, tmp_path: Path) -> None:
    channel = queue.channel("radar", "wx/radar")
    channel.supplier().close()
    assert [file.name for file in (queue.path / "channels").iterdir() if file.name != "lock"] == ["1.suppliers"]
    channel.remove()
    assert [file.name for file in (queue.path / "channels").iterdir()] == ["lock"]
