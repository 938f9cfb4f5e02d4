"""Ranges of a read: where they begin and end, and which of them are errors. Without Spark."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import Queue
from headrace.errors import OptionError
from headrace.pipeline.source.backlog import Backlog, Behind, behind_of
from headrace.pipeline.source.options import read_options
from headrace.pipeline.source.ranges import Position, range_of
from headrace.pipeline.source.spans import Span, end_within, spans_of
from headrace.selection import Selection
from support.damage import flip_bit

Make = Callable[..., Queue]


@pytest.fixture
def queue(make_queue: Make) -> Queue:
    """Thirty products, every third of them text."""
    queue = make_queue()
    for number in range(30):
        queue.put(b"%d" % number, feed="wx/radar" if number % 3 else "wx/text", ident=f"i{number}")
    return queue


def resolved(queue: Queue, start: str, end: str) -> tuple[int, int]:
    return range_of(queue, Position("startingOffsets", start), Position("endingOffsets", end))


@pytest.mark.parametrize(
    ("start", "end", "sequences"),
    [
        ("earliest", "latest", (1, 31)), ("oldest", "next", (1, 31)), ("11", "21", (11, 21)), ("1h", "latest", (1, 31)),
        ("2020-01-01", "2020-01-02", (1, 1)), ("latest", "latest", (31, 31)), ("31", "31", (31, 31)),
        ("earliest", "2200-01-01", (1, 31)), ("EARLIEST", " Latest", (1, 31)),
    ],
)  # fmt: skip
def test_a_range_is_given_by_words_sequences_times_or_ages(
    queue: Queue, start: str, end: str, sequences: tuple[int, int]
) -> None:
    assert resolved(queue, start, end) == sequences


@pytest.mark.parametrize(
    ("start", "end", "problem"),
    [
        ("21", "11", "ends before it begins: startingOffsets 21 is sequence 21, endingOffsets 11 is sequence 11"),
        ("latest", "earliest", "ends before it begins"),
        ("900", "latest", "startingOffsets: 900 is in the future, the next product will be 31; give latest"),
        ("earliest", "900", "endingOffsets: 900 is in the future"),
        ("2200-01-01", "latest", "startingOffsets: '2200-01-01' is in the future"),
        ("soon", "latest", "'soon' is invalid; give earliest, latest, a sequence"),
    ],
)
def test_a_reversed_or_future_range_is_an_error(queue: Queue, start: str, end: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        resolved(queue, start, end)


def test_every_value_that_a_hint_names_is_accepted_as_it_stands() -> None:
    with pytest.raises(OptionError) as refused:
        read_options({"queue": "q", "startingOffsets": "soon"})
    for value in ("earliest", "latest", "4711", "2026-11-15T12:00Z", "1h"):
        assert f" {value}" in str(refused.value)
        read_options({"queue": "q", "startingOffsets": value, "endingOffsets": value})
    with pytest.raises(OptionError) as refused:
        read_options({"queue": "q", "startingTimestamp": "soon"})
    assert " 2026-11-15T12:00Z" in str(refused.value)
    read_options({"queue": "q", "startingTimestamp": "2026-11-15T12:00Z"})


@pytest.mark.parametrize("since", ["1970-01-01T00:00:05Z", "5000"])
def test_a_range_by_creation_is_part_of_the_selection(make_queue: Make, since: str) -> None:
    queue = make_queue()
    for second in range(10):
        queue.put(b"%d" % second, feed="x", created=second * 10**9 + 1)
    options = read_options({"queue": "q", "select": "x", "startingTimestamp": since, "endingTimestamp": "8000"})
    assert [bytes(product.payload) for product in queue.read("oldest", options.selection)] == [b"5", b"6", b"7"]


# --- limits, and what lies ahead --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "products", "end"),
    [("**", 12, 13), ("wx/text", 4, 11), ("wx/text", 10, 29), ("wx/text", 11, 31), ("nowhere", 1, 31),
     ('wx/text ident ~ "^i1"', 2, 17), ('wx/text ident ~ "^i1"', 9, 31)],
)  # fmt: skip
def test_a_limit_counts_only_products_that_the_selection_matches(
    queue: Queue, select: str, products: int, end: int
) -> None:
    assert end_within(queue, Selection.parse(select), 1, queue.next, products, None) == end


@pytest.mark.parametrize("select", ["wx/text", 'wx/text ident ~ "^i"'])
def test_a_backlog_counts_only_products_that_the_selection_matches(queue: Queue, select: str) -> None:
    backlog = Backlog(Selection.parse(select))
    first = queue.next
    assert [backlog.behind(queue, position)[0] for position in (1, 11, 12)] == [10, 6, 6]
    assert backlog.behind(queue, first) == (0, 0.0)
    queue.put_many([b"a", b"b"], feed="wx/radar")
    assert backlog.behind(queue, first) == (0, 0.0)
    queue.put(b"c", feed="wx/text", ident="i")
    products, seconds = backlog.behind(queue, first)
    assert (products, seconds >= 0) == (1, True)
    assert backlog.behind(queue, 1)[0] == 11, "a position may go back"


def test_a_damaged_product_is_counted_and_does_not_fail_the_report(queue: Queue, tmp_path: Path) -> None:
    queue.put(b"a payload of its own", feed="wx/text", ident="i")
    flip_bit(tmp_path / "q", b"a payload of its own")
    try:
        assert Backlog(Selection.parse("wx/text")).behind(queue, 31) == (1, 0.0)
    finally:
        flip_bit(tmp_path / "q", b"` payload of its own")  # repairs it


def test_what_a_stream_reports_is_read_from_its_progress() -> None:
    report = '{"queue": "0b7f", "sequence": 4800, "lost": 3, "behind_products": 89, "behind_s": 2.5}'
    assert behind_of(report) == Behind(89, 2.5, 3)
    assert behind_of('{"sequence": 4800}') is behind_of(None) is behind_of("no JSON") is None


def test_a_task_has_about_as_many_bytes_as_the_user_allows(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q", size="64MiB") as queue:
        queue.put_many([bytes([n]) * (1 << 20) for n in range(40)], feed="a", ident=[f"i{n}" for n in range(40)])
        assert spans_of(queue, Selection(), 1, 41, None, False) == [Span(1, 41)]
        spans = spans_of(queue, Selection(), 1, 41, None, False, 4 << 20)
        assert 10 <= len(spans) <= 11
        assert [span.first for span in spans] == [1, *(span.end for span in spans[:-1])]
        assert spans[-1].end == 41
        assert max(span.end - span.first for span in spans) <= 5
        assert len(spans_of(queue, Selection(), 1, 41, None, False, 1)) == 40, "one product always fits"
