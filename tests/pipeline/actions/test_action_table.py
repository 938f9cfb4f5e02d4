"""Tables: each row once, no partial batch visible, and a fixed schema."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acting import Killed, context_of, killed, letters_in
from deltalake import DeltaTable
from pyarrow.dataset import dataset

from headrace.errors import PipelineError
from headrace.pipeline.actions import Counts, DeadLetters, performer
from headrace.pipeline.actions.dead_letters import refused
from headrace.pipeline.actions.journal import Journal
from headrace.pipeline.actions.prepared import prepared_batches, rows_in
from headrace.pipeline.actions.table import TablePerformer
from headrace.pipeline.actions.table_schema import move_record
from headrace.pipeline.actions.table_staging import NO_VALUE, UNFIT, Stage
from headrace.pipeline.rules import TableAction

FORMATS = pytest.mark.parametrize("format", ["parquet", "delta"])
ROWS = "id as sequence, concat('s', id % 3) as station, id / 2 as gust, timestamp_millis(id) as observed"
COLUMNS = "sequence long, day int, station string, kind string"


class Bench:
    def __init__(self, root: Path, format: str, *partition_by: str) -> None:
        self.root, self.path, self.format = root, root / "tables" / "t", format
        self.action = TableAction(path=str(self.path), format=format, partition_by=partition_by)  # type: ignore[arg-type]

    def put(self, frame: Any, batch_id: int) -> Counts:
        """By a performer of its own, as after a restart."""
        made = performer(self.action, "table-0", None, DeadLetters(self.root / "dead"))
        return made.perform(frame, context_of(self.root, batch_id))

    def sequences(self, spark: Any) -> list[int]:
        if self.format == "delta":
            return sorted(DeltaTable(self.path).to_pyarrow_table()["sequence"].to_pylist())
        return sorted(row.sequence for row in spark.read.parquet(str(self.path)).select("sequence").collect())

    def strays(self) -> list[Path]:
        """Files that are staged, or that lie in the table and are not read as a part of it."""
        staged = list((self.root / "tables").rglob(".headrace/*/staging-*"))
        others = [path for path in self.path.rglob("*") if path.is_file() and path.suffix != ".parquet"]
        return staged + [path for path in others if "_delta_log" not in path.parts]

    def held(self) -> list[str]:
        """The files that a reader of the table reads."""
        return DeltaTable(self.path).file_uris() if self.format == "delta" else [*map(str, self.files())]

    def files(self) -> list[Path]:
        return [path for path in self.path.rglob("*.parquet") if not any(p.startswith(".") for p in path.parts)]


def rows(spark: Any, begin: int, end: int, columns: str = ROWS) -> Any:
    return spark.sql(f"select {columns} from range({begin}, {end}, 1, 2)")


@FORMATS
@pytest.mark.parametrize("partition_by", [(), ("station",)])
def test_batches_are_added_once(spark: Any, tmp_path: Path, format: str, partition_by: tuple[str, ...]) -> None:
    bench = Bench(tmp_path, format, *partition_by)
    assert bench.put(rows(spark, 0, 10), 0).rows == 10
    assert bench.put(rows(spark, 10, 20), 1).rows == 10
    assert bench.put(rows(spark, 20, 50), 1).rows == 10, "the batch is done: these rows are not read"
    assert bench.sequences(spark) == list(range(20))
    assert bench.put(rows(spark, 0, 0), 2) == Counts()
    assert bench.sequences(spark) == list(range(20))
    assert bench.strays() == []
    if format == "delta":
        table = DeltaTable(bench.path)
        assert table.metadata().partition_columns == list(partition_by)
        assert table.to_pyarrow_table().sort_by("sequence")["station"].to_pylist() == [f"s{n % 3}" for n in range(20)]
        assert [str(field.type) for field in table.schema().fields][-1] == 'PrimitiveType("timestamp")'


@FORMATS
@pytest.mark.parametrize("point", ["ready", "moved half", "moved", "added", "done"])
def test_a_killed_batch_continues_from_its_stage(spark: Any, tmp_path: Path, format: str, point: str) -> None:
    bench = Bench(tmp_path, format, "station")
    bench.put(rows(spark, 0, 5), 0)

    with pytest.MonkeyPatch.context() as patch:
        if point == "ready":
            patch.setattr(Stage, "put_into_place", killed)
        elif point == "moved half":
            real = Stage.put_into_place

            def half(self: Stage, ready: Any) -> None:
                real(self, msgspec.structs.replace(ready, files=ready.files[:1]))
                raise Killed

            patch.setattr(Stage, "put_into_place", half)
        elif point == "moved":
            patch.setattr("headrace.pipeline.actions.table_delta.DeltaLog.add", killed)
            patch.setattr(Journal, "mark", killed)
        elif point == "added":
            patch.setattr(Journal, "mark", killed)
        else:
            marked = Journal.mark

            def mark(self: Journal, *args: Any) -> None:
                marked(self, *args)
                raise Killed

            patch.setattr(Journal, "mark", mark)
        with pytest.raises(Killed):
            bench.put(rows(spark, 5, 20), 1)
    before = bench.sequences(spark)
    assert before == sorted(set(before)), "nothing is there twice at any time"
    assert bench.put(rows(spark, 5, 20), 1).rows == 15
    assert bench.sequences(spark) == list(range(20))
    assert bench.strays() == []


@FORMATS
def test_a_damaged_record_of_a_stage_is_an_error_that_says_what_to_remove(
    spark: Any, tmp_path: Path, format: str
) -> None:
    bench = Bench(tmp_path, format)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Stage, "put_into_place", killed)
        bench.put(rows(spark, 0, 5), 0)
    (record,) = bench.root.rglob("ready.json")
    record.write_bytes(record.read_bytes()[:10])
    with pytest.raises(PipelineError, match=f"{record} is damaged") as caught:
        bench.put(rows(spark, 0, 5), 0)
    assert caught.value.hint == f"remove {record.parents[1]}; the batch is then written again"
    shutil.rmtree(record.parents[1])
    assert bench.put(rows(spark, 0, 5), 0).rows == 5
    assert bench.sequences(spark) == list(range(5))


@FORMATS
def test_a_stage_keeps_its_columns_when_the_sql_has_changed_since(spark: Any, tmp_path: Path, format: str) -> None:
    bench = Bench(tmp_path, format, "station")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(TablePerformer, "_publish", killed)
        bench.put(rows(spark, 0, 5), 0)
    other = Bench(tmp_path, format)
    changed = "id as sequence, 1 as more"
    assert other.put(rows(spark, 0, 5, changed), 0).rows == 5
    with pytest.raises(PipelineError, match=r"'more' \(integer\) is new; .*'station' \(string\) is missing"):
        other.put(rows(spark, 5, 10, changed), 1)
    assert bench.put(rows(spark, 5, 10), 1).rows == 5
    assert bench.sequences(spark) == list(range(10))


def test_a_batch_does_not_replace_files_that_a_later_checkpoint_wrote(spark: Any, tmp_path: Path) -> None:
    """A checkpoint that is restored from a backup counts the same batches again, perhaps with other rows."""
    bench = Bench(tmp_path, "parquet")
    bench.put(rows(spark, 0, 5), 0)
    (tmp_path / "state" / "table-0.json").unlink()
    with pytest.raises(PipelineError, match="exists: the checkpoint is older than the table"):
        bench.put(rows(spark, 5, 10), 0)
    assert bench.sequences(spark) == list(range(5))


def staged_only(bench: Bench, frame: Any, batch_id: int) -> None:
    """A batch that is killed when its stage is complete."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Stage, "put_into_place", killed)
        bench.put(frame, batch_id)


