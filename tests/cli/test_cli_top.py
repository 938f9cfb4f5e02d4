"""headrace top: rates from two snapshots, the picture at any size, and the command as a user runs it."""

import fcntl
import io
import os
import pty
import shutil
import signal
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from headrace import Queue
from headrace.cli.top.command import frames
from headrace.cli.top.frame import Frame, Snapshot, frame_of
from headrace.cli.top.view import Canvas, bar, bytes_per_second, draw, per_second, share_lines, short
from headrace.log.statistics import FeedStatistics, Statistics
from headrace.station import ConsumerStatistics, StationStatistics
from support.commandline import Run, environment, fill, objects, wait_until

# --- fake snapshots -------------------------------------------------------------------------------


def queue_told(**changed: Any) -> Statistics:
    zero = dict.fromkeys(Statistics.__struct_fields__, 0)
    lists: dict[str, Any] = {"rates": [], "attached": [], "cursors": [], "feeds": []}
    return Statistics(**{**zero, **lists, "size": 1000, "oldest_age_s": None, "flush_failure": None, **changed})


def station_told(name: str, **changed: Any) -> StationStatistics:
    zero = dict.fromkeys(StationStatistics.__dataclass_fields__, 0)
    terms: dict[str, Any] = {
        "name": name, "chain": 1, "stage": 1, "group": None, "channel": None, "selection": "wx/**", "blocking": False,
        "durable": True, "paused": False, "prescale": 1, "capacity": None, "dropped": {}, "oldest_age_s": None,
    }  # fmt: skip
    return StationStatistics(**{**zero, **terms, **changed})


def consumer_told(station: str, place: int = 0, **changed: Any) -> ConsumerStatistics:
    told: dict[str, Any] = {
        "pid": 100 + place, "attached_ns": 1, "beat_age_s": 0.1, "leased": 0, "delivered": 0, "acknowledged": 0, "alive": True,
    }  # fmt: skip
    return ConsumerStatistics(station=station, place=place, **{**told, **changed})


def snapshot(at_s: float, queue: Statistics | None = None, *more: StationStatistics | ConsumerStatistics) -> Snapshot:
    stations = [each for each in more if isinstance(each, StationStatistics)]
    consumers = [each for each in more if isinstance(each, ConsumerStatistics)]
    return Snapshot("q", 10**18, at_s, queue or queue_told(), stations, consumers)


# --- frames ---------------------------------------------------------------------------------------


def test_the_first_frame_has_counts_and_no_rates() -> None:
    feed = FeedStatistics("wx/text", 5, 50, 5)
    frame = frame_of(None, snapshot(0, queue_told(feeds=[feed]), station_told("a"), consumer_told("a")))
    assert frame.seconds is None
    assert (frame.queue.products_s, frame.feeds[0].products_s, frame.feeds[0].bytes_s) == (None, None, None)
    assert (frame.stations[0].acknowledged_s, frame.consumers[0].acknowledged_s) == (None, None)
    assert (frame.feeds[0].products, frame.stations[0].name) == (5, "a")


def test_rates_of_the_queue_are_per_second_between_two_snapshots() -> None:
    before = snapshot(10.0, queue_told(inserted_products=100, inserted_bytes=5000, duplicates=7, evicted_products=0))
    now = snapshot(12.0, queue_told(inserted_products=150, inserted_bytes=9000, duplicates=8, evicted_products=20))
    told = frame_of(before, now).queue
    assert (told.products_s, told.bytes_s, told.duplicates_s, told.evicted_s) == (25.0, 2000.0, 0.5, 10.0)


