"""Jobs keep their promises: every row once after a kill at any point, one process per checkpoint, stations that follow."""

import os
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from headrace import Queue
from headrace.errors import BlockedError, PipelineError
from pipeline.jobs import TABLE, numbers, put, run, running, until, write_rules

WINDOWS = """
[[rule]]
name = "a"
select = "wx/text"
sql = "select window.start as hour, count(*) as products from products group by window(created, '1 hour')"
watermark = "1min"
watermark_column = "created"
table = "a"
"""
HOUR_NS = 3_600_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "wx.queue", size="4MiB").close()
    return tmp_path


def put_hour(folder: Path, hour: int, count: int) -> None:
    with Queue.open(folder / "wx.queue") as queue:
        payloads = [b"%d %d" % (hour, number) for number in range(count)]
        queue.put_many(
            payloads, feed="wx/text", created=[(490_000 + hour) * HOUR_NS + number for number in range(count)]
        )


@pytest.mark.parametrize("forgotten", ["commit", "journal too"])
def test_windows_are_in_the_table_once_if_their_batch_is_repeated(folder: Path, spark: Any, forgotten: str) -> None:
    path = write_rules(folder, WINDOWS)
    for hour in range(3):
        put_hour(folder, hour, 10 + hour)
        assert run(path, spark)["a"].state == "done"
    commits = folder / "rules.checkpoint" / "a" / "commits"
    last = max(commits.glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    if forgotten == "journal too":
        (folder / "rules.checkpoint" / "state" / "a" / "table-0.json").unlink()
    put_hour(folder, 3, 13)
    told = run(path, spark)["a"]
    counts = ds.dataset(folder / "tables" / "a", format="parquet").to_table().column("products").to_pylist()
    if forgotten == "commit":
        assert (told.state, told.failure) == ("done", "")
        assert sorted(counts) == [10, 11]  # Spark emits an hour with the batch after its end
    else:  # as after a restore of an older checkpoint: nobody knows whether the files have the same rows
        assert told.state == "failed"
        assert "exists: the checkpoint is older than the table" in told.failure
        assert counts == [10]


def test_old_rows_and_remains_of_a_killed_compaction_are_removed(folder: Path, spark: Any) -> None:
    path = write_rules(folder, TABLE.format(name="a").replace('table = "a"', '[rule.table]\npath = "a"\nkeep = "1h"'))
    put(folder, 0, 10)
    assert run(path, spark)["a"].removed == 0
    remains = folder / "tables" / ".headrace" / "a" / "compaction" / "5" / "folder"
    remains.mkdir(parents=True)
    two_hours_ago = (time.time() - 7200,) * 2
    for each in (*(folder / "tables" / "a").iterdir(), remains.parent):
        os.utime(each, two_hours_ago)
    assert run(path, spark)["a"].removed == 0
    assert not remains.parent.parent.exists(), "by the start, without a batch"
    put(folder, 10, 10)
    assert run(path, spark)["a"].removed == 10
    assert numbers(folder, "a") == list(range(10, 20))


@pytest.mark.parametrize("decode", ["", 'decode = "text"'], ids=["products", "decoded"])
def test_a_product_from_the_future_is_a_dead_letter_and_does_not_make_others_late(
    folder: Path, spark: Any, decode: str
) -> None:
    rules = WINDOWS if not decode else WINDOWS.replace("from products", "from decoded") + f"{decode}\n"
    path = write_rules(folder, rules)
    put_hour(folder, 0, 3)
    put_hour(folder, 2_000_000, 1)
    run(path, spark)
    for hour in range(1, 4):
        put_hour(folder, hour, 10 + hour)
        told = run(path, spark)["a"]
        assert (told.state, told.failure) == ("done", "")
    counts = ds.dataset(folder / "tables" / "a", format="parquet").to_table().column("products").to_pylist()
    assert sorted(counts) == [3, 11]
    (letter,) = ds.dataset(folder / "tables" / "dead_letters", format="parquet").to_table().to_pylist()
    assert letter["error"] == "created is more than 1.0 d in the future (watermark_ahead)"


def test_products_that_cannot_be_decoded_are_counted_and_logged_by_cause(
    folder: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_rules(folder, '[[rule]]\nname = "a"\nselect = "wx/**"\ndecode = "nexrad3"\ntable = "a"\n')
    payloads = [b"\1" * size for size in (5, 60, 61)] + [b"\2" * size for size in (200, 201)] + [b"\x78\x9cnonsense"]
    with Queue.open(folder / "wx.queue") as queue:
        queue.put_many(payloads, feed="wx/radar")
    told = run(path, spark)["a"]
    assert (told.state, told.errors) == ("done", 6)
    assert told.causes == {
        "truncated to N bytes, less than the headers of Level III": 3,
        "no message header and product description block of Level III": 2,
        "the zlib frames of the message do not decompress": 1,
    }
    logged = [record.getMessage() for record in caplog.records if "the decoder refuses products" in record.getMessage()]
    assert len(logged) == 3
    assert any("truncated to N bytes, less than the headers of Level III (3 so far)" in line for line in logged)
    letters = ds.dataset(folder / "tables" / "dead_letters", format="parquet").to_table().to_pylist()
    assert sorted(letter["payload"] for letter in letters) == sorted(payloads)


@pytest.mark.parametrize("left", ["offsets/.0.5e1f.tmp", "offsets/..0.5e1f.tmp.crc", "offsets/0", "metadata"])
def test_a_rule_starts_although_its_first_entry_is_unfinished(folder: Path, spark: Any, left: str) -> None:
    path = write_rules(folder, TABLE.format(name="a"))
    entry = folder / "rules.checkpoint" / "a" / left
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"v1" if "tmp" in left else b"")
    put(folder, 0, 3)
    told = run(path, spark)["a"]
    assert (told.state, told.failure) == ("done", "")
    assert numbers(folder, "a") == [0, 1, 2]


@pytest.mark.parametrize("emptied", ["offsets", "commits"])
def test_a_rule_continues_although_its_last_entry_is_unfinished(folder: Path, spark: Any, emptied: str) -> None:
    path = write_rules(folder, TABLE.format(name="a"))
    put(folder, 0, 3)
    run(path, spark)
    checkpoint = folder / "rules.checkpoint" / "a"
    (checkpoint / "commits" / "0").write_bytes(b"") if emptied == "commits" else (checkpoint / "offsets" / "1").touch()
    put(folder, 3, 3)
    told = run(path, spark)["a"]
    assert (told.state, told.failure) == ("done", "")
    assert numbers(folder, "a") == list(range(6))


def test_a_checkpoint_is_for_one_process(folder: Path, spark: Any) -> None:
    path = write_rules(folder, TABLE.format(name="a"), trigger="200ms")
    with running(path, spark), pytest.raises(PipelineError, match="another process runs a pipeline"):
        run(path, spark)
    put(folder, 0, 3)
    assert run(write_rules(folder, TABLE.format(name="a")), spark)["a"].state == "done"
    assert numbers(folder, "a") == [0, 1, 2]


def test_a_station_follows_the_rule_and_is_not_behind_when_everything_is_read(folder: Path, spark: Any) -> None:
    put(folder, 0, 5)
    run(write_rules(folder, TABLE.format(name="a")), spark)
    with Queue.open(folder / "wx.queue") as queue:
        assert queue.station("pipeline-rules-a").statistics().behind == 0
    put(folder, 5, 5)
    rule = TABLE.format(name="a").replace('"wx/text"', '"wx/**"')
    assert run(write_rules(folder, rule, 'queue = "wx.queue"\nname = "rules"'), spark)["a"].state == "done"
    with Queue.open(folder / "wx.queue") as queue:
        station = queue.station("pipeline-rules-a")
        assert (station.terms.selection, station.statistics().behind) == ("wx/**", 0)
    assert numbers(folder, "a") == list(range(10))


def test_products_that_a_rule_holds_are_not_evicted(folder: Path, spark: Any) -> None:
    rules, terms = TABLE.format(name="a"), 'queue = "wx.queue"\non_loss = "hold"'
    put(folder, 0, 1)
    run(write_rules(folder, rules, terms), spark)
    stored = 1
    with Queue.open(folder / "wx.queue") as queue, pytest.raises(BlockedError):
        while True:
            queue.put(b"%d" % stored * 30_000, feed="wx/text", ident=f"i{stored}", timeout=0)
            stored += 1
    with running(write_rules(folder, rules, terms, "200ms"), spark):
        until(lambda: len(numbers(folder, "a")) == stored, "everything that was held is in the table")
        for first in range(stored, stored + 50, 5):
            put(folder, first, 5, size=100_000)
        until(lambda: len(numbers(folder, "a")) == stored + 50, "and everything that came later")


def test_spark_forgets_the_jobs_of_a_batch(folder: Path, spark: Any) -> None:
    """Jobs hold plans and sessions; a pipeline that runs for an hour would run out of memory."""
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.activeQueryToJobs().size()
    put(folder, 0, 50)
    rule = TABLE.format(name="a").replace("table =", 'file = "{ident}"\ntable =')
    told = run(write_rules(folder, rule, 'queue = "wx.queue"\nmax_products = 10'), spark)["a"]
    assert told.batches == 5
    until(lambda: scheduler.activeQueryToJobs().size() <= before, "they are forgotten")