@pytest.mark.parametrize("partition_by", [(), ("station",)])
def test_a_reader_of_every_file_below_a_table_finds_its_rows_and_nothing_else(
    spark: Any, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """As polars and DuckDB read: names that begin with a dot or an underscore are read too. Also beside a stage."""
    bench = Bench(tmp_path, "parquet", *partition_by)
    bench.put(rows(spark, 0, 10), 0)
    for _ in range(2):
        held = dataset(bench.path, partitioning="hive", ignore_prefixes=[]).to_table()
        assert sorted(held["sequence"].to_pylist()) == list(range(10))
        assert sorted(pd.read_parquet(bench.path)["sequence"]) == list(range(10))
        assert bench.sequences(spark) == list(range(10))
        assert {path.suffix for path in bench.path.rglob("*") if path.is_file()} == {".parquet"}
        staged_only(bench, rows(spark, 10, 20), 1)
    assert bench.put(rows(spark, 10, 20), 1).rows == 10
    assert bench.sequences(spark) == list(range(20))
    assert bench.strays() == []


def test_dead_letters_are_read_like_any_table(spark: Any, tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "dead")
    (tmp_path / "dead" / ".staging").mkdir(parents=True)
    (tmp_path / "dead" / ".staging" / "r-x.parquet").write_bytes(b"half a file of an earlier version")
    frame = rows(spark, 0, 3, "id as sequence, 'wx' as feed, 'no METAR' as error, cast('x' as binary) as payload")
    letters.perform(frame, context_of(tmp_path, 0))
    with letters.writing(context_of(tmp_path, 1), "decode") as more:
        for row in rows_in(prepared_batches(frame, refused)):
            more.add(row, "bad")
        more._write()
        assert dataset(tmp_path / "dead", ignore_prefixes=[]).to_table().num_rows == 3
    assert dataset(tmp_path / "dead", ignore_prefixes=[]).to_table().num_rows == 6


def as_written_before(bench: Bench) -> None:
    """Move record and stages to where earlier versions had them."""
    home = bench.path.parent / ".headrace" / "t"
    if (home / "columns.json").exists():
        (home / "columns.json").rename(bench.path / "_headrace.json")
    for stage in home.glob("staging-*"):
        stage.rename(bench.path / f".{stage.name}")
    home.rmdir()


@FORMATS
@pytest.mark.parametrize("renamed", [0, 1])
def test_a_table_of_an_earlier_version_is_upgraded_with_its_stage(
    spark: Any, tmp_path: Path, format: str, renamed: int
) -> None:
    bench = Bench(tmp_path, format, "station")
    bench.put(rows(spark, 0, 5), 0)
    staged_only(bench, rows(spark, 5, 20), 1)
    as_written_before(bench)
    if renamed:
        (stage,) = bench.path.glob(".staging-*/*")
        first = msgspec.json.decode((stage / "ready.json").read_bytes())["files"][0]
        (bench.path / first["target"]).parent.mkdir(exist_ok=True)
        (stage / first["name"]).rename(bench.path / first["target"])
    assert bench.put(rows(spark, 5, 20), 1).rows == 15
    assert bench.sequences(spark) == list(range(20))
    assert bench.strays() == []
    with pytest.raises(PipelineError, match=r"'gust' \(double\) is missing"):
        bench.put(rows(spark, 20, 30, ROWS.replace("id / 2 as gust, ", "")), 2)


def test_the_record_of_an_earlier_version_is_moved_also_after_a_kill(spark: Any, tmp_path: Path) -> None:
    bench = Bench(tmp_path, "parquet", "station")
    bench.put(rows(spark, 0, 5, "id as sequence, cast(id as string) as station"), 0)
    as_written_before(bench)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Path, "unlink", killed)
        move_record(bench.path)
    assert (bench.path / "_headrace.json").exists()
    assert bench.put(rows(spark, 5, 10, "id as sequence, cast(id as string) as station"), 1).rows == 5
    assert bench.strays() == []


