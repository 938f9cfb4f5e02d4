"""[[channel]]: the channels that the queue of a site is to have."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from siteconfig import SITE, Serve, Write, only, reported

from headrace import Queue
from headrace.channel.qos import QoS
from headrace.channel.slicing import Slicing
from headrace.errors import ChannelExistsError, DictionaryError
from headrace.payload.compression.training import train
from headrace.site import load_config
from headrace.site.channel_terms import open_channels

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


TEXT = '[[channel]]\nname = "text"\nfeed = "wx/text/**"\ncompress = "zstd"\n'


def trained(queue: Queue) -> str:
    """The name of a dictionary that the queue has from now on."""
    queue.put_many([b"METAR KDEN %06d AUTO 10SM FEW120 A3012=" % number for number in range(300)], feed="wx/text/sa")
    return queue.train_dictionary("wx/text/**", size="2KiB").dictionary.name


@pytest.mark.parametrize("text", [TEXT, TEXT.replace('compress = "zstd"\n', "")])
def test_a_channel_whose_dictionary_the_file_does_not_name_may_be_trained(
    write: Write, make_queue: Callable[..., Queue], text: str
) -> None:
    queue, path = make_queue(), write(SITE + text)
    open_channels(load_config(path).channel, queue)
    queue.channel("text").change(compress="zstd", dictionary=trained(queue))
    assert reported(path) == []
    open_channels(load_config(path).channel, queue)
    terms = queue.channel("text").definition.compression
    assert terms is not None
    assert terms.dictionary is not None


def test_a_dictionary_that_is_named_and_differs_keeps_the_site_from_starting_and_is_reported(
    write: Write, make_queue: Callable[..., Queue]
) -> None:
    queue = make_queue()
    name, other = trained(queue), train([b"%d other texts" % n for n in range(400)], "wx/**", size=1024).dictionary
    queue.channel("text", "wx/text/**", compress="zstd", dictionary=name)
    path = write(f'{SITE}{TEXT}dictionary = "{other.name}"\n')
    found = only(path)
    assert (found.line, found.key) == (7, "dictionary")
    assert found.problem == f'dictionary = "{other.name}"; channel \'text\' of {queue.path} has "{name}"'
    assert f'write dictionary = "{name}" here' in found.hint
    assert f"copy dictionaries/{other.name}.dictionary of another queue" in found.hint
    with pytest.raises(ChannelExistsError, match=f"it has dictionary {name}, not {other.name}") as refused:
        open_channels(load_config(path).channel, queue)
    assert f'in [[channel]] of the configuration, write dictionary = "{name}"; or copy' in refused.value.hint
    assert reported(write(f'{SITE}{TEXT}dictionary = "{name}"\n')) == []


def test_a_dictionary_that_the_queue_lacks_is_reported_before_the_site_starts(
    write: Write, make_queue: Callable[..., Queue], tmp_path: Path
) -> None:
    path = write(f'{SITE}{TEXT}dictionary = "1bb9e4da"\n')
    fresh = only(path)
    assert (fresh.line, fresh.key) == (7, "dictionary")
    assert "lacks dictionary 1bb9e4da, which channel 'text' is to use" in fresh.problem
    assert fresh.hint.startswith("leave dictionary out here, and train one later: headrace queue train ")
    assert not (tmp_path / "q").exists()
    queue = make_queue()
    assert f"copy dictionaries/1bb9e4da.dictionary of another queue to {queue.path}/dictionaries" in only(path).hint
    with pytest.raises(DictionaryError, match="lacks dictionary 1bb9e4da") as refused:
        open_channels(load_config(path).channel, queue)
    assert "or leave dictionary out and train one later: headrace queue train" in refused.value.hint
    assert queue.channels() == []


@pytest.mark.parametrize(
    ("change", "key", "problem", "remedy"),
    [
        ({"timeout": "30s"}, "timeout", 'has "30s"', 'write timeout = "30s" here, or run: headrace channel change {path} '
         "radar --timeout 10s"),
        ({"timeout": None}, "timeout", "has none", "leave timeout out here, or run: "),
        ({"batch_max": 3}, "", 'batch_max is not set; channel \'radar\' of {path} has "3"', "write batch_max = 3 here, or run: "
         "headrace channel change {path} radar --batch-max none"),
        ({"order": "priority"}, "order", 'has "priority"', 'write order = "priority" here'),
        ({"reliability": "persistent"}, "", 'has "persistent"', "--reliability none"),
        ({"stop_time": None}, "stop_time", "has none", "leave stop_time out here"),
        ({"compress": "zstd:9"}, None, "", ""),
    ],
)  # fmt: skip
def test_a_change_at_run_time_is_reported_before_it_keeps_the_site_from_starting(
    write: Write, make_queue: Callable[..., Queue], change: dict[str, Any], key: str | None, problem: str, remedy: str
) -> None:
    queue, path = make_queue(), write(SITE + RADAR)
    open_channels(load_config(path).channel, queue)
    assert reported(path) == []
    queue.channel("radar").change(**change)
    if key is None:
        assert reported(path) == []
        open_channels(load_config(path).channel, queue)
        return
    found = only(path)
    assert (found.table, found.key) == ("[[channel]] 1", key)
    assert problem.format(path=queue.path) in found.problem
    assert remedy.format(path=queue.path) in found.hint
    with pytest.raises(ChannelExistsError, match="channel 'radar' exists on other terms: it has"):
        open_channels(load_config(path).channel, queue)


def test_the_remedy_of_a_change_makes_the_file_and_the_channel_agree(
    write: Write, make_queue: Callable[..., Queue], run: Callable[..., Any]
) -> None:
    queue, path = make_queue(), write(SITE + RADAR)
    open_channels(load_config(path).channel, queue)
    queue.channel("radar").change(timeout="30s", batch_max=3, reliability="persistent")
    with pytest.raises(ChannelExistsError) as refused:
        open_channels(load_config(path).channel, queue)
    command = refused.value.hint.partition("run: headrace ")[2]
    assert run(*shlex.split(command)).exit_code == 0
    assert reported(path) == []
    open_channels(load_config(path).channel, queue)


def test_slices_that_differ_have_a_remedy_that_works(write: Write, make_queue: Callable[..., Queue]) -> None:
    queue, path = make_queue(), write(SITE + SURFACE)
    queue.channel("surface", "wx/surface", slices=13, assign="property:station")
    assert only(path).hint == "write slices = 13 here, or choose another name: a channel keeps its slices"


def test_a_new_channel_that_overlaps_one_that_the_file_does_not_name_is_reported(
    write: Write, make_queue: Callable[..., Queue]
) -> None:
    make_queue().channel("all", "wx/**", slices=13, compress="zstd")
    assert "channel 'all' assigns slices to wx/**" in only(write(SITE + SURFACE)).problem
    assert "channel 'all' compresses wx/**" in only(write(SITE + TEXT)).problem


def test_a_file_of_channels_that_is_damaged_is_reported(write: Write, make_queue: Callable[..., Queue]) -> None:
    queue, path = make_queue(), write(SITE + SURFACE)
    open_channels(load_config(path).channel, queue)
    text = (queue.path / "channels.json").read_bytes()
    (queue.path / "channels.json").write_text("{")
    found = reported(path)
    (queue.path / "channels.json").write_bytes(text)
    assert "channels.json" in found[0]


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


def test_a_site_starts_again_after_its_channel_was_trained(
    write: Write, serve: Serve, run: Callable[..., Any], tmp_path: Path
) -> None:
    path = write(f'[site]\nname = "here"\nqueue = "q"\nlisten = ["tcp/127.0.0.1:0"]\n{TEXT}')
    process = serve(path)
    process.wait_until_ready()
    with Queue.open(tmp_path / "q") as queue:
        trained(queue)
    done = run("queue", "train", "q", "wx/text/**", "--size", "2KiB", "--channel", "text")
    assert done.exit_code == 0, done.output
    assert "if [[channel]] text of the configuration of the site names a dictionary, write dictionary = " in done.output
    process.reload("site.toml is loaded")
    assert process.stop() == 0
    assert run("config", "check", path).exit_code == 0
    again = serve(path)
    again.wait_until_ready()
    assert again.stop() == 0


def test_commands_that_change_what_a_configuration_may_name_say_so_if_the_queue_belongs_to_a_site(
    make_queue: Callable[..., Queue], run: Callable[..., Any]
) -> None:
    queue = make_queue()
    queue.channel("text", "wx/text/**")
    change = ("channel", "change", "q", "text", "--timeout", "30s")
    resize = ("queue", "resize", "q", "--age", "2h")
    assert "site" not in run(*change).output + run(*resize).output
    (queue.path / "site").mkdir()
    assert "if the configuration of the site has a [[channel]] text, write the same there" in run(*change).output
    assert "if [queue] of the configuration of the site names size or age" in run(*resize).output
    assert "site" not in run(*change, "--json").output
