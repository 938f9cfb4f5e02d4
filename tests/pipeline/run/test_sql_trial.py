"""What the SQL of rules leaves of samples."""

from pathlib import Path
from typing import Any

from headrace import Queue
from headrace.pipeline.rules.load import load_rules
from headrace.pipeline.run.sql_trial import rules_with_sql, try_sql

RULES = """
[pipeline]
queue = "wx.queue"
[[rule]]
name = "hot"
select = "wx/text/**"
decode = "metar"
sql = "select station, temperature from decoded where temperature > 30"
file = "{station}.txt"
[[rule]]
name = "counts"
select = "**"
sql = "select feed, count(*) as n from products group by feed, window(created, '1 day')"
watermark = "10min"
table = "counts"
[[rule]]
name = "zero"
select = "wx/radar"
sql = "select 1 / (length(ident) - length(ident)) as n from products"
table = "zero"
[[rule]]
name = "none"
select = "other"
sql = "select feed from products"
table = "none"
[[rule]]
name = "plain"
select = "**"
table = "plain"
"""
METAR = b"METAR KDEN 060053Z 18008KT 10SM 36/M03 A3002=\nMETAR KBOU 060053Z 18008KT 10SM 12/M03 A3002=\n"


def test_the_rows_that_sql_leaves_are_shown(spark: Any, tmp_path: Path) -> None:
    with Queue.create(tmp_path / "wx.queue", size="8MiB", origin="here") as queue:
        queue.put(METAR, feed="wx/text/metar", ident="SAUS70 KWBC 060000")
        queue.put(b"not a report", feed="wx/text/metar", ident="SAUS70 KWBC 060001")
        queue.put(b"volume", feed="wx/radar", ident="L2")
        products = list(queue.read("oldest"))
        (tmp_path / "rules.toml").write_text(RULES)
        chosen = rules_with_sql(load_rules(tmp_path / "rules.toml"), products)
        assert [rule.name for rule, _ in chosen] == ["hot", "counts", "zero"]
        hot, counts, zero = try_sql(spark, tmp_path, chosen)
    assert (hot.before, hot.rows, hot.error) == (2, 1, None)
    assert [(row["station"], row["temperature"]) for row in hot.shown] == [("KDEN", 36.0)]
    assert [preview.target for preview in hot.previews] == [f"{tmp_path}/files/KDEN.txt"]
    assert {row["feed"]: row["n"] for row in counts.shown} == {"wx/radar": 1, "wx/text/metar": 2}, "without a watermark"
    assert zero.error is not None
    assert "DIVIDE_BY_ZERO" in zero.error