def test_a_table_that_was_moved_keeps_texts_that_look_like_numbers(spark: Any, tmp_path: Path) -> None:
    columns = "id as sequence, cast(id as string) as station"
    bench = Bench(tmp_path, "parquet", "station")
    bench.put(rows(spark, 0, 5, columns), 0)
    shutil.rmtree(tmp_path / "tables" / ".headrace")
    assert bench.put(rows(spark, 5, 10, columns), 1).rows == 5
    assert bench.sequences(spark) == list(range(10))


def test_a_table_that_was_deleted_may_have_other_columns(spark: Any, tmp_path: Path) -> None:
    bench = Bench(tmp_path, "parquet")
    bench.put(rows(spark, 0, 5), 0)
    shutil.rmtree(bench.path)
    assert bench.put(rows(spark, 5, 10, "id as sequence, 1 as more"), 1).rows == 5
    assert bench.put(rows(spark, 10, 15, "id as sequence, 1 as more"), 2).rows == 5
    with pytest.raises(PipelineError, match=r"'more' .* is missing"):
        bench.put(rows(spark, 15, 20, "id as sequence"), 3)


@FORMATS
def test_a_table_that_is_a_mount_point_has_its_home_inside(
    spark: Any, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.pipeline.actions.table_home._can_be_beside", lambda _: False)
    bench = Bench(tmp_path, format)
    bench.put(rows(spark, 0, 5), 0)
    assert not (tmp_path / "tables" / ".headrace").exists()
    staged_only(bench, rows(spark, 5, 10), 1)
    monkeypatch.undo()  # the stage is found also if the home is chosen otherwise now
    assert bench.put(rows(spark, 6, 10), 1).rows == 5
    assert bench.sequences(spark) == list(range(10))
    assert not list(bench.root.rglob("staging-*"))


KINDS = """id as sequence, concat('s', id % 2) as station, cast(id as decimal(20, 3)) as amount, timestamp_millis(id) as t,
    cast(timestamp_millis(id) as timestamp_ntz) as local, date_from_unix_date(int(id)) as day, cast('x' as binary) as raw,
    if(id % 3 = 0, null, array(named_struct('a', id, 'b', map('k', float(id))))) as nested, interval 1 day as span"""


@FORMATS
@pytest.mark.parametrize("partition_by", [(), ("station",)])
def test_compacted_rows_are_the_same_to_spark(
    spark: Any, tmp_path: Path, format: str, partition_by: tuple[str, ...]
) -> None:
    bench = Bench(tmp_path, format, *partition_by)
    columns = KINDS if format == "parquet" else KINDS.replace(", interval 1 day as span", "")
    for number in range(4):
        bench.put(rows(spark, number * 10, number * 10 + 10, columns), number)
    before = len(bench.held())
    bench.action = msgspec.structs.replace(bench.action, compact_s=3600.0)
    assert bench.put(rows(spark, 100, 110, columns), 3).rows == 10, "the batch is done, whatever compact is"
    bench.put(rows(spark, 40, 50, columns), 4)
    assert len(bench.held()) <= 2 < before
    made = spark.read.parquet(*bench.held()) if format == "delta" else spark.read.parquet(str(bench.path))
    expected = rows(spark, 0, 50, columns)
    if format == "delta":
        made, expected = made.drop("station"), expected.drop("station")
    assert dict(made.dtypes) == dict(expected.dtypes)
    shown = made.select(expected.columns)
    assert shown.orderBy("sequence").collect() == expected.orderBy("sequence").collect()


def test_times_are_written_in_microseconds(spark: Any, tmp_path: Path) -> None:
    bench = Bench(tmp_path, "parquet")
    bench.put(rows(spark, 0, 5), 0)
    assert pq.read_schema(bench.files()[0]).field("observed").type == pa.timestamp("us", "UTC")


@FORMATS
def test_an_unfinished_stage_is_never_visible(spark: Any, tmp_path: Path, format: str) -> None:
    bench = Bench(tmp_path, format)
    bench.put(rows(spark, 0, 5), 0)
    broken = rows(spark, 5, 200, ROWS.replace("id / 2 as gust", "if(id = 150, raise_error('broken'), id) / 2 as gust"))
    with pytest.raises(Exception, match="broken"):
        bench.put(broken, 1)
    assert bench.sequences(spark) == list(range(5))
    assert len(bench.files()) == 2
    assert bench.put(rows(spark, 5, 200), 1).rows == 195
    assert bench.sequences(spark) == list(range(200))


@FORMATS
def test_other_columns_are_an_error_and_nothing_is_written(spark: Any, tmp_path: Path, format: str) -> None:
    bench = Bench(tmp_path, format)
    bench.put(rows(spark, 0, 5), 0)
    other = "id as sequence, id as station, timestamp_millis(id) as observed, 1 as more"
    with pytest.raises(PipelineError) as caught:
        bench.put(rows(spark, 5, 10, other), 1)
    for part in (
        "'more' (integer) is new",
        "'gust' (double) is missing",
        "'station' is long, and the table has string",
        "cast them",
    ):
        assert part in str(caught.value)
    with pytest.raises(PipelineError, match="partitioned by nothing, and partition_by is station"):
        again = Bench(tmp_path, format, "station")
        again.put(rows(spark, 5, 10), 1)
    assert bench.sequences(spark) == list(range(5))
    order = "timestamp_millis(id) as observed, id / 2 as gust, concat('s', id) as station, id as sequence"
    assert bench.put(rows(spark, 5, 10, order), 1).rows == 5
    assert bench.sequences(spark) == list(range(10))


MORE = "id as sequence, concat('s', id % 3) as station, cast(id as float) as more"


@FORMATS
@pytest.mark.parametrize("partition_by", [(), ("station",)])
def test_a_table_may_grow_by_the_columns_that_rows_bring(
    spark: Any, tmp_path: Path, format: str, partition_by: tuple[str, ...]
) -> None:
    bench = Bench(tmp_path, format, *partition_by)
    bench.put(rows(spark, 0, 3, "id as sequence, concat('s', id % 3) as station"), 0)
    with pytest.raises(PipelineError, match=r"'more' \(float\) is new.*columns = \"grow\""):
        bench.put(rows(spark, 3, 6, MORE), 1)
    bench.action = msgspec.structs.replace(bench.action, columns="grow")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DeltaTable if format == "delta" else Stage,
                      "create_write_transaction" if format == "delta" else "put_into_place", killed)  # fmt: skip
        bench.put(rows(spark, 3, 6, MORE), 1)
    assert bench.put(rows(spark, 3, 6, MORE), 1).rows == 3
    for columns, cause in (
        (MORE.replace("float", "double"), "'more' is double, and the table has float"),
        ("id as sequence, concat('s', id % 3) as station", "'more' .* is missing"),
        (f"{MORE}, 1 as MoRe2, 2 as STATION", "two columns have the same name"),
        (MORE.replace("as sequence", "as SEQUENCE"), "'SEQUENCE' .* is new; .*'sequence' .* is missing"),
    ):
        with pytest.raises(PipelineError, match=cause):
            bench.put(rows(spark, 6, 9, columns), 2)
    expected = [(n, f"s{n % 3}", None if n < 3 else float(n)) for n in range(6)]
    assert grown_rows(bench, spark) == expected
    shutil.rmtree(tmp_path / "tables" / ".headrace")
    for number in range(2, 6):
        bench.put(rows(spark, 3 * number, 3 * number + 3, MORE), number)
    bench.action = msgspec.structs.replace(bench.action, compact_s=3600.0)
    bench.put(rows(spark, 18, 21, MORE), 6)
    expected = [(n, f"s{n % 3}", None if n < 3 else float(n)) for n in range(21)]
    assert grown_rows(bench, spark) == expected, "compacted"
    assert len(bench.held()) == (3 if partition_by else 1)


