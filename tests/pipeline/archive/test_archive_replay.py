"""Replays of an archive: in the order of time, as batches of products, continued without a gap."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import Queue
from headrace.errors import OptionError
from headrace.pipeline.archive import Archive
from headrace.pipeline.source.columns import arrow_of
from headrace.product.product import FIELDS
from headrace.testing.clock import MockClock
from headrace.timing.replay import Replay
from support.mock_time import MockTime, S

Make = Callable[..., Queue]
NOON_NS = int(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()) * S


@pytest.fixture
def source(make_queue: Make) -> Queue:
    """Twenty products, one a minute from noon on."""
    clock = MockClock(NOON_NS)
    queue = make_queue("source", clock=clock)
    for number in range(20):
        queue.put(
            b"payload %d" % number, feed=f"wx/{'radar' if number % 4 else 'text'}", ident=f"i{number}",
            priority=number % 8, slice=number % 3 if number % 2 else None, properties={"level": str(number)},
            expiry="1h", created=NOON_NS + number * S,
        )  # fmt: skip
        clock.advance(60)
    return queue


def write(folder: Path, source: Queue, **files: Any) -> Path:
    """A table with these files, each with the products at these places."""
    folder.mkdir()
    rows = pa.Table.from_batches([arrow_of(source.read_batch("oldest"))])
    for name, places in files.items():
        pq.write_table(rows.take(pa.array(places)), folder / f"{name}.parquet")
    return folder


@pytest.fixture
def table(tmp_path: Path, source: Queue) -> Path:
    """Even and odd ones are in two files, one of them backwards."""
    return write(tmp_path / "table", source, a=range(18, -1, -2), b=range(1, 20, 2))


def timed(replay: Replay) -> MockTime:
    time = MockTime()
    replay._elapsed = time
    return time


def test_an_archive_is_replayed_in_the_order_of_time_and_in_its_spacing(table: Path, source: Queue) -> None:
    replay = Archive(table).replay(speed="60x")
    time = timed(replay)
    came = [(time.now_ns / S, product.copy()) for batch in replay for product in batch]
    assert [(at, product.ident) for at, product in came] == [(number, f"i{number}") for number in range(20)]
    for (_, product), original in zip(came, source.read_batch("oldest"), strict=True):
        for name in set(FIELDS) - {"previous"}:  # sequence, times, origin, expiry, properties, slice …
            assert getattr(product, name) == getattr(original, name), name
    assert replay.progress().fraction == pytest.approx(1.0)


def test_the_spacing_may_be_that_of_creation(table: Path) -> None:
    replay = Archive(table).replay(by="created")
    time = timed(replay)
    assert [(time.now_ns / S, each.idents) for each in replay] == [(number, [f"i{number}"]) for number in range(20)]


def test_without_a_time_of_insertion_creation_counts(table: Path) -> None:
    for path in table.iterdir():
        pq.write_table(pq.read_table(path).drop(["inserted"]), path)
    replay = Archive(table).replay()
    time = timed(replay)
    assert len(list(replay)) == 20
    assert time.now_ns == 19 * S


def test_a_window_of_times_and_a_selection(table: Path) -> None:
    def idents(*window: Any) -> list[str]:
        return [ident for batch in Archive(table).replay(*window, speed="max") for ident in batch.idents]

    assert idents("2026-07-01T12:02Z", "2026-07-01T12:05Z") == ["i2", "i3", "i4"]
    assert idents("2026-07-01T12:02Z", "2026-07-01T12:05Z", "wx/text") == ["i4"]
    assert idents("oldest", "2026-07-01T12:00:01Z") == ["i0"]
    assert idents("2026-07-02", "2026-07-03") == []
    for wrong in ((5,), ("oldest", 7), ("2026-07-02", "2026-07-01")):
        with pytest.raises(OptionError):
            idents(*wrong)


def test_a_seek_in_an_archive(table: Path) -> None:
    replay = Archive(table).replay()
    time = timed(replay)
    time.at(90, lambda: replay.seek("2026-07-01T12:15Z"))
    time.at(200, lambda: replay.seek("-2min"))  # 17:50, and 17 was the last one
    came = [(time.now_ns / S, batch.idents) for batch in replay]
    assert came[:6] == [(0, ["i0"]), (60, ["i1"]), (90, ["i15"]), (150, ["i16"]), (200, ["i14"]), (260, ["i15"])]


@pytest.mark.parametrize("done", [4, 8, 11, 16])
def test_a_run_that_continues_skips_no_row_that_comes_late(
    source: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """Parts of two rows; the second file has rows that are far from their place."""
    for module in ("replay", "archive"):
        monkeypatch.setattr(f"headrace.pipeline.archive.{module}.PART_BYTES", 600)
    places = [1, 3, 5, 11, 7, 2, 9, 13, 4, 15, 17, 19]
    table = write(tmp_path / "late", source, a=[0, 6, 8, 10, 12, 14, 16, 18], b=places)
    first = Archive(table).replay(speed="max")
    before: list[str] = []
    while len(before) < done:
        before += next(first).idents
    rest = Archive(table).replay(speed="max", resume_ns=first.progress().position)
    after = [ident for batch in rest for ident in batch.idents]
    assert set(before + after) == {f"i{number}" for number in range(20)}
    assert len(after) <= 20 - len(before) + 4  # only those of the last moment come twice


def test_a_payload_larger_than_the_scratch_queue_takes(
    tmp_path: Path, make_queue: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.pipeline.archive.replay._SCRATCH_BYTES", 1 << 20)
    monkeypatch.setattr("headrace.pipeline.archive.replay.PART_BYTES", 1 << 10)
    queue = make_queue("large", size="8MiB")
    queue.put(b"small", feed="a")
    queue.put(bytes(1 << 20), feed="a")
    table = write(tmp_path / "table", queue, a=range(2))
    assert [size for batch in Archive(table).replay(speed="max") for size in batch.sizes.tolist()] == [5, 1 << 20]
