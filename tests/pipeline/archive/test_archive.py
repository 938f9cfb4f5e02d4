"""Archives: products that were written to a table come back unchanged, once."""

import json
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from headrace import Queue, Selection
from headrace.cli.main import headrace
from headrace.errors import OptionError, PayloadTooLargeError, PipelineError
from headrace.pipeline.archive import Archive, ArchiveFilter
from headrace.pipeline.archive.archive import totals
from headrace.pipeline.source.columns import arrow_of
from support.commandline import PROGRAM

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
    """Two files, as two micro-batches write them."""
    folder = tmp_path / "table"
    folder.mkdir()
    for name, first in (("a", 1), ("b", 11)):
        rows = arrow_of(source.read_batch(first, limit=10))
        pq.write_table(pa.Table.from_batches([rows]), folder / f"{name}.parquet")
    return folder


def test_replayed_products_are_unchanged(source: Queue, table: Path, make_queue: Make) -> None:
    target = make_queue("target")
    assert list(Archive(table).restore(target)) == [(10, 10), (10, 10)]
    for came, sent in zip(target.read_batch("oldest"), source.read_batch("oldest"), strict=True):
        for name in ("feed", "ident", "origin", "origin_sequence", "created_ns", "priority", "slice", "signature",
                     "properties"):  # fmt: skip
            assert getattr(came, name) == getattr(sent, name), name
        assert bytes(came.payload) == bytes(sent.payload)
        assert came.expiry_ns is None


def test_products_that_the_queue_still_holds_are_not_put_again(source: Queue, table: Path, make_queue: Make) -> None:
    assert sum(stored for _, stored in Archive(table).restore(source)) == 0
    target = make_queue("target")
    assert [sum(stored for _, stored in Archive(table).restore(target)) for _ in range(2)] == [20, 0]


@pytest.mark.parametrize("origin", ["source", "target"])
def test_a_repeated_replay_recognises_products_that_have_neither_ident_nor_signature(
    make_queue: Make, tmp_path: Path, origin: str
) -> None:
    """Also products of the queue's own origin, whose sequences are not kept."""
    bare = make_queue("bare", dedup="none", origin=origin)
    bare.put_many([b"21.5"] * 3, feed=["room/a", "room/b", "room/b"], created=[5_000, 5_000, 6_000])
    bare.put(b"21.5", feed="room/b", ident="i")
    pq.write_table(pa.Table.from_batches([arrow_of(bare.read_batch())]), tmp_path / "bare.parquet")
    target = make_queue("target", origin="target")
    archive = Archive(tmp_path / "bare.parquet")
    assert [sum(stored for _, stored in archive.restore(target)) for _ in range(2)] == [4, 0]
    as_in_ldm = make_queue("ldm", origin="target", dedup="payload")
    assert sum(stored for _, stored in archive.restore(as_in_ldm)) == 1


def test_a_filter_by_feed_and_time_replays_only_matching_products(table: Path, make_queue: Make) -> None:
    target = make_queue("target")
    wanted = ArchiveFilter("wx/text", NOON + timedelta(minutes=4), NOON + timedelta(minutes=16))
    assert sum(stored for _, stored in Archive(table).restore(target, wanted)) == 3
    assert [product.ident for product in target.read_batch("oldest")] == ["i4", "i8", "i12"]


@pytest.mark.parametrize(("since", "until"), [(NOON, NOON - timedelta(hours=1)), (NOON, NOON)])
def test_times_that_select_nothing_are_refused(since: datetime, until: datetime) -> None:
    with pytest.raises(OptionError, match="is not after since"):
        ArchiveFilter(since=since, until=until)


def test_a_time_in_the_future_is_refused() -> None:
    with pytest.raises(OptionError, match="is in the future"):
        ArchiveFilter(since=datetime.now(UTC) + timedelta(days=2))


def test_holdings_count_products_and_bytes_of_each_feed(table: Path) -> None:
    radar, text = Archive(table).holdings()
    assert (radar.feed, radar.products, text.feed, text.products) == ("wx/radar", 15, "wx/text", 5)
    assert (text.first, text.last) == (NOON, NOON + timedelta(minutes=16))
    assert totals([radar, text]) == (20, sum(len(b"payload %d" % n) for n in range(20)))
    assert Archive(table).holdings(ArchiveFilter("nothing/**")) == []