def test_the_busiest_feeds_come_first_and_a_new_feed_had_nothing_before() -> None:
    before = snapshot(0, queue_told(feeds=[FeedStatistics("old", 900, 9000, 1), FeedStatistics("busy", 10, 100, 2)]))
    feeds = [
        FeedStatistics("old", 900, 9000, 1), FeedStatistics("busy", 20, 200, 3), FeedStatistics("new", 4, 40, 4),
        FeedStatistics("only a name", 0, 0, 0),
    ]  # fmt: skip
    rows = frame_of(before, snapshot(2, queue_told(feeds=feeds))).feeds
    assert [(row.feed, row.products_s, row.bytes_s) for row in rows] == [
        ("busy", 5.0, 50.0), ("new", 2.0, 20.0), ("old", 0.0, 0.0),
    ]  # fmt: skip


def test_a_station_tells_what_comes_in_gets_done_and_is_dropped() -> None:
    before = snapshot(0, None, station_told("a", admitted=10, acknowledged=5, dropped={"fifo": 1}))
    now = station_told("a", admitted=30, acknowledged=15, dropped={"fifo": 3}, expired=1, evicted=1, oldest_age_s=3.5)
    (row,) = frame_of(before, snapshot(2, None, now)).stations
    assert (row.admitted_s, row.acknowledged_s, row.dropped_s, row.lag_s) == (10.0, 5.0, 2.0, 3.5)


def test_a_station_that_was_made_anew_has_no_rate_yet() -> None:
    before = snapshot(0, None, station_told("a", chain=1, acknowledged=500))
    (row,) = frame_of(before, snapshot(1, None, station_told("a", chain=2, acknowledged=900))).stations
    assert row.acknowledged_s is None


def test_a_counter_that_began_anew_has_no_rate_yet() -> None:
    before = snapshot(0, None, station_told("a", acknowledged=500))
    (row,) = frame_of(before, snapshot(1, None, station_told("a", acknowledged=3))).stations
    assert row.acknowledged_s is None


def test_the_bar_of_a_station_is_the_fill_of_its_capacity() -> None:
    (row,) = frame_of(None, snapshot(0, None, station_told("a", capacity=200, waiting=50, behind=1000))).stations
    assert row.fill == 0.25


def test_where_the_queue_is_the_capacity_the_bar_is_how_much_of_its_size_waits() -> None:
    half_full = queue_told(held_products=100, file_bytes=500, size=1000)
    (row,) = frame_of(None, snapshot(0, half_full, station_told("a", waiting=40, behind=10))).stations
    assert row.fill == 0.25


def test_an_empty_queue_has_empty_bars() -> None:
    (row,) = frame_of(None, snapshot(0, queue_told(), station_told("a"))).stations
    assert row.fill == 0.0


def test_stations_of_a_series_are_told_by_how_many_stages_stand_before_them() -> None:
    stations = [station_told("a", stage=1), station_told("b", stage=2), station_told("c", stage=2, group="g"),
                station_told("d", stage=3), station_told("e", chain=2, stage=9)]  # fmt: skip
    rows = frame_of(None, snapshot(0, None, *stations)).stations
    assert [(row.name, row.depth) for row in rows] == [("a", 0), ("b", 1), ("c", 1), ("d", 2), ("e", 0)]


def test_consumers_are_known_by_their_attachment_not_by_their_place() -> None:
    before = snapshot(
        0, None, consumer_told("a", 0, acknowledged=10, delivered=12), consumer_told("a", 1, acknowledged=50)
    )
    now = snapshot(
        2,
        None,
        consumer_told("a", 1, acknowledged=60, attached_ns=2),
        consumer_told("a", 0, acknowledged=20, delivered=24),
    )
    rows = frame_of(before, now).consumers
    assert [(row.place, row.acknowledged_s, row.delivered_s) for row in rows] == [(0, 5.0, 6.0), (1, None, None)]


def test_a_frame_is_json_for_programs() -> None:
    frame = frame_of(snapshot(0), snapshot(1, None, station_told("a"), consumer_told("a")))
    told = msgspec.json.decode(msgspec.json.encode(frame))
    assert set(told) == {"time", "seconds", "queue", "feeds", "stations", "consumers"}
    assert told["seconds"] == 1.0


