"""headrace pipeline and headrace archive, as far as they work without Spark."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import Queue
from headrace.cli.pipeline import state_line
from headrace.pipeline.decoders.decoder import NO_PRODUCT
from headrace.pipeline.rules.load import load_rules
from headrace.pipeline.run.checkpoint import locked_checkpoint
from headrace.pipeline.run.status import RuleStatus, save_status
from headrace.pipeline.source.columns import arrow_of
from support.commandline import Run, objects

RULES = """\
[pipeline]
queue = "wx.queue"
[[rule]]
name = "hot"
select = "wx/text/metar"
decode = "metar"
table = "hot"
[[rule]]
name = "radar"
select = "wx/radar/**"
file = "{feed}/{ident}.bin"
"""
METAR = b"METAR KDEN 060053Z 18008KT 10SM FEW080 12/M03 A3002="


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Queue.create(tmp_path / "wx.queue", size="8MiB", origin="here") as queue:
        queue.put(METAR, feed="wx/text/metar", ident="SAUS70 KWBC 060000")
        queue.put(b"volume", feed="wx/radar/KFTG", ident="L2 1")
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path


def test_valid_rules_are_reported_as_valid(run: Run, folder: Path) -> None:
    result = run("pipeline", "check", "rules.toml")
    assert (result.exit_code, result.stdout) == (0, "rules.toml is valid\n")


def test_rules_that_select_feed_types_of_ldm_are_warned_of(run: Run, folder: Path) -> None:
    (folder / "rules.toml").write_text(RULES.replace('"wx/radar/**"', '"NEXRAD3"'))
    result = run("pipeline", "check", "rules.toml")
    assert (result.exit_code, result.stdout) == (0, "rules.toml is valid, with 1 warning\n")
    assert "warning: rule radar: NEXRAD3 is a feed type of LDM" in result.stderr


def test_every_problem_is_listed_with_its_line_and_remedy(run: Run, folder: Path) -> None:
    (folder / "rules.toml").write_text(RULES.replace('"metar"', '"metr"').replace("{ident}", "{idnet}"))
    result = run("pipeline", "check", "rules.toml")
    assert result.exit_code == 2
    assert "rules.toml:6" in result.stdout
    assert "did you mean 'metar'?" in result.stdout
    assert "rules.toml:11" in result.stdout
    (told,) = objects(run("pipeline", "check", "rules.toml", "--json").stdout)
    assert len(told["problems"]) == 2
    assert run("pipeline", "run", "rules.toml").exit_code == 2, "before Spark is started"


def test_a_file_in_place_of_a_queue_is_a_problem_with_its_line(run: Run, folder: Path) -> None:
    (folder / "rules.toml").write_text(RULES.replace("wx.queue", "rules.toml"))
    result = run("pipeline", "check", "rules.toml")
    assert result.exit_code == 2
    assert "rules.toml:2: [pipeline] queue: " in result.stdout
    assert "is not readable: Not a directory\n  try: give the directory of a queue" in result.stdout


def test_rules_are_tried_on_samples(run: Run, folder: Path) -> None:
    (folder / "report.txt").write_bytes(METAR)
    words = ("pipeline", "check", "rules.toml", "--sample", "report.txt")
    result = run(*words, "--feed", "wx/text/metar")
    assert result.exit_code == 0
    assert "selected by rule hot, 1 row\n  report=0  station=KDEN  " in result.stdout
    assert "  temperature=12.0  " in result.stdout
    assert "not selected by rule radar (feed)" in result.stdout
    result = run(*words, "--feed", "wx/radar/KFTG", "--ident", "L2 7")
    assert "wx/radar/KFTG/L2 7.bin" in result.stdout.replace("%20", " ")
    told = objects(run(*words, "--feed", "wx/text/metar", "--json").stdout)
    assert [trial["trial"]["rule"] for trial in told] == ["hot", "radar"]
    assert run(*words, "--feed", "wx//metar").exit_code == 2


def test_of_many_rows_the_first_targets_are_shown_and_all_that_are_wrong(run: Run, folder: Path) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(40))
    (folder / "text.txt").write_bytes(lines)
    (folder / "rules.toml").write_text(
        '[pipeline]\nqueue = "wx.queue"\n[[rule]]\nname = "text"\nselect = "wx/any"\ndecode = "text"\nfile = "{line}"\n'
    )
    result = run("pipeline", "check", "rules.toml", "--sample", "text.txt", "--feed", "wx/any")
    assert result.exit_code == 0
    assert [line.rpartition("/")[2] for line in result.stdout.splitlines() if line.startswith("  file ")] == [
        str(number) for number in range(10)
    ]
    assert "  … 30 more rows\n" in result.stdout
    assert "  … 30 more\n" in result.stdout


def test_the_newest_products_of_a_queue_are_samples_too(run: Run, folder: Path) -> None:
    result = run("pipeline", "check", "rules.toml", "--sample", "wx.queue")
    assert result.exit_code == 0
    assert "wx.queue:1: selected by rule hot, 1 row" in result.stdout
    assert "wx.queue:2: selected by rule radar" in result.stdout
    (told,) = objects(run("select", "check", "wx/radar/**", "--sample", "wx.queue", "--json").stdout)
    assert [sample["source"] for sample in told["samples"]] == ["wx.queue:1", "wx.queue:2"]


def test_samples_of_a_queue_are_those_that_rules_select(run: Run, folder: Path) -> None:
    """Forty products of another feed are newer than the report, and than the volume."""
    with Queue.open(folder / "wx.queue") as queue:
        queue.put_many([b"%d" % number for number in range(40)], feed="other", ident=[f"o{n}" for n in range(40)])
    result = run("pipeline", "check", "rules.toml", "--sample", "wx.queue")
    assert "wx.queue:1: selected by rule hot, 1 row" in result.stdout
    assert "wx.queue:2: selected by rule radar" in result.stdout
    assert "other" not in result.stdout


def test_rules_without_a_sample_are_named(run: Run, folder: Path) -> None:
    many = "".join(f'[[rule]]\nname = "none{n}"\nselect = "none/{n}"\ntable = "t{n}"\n' for n in range(20))
    (folder / "rules.toml").write_text(RULES + many)
    result = run("pipeline", "check", "rules.toml", "--sample", "wx.queue")
    assert "20 rules select none of the samples: none0, none1, " in result.stdout
    assert "not selected by rule" not in result.stdout
    result = run("pipeline", "check", "rules.toml", "--sample", "rules.toml", "--feed", "else")
    assert "rules.toml: not selected by any of the 22 rules\n22 rules select none" in result.stdout


def test_rules_that_never_ran_have_no_status(run: Run, folder: Path) -> None:
    result = run("pipeline", "status", "rules.toml")
    assert result.exit_code == 3
    assert "have never run\n  try: headrace pipeline run rules.toml" in result.stderr


def test_a_damaged_status_is_an_error_that_names_the_file(run: Run, folder: Path) -> None:
    (folder / "rules.checkpoint").mkdir()
    (folder / "rules.checkpoint" / "status.json").write_bytes(b"")
    result = run("pipeline", "status", "rules.toml")
    assert result.exit_code == 3
    assert "status.json is damaged" in result.stderr
    assert "try: start the pipeline" in result.stderr


class SlowJob:
    """A job of two rules, one of which has failed; it ends after five waits."""

    def __init__(self, *_: Any) -> None:
        self.statuses = [RuleStatus("hot", "running"), RuleStatus("radar", "failed", "the disk is gone")]
        self.has_failed = True
        self.ending = threading.Event()
        self._looks = 0

    def wait(self, _: float) -> bool:
        self._looks += 1
        if self._looks == 3:
            self.statuses[0] = RuleStatus("hot", "running", rows=7, batches=1)
        return self._looks > 5

    def start(self) -> None: ...
    def stop(self) -> None: ...


def test_the_status_says_why_products_were_not_decoded(run: Run, folder: Path) -> None:
    causes = {"no GRIB message": 1, "truncated to N bytes": 1_200}
    terms = load_rules(folder / "rules.toml").pipeline
    save_status(terms, folder / "rules.toml", [RuleStatus("hot", "done", errors=1_201, causes=causes)])
    result = run("pipeline", "status", "rules.toml")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-3:] == [
        "rule hot: 1,200 products not decoded: truncated to N bytes",
        "rule hot: 1 product not decoded: no GRIB message",
        "not running",
    ]
    (told,) = objects(run("pipeline", "status", "rules.toml", "--json").stdout)
    assert told["rules"][0]["causes"] == causes


def test_the_status_says_that_fragments_were_refused_and_what_to_do(run: Run, folder: Path) -> None:
    status = RuleStatus("hot", "done", errors=83, causes={NO_PRODUCT: 83})
    save_status(load_rules(folder / "rules.toml").pipeline, folder / "rules.toml", [status])
    assert f"rule hot: 83 products refused: {NO_PRODUCT}" in run("pipeline", "status", "rules.toml").stdout


def test_dead_letters_are_those_of_the_decoder_and_those_of_actions(run: Run, folder: Path) -> None:
    """As many as the table has: a person who sees 0 does not look there."""
    status = RuleStatus("hot", "done", errors=2, failed=18, causes={"no GRIB message": 2})
    save_status(load_rules(folder / "rules.toml").pipeline, folder / "rules.toml", [status])
    _, header, row, *lines = run("pipeline", "status", "rules.toml").stdout.splitlines()
    end = header.index("dead letters") + len("dead letters")
    assert row[:end].split()[-1] == "20"
    assert lines == [
        "rule hot: 2 products not decoded: no GRIB message",
        "rule hot: 18 rows refused by its actions: `error` of the dead letters has the reasons",
        "not running",
    ]
    assert state_line(status).endswith(", 20 dead letters")


def test_the_status_says_how_many_rows_were_removed_after_keep(run: Run, folder: Path) -> None:
    save_status(load_rules(folder / "rules.toml").pipeline, folder / "rules.toml", [RuleStatus("hot", removed=1_200)])
    result = run("pipeline", "status", "rules.toml")
    assert "rule hot: 1,200 rows removed from tables after keep\n" in result.stdout


def test_a_rule_is_shown_again_only_after_a_change(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.run.job.Job", SlowJob)
    monkeypatch.setattr("headrace.pipeline.source.session.spark_session", lambda *_: SlowJob())
    told = run("pipeline", "run", "rules.toml").stderr.splitlines()
    before_end = told[:-1]  # the last line belongs to the table at the end
    assert [line.partition(", 0/s")[0] for line in before_end if line.startswith("hot:")] == [
        "hot: running, 0 rows in 0 batches", "hot: running, 7 rows in 1 batch",
    ]  # fmt: skip
    assert len([line for line in before_end if line.startswith("radar:")]) == 1
    assert before_end.count("rule radar has failed: the disk is gone") == 1


@pytest.mark.parametrize("where", ["", "def rules():\n    yield 5\n    "])
def test_rules_in_python_that_exit_are_an_error(run: Run, folder: Path, where: str) -> None:
    (folder / "rules.py").write_text(f"{where}raise SystemExit(3)\n")
    result = run("pipeline", "check", "rules.py")
    assert result.exit_code == 2
    assert "it fails: SystemExit: 3" in result.stdout


def test_pqact_is_translated_and_the_rest_is_listed(run: Run, folder: Path) -> None:
    (folder / "pqact.conf").write_text(
        "WMO\t^S[AP].... .... ([0-3][0-9])\n\tFILE\tdata/metar/\\1.txt\nANY\t.*\n\tPOPE\tx\n"
    )
    result = run("pipeline", "import", "pqact.conf")
    assert result.exit_code == 1
    assert "[[rule]]" in result.stdout
    assert "line 3" in result.stderr
    assert run("pipeline", "import", "pqact.conf", "--feed", "nonsense").exit_code == 2


def test_an_entry_of_pqact_that_is_not_utf_8_is_listed(run: Run, folder: Path) -> None:
    (folder / "pqact.conf").write_bytes("IDS\t^SA\tFILE\tdata/M\xfcnchen\nIDS\t^FT\tFILE\tdata/taf\n".encode("latin-1"))
    result = run("pipeline", "import", "pqact.conf")
    assert result.exit_code == 1
    assert "line 1: the entry is not UTF-8" in result.stderr
    assert 'file = "data/taf"' in result.stdout
    (told,) = objects(run("pipeline", "import", "pqact.conf", "--json").stdout)
    assert (told["rules"], told["remarks"][0]["text"]) == (1, "IDS\t^SA\tFILE\tdata/M?nchen")


def test_an_archive_is_listed_and_put_again(run: Run, folder: Path) -> None:
    (folder / "table").mkdir()
    with Queue.open(folder / "wx.queue") as queue:
        rows = pa.Table.from_batches([arrow_of(queue.read_batch("oldest"))])
    pq.write_table(rows, folder / "table" / "part.parquet")
    Queue.create(folder / "other.queue", size="8MiB").close()
    result = run("archive", "list", "table")
    assert result.exit_code == 0
    assert "wx/radar/KFTG" in result.stdout
    assert "2 products" in result.stdout
    assert run("archive", "restore", "table", "other.queue", "--feed", "wx/text/**").stdout == (
        "1 product, 1 new, 0 duplicates\n"
    )
    (told,) = objects(run("archive", "restore", "table", "other.queue", "--json").stdout)
    assert (told["products"], told["stored"], told["duplicates"]) == (2, 1, 1)
    later = run("archive", "restore", "table", "other.queue", "--since", "2100-01-01")
    assert (later.exit_code, "is in the future" in later.stderr) == (2, True)


def test_a_table_that_is_not_an_archive_is_an_error(run: Run, folder: Path) -> None:
    result = run("archive", "list", "nowhere")
    assert result.exit_code == 3
    assert "there is no table at nowhere" in result.stderr


def small_table(folder: Path, name: str, files: int, days: float = 0.0) -> Path:
    table = folder / "tables" / name
    table.mkdir(parents=True)
    for number in range(files):
        path = table / f"part-hot-00000000-{number:010}-table-0.parquet"
        pq.write_table(pa.table({"sequence": [number]}), path)
        os.utime(path, (time.time() - days * 86400,) * 2)
    return table


@pytest.fixture
def tables(folder: Path) -> Path:
    """Two rules with tables, and one without."""
    rules = '[pipeline]\nqueue = "wx.queue"\n'
    for name in ("one", "two"):
        rules += f'[[rule]]\nname = "{name}"\nselect = "wx/**"\n[rule.table]\npath = "{name}"\nkeep = "30d"\n'
    rules += '[[rule]]\nname = "three"\nselect = "wx/**"\nfile = "{feed}"\n'
    (folder / "rules.toml").write_text(rules)
    return folder


def test_tables_of_a_stopped_pipeline_are_compacted_and_freed_of_old_rows(run: Run, tables: Path) -> None:
    small_table(tables, "one", 5)
    small_table(tables, "two", 3, days=31)
    letters = small_table(tables, "dead_letters", 6)
    result = run("pipeline", "compact", "rules.toml", "--json")
    assert result.exit_code == 0, result.stderr
    (told,) = objects(result.stdout)
    assert told["ok"] is True
    assert [(each["rule"], each["fewer_files"], each["removed_rows"]) for each in told["tables"]] == [
        ("one", 4, 0), ("two", 0, 3), ("dead letters", 4, 0),
    ]  # fmt: skip
    assert (letters / "part-hot-00000000-0000000005-table-0.parquet").exists(), "its batch may be repeated"
    assert sorted(pq.read_table(letters)["sequence"].to_pylist()) == list(range(6))


def test_tables_of_chosen_rules_are_compacted_with_a_line_for_each(run: Run, tables: Path) -> None:
    small_table(tables, "one", 5)
    two, letters = small_table(tables, "two", 5), small_table(tables, "dead_letters", 6)
    result = run("pipeline", "compact", "rules.toml", "one")
    assert result.exit_code == 0
    assert f"compacting {tables / 'tables' / 'one'}\n" in result.stderr
    assert len(list(two.iterdir())) == 5
    assert len(list(letters.iterdir())) == 6
    result = run("pipeline", "compact", "rules.toml", "three")
    assert result.exit_code == 2
    assert "has no rule 'three' with a table\n  try: rules with tables are: one, two" in result.stderr


def test_a_table_that_cannot_be_compacted_is_named_and_the_others_are(run: Run, tables: Path) -> None:
    (small_table(tables, "one", 5) / "part-x.parquet").write_bytes(b"not Parquet")
    two = small_table(tables, "two", 5)
    result = run("pipeline", "compact", "rules.toml")
    assert result.exit_code == 1
    assert "one cannot be compacted: " in result.stderr
    assert len(list(two.iterdir())) == 1


def test_tables_of_a_running_pipeline_are_refused(run: Run, tables: Path) -> None:
    small_table(tables, "one", 5)
    with locked_checkpoint(tables / "rules.checkpoint"):
        result = run("pipeline", "compact", "rules.toml")
    assert result.exit_code == 3
    assert 'try: stop it first, or let it compact its tables itself: compact = "1h"' in result.stderr
    assert len(list((tables / "tables" / "one").iterdir())) == 5