def grown_rows(bench: Bench, spark: Any) -> list[tuple[Any, ...]]:
    if bench.format == "delta":
        held = DeltaTable(bench.path).to_pyarrow_table().to_pylist()
    else:
        read = spark.read.option("mergeSchema", "true").parquet(str(bench.path))
        held = [row.asDict() for row in read.collect()]
        files = list(bench.path.rglob("*.parquet"))
        schema = pa.unify_schemas([pq.read_schema(path) for path in files] + [pa.schema({"station": pa.string()})])
        assert dataset(bench.path, schema=schema, partitioning="hive").to_table().num_rows == len(held)
    return sorted((row["sequence"], row["station"], row["more"]) for row in held)


def test_a_column_without_a_type_is_an_error(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"column 'x' has no type.*cast\(x as string\)"):
        Bench(tmp_path, "parquet").put(rows(spark, 0, 5, "id as sequence, null as x"), 0)


def test_the_columns_of_an_existing_table_are_checked(spark: Any, tmp_path: Path) -> None:
    bench = Bench(tmp_path, "parquet", "station")
    rows(spark, 0, 5).write.partitionBy("station").parquet(str(bench.path))
    with pytest.raises(PipelineError, match=r"'gust' .* is missing"):
        bench.put(rows(spark, 5, 10, "id as sequence, concat('s', id) as station, timestamp_millis(id) as observed"), 0)
    assert bench.put(rows(spark, 5, 10), 0).rows == 5
    assert bench.sequences(spark) == list(range(10))


