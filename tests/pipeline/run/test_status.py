"""The status of rules: what Spark reports of a query, for each of its rules."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import Queue
from headrace.cli.pipeline import show_rules, state_line
from headrace.pipeline.run.status import RuleStatus, update_from_spark
from pipeline.jobs import put, running, until, write_rules

SELECTIVE = """
[[rule]]
name = "rare"
select = "wx/rare"
publish = "wx/text"
"""


def progress(**latest: Any) -> Any:
    """A progress report of Spark, as far as it is used."""
    source = {"endOffset": {"queue": "q", "sequence": 10, "lost": 3}, "latestOffset": {"sequence": 500, **latest}}
    report = {"sources": [source], "processedRowsPerSecond": 7.5, "durationMs": {"triggerExecution": 1500}}
    return SimpleNamespace(json=json.dumps(report))


def test_behind_is_what_the_source_counts_and_not_a_difference_of_sequences() -> None:
    rules = [RuleStatus("a"), RuleStatus("b")]
    update_from_spark(rules, progress(lost=3, behind_products=4, behind_s=2.5))
    for rule in rules:
        assert (rule.behind, rule.behind_s, rule.lost, rule.batch_s) == (4, 2.5, 3, 1.5)
    assert "4 behind (oldest: 2.5 s), 3 lost" in state_line(rules[0])


def test_a_report_without_a_backlog_leaves_the_last_one() -> None:
    rule = RuleStatus("a", behind=4, behind_s=1.0)
    update_from_spark([rule], progress())
    assert (rule.behind, rule.behind_s) == (4, 1.0)


def test_the_table_shows_the_age_of_the_oldest_product_only_if_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    show_rules([RuleStatus("a", behind=4, behind_s=2.5), RuleStatus("b")])
    shown = capsys.readouterr().out
    assert "oldest" in shown
    assert "2.5 s" in shown


def test_products_that_a_rule_does_not_select_do_not_count_as_behind(tmp_path: Path, spark: Any) -> None:
    """Its own output included."""
    Queue.create(tmp_path / "wx.queue", size="4MiB").close()
    with Queue.open(tmp_path / "wx.queue") as queue:
        queue.put_many([b"%d" % number for number in range(20)], feed="wx/rare", ident=[str(n) for n in range(20)])
    put(tmp_path, 0, 300)
    path = write_rules(tmp_path, SELECTIVE, 'queue = "wx.queue"\nmax_products = 5', "200ms")
    seen: set[int] = set()

    def is_done() -> bool:
        seen.add(job.statuses[0].behind)
        return job.statuses[0].rows == 20 and job.statuses[0].behind == 0

    with running(path, spark) as job:
        until(is_done, lambda: job.statuses)
    assert max(seen) <= 20, seen