def test_the_queue_is_looked_at_once_per_interval() -> None:
    """Whatever a look takes, the next comes a whole interval later."""
    looks = iter([snapshot(100.0), snapshot(103.5), snapshot(104.6)])
    paused: list[float] = []

    class Fake:
        def read(self) -> Snapshot:
            return next(looks)

    shown = frames(Fake(), 1.0, paused.append)  # type: ignore[arg-type]
    assert [next(shown).seconds for _ in range(3)] == pytest.approx([None, 3.5, 1.1])
    assert paused == [101.0, 104.5]


# --- the picture ----------------------------------------------------------------------------------


def picture(frame: Frame, canvas: Canvas) -> list[str]:
    console = Console(width=canvas.width, height=canvas.height, record=True, file=io.StringIO())
    console.print(draw(frame, canvas))
    return console.export_text().splitlines()


@pytest.fixture
def busy() -> Frame:
    feeds = [FeedStatistics(f"wx/radar/nexrad2/K{n:03}", 100 + n, 10**6 * n, n) for n in range(40)]
    stations = [
        station_told(f"station {n}", chain=n, capacity=100, waiting=n, parked=n % 2, paused=n == 3) for n in range(12)
    ]
    stations.append(station_told("behind", chain=0, stage=2, group="pool"))
    consumers = [consumer_told("station 1", n, alive=n != 2) for n in range(9)]
    queue = queue_told(feeds=feeds, size=2**31, file_bytes=2**30, held_products=812345, oldest_age_s=2520.0)
    return frame_of(snapshot(0, queue), snapshot(1, queue, *stations, *consumers))


@pytest.mark.parametrize("size", [(100, 30), (80, 24), (200, 80), (60, 16), (80, 8), (40, 5), (20, 3)])
def test_the_picture_fits_the_terminal(busy: Frame, size: tuple[int, int]) -> None:
    width, height = size
    lines = picture(busy, Canvas(width, height))
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_everything_is_shown_in_a_usual_terminal(busy: Frame) -> None:
    shown = "\n".join(picture(busy, Canvas(80, 24)))
    for words in ("fill █████░░░░░  50%", "1.0 GiB of 2.0 GiB", "812k products", "oldest 42.0 min", "stations (5 of 13)",
                  "consumers (5 of 9)", "feeds (5 of 40)", "station 1", "ack/s", "dead 0.1 s"):  # fmt: skip
        assert words in shown


def test_a_list_without_rows_leaves_its_space_to_the_others() -> None:
    feeds = [FeedStatistics(f"feed/{n}", 1, 1, n) for n in range(50)]
    lines = picture(frame_of(None, snapshot(0, queue_told(feeds=feeds))), Canvas(80, 24))
    assert lines[4].startswith("feeds (19 of 50)")
    assert not any("stations" in line for line in lines)


def test_where_height_sets_no_limit_all_stations_are_shown_and_the_busiest_feeds(busy: Frame) -> None:
    shown = "\n".join(picture(busy, Canvas(100)))
    assert "station 11" in shown
    assert "feeds (10 of 40)" in shown


def test_a_series_is_indented_and_specialities_are_told() -> None:
    stations = [station_told("first", blocking=True), station_told("second", stage=2, group="pool"),
                station_told("third", stage=3, paused=True)]  # fmt: skip
    shown = "\n".join(picture(frame_of(None, snapshot(0, None, *stations)), Canvas(100)))
    assert "\nfirst blocking " in shown
    assert "\n└ second in pool " in shown
    assert "\n  └ third paused " in shown


def test_names_are_neither_markup_nor_control_characters() -> None:
    names = queue_told(feeds=[FeedStatistics("[bold]feed", 1, 1, 1)])
    shown = "\n".join(picture(frame_of(None, snapshot(0, names, station_told("[red]a\x1b[2J"))), Canvas(100)))
    assert "[bold]feed" in shown
    assert r"[red]a\x1b[2J" in shown


def test_a_plain_terminal_gets_plain_bars(busy: Frame) -> None:
    assert "".join(picture(busy, Canvas(100, 30, ascii_only=True))).replace("–", "-").isascii()