@FORMATS
def test_a_new_checkpoint_does_not_replace_what_an_old_one_wrote(spark: Any, tmp_path: Path, format: str) -> None:
    bench = Bench(tmp_path, format)
    bench.put(rows(spark, 0, 5), 0)
    shutil.rmtree(tmp_path / "state")
    bench.put(rows(spark, 5, 10), 0)
    assert bench.sequences(spark) == list(range(10))


@FORMATS
def test_values_that_are_invalid_as_partition_names_are_dead_letters(spark: Any, tmp_path: Path, format: str) -> None:
    values = [
        "../../x",
        "a=b/c",
        "%2F",
        "x" * 400,
        "nul\0",
        "",
        None,
        " ",
        "é" * 130,
        "x" * 200,
        "#" * 80,
        "#" * 90,
        "\n",
        ".",
    ]
    frame = spark.createDataFrame(list(enumerate(values)), "sequence long, station string").repartition(1)
    bench = Bench(tmp_path, format, "station")
    assert (bench.put(frame, 0).rows, bench.put(frame, 0).failed) == (10, 4)
    refused = {row["sequence"] for row in letters_in(tmp_path / "dead")}
    assert {values[place] for place in refused} == {"x" * 400, "nul\0", "é" * 130, "#" * 90}
    assert {path.name for path in tmp_path.iterdir()} == {"tables", "dead", "state", ".headrace"}
    if format == "delta":
        held = {row["sequence"]: row["station"] for row in DeltaTable(bench.path).to_pyarrow_table().to_pylist()}
    else:
        held = {row.sequence: row.station for row in spark.read.parquet(str(bench.path)).collect()}
    assert held == {place: value or None for place, value in enumerate(values) if place not in refused}