def test_a_delta_table_is_an_archive_too(source: Queue, tmp_path: Path, make_queue: Make) -> None:
    deltalake = pytest.importorskip("deltalake")
    rows = pa.Table.from_batches([arrow_of(source.read_batch("oldest"))])
    deltalake.write_deltalake(str(tmp_path / "delta"), rows)
    target = make_queue("target")
    assert sum(stored for _, stored in Archive(tmp_path / "delta").restore(target)) == 20


def test_a_table_without_products_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no table at"):
        Archive(tmp_path / "nowhere")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(PipelineError, match=r"has no column feed.*holds no products"):
        Archive(tmp_path)


# --- partitions -------------------------------------------------------------------------------------


def put_into(queue: Queue, table: Path, **how: Any) -> int:
    return sum(stored for _, stored in Archive(table).restore(queue, **how))


def partitioned(rows: pa.Table, folder: Path, *places: str) -> None:
    """One file for each row, in a folder that is named as Spark does."""
    for number, place in enumerate(places):
        (folder / place).mkdir(parents=True)
        inside = [name for name in rows.schema.names if f"{name}=" not in place]
        pq.write_table(rows.slice(number, 1).select(inside), folder / place / "part.parquet")


def flat_delta(rows: pa.Table, folder: Path, column: str) -> None:
    """As the pipeline writes it: files side by side, with the values of the partition only in the log."""
    deltalake = pytest.importorskip("deltalake")
    from deltalake.transaction import AddAction

    schema = pa.schema([field.with_nullable(True) for field in rows.schema])
    table = deltalake.DeltaTable.create(str(folder), schema, partition_by=[column])
    actions = []
    for number, value in enumerate(rows.column(column).to_pylist()):
        path = folder / f"part-{number:02}.parquet"
        pq.write_table(rows.slice(number, 1).drop([column]), path)
        values = {column: None if value is None else str(value)}
        actions.append(AddAction(path.name, path.stat().st_size, values, 0, True, '{"numRecords": 1}'))
    table.create_write_transaction(actions, "append", schema, [column])


@pytest.mark.parametrize("column", ["feed", "origin", "priority", "slice", "ident"])
def test_a_delta_table_may_be_partitioned_by_a_required_column(
    source: Queue, tmp_path: Path, make_queue: Make, column: str
) -> None:
    flat_delta(pa.Table.from_batches([arrow_of(source.read_batch("oldest"))]), tmp_path / "delta", column)
    target = make_queue("target")
    assert put_into(target, tmp_path / "delta") == 20
    for came, sent in zip(target.read_batch("oldest"), source.read_batch("oldest"), strict=True):
        assert (came.ident, getattr(came, column)) == (sent.ident, getattr(sent, column))


def test_the_value_of_a_partition_has_the_type_of_its_column(source: Queue, tmp_path: Path, make_queue: Make) -> None:
    rows = pa.Table.from_batches([arrow_of(source.read_batch("oldest", limit=4))])
    partitioned(
        rows, tmp_path / "table", "origin=007/ident=2026-07-01", "origin=1e3/ident=a%2Fb%3D%25", "origin=true/ident=null",
        "origin=here/ident=__HIVE_DEFAULT_PARTITION__",
    )  # fmt: skip
    target = make_queue("target")
    assert put_into(target, tmp_path / "table") == 4
    came = sorted((product.origin, product.ident) for product in target.read_batch("oldest"))
    assert came == [("007", "2026-07-01"), ("1e3", "a/b=%"), ("here", ""), ("true", "null")]


