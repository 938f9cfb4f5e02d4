"""headrace top: a frame drawn for terminals of any size."""

import io

import pytest
from rich.console import Console
from snapshots import consumer_statistics, queue_statistics, snapshot, station_statistics

from headrace.cli.top.frame import Frame, frame_of
from headrace.cli.top.view import Canvas, bar, bytes_per_second, draw, per_second, share_lines, short
from headrace.log.statistics import FeedStatistics


def picture(frame: Frame, canvas: Canvas) -> list[str]:
    console = Console(width=canvas.width, height=canvas.height, record=True, file=io.StringIO())
    console.print(draw(frame, canvas))
    return console.export_text().splitlines()


@pytest.fixture
def busy() -> Frame:
    feeds = [FeedStatistics(f"wx/radar/nexrad2/K{n:03}", 100 + n, 10**6 * n, n) for n in range(40)]
    stations = [
        station_statistics(f"station {n}", chain=n, capacity=100, waiting=n, parked=n % 2, paused=n == 3)
        for n in range(12)
    ]
    stations.append(station_statistics("behind", chain=0, stage=2, group="pool"))
    consumers = [consumer_statistics("station 1", n, alive=n != 2) for n in range(9)]
    queue = queue_statistics(feeds=feeds, size=2**31, file_bytes=2**30, held_products=812345, oldest_age_s=2520.0)
    return frame_of(snapshot(0, queue), snapshot(1, queue, *stations, *consumers))


@pytest.mark.parametrize("size", [(100, 30), (80, 24), (200, 80), (60, 16), (80, 8), (40, 5), (20, 3)])
def test_the_picture_fits_the_terminal(busy: Frame, size: tuple[int, int]) -> None:
    width, height = size
    lines = picture(busy, Canvas(width, height))
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_everything_is_shown_in_a_terminal_of_80_by_24(busy: Frame) -> None:
    shown = "\n".join(picture(busy, Canvas(80, 24)))
    for words in ("fill █████░░░░░  50%", "1.0 GiB of 2.0 GiB", "812k products", "oldest 42.0 min", "stations (5 of 13)",
                  "consumers (5 of 9)", "feeds (5 of 40)", "station 1", "ack/s", "dead 100 ms"):  # fmt: skip
        assert words in shown


def test_a_list_without_rows_leaves_its_space_to_the_others() -> None:
    feeds = [FeedStatistics(f"feed/{n}", 1, 1, n) for n in range(50)]
    lines = picture(frame_of(None, snapshot(0, queue_statistics(feeds=feeds))), Canvas(80, 24))
    assert lines[4].startswith("feeds (19 of 50)")
    assert not any("stations" in line for line in lines)


def test_without_a_height_all_stations_and_the_busiest_feeds_are_shown(busy: Frame) -> None:
    shown = "\n".join(picture(busy, Canvas(100)))
    assert "station 11" in shown
    assert "feeds (10 of 40)" in shown


def test_a_chain_is_indented_and_flags_are_shown() -> None:
    stations = [station_statistics("first", blocking=True), station_statistics("second", stage=2, group="pool"),
                station_statistics("third", stage=3, paused=True)]  # fmt: skip
    shown = "\n".join(picture(frame_of(None, snapshot(0, None, *stations)), Canvas(100)))
    assert "\nfirst blocking " in shown
    assert "\n└ second in pool " in shown
    assert "\n  └ third paused " in shown


def test_markup_and_control_characters_in_names_are_escaped() -> None:
    names = queue_statistics(feeds=[FeedStatistics("[bold]feed", 1, 1, 1)])
    shown = "\n".join(picture(frame_of(None, snapshot(0, names, station_statistics("[red]a\x1b[2J"))), Canvas(100)))
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


def test_a_bar_is_empty_only_at_zero() -> None:
    assert [bar(fill, 4).plain for fill in (0.0, 0.001, 0.5, 1.0, 7.0)] == ["░░░░", "█░░░", "██░░", "████", "████"]
