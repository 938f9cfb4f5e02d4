"""Trials: what rules would do with sample products, without Spark."""

import subprocess
import sys
from pathlib import Path

from rulefile import PIPELINE, loaded, written

from headrace.pipeline.rules import Trial, try_rules
from headrace.pipeline.rules.trial import batch_of, row_of
from headrace.pipeline.source.columns import SCHEMA
from headrace.product.product import MadeProduct, Product

CREATED_NS = 1_767_660_900_250_000_000  # 2026-01-06T00:55:00.25Z


def product(ident: str = "SAUS70 KWBC 060053", payload: bytes = b"", feed: str = "wx/text/metar") -> Product:
    return MadeProduct(
        feed=feed, ident=ident, payload=memoryview(payload), sequence=5, signature=b"", origin="denver",
        origin_sequence=3, previous=None, created_ns=CREATED_NS, inserted_ns=CREATED_NS, properties={"dry": True, "n": 2},
    )  # fmt: skip


METAR = b"\r\r\nSAUS70 KWBC 060053\r\r\nMETAR KDEN 060053Z 36010G25KT 10SM FEW050 M02/M10 A3012=\r\r\nKBOU 060053Z 00000KT 10SM CLR 01/M05 A3010=\r\r\n"

RULES = """
[[rule]]
name = "sa"
select = "wx/text/*"
ident = '^(SA)([A-Z]{2}).. (?P<centre>K...) ([0-9]{6})'
file = "{feed.-1}/{centre}/{time(4):%Y%m%d_%H%M}.txt"
publish = "copy/{centre:lower}"
pipe = ["cat", "x{ident}"]
[[rule.exec]]
command = ["cat", "{ident}"]
[[rule]]
name = "radar"
select = "wx/radar/**"
table = "radar"
[[rule]]
name = "off"
select = "**"
table = "off"
enabled = false
"""


def trials(tmp_path: Path, text: str, *products: Product) -> list[Trial]:
    return list(try_rules(loaded(written(tmp_path, PIPELINE + text)), products))


def test_a_trial_tells_which_rules_select_a_product_and_what_they_would_do(tmp_path: Path) -> None:
    taken, refused = trials(tmp_path, RULES, product())
    assert (refused.rule, refused.refused_by, refused.is_taken, refused.previews) == ("radar", "feed", False, ())
    assert (taken.rule, taken.rows, taken.is_taken) == ("sa", 1, True)
    shown = {preview.action: (preview.target, preview.ident, preview.error) for preview in taken.previews}
    assert shown == {
        "file": (f"{tmp_path}/files/metar/KWBC/20260106_0053.txt", None, None),
        "publish": ("copy/kwbc", "SAUS70 KWBC 060053", None),
        "pipe": ("cat 'xSAUS70 KWBC 060053'", None, None),
        "exec": ("cat 'SAUS70 KWBC 060053'", None, None),
    }


def test_a_trial_tells_why_an_action_would_refuse_a_product(tmp_path: Path) -> None:
    rules = '[[rule]]\nname = "a"\nselect = "**"\nexec = ["cat", "{ident}"]\nfile = "{ident:path}"\n'
    (trial,) = trials(tmp_path, rules, product("-rf ../x"))
    shown = {preview.action: preview.error for preview in trial.previews}
    assert "would be an option" in str(shown["exec"])
    assert shown["file"] is None
    (trial,) = trials(tmp_path, rules, product("a/../../x"))
    assert "has the part '..'" in str(trial.previews[0].error)


def test_samples_are_decoded_as_the_pipeline_would(tmp_path: Path) -> None:
    rules = """
        [[rule]]
        name = "metar"
        select = "wx/text/metar"
        decode = "metar"
        file = "{station}/{observed:%Y%m%d%H}.json"
        [rule.table]
        path = "metar"
        partition_by = ["station"]
        [rule.alert]
        when = "wind_gust > 10"
        feed = "alert/gust"
        ident = "{station}"
    """
    (trial,) = trials(tmp_path, rules, product(payload=METAR))
    assert (trial.rows, trial.error) == (2, None)
    assert [(row["station"], row["temperature"]) for row in trial.shown] == [("KDEN", -2.0), ("KBOU", 1.0)]
    assert [preview.target for preview in trial.previews if preview.action == "file"] == [
        f"{tmp_path}/files/KDEN/2026010600.json", f"{tmp_path}/files/KBOU/2026010600.json",
    ]  # fmt: skip
    tables = [preview.target for preview in trial.previews if preview.action == "table"]
    assert tables == [f"{tmp_path}/tables/metar/station=KDEN", f"{tmp_path}/tables/metar/station=KBOU"]
    alerts = [preview for preview in trial.previews if preview.action == "alert"]
    assert next((alert.target, alert.ident, alert.when) for alert in alerts) == ("alert/gust", "KDEN", "wind_gust > 10")


def test_a_product_that_cannot_be_decoded_is_a_dead_letter(tmp_path: Path) -> None:
    rules = '[[rule]]\nname = "a"\nselect = "**"\ndecode = "nexrad2"\ntable = "t"\n'
    (trial,) = trials(tmp_path, rules, product(payload=b"\xff"))
    assert (trial.rows, trial.previews) == (0, ())
    assert trial.error


def test_sql_is_left_to_spark(tmp_path: Path) -> None:
    rules = (
        '[[rule]]\nname = "a"\nselect = "**"\nsql = "select feed as f from products"\nfile = "{f:path}"\ntable = "t"\n'
    )
    (trial,) = trials(tmp_path, rules, product())
    assert (trial.rows, trial.shown, trial.has_sql) == (1, (), True)
    assert [(preview.target, preview.is_open) for preview in trial.previews] == [
        (f"{tmp_path}/files/{{f:path}}", True), (f"{tmp_path}/tables/t", False),
    ]  # fmt: skip


def test_samples_have_the_columns_of_the_pipeline() -> None:
    one = product(payload=b"x")
    assert list(row_of(one)) == SCHEMA.names
    batch = batch_of([one, one])
    assert batch.schema == SCHEMA
    assert batch.column("properties").to_pylist()[0] == [("dry", "true"), ("n", "2")]
    assert batch.column("created").to_pylist()[0] == row_of(one)["created"]


def test_rules_are_checked_without_spark() -> None:
    code = "import sys, headrace.pipeline.rules; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