@pytest.mark.parametrize(
    ("lines", "wanted", "given"),
    [
        (20, [2, 2, 2], [2, 2, 2]),
        (21, [50, 50, 50], [5, 5, 5]),
        (21, [1, 50, 50], [1, 7, 7]),
        (6, [50, 50, 50], [1, 1, 0]),
        (5, [50, 50, 50], [3, 0, 0]),
        (2, [50, 50, 50], [0, 0, 0]),
        (-3, [1], [0]),
        (10, [], []),
    ],
)
def test_lines_are_shared_evenly(lines: int, wanted: list[int], given: list[int]) -> None:
    assert share_lines(lines, wanted) == given


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9999, "9,999"), (10_000, "10k"), (12_345, "12.3k"), (999_499, "999k"), (999_500, "1M"),
     (4_560_000, "4.56M"), (10**10, "10G"), (5 * 10**13, "50T")],
)  # fmt: skip
def test_large_numbers_are_short(number: int, text: str) -> None:
    assert short(number) == text


def test_rates_have_a_decimal_where_it_matters() -> None:
    assert [per_second(rate) for rate in (None, 0.0, 0.04, 2.5, 99.96, 12345.6)] == [
        "–",
        "0",
        "0.0",
        "2.5",
        "100",
        "12.3k",
    ]
    assert [bytes_per_second(rate) for rate in (None, 1536.0)] == ["–", "1.5 KiB/s"]


def test_a_bar_is_empty_only_if_nothing_is_there() -> None:
    assert [bar(fill, 4).plain for fill in (0.0, 0.001, 0.5, 1.0, 7.0)] == ["░░░░", "█░░░", "██░░", "████", "████"]


# --- the command ----------------------------------------------------------------------------------


def test_once_shows_the_queue_without_a_terminal(run: Run, path: Path) -> None:
    fill(path, 3)
    with Queue.open(path) as queue:
        queue.station("decode", "wx/**", start="oldest")
    result = run("top", path, "--once", "--interval", "100ms")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "3 products" in result.stdout
    assert "decode" in result.stdout
    assert "wx/text" in result.stdout