def test_numbers_and_times_are_read_from_folder_names(source: Queue, tmp_path: Path, make_queue: Make) -> None:
    rows = pa.Table.from_batches([arrow_of(source.read_batch("oldest", limit=2))])
    day = "created=2026-07-02 03%3A04%3A05.25"
    partitioned(rows, tmp_path / "table", f"slice=07/{day}", f"slice=__HIVE_DEFAULT_PARTITION__/{day}")
    target = make_queue("target")
    put_into(target, tmp_path / "table")
    when = int(datetime(2026, 7, 2, 3, 4, 5, 250_000, UTC).timestamp() * 1e6) * 1000
    assert [(product.slice, product.created_ns) for product in target.read_batch("oldest")] == [(7, when), (None, when)]


def test_folders_with_invalid_values_are_refused(source: Queue, tmp_path: Path, queue: Queue) -> None:
    rows = pa.Table.from_batches([arrow_of(source.read_batch("oldest", limit=1))])
    for folder, problem in {
        "priority=high": "folder for priority 'high'", "payload=x": "partition by payload",
        "feed=__HIVE_DEFAULT_PARTITION__": "a row without feed",
    }.items():  # fmt: skip
        partitioned(rows, tmp_path / folder, folder)
        with pytest.raises(PipelineError, match=problem):
            put_into(queue, tmp_path / folder)


def test_staged_and_hidden_files_are_not_part_of_a_table(table: Path, make_queue: Make) -> None:
    (table / ".staging-a-table" / "x").mkdir(parents=True)
    (table / ".staging-a-table" / "x" / "part-0.parquet").write_bytes(b"half a file")
    (table / "_headrace.json").write_text("{}")
    assert put_into(make_queue("target"), table) == 20


