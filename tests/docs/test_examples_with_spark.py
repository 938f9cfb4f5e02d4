"""Examples that start Spark, as they are printed. They are in one file, so that they share one Java as far as possible."""

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace import Queue
from support.printed import Block, blocks_of, perform, steps_of
from support.shell import Shell

ROOT = Path(__file__).parent.parent.parent
STEPS = steps_of((ROOT / "README.md").read_text())
PAGES = {
    "tasks/replace-pqact.md": ["3 rules, 0 not translated", "METAR KPHX 061251Z"],
    "tasks/products-into-a-table.md": ["KPHX", "wx/text/metar"],
}

EXAMPLES = ROOT / "examples"
ONE_AFTER_THE_OTHER = """
import runpy, sys
for sys.argv in {}:
    runpy.run_path(sys.argv[0], run_name='__main__')
"""

pytestmark = pytest.mark.spark


def done(shell: Shell, blocks: list[Block], folder: Path, shown: list[str]) -> str:
    output = perform(shell, blocks, folder)
    for text in shown:
        assert text in output, f"{text!r} is not in:\n{output}"
    return output


def test_the_step_of_the_tutorial_runs_alone_in_order_and_twice(shell: Shell, tmp_path: Path) -> None:
    shown = ["rules.toml is valid", "KPHX"]
    alone = done(shell, STEPS["6"], tmp_path, shown)
    perform(shell, STEPS["1"], tmp_path)
    assert done(shell, STEPS["6"], tmp_path, shown).count("KPHX") == alone.count("KPHX"), "no row is added"


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(shell: Shell, tmp_path: Path, page: str) -> None:
    done(shell, blocks_of((ROOT / "docs" / page).read_text()), tmp_path, PAGES[page])


def test_the_examples_for_spark_teams_read_each_product_once(shell: Shell, tmp_path: Path) -> None:
    """They share a Java that was started in their folder: relative paths are those of the folder in which it was."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    shell.run("headrace queue create wx.queue --size 256MiB", tmp_path)
    shell.run("headrace generate wx.queue --products 300 --fast --seed 1", tmp_path)
    with Queue.open(tmp_path / "wx.queue") as queue:
        held = sum(1 for _ in queue.read("oldest", "wx/**"))
        radar = sum(1 for _ in queue.read("oldest", "wx/radar/**"))
        queue.put(b"one more", feed="wx/text/note")
    stream, batch = ["spark_stream.py"], ["spark_batch.py", "wx.queue", "wx/radar/**"]
    output = shell.run(f'python -c "{ONE_AFTER_THE_OTHER.format([stream, stream, batch])}"', tmp_path)
    assert output.count(f"sizes.table: {held + 1} rows, {held + 1} products") == 2  # the second run adds nothing
    assert re.findall(r"^\|(wx/\w+) *\|(\d+) ", output, re.M) == [("wx/radar", str(radar))]


def test_the_rules_for_a_weather_site_file_products_fill_a_table_and_raise_alerts(shell: Shell, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    shell.run("python -m headrace.samples --queue wx.queue", tmp_path)
    assert "weather_rules.toml is valid" in shell.run("headrace pipeline check weather_rules.toml", tmp_path)
    shell.run("headrace pipeline run weather_rules.toml --once", tmp_path)
    filed = (tmp_path / "filed" / "metar" / "KWBC.txt").read_text()
    bulletins = sorted((tmp_path / "samples" / "metar").glob("SAUS70_KWBC*"))
    assert len(bulletins) == 3
    assert filed == "".join(bulletin.read_text() for bulletin in bulletins)
    stations = pq.read_table(tmp_path / "tables" / "reports").column("station").to_pylist()
    assert stations.count("KPHX") == 3
    alerts = shell.run("headrace watch wx.queue --from oldest --select 'alert/**' --timeout 1s", tmp_path)
    assert alerts.count("alert/heat  KPHX") == alerts.count("alert/") == 3
