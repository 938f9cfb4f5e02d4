"""[[channel]]: the channels that the queue of a site is to have."""

from collections.abc import Callable
from pathlib import Path

import pytest
from siteconfig import SITE, Serve, Write, only, reported

from headrace import Queue
from headrace.channel.qos import QoS
from headrace.channel.slicing import Slicing
from headrace.errors import ChannelExistsError
from headrace.site import load_config
from headrace.site.channels import open_channels

SURFACE = '[[channel]]\nname = "surface"\nfeed = "wx/surface"\nslices = 12\nassign = "property:station"\n'
RADAR = """[[channel]]
name = "radar"
feed = "wx/radar/**"
order = "fifo"
max_per_consumer = 5
timeout = "10s"
start_time = 2026-11-15T12:00:00
stop_time = "2126-11-15T12:00Z"
"""


def test_a_channel_has_the_options_of_its_table(write: Write, make_quick: Callable[..., Queue]) -> None:
    queue, config = make_quick(), load_config(write(SITE + SURFACE + RADAR))
    for _ in range(2):  # the second time they exist
        open_channels(config.channel, queue)
    surface, radar = queue.channel("surface").definition, queue.channel("radar").definition
    assert (surface.feed, surface.slicing) == ("wx/surface/**", Slicing(slices=12, assign="property:station"))
    assert (radar.feed, radar.slicing) == ("wx/radar/**", None)
    assert radar.qos == QoS.of(
        order="fifo", max_per_consumer=5, timeout=10, start_time="2026-11-15T12:00Z", stop_time="2126-11-15T12:00Z"
    )


def test_a_channel_that_exists_on_other_terms_is_not_changed(write: Write, make_quick: Callable[..., Queue]) -> None:
    queue, config = make_quick(), load_config(write(SITE + SURFACE))
    queue.channel("surface", "wx/surface", slices=13)
    with pytest.raises(ChannelExistsError, match="slices 13, not 12; assign ident, not property:station"):
        open_channels(config.channel, queue)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ('name = "a"\n', 3, "feed"),
        ('name = "a/b"\nfeed = "a"\n', 4, "a/b"),
        ('name = "a"\nfeed = "a/*/b"\n', 5, "is not a subtree"),
        ('name = "a"\nfeed = "a"\nslices = 65536\n', 6, "65536 is out of range"),
        ('name = "a"\nfeed = "a"\nassign = "nonsense"\n', 6, "'nonsense' is unknown"),
        ('name = "a"\nfeed = "a"\ntimeout = 5\n', 6, "5 has no unit"),
        ('name = "a"\nfeed = "a"\nstart_time = 5\n', 6, "5 is not a time"),
        ('name = "a"\nfeed = "a"\nslices = 7\nassign = "grid:lat,lon,2x3"\n', 6, "has 6 cells"),
        ('name = "a"\nfeed = "a"\ndiscard = "fifo"\n', 6, "discard"),
    ],
)
def test_a_problem_is_reported_with_its_line(write: Write, text: str, line: int, problem: str) -> None:
    found = only(write(f"{SITE}[[channel]]\n{text}"))
    assert problem in f"{found.key}: {found.problem}"
    assert found.line == line


def test_two_channels_of_one_name_or_with_slices_for_one_feed_are_a_problem(write: Write) -> None:
    assert "'surface' is the name of [[channel]] 1 already" in only(write(SITE + SURFACE + SURFACE)).problem
    beside = SURFACE.replace('"surface"', '"other"').replace("wx/surface", "wx")
    overlap = "[[channel]] 1 assigns slices to wx/surface/**, and this one would to wx/**"
    assert overlap in only(write(SITE + SURFACE + beside)).problem
    assert reported(write(SITE + SURFACE + RADAR)) == []


def test_a_site_creates_its_channels_when_it_starts_and_when_it_reads_its_file_again(
    write: Write, serve: Serve, tmp_path: Path
) -> None:
    begin = '[site]\nname = "here"\nqueue = "q"\nlisten = ["tcp/127.0.0.1:0"]\n'
    process = serve(write(begin + SURFACE))
    process.wait_until_ready()
    with Queue.open(tmp_path / "q") as queue:
        assert queue.channels() == ["surface"]
        write(begin + SURFACE.replace("12", "13"))
        process.reload("channel 'surface' exists on other terms: it has slices 12, not 13")
        write(begin + SURFACE + RADAR)
        process.reload("site.toml is loaded")
        assert queue.channels() == ["radar", "surface"]
    assert process.stop() == 0
