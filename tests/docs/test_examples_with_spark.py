"""Examples that start Spark, as they are printed. They are in one file, so that they share one Java as far as possible."""

from pathlib import Path

import pytest

from support.printed import Block, blocks_of, perform, steps_of
from support.shell import Shell

ROOT = Path(__file__).parent.parent.parent
STEPS = steps_of((ROOT / "README.md").read_text())
PAGES = {
    "tasks/replace-pqact.md": ["3 rules, 0 not translated", "METAR KPHX 061251Z"],
    "tasks/products-into-a-table.md": ["KPHX", "wx/text/metar"],
}

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