@FORMATS
def test_a_value_that_would_be_read_as_another_is_a_dead_letter(spark: Any, tmp_path: Path, format: str) -> None:
    """Alone, beside a null, and in the last of several columns; a repeated batch has it once."""
    bench = Bench(tmp_path, format, "day", "station", "kind")
    bench.put(spark.createDataFrame([(0, 1, NO_VALUE, "x")], COLUMNS), 0)
    assert not bench.files()
    frame = spark.createDataFrame(
        [(1, 1, None, "x"), (2, 1, "", "x"), (3, 1, "a", NO_VALUE), (4, 2, UNFIT, "y" * 300), (5, 2, "a", None)],
        COLUMNS,
    ).repartition(1)
    assert (bench.put(frame, 1).failed, bench.put(frame, 1).rows) == (2, 3)
    assert bench.sequences(spark) == [1, 2, 5]
    letters = letters_in(tmp_path / "dead")
    assert sorted(row["sequence"] for row in letters) == [0, 3, 4]
    assert {row["error"] for row in letters} == {"day, station, kind: too long, or invalid, as the name of a partition"}
    assert not list(tmp_path.rglob(f"*{UNFIT}*"))


def test_an_invalid_table_path_is_an_error(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("in the way")
    with pytest.raises(PipelineError, match=r"tables/t was not created: Not a directory; a file that is not a folder"):
        Bench(tmp_path, "parquet").put(rows(spark, 0, 5), 0)


def test_a_product_that_a_decoder_refused_is_a_dead_letter_once(spark: Any, tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "dead")
    context = context_of(tmp_path, 3)
    frame = rows(
        spark,
        0,
        30,
        "id as sequence, 'wx' as feed, 'no METAR' as error, cast(repeat('x', 100000) as binary) as payload",
    )
    for _ in range(2):
        assert letters.perform(frame, context) == Counts(failed=30, files=1, causes={"no METAR": 30})
    held = spark.read.parquet(str(tmp_path / "dead")).orderBy("sequence").collect()
    assert [row.sequence for row in held] == list(range(30))
    first = held[0].asDict()
    assert (first["error"], first["feed"], first["ident"], first["batch"], first["action"]) == (
        "no METAR",
        "wx",
        None,
        3,
        "decode",
    )
    assert (len(first["payload"]), first["payload_bytes"]) == (65536, 100_000)
    assert letters.perform(frame.filter("false"), context) == Counts()
    assert not list((tmp_path / "dead").glob("*.parquet"))
