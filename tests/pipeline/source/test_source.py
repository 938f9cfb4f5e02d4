"""The Spark source and sink: exact ranges, exact rows, clear errors."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.errors import OptionError
from headrace.pipeline import behind, put_batches
from headrace.pipeline.source.backlog import behind_of

Make = Callable[..., Queue]


@pytest.fixture
def queue(make_queue: Make) -> Queue:
    """Ten of each of three feeds."""
    queue = make_queue()
    for number in range(30):
        queue.put(
            b"payload %d" % number, feed=f"wx/{('text', 'radar', 'radar/KFTG')[number % 3]}", ident=f"i{number}",
            priority=number % 8, slice=number % 4 if number % 2 else None, properties={"level": number, "kind": "x"},
            expiry="1h" if number % 5 == 0 else None,
        )  # fmt: skip
    return queue


def load(spark: Any, queue: Queue | str, **options: Any) -> Any:
    reader = spark.read.format("headrace").option("queue", str(queue.path if isinstance(queue, Queue) else queue))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def stream(spark: Any, queue: Queue, checkpoint: Path, put: Callable[[list[Any], int], None], **options: Any) -> Any:
    """Run a stream over the whole queue, batch by batch; return the query once it has ended."""
    reader = spark.readStream.format("headrace").option("queue", str(queue.path)).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, value)
    query = (
        reader.load().writeStream.foreachBatch(lambda frame, batch: put(frame.collect(), batch))
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return query


# --- batches --------------------------------------------------------------------------------------------


def test_every_header_field_has_a_column(spark: Any, queue: Queue) -> None:
    frame = load(spark, queue, columns="*").selectExpr(
        "*", "unix_micros(created) as created_us", "unix_micros(expiry) as expiry_us"
    )
    rows = frame.orderBy("sequence").collect()
    assert len(rows) == 30
    for row, product in zip(rows, queue.read_batch("oldest"), strict=True):
        assert (row.sequence, row.feed, row.ident, row.payload) == (
            product.sequence, product.feed, product.ident, bytearray(product.payload),
        )  # fmt: skip
        assert (row.signature, row.origin, row.origin_sequence) == (bytearray(product.signature), "q", product.sequence)
        assert (row.priority, row.slice) == (product.priority, product.slice)
        assert row.properties == {"level": str(product.properties["level"]), "kind": "x"}
        assert row.created_us == product.created_ns // 1000
        assert row.expiry_us == (None if product.expiry_ns is None else product.expiry_ns // 1000)


def test_a_selection_is_applied_at_the_queue(spark: Any, queue: Queue) -> None:
    frame = load(spark, queue, select='wx/radar/** ident ~ "^i[12]$" where level >= 1')
    assert [row.ident for row in frame.orderBy("sequence").collect()] == ["i1", "i2"]


def test_ranges_are_exact(spark: Any, queue: Queue) -> None:
    frame = load(spark, queue, startingOffsets="11", endingOffsets="21", minPartitions=3)
    assert sorted(row.sequence for row in frame.collect()) == list(range(11, 21))
    queue.put(b"later", feed="wx/text")
    assert load(spark, queue, startingOffsets="earliest", endingOffsets="latest").count() == 31
    assert load(spark, queue, startingOffsets="latest").count() == 0


def test_a_dataframe_has_the_five_columns_that_most_queries_need(spark: Any, queue: Queue) -> None:
    frame = load(spark, queue)
    assert frame.columns == ["sequence", "feed", "ident", "created", "payload"]
    first = frame.filter("sequence = 1").collect()[0]
    assert (first.feed, first.ident, bytes(first.payload)) == ("wx/text", "i0", b"payload 0")
    assert len(load(spark, queue, columns="*").columns) == 13


def test_a_reversed_range_is_an_error_not_an_empty_result(spark: Any, queue: Queue) -> None:
    with pytest.raises(Exception, match="the range ends before it begins"):
        load(spark, queue, startingOffsets="21", endingOffsets="11").count()


def test_a_query_that_needs_few_rows_does_not_read_the_rest(spark: Any, make_queue: Make) -> None:
    queue = make_queue(size="256MiB", dedup="none")
    for _ in range(40):
        queue.put_many([bytes(1000)] * 1000, feed="x")
    frame = load(spark, queue, minPartitions=1)
    assert [row.sequence for row in frame.limit(3).collect()] == [1, 2, 3]
    assert len(frame.take(30)) == 30
    assert frame.count() == 40_000


def test_only_the_requested_columns_are_read(spark: Any, queue: Queue) -> None:
    frame = load(spark, queue, columns="ident, sequence")
    assert frame.columns == ["ident", "sequence"]
    assert frame.filter("sequence = 3").collect()[0].ident == "i2"


@pytest.mark.parametrize("by", ["bytes", "slice"])
def test_partitions_have_every_product_once(spark: Any, queue: Queue, by: str) -> None:
    frame = load(spark, queue, minPartitions=4, partitionBy=by, columns="*")
    rows = [[(row.sequence, row.slice) for row in part] for part in frame.rdd.glom().collect()]
    assert sorted(sequence for part in rows for sequence, _ in part) == list(range(1, 31))
    if by == "slice":
        homes = [{number for _, number in part} for part in rows]
        assert sum(len(home) for home in homes) == len(set().union(*homes)), "a slice is in one partition"


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("feed = 'wx/text'", 10), ("feed in ('wx/text', 'nowhere')", 10), ("feed like 'wx/radar/%'", 10),
        ("priority >= 6", 6), ("priority = 9", 0), ("slice = 1", 8), ("origin = 'q'", 30), ("origin = 'z'", 0),
        ("sequence between 5 and 8", 4), ("created > timestamp '2020-01-01 00:00:00'", 30),
        ("inserted < timestamp '2020-01-01 00:00:00'", 0), ("slice is null", 15), ("feed <> 'wx/text'", 20),
        ("properties['level'] = '7'", 1), ("sequence in (5, null)", 1), ("slice in (1, null)", 8),
    ],
)  # fmt: skip
def test_filters_give_the_same_result_pushed_down_or_not(spark: Any, queue: Queue, condition: str, count: int) -> None:
    assert load(spark, queue, columns="*").filter(condition).count() == count
    assert load(spark, queue, columns="*", pushFilters="true").filter(condition).count() == count


def test_spark_keeps_pushed_filters_for_the_next_query_of_a_dataframe(spark: Any, queue: Queue) -> None:
    """Why pushFilters is off by default. If this fails, Spark has changed: see decision 18."""
    frame = load(spark, queue, pushFilters="true")
    assert frame.filter("feed = 'wx/text'").count() == 10
    assert frame.count() == 10, "30 would be right"


def test_one_dataframe_may_be_filtered_several_times(spark: Any, queue: Queue) -> None:
    frame = load(spark, queue)
    one, other = frame.filter("feed = 'wx/text'"), frame.filter("feed = 'wx/radar'")
    assert (one.union(other).count(), frame.count(), one.count()) == (20, 30, 10)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"selekt": "x"}, "no option 'selekt'.*did you mean select"),
        ({"select": "wx/** where level >"}, "option select"),
        ({"select": "wx/** every 3"}, "every.*count"),
        ({"minPartitions": "many"}, "minPartitions.*'many' is not a positive number"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss.*neither true nor false"),
        ({"columns": "sequence,colour"}, "colour"),
        ({"partitionBy": "moon"}, "partitionBy.*bytes, slice"),
        ({"blocking": "true"}, "blocking requires a station"),
    ],
)  # fmt: skip
def test_an_invalid_option_is_refused(spark: Any, queue: Queue, options: dict[str, str], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        load(spark, queue, **options).count()


def test_a_missing_queue_is_an_error_that_says_how_to_create_it(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"there is no queue at .*nowhere; create it with: headrace queue create"):
        load(spark, str(tmp_path / "nowhere")).count()


# --- streams --------------------------------------------------------------------------------------------


def test_a_stream_continues_at_its_checkpoint(spark: Any, queue: Queue, tmp_path: Path) -> None:
    got: list[tuple[int, list[int]]] = []

    def take(rows: list[Any], batch: int) -> None:
        got.append((batch, sorted(row.sequence for row in rows)))

    stream(spark, queue, tmp_path / "cp", take, maxProductsPerTrigger=12)
    assert got == [(0, list(range(1, 13))), (1, list(range(13, 25))), (2, list(range(25, 31)))]
    queue.put_many([b"a", b"b"], feed="wx/text")
    stream(spark, queue, tmp_path / "cp", take, maxProductsPerTrigger=12)
    assert got[3:] == [(3, [31, 32])]


def test_a_limit_counts_what_the_selection_matches(spark: Any, queue: Queue, tmp_path: Path) -> None:
    sizes: list[int] = []
    stream(spark, queue, tmp_path / "cp", lambda rows, batch: sizes.append(len(rows)), select="wx/text",
           maxProductsPerTrigger=4)  # fmt: skip
    assert sizes == [4, 4, 2]


def test_the_progress_of_a_query_says_how_far_it_is_behind(spark: Any, queue: Queue, tmp_path: Path) -> None:
    query = stream(spark, queue, tmp_path / "cp", lambda rows, batch: None, select="wx/text", maxProductsPerTrigger=4)
    reports = [behind_of(progress["sources"][0]["latestOffset"]) for progress in query.recentProgress]
    assert [report.products for report in reports if report] == [6, 2, 0]
    assert reports[0] is not None
    assert reports[0].seconds > 0
    assert [report.lost for report in reports if report] == [0, 0, 0]
    assert behind(query) == reports[-1]


def test_a_limit_in_bytes_bounds_a_micro_batch(spark: Any, make_queue: Make, tmp_path: Path) -> None:
    queue = make_queue()
    queue.put_many([bytes([n]) * 600_000 for n in range(10)], feed="x")
    sizes: list[int] = []
    stream(spark, queue, tmp_path / "cp", lambda rows, batch: sizes.append(len(rows)), maxBytesPerTrigger="2MB")
    assert sum(sizes) == 10
    assert max(sizes) <= 4
    assert len(sizes) >= 3


def test_evicted_products_are_an_error_that_names_their_range(spark: Any, make_queue: Make, tmp_path: Path) -> None:
    queue = make_queue(size="4MiB")
    queue.put(b"first", feed="x")
    stream(spark, queue, tmp_path / "cp", lambda rows, batch: None)
    for number in range(60):
        queue.put(number.to_bytes(2, "big") * 100_000, feed="x")
    oldest = queue.oldest
    assert oldest > 2
    with pytest.raises(Exception, match=f"products 2-{oldest - 1} of .* are lost"):
        stream(spark, queue, tmp_path / "cp", lambda rows, batch: None)
    got: list[int] = []
    query = stream(spark, queue, tmp_path / "cp", lambda rows, batch: got.extend(row.sequence for row in rows),
                   failOnDataLoss="false")  # fmt: skip
    assert sorted(got) == list(range(oldest, 62))
    assert f'"lost": {oldest - 2}' in str(query.lastProgress["sources"][0]["endOffset"])


def test_a_checkpoint_of_another_queue_is_refused(spark: Any, queue: Queue, make_queue: Make, tmp_path: Path) -> None:
    stream(spark, queue, tmp_path / "cp", lambda rows, batch: None)
    other = make_queue("other")
    other.put(b"x", feed="x")
    with pytest.raises(Exception, match="is not the queue that the checkpoint belongs to"):
        stream(spark, other, tmp_path / "cp", lambda rows, batch: None)


def test_a_station_follows_what_spark_committed(spark: Any, queue: Queue, tmp_path: Path) -> None:
    for count in (12, 30):
        stream(spark, queue, tmp_path / "cp", lambda rows, batch: None, maxProductsPerTrigger=12, station="spark",
               blocking="true")  # fmt: skip
        queue.put(b"%d" % count, feed="wx/text")
    statistics = queue.station("spark").statistics()
    assert statistics.behind <= 14
    assert queue.station("spark").terms.blocking


# --- writing --------------------------------------------------------------------------------------------


def test_each_row_becomes_one_product(spark: Any, queue: Queue, make_queue: Make) -> None:
    target = make_queue("target")
    frame = load(spark, queue, select="wx/text", columns="*").selectExpr(
        "concat('derived/', feed) as feed", "ident", "payload", "priority", "created", "properties"
    )
    for _ in range(2):
        frame.write.format("headrace").option("queue", str(target.path)).mode("append").save()
    products = list(target.read_batch("oldest"))
    assert sorted(product.ident for product in products) == sorted(f"i{n}" for n in range(0, 30, 3))
    assert {product.feed for product in products} == {"derived/wx/text"}
    source = {product.ident: product for product in queue.read_batch("oldest")}
    for product in products:
        assert bytes(product.payload) == bytes(source[product.ident].payload)
        assert product.created_ns // 1000 == source[product.ident].created_ns // 1000
        assert product.priority == source[product.ident].priority


def test_a_repeated_stream_puts_nothing_twice(spark: Any, queue: Queue, make_queue: Make, tmp_path: Path) -> None:
    target = make_queue("target")
    for checkpoint in ("cp1", "cp2"):  # the second one does not know about the first
        query = (
            spark.readStream.format("headrace").option("queue", str(queue.path)).option("startingOffsets", "earliest")
            .load().selectExpr("ident", "payload")
            .writeStream.queryName(f"copy-{checkpoint}").format("headrace")
            .option("queue", str(target.path)).option("feed", "copy")
            .option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
    assert sorted(product.ident for product in target.read_batch("oldest")) == sorted(f"i{n}" for n in range(30))


def test_equal_rows_of_two_batches_are_two_products_and_a_repeated_batch_is_none(
    spark: Any, queue: Queue, make_queue: Make, tmp_path: Path
) -> None:
    target = make_queue("target")
    put = put_batches(target.path, feed="derived/counts", application="counts")

    def put_twice(rows: Any, batch_id: int) -> None:
        put(rows, batch_id)
        put(rows, batch_id)

    query = (
        spark.readStream.format("headrace").option("queue", str(queue.path)).option("startingOffsets", "earliest")
        .option("maxProductsPerTrigger", 10).load().selectExpr("'always the same' as payload")
        .writeStream.foreachBatch(put_twice)
        .option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert [bytes(product.payload) for product in target.read_batch("oldest")] == [b"always the same"] * 3


def test_put_batches_refuses_invalid_arguments_before_the_stream_starts() -> None:
    with pytest.raises(OptionError, match="neither queue nor site"):
        put_batches(feed="derived")
    with pytest.raises(OptionError, match="option feed is empty"):
        put_batches("wx.queue", feed=" ")


def save(frame: Any, queue: Queue, **options: Any) -> None:
    frame.write.format("headrace").option("queue", str(queue.path)).options(**options).mode("append").save()


def test_more_rows_than_the_queue_holds_are_put_in_parts(spark: Any, make_queue: Make) -> None:
    target = make_queue("target", size="16MiB")
    large = (
        "select concat('i', id) as ident, repeat(cast(id % 10 as string), 1 << 20) as payload from range(0, 20, 1, 1)"
    )
    save(spark.sql(large), target, feed="x")
    assert target.next == 21, "nothing was put twice"
    assert target.read_batch("oldest")[-1].ident == "i19"
    save(spark.sql(f"{large} where id = 19"), target, feed="x")
    assert target.next == 21


def test_a_null_counts_as_a_column_that_is_left_out(spark: Any, make_queue: Make) -> None:
    target = make_queue("target")
    given = (
        "named_struct('created', timestamp_micros(7), 'priority', 6, 'expiry', timestamp '2200-01-01 00:00:00Z',"
        " 'slice', 3, 'properties', map('k', null, 'n', '1'), 'signature', cast(repeat('s', 16) as binary))"
    )
    frame = spark.sql(f"select string(id) as payload, if(id = 1, {given}, null) as g from range(0, 2, 1, 1)")
    frame = frame.selectExpr("'x' as feed", "payload", "g.*")
    before_ns = time.time_ns()
    for _ in range(2):
        save(frame, target)
    none, full = target.read_batch("oldest")
    assert before_ns <= none.created_ns <= time.time_ns()
    assert (none.priority, none.expiry_ns, none.slice, dict(none.properties)) == (4, None, None, {})
    assert (full.created_ns, full.priority, full.slice, dict(full.properties)) == (7000, 6, 3, {"n": "1"})
    assert (full.expiry_ns, full.signature) == (7_258_118_400 * 10**9, b"s" * 16)


def test_the_first_moment_of_1970_is_a_valid_time(spark: Any, make_queue: Make) -> None:
    target = make_queue("target")
    save(spark.sql("select 'x' as feed, 'a' as payload, timestamp_micros(0) as created"), target)
    save(spark.sql("select 'x' as feed, 'b' as payload, timestamp_micros(0) as expiry"), target)
    batch = target.read_batch("oldest")
    assert ([product.created_ns for product in batch], batch.expired) == ([1], 1)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("timestamp '2300-01-01 00:00:00Z' as created", r"created\[0\] is 2300-01-01.*; times are from 1970 to 2262"),
        ("timestamp '+20000-01-01 00:00:00Z' as expiry", r"expiry\[0\] is 20000-01-01.*; times are from 1970 to 2262"),
        ("timestamp '1969-12-31 23:59:59Z' as created", r"created\[0\] is 1969-12-31.*; times are from 1970 to 2262"),
        ("cast(x'61ff' as string) as ident", r"ident b'a\\xff' is not UTF-8"),
        ("map('k', cast(x'ff' as string)) as properties", r"properties b'\\xff' is not UTF-8"),
        ("cast(null as string) as ident", r"ident\[0\] is None, not text"),
    ],
)
def test_an_invalid_value_is_an_error_that_names_its_column(
    spark: Any, make_queue: Make, column: str, problem: str
) -> None:
    with pytest.raises(Exception, match=problem):
        save(spark.sql(f"select 'x' as feed, 'a' as payload, {column}"), make_queue("target"))


def test_a_row_without_payload_is_an_error_that_names_the_row(spark: Any, make_queue: Make) -> None:
    rows = "select if(id = 1, null, 'a') as payload from range(0, 3, 1, 1)"
    with pytest.raises(Exception, match="column payload is null in row 1 of a batch; fill or drop"):
        save(spark.sql(rows), make_queue("target"), feed="x")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["ident"], "column payload is missing"),
        (["payload"], "column feed is missing"),
        (["payload", "feed", "sequence"], "column 'sequence' is unknown"),
        (["payload", "feed", "cast(priority as string) as priority"], "column priority is string"),
    ],
)
def test_columns_that_products_do_not_have_are_refused(
    spark: Any, queue: Queue, make_queue: Make, columns: list[str], problem: str
) -> None:
    target = make_queue("target")
    with pytest.raises(Exception, match=problem):
        save(load(spark, queue, columns="*").selectExpr(*columns), target)