def test_a_table_that_is_compacted_after_it_was_listed_is_an_error_and_not_an_empty_table(
    table: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.rglob

    def listed_and_gone(folder: Path, pattern: str) -> list[Path]:
        found = list(real(folder, pattern))
        for path in found:
            if path.suffix == ".parquet":
                path.unlink()
        return found

    monkeypatch.setattr(Path, "rglob", listed_and_gone)
    with pytest.raises(PipelineError, match="was removed while the table was read; try again"):
        put_into(queue, table)


def test_columns_that_only_later_files_have_are_not_dropped(source: Queue, tmp_path: Path, make_queue: Make) -> None:
    rows = pa.Table.from_batches([arrow_of(source.read_batch("oldest"))])
    pq.write_table(rows.slice(0, 10).drop(["slice", "properties", "priority"]), tmp_path / "a.parquet")
    pq.write_table(rows.slice(10), tmp_path / "b.parquet")
    target = make_queue("target")
    (tmp_path / "table").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").rename(tmp_path / "table" / f"{name}.parquet")
    assert put_into(target, tmp_path / "table") == 20
    came, sent = list(target.read_batch("oldest")), list(source.read_batch("oldest"))
    assert [(each.priority, each.slice, dict(each.properties)) for each in came[:10]] == [(4, None, {})] * 10
    assert [(each.priority, each.slice, each.properties) for each in came[10:]] == [
        (each.priority, each.slice, each.properties) for each in sent[10:]
    ]


# --- size -------------------------------------------------------------------------------------------


def big_table(folder: Path, payloads: list[bytes], **more: Any) -> Path:
    folder.mkdir()
    count = len(payloads)
    columns = {
        "feed": ["x"] * count, "ident": [str(n) for n in range(count)], "payload": pa.array(payloads, pa.binary()),
        "origin": ["there"] * count, "origin_sequence": pa.array(range(1, count + 1), pa.int64()),
        "created": pa.array([NOON] * count, pa.timestamp("us", tz="UTC")), **more,
    }  # fmt: skip
    pq.write_table(pa.table(columns), folder / "part.parquet", use_dictionary=False, write_batch_size=10)
    return folder


def test_products_are_put_in_parts_that_fit_the_queue(tmp_path: Path, make_queue: Make) -> None:
    table = big_table(tmp_path / "table", [bytes([n]) * 1_000_000 for n in range(40)])
    target = make_queue("target", size="16MiB")
    parts = list(Archive(table).restore(target))
    assert sum(stored for _, stored in parts) == 40
    assert max(products for products, _ in parts) <= 2
    assert target.read_batch("oldest", bytes_limit="16MiB")[-1].ident == "39"


def test_a_product_that_is_too_large_for_the_queue_is_refused(tmp_path: Path, make_queue: Make) -> None:
    table = big_table(tmp_path / "table", [b"1", bytes(300_000), b"2"])
    target = make_queue("target", size="1MiB")
    with pytest.raises(PayloadTooLargeError, match="300000 bytes exceeds"):
        put_into(target, table)


def test_a_part_that_is_too_large_because_of_its_properties_is_put_in_halves(tmp_path: Path, make_queue: Make) -> None:
    properties = pa.array([[("x", "y" * 5000)]] * 2000, pa.map_(pa.string(), pa.string()))
    table = big_table(tmp_path / "table", [b"%d" % n for n in range(2000)], properties=properties)
    assert put_into(make_queue("target", size="1MiB"), table) == 2000


def test_a_batch_has_at_most_the_given_bytes_whatever_the_file_contains(tmp_path: Path) -> None:
    sizes = [10] * 3000 + [300_000] * 50 + [10] * 3000
    table = big_table(tmp_path / "table", [bytes([n % 251]) * size for n, size in enumerate(sizes)])
    batches = list(Archive(table).batches(bytes_max=1 << 20))
    assert sum(batch.num_rows for batch in batches) == len(sizes)
    assert [text for batch in batches for text in batch.column("ident").to_pylist()] == [str(n) for n in range(6050)]
    assert all(sum(map(len, batch.column("payload").to_pylist())) <= 1 << 20 for batch in batches)


def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    table = big_table(tmp_path / "table", [n.to_bytes(2, "big") * 100_000 for n in range(1000)])
    before, most = pa.total_allocated_bytes(), 0
    for batch in Archive(table).batches(bytes_max=4 << 20):
        most = max(most, pa.total_allocated_bytes() - before)
        del batch
    assert most < 40 << 20  # of 200 MB


# --- selection ----------------------------------------------------------------------------


def test_a_selection_filters_products(table: Path, make_queue: Make) -> None:
    target = make_queue("target")
    wanted = ArchiveFilter(selection=Selection.parse("wx/radar ident ~ '^i1' priority 5.. where level != '13'"))
    assert put_into(target, table, wanted=wanted) == 2
    assert [product.ident for product in target.read_batch("oldest")] == ["i14", "i15"]
    assert [feed.products for feed in Archive(table).holdings(wanted)] == [2]
    assert put_into(make_queue("other"), table, wanted=ArchiveFilter(selection=Selection(every=5))) == 4


def test_products_of_the_own_origin_get_new_sequences(source: Queue, table: Path, make_queue: Make) -> None:
    own, other = make_queue("own", origin="source"), make_queue("other")
    for queue in (own, other):
        queue.put(b"before", feed="wx/text")
        put_into(queue, table)
    assert [product.origin_sequence for product in own.read_batch("oldest")] == list(range(1, 22))
    assert [(each.origin, each.origin_sequence) for each in other.read_batch(2)] == [
        ("source", n) for n in range(1, 21)
    ]
    assert own.check() == []


# --- the command ------------------------------------------------------------------------------------


def test_invalid_options_are_refused(table: Path, queue: Queue) -> None:
    for options in (["--since", "yesterday"], ["--until", "1h"], ["--select", "wx/** where ("]):
        result = CliRunner().invoke(headrace, ["archive", "restore", str(table), str(queue.path), *options])
        assert (result.exit_code, "try:" in result.stderr) == (2, True), options
    assert queue.next == 1


def test_ctrl_c_ends_a_restore_which_reports_what_it_put(table: Path, queue: Queue) -> None:
    """The first of two parts fills a blocking station; the second one waits."""
    queue.station("full", "**", blocking=True, capacity=10)
    words = ["archive", "restore", table, queue.path, "--json"]
    restore = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert restore.stderr is not None
    assert "full" in restore.stderr.readline()  # for whom it waits
    restore.send_signal(signal.SIGINT)
    report = json.loads(restore.communicate(timeout=240)[0])
    assert restore.returncode == 130
    assert report == {"table": str(table), "products": 10, "stored": 10, "duplicates": 0, "complete": False}
