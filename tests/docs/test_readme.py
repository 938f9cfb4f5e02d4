"""The steps of the tutorial in README.md run as they are printed: each alone, all of them in order, and twice."""

from pathlib import Path

import pytest

from support.printed import perform, steps_of
from support.shell import Shell

ROOT = Path(__file__).parent.parent.parent
STEPS = steps_of((ROOT / "README.md").read_text())
QUICK = [number for number in STEPS if number != "6"]  # the sixth is in test_examples_with_spark.py
SHOWN = {
    "1": ["wx/text/metar  SAUS70_KWBC_061200.txt", "METAR KDEN 061153Z"],
    "2": ["wx/text/metar KDEN 061453 52 bytes", "printer"],
    "3": [" decodes S", "Killed"],
    "4": ["2 of 2 waiting, no consumer attached", "exit code 3"],
    "5": ["4 SAUS70_KWBC_061400.txt", "here"],
    "6": ["rules.toml is valid", "KPHX"],
    "7": ["two   alive", "wx/derived", "two has left", "group main of stream bulletins: 64 slices, 1 node"],
}


def done(shell: Shell, number: str, folder: Path) -> str:
    """The output of a step, which shows what the tutorial promises."""
    output = perform(shell, STEPS[number], folder)
    for text in SHOWN[number]:
        assert text in output, f"step {number}: {text!r} is not in:\n{output}"
    return output


def test_the_tutorial_has_these_steps() -> None:
    assert list(STEPS) == list(SHOWN)
    assert all(any(block.language == "bash" for block in blocks) for blocks in STEPS.values())


@pytest.mark.processes
@pytest.mark.parametrize("number", QUICK)
def test_each_step_runs_alone(shell: Shell, tmp_path: Path, number: str) -> None:
    done(shell, number, tmp_path)


@pytest.mark.processes
def test_all_steps_run_in_order_and_twice(shell: Shell, tmp_path: Path) -> None:
    for number in QUICK:
        done(shell, number, tmp_path)
    again = {number: done(shell, number, tmp_path) for number in QUICK}
    assert again["1"].count("duplicate") == 4
    assert "not stored: Duplicate" in again["2"]
