"""A part of a large product passes for a product nowhere: not in a rule, not in a DataFrame, not in an archive."""

import os
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue, joined
from headrace.pipeline.archive import Archive
from headrace.pipeline.decoders.decoder import NO_PRODUCT
from pipeline.jobs import rows, run, write_rules

LARGE = os.urandom(1_500_000)  # of a queue of 4 MiB, more than a quarter
SMALL = b"clear sky"
WATERMARK = 'watermark = "1min"\nwatermark_column = "created"\nsql = "select ident, payload, created from products"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Queue.create(tmp_path / "wx.queue", size="4MiB") as queue:
        queue.put(LARGE, feed="sat/a", ident="large")
        queue.put(SMALL, feed="sat/b", ident="small")
    return tmp_path


def parts_in(folder: Path) -> list[int]:
    """The sequences of the manifest and the parts."""
    with Queue.open(folder / "wx.queue") as queue:
        return [each.sequence for batch in queue.read().batches() for each in batch if each.options.fragment]


def rule(name: str, lines: str) -> str:
    return f'\n[[rule]]\nname = "{name}"\nselect = "sat/**"\n{lines}\n'


def check_letters(folder: Path, told: Any) -> None:
    """Each part is a dead letter of the rule, under a cause of its own."""
    parts = parts_in(folder)
    assert len(parts) > 2
    assert (told.state, told.failure) == ("done", "")
    assert (told.errors, told.causes) == (len(parts), {NO_PRODUCT: len(parts)})
    letters = [letter for letter in rows(folder, "dead_letters") if letter["rule"] == told.rule]
    assert sorted(letter["sequence"] for letter in letters) == parts
    assert {letter["error"] for letter in letters} == {NO_PRODUCT}


@pytest.mark.parametrize("count", [1, 2], ids=["alone", "shared"])
def test_a_rule_that_writes_files_gets_whole_products_only(folder: Path, spark: Any, count: int) -> None:
    names = [f"r{number}" for number in range(count)]
    path = write_rules(folder, "".join(rule(name, f'file = "{name}/{{ident}}"') for name in names))
    told = run(path, spark)
    for name in names:
        check_letters(folder, told[name])
        assert told[name].rows == 1
        (file,) = folder.rglob(f"{name}/small")
        assert file.read_bytes() == SMALL
        assert not list(folder.rglob(f"{name}/large"))


@pytest.mark.parametrize("lines", [
    'table = "t"', 'sql = "select * from products"\ntable = "t"', f'{WATERMARK}table = "t"',
], ids=["plain", "sql", "watermark"])  # fmt: skip
def test_a_table_has_whole_products_only(folder: Path, spark: Any, lines: str) -> None:
    told = run(write_rules(folder, rule("r", lines)), spark)["r"]
    check_letters(folder, told)
    assert [row["payload"] for row in rows(folder, "t")] == [SMALL]


def test_rules_that_share_what_they_read_each_refuse_the_parts(folder: Path, spark: Any) -> None:
    others = rule("p", '[rule.publish]\nfeed = "out/x"\nident = "{ident}"') + rule("d", 'decode = "text"\ntable = "d"')
    told = run(write_rules(folder, rule("t", 'table = "t"') + others), spark)
    for each in told.values():
        check_letters(folder, each)
    assert [row["payload"] for row in rows(folder, "t")] == [SMALL]
    assert {row["ident"] for row in rows(folder, "d")} == {"small"}
    with Queue.open(folder / "wx.queue") as queue:
        put = [
            (each.ident, bytes(each.payload)) for batch in queue.read("oldest", "out/**").batches() for each in batch
        ]
    assert put == [("small", SMALL)]


def test_an_archive_restores_whole_products_only(folder: Path, spark: Any) -> None:
    run(write_rules(folder, rule("r", 'table = "t"')), spark)
    with Queue.create(folder / "new.queue", size="4MiB") as queue:
        list(Archive(folder / "tables" / "t").restore(queue))
        assert [bytes(each.payload) for each in joined(queue.read().batches())] == [SMALL]


def test_a_dataframe_leaves_parts_out_unless_they_are_wanted_and_marked(folder: Path, spark: Any) -> None:
    frame = spark.read.format("headrace").load(str(folder / "wx.queue"))
    assert [bytes(row.payload) for row in frame.collect()] == [SMALL]
    marked = spark.read.format("headrace").option("fragments", "true").load(str(folder / "wx.queue"))
    parts = parts_in(folder)
    found = {row.sequence: row.fragment for row in marked.collect()}
    assert sorted(sequence for sequence, fragment in found.items() if fragment) == parts
    assert [found[sequence] for sequence in parts][:2] == ["manifest", f"part 1 of {len(parts) - 1}"]
