"""Archives: what was written to a table comes back as it was, once."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import Queue
from headrace.errors import PipelineError
from headrace.pipeline.archive import Archive, Wanted, totals
from headrace.pipeline.columns import arrow_of

Make = Callable[..., Queue]
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def source(make_queue: Make) -> Queue:
    queue = make_queue("source")
    for number in range(20):
        queue.put(
            b"payload %d" % number, feed=f"wx/{'radar' if number % 4 else 'text'}", ident=f"i{number}",
            created=NOON + timedelta(minutes=number), priority=number % 8, slice=number % 3 if number % 2 else None,
            properties={"level": str(number)}, expiry="1h",
        )  # fmt: skip
    return queue


@pytest.fixture
def table(source: Queue, tmp_path: Path) -> Path:
    """Two files, as two batches would make them."""
    folder = tmp_path / "table"
    folder.mkdir()
    for name, first in (("a", 1), ("b", 11)):
        rows = arrow_of(source.read(first, limit=10))
        pq.write_table(pa.Table.from_batches([rows]), folder / f"{name}.parquet")
    return folder


def test_products_come_back_as_they_were(source: Queue, table: Path, make_queue: Make) -> None:
    target = make_queue("target")
    assert list(Archive(table).replay(target)) == [(10, 10), (10, 10)]
    for came, sent in zip(target.read("oldest"), source.read("oldest"), strict=True):
        for name in ("feed", "ident", "origin", "origin_sequence", "created_ns", "priority", "slice", "signature",
                     "properties"):  # fmt: skip
            assert getattr(came, name) == getattr(sent, name), name
        assert bytes(came.payload) == bytes(sent.payload)
        assert came.expiry_ns is None


def test_what_a_queue_holds_is_not_put_again(source: Queue, table: Path, make_queue: Make) -> None:
    assert sum(stored for _, stored in Archive(table).replay(source)) == 0
    target = make_queue("target")
    assert [sum(stored for _, stored in Archive(table).replay(target)) for _ in range(2)] == [20, 0]


def test_a_part_may_be_asked_for(table: Path, make_queue: Make) -> None:
    target = make_queue("target")
    wanted = Wanted("wx/text", NOON + timedelta(minutes=4), NOON + timedelta(minutes=16))
    assert sum(stored for _, stored in Archive(table).replay(target, wanted)) == 3
    assert [product.ident for product in target.read("oldest")] == ["i4", "i8", "i12"]


def test_it_tells_what_it_has(table: Path) -> None:
    radar, text = Archive(table).holdings()
    assert (radar.feed, radar.products, text.feed, text.products) == ("wx/radar", 15, "wx/text", 5)
    assert (text.first, text.last) == (NOON, NOON + timedelta(minutes=16))
    assert totals([radar, text]) == (20, sum(len(b"payload %d" % n) for n in range(20)))
    assert Archive(table).holdings(Wanted("nothing/**")) == []


def test_a_delta_table_is_an_archive_too(source: Queue, tmp_path: Path, make_queue: Make) -> None:
    deltalake = pytest.importorskip("deltalake")
    rows = pa.Table.from_batches([arrow_of(source.read("oldest"))])
    deltalake.write_deltalake(str(tmp_path / "delta"), rows)
    target = make_queue("target")
    assert sum(stored for _, stored in Archive(tmp_path / "delta").replay(target)) == 20


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no table at"):
        Archive(tmp_path / "nowhere")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(PipelineError, match=r"has no column feed.*holds no products"):
        Archive(tmp_path)