def test_once_is_one_object_for_programs(run: Run, path: Path) -> None:
    fill(path, 3)
    with Queue.open(path) as queue, queue.station("decode", "wx/**", start="oldest").attach() as consumer:
        held = consumer.get(2, 5)
        (told,) = objects(run("top", path, "--once", "--json", "--interval", "0.1").stdout)
        assert len(held) == 2
    assert told["queue"]["held_products"] == 3
    (station,) = told["stations"]
    assert (station["name"], station["waiting"], station["leased"], station["acknowledged_s"]) == ("decode", 1, 2, 0.0)
    assert [(each["pid"], each["leased"]) for each in told["consumers"]] == [(os.getpid(), 2)]
    assert told["feeds"] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "Standard output is not a terminal: give --once or --json"),
        (["--once", "--interval", "1ms"], "--interval 0.001 s is too short"),
        (["--once", "--interval", "often"], "--interval 'often' is not a length of time"),
    ],
)
def test_bad_options_are_refused(run: Run, path: Path, words: list[str], problem: str) -> None:
    result = run("top", path, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


def test_a_missing_queue_is_an_error(run: Run) -> None:
    assert run("top", "nowhere", "--once").exit_code == 3


# --- real processes -------------------------------------------------------------------------------


def test_one_line_per_interval_tells_what_happened_in_it(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()
    with Queue.open(path) as queue:
        queue.put_many([b"%d" % n for n in range(50)], feed="wx/text")
    counts = 0.0
    while counts < 49.5:
        (told,) = objects(process.stdout.readline().decode())
        assert told["seconds"] >= 0.1
        counts += sum(feed["products_s"] * told["seconds"] for feed in told["feeds"])
    assert round(counts) == 50
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert process.stderr.read().strip() == b""


def test_it_ends_quietly_as_soon_as_nobody_reads_it(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "1h")
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""


def test_a_queue_that_goes_away_is_told(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()
    shutil.rmtree(path)
    _, err = process.communicate(timeout=60)
    (told,) = objects(err.decode())
    assert (process.returncode, told["error"]) == (3, "QueueMissingError")
    assert "was removed" in told["problem"]
    assert told["hint"]


def test_a_queue_that_was_replaced_is_told(path: Path, tmp_path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()
    Queue.create(tmp_path / "other", size="4MiB").close()
    path.rename(tmp_path / "before")
    (tmp_path / "other").rename(path)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert any(words in err for words in (b"another queue is at", b"was removed"))  # it may read in between


def test_damage_meanwhile_is_told(path: Path, tmp_path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()
    (tmp_path / "spoilt").touch()
    (path / "queue.json").write_text("nonsense")
    _, err = process.communicate(timeout=60)
    (told,) = objects(err.decode())
    assert (process.returncode, told["error"]) == (3, "QueueDamagedError")


def test_stations_that_come_and_go_are_followed(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()

    def names() -> list[str]:
        (told,) = objects(process.stdout.readline().decode())
        return [station["name"] for station in told["stations"]]

    with Queue.open(path) as queue:
        station = queue.station("decode", "wx/**")
        wait_until(lambda: names() == ["decode"])
        station.remove()
        wait_until(lambda: names() == [])


class Terminal:
    """A terminal of some size with `headrace top` in it, and what was written there."""

    def __init__(self, start: Any, path: Path, width: int, height: int, *words: str) -> None:
        self._main, terminal = pty.openpty()
        self.resize(width, height)
        env = {
            name: value
            for name, value in environment(TERM="xterm-256color").items()
            if name not in ("COLUMNS", "LINES")
        }
        self.process = start("top", path, *words, stdout=terminal, env=env)
        os.close(terminal)
        os.set_blocking(self._main, False)
        self.shown = b""

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self) -> bytes:
        """Everything so far."""
        try:
            while chunk := os.read(self._main, 65536):
                self.shown += chunk
        except OSError:  # nothing at the moment, or the other side is closed
            pass
        return self.shown

    def close(self) -> None:
        os.close(self._main)


@pytest.fixture
def terminal(start, path: Path) -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_terminal(width: int, height: int, *words: str) -> Terminal:
        opened.append(Terminal(start, path, width, height, *words))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_live_view_leaves_the_terminal_as_it_was(terminal, path: Path, number: int, code: int) -> None:
    fill(path, 3)
    live = terminal(100, 30, "--interval", "100ms")
    wait_until(lambda: b"wx/text" in live.read())
    live.process.send_signal(number)
    assert live.process.wait(timeout=60) == code
    shown = live.read()
    assert shown.index(b"\x1b[?1049h") < shown.rindex(b"\x1b[?1049l")  # the other screen, and back
    assert shown.rindex(b"\x1b[?25l") < shown.rindex(b"\x1b[?25h")  # the cursor is there again
    assert live.process.stderr.read().strip() == b""


def test_a_terminal_that_changes_its_size_gets_the_picture_again_at_once(terminal, path: Path) -> None:
    fill(path, 3)
    live = terminal(100, 30, "--interval", "1h")
    wait_until(lambda: b"wx/text" in live.read())
    before = len(live.read())
    live.resize(50, 12)
    live.process.send_signal(signal.SIGWINCH)
    wait_until(lambda: b"wx/text" in live.read()[before:])
    lines = live.read()[before:].decode().split("\r\n")
    assert 0 < len(lines) <= 12


def test_a_live_view_of_a_queue_that_goes_away_ends_with_a_message(terminal, path: Path) -> None:
    live = terminal(80, 24, "--interval", "100ms")
    wait_until(lambda: b"fill" in live.read())
    shutil.rmtree(path)
    assert live.process.wait(timeout=60) == 3
    assert b"was removed while it was watched" in live.process.stderr.read()
