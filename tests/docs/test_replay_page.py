"""The examples of the page about replays run as they are printed."""

from pathlib import Path

import pytest

from support.printed import blocks_of, perform
from support.shell import Shell

PAGE = Path(__file__).parent.parent.parent / "docs" / "replay.md"


@pytest.mark.processes
def test_the_examples_about_replays_run_as_printed(shell: Shell, tmp_path: Path) -> None:
    output = perform(shell, blocks_of(PAGE.read_text()), tmp_path)
    for text in (
        "lab/frames", "10 products, 10 new, 0 duplicates", "replay/lab/frames", "(replay)", "paused", "b'frame 9'",
        "10 products, 10 new", "[11, 12]",
    ):  # fmt: skip
        assert text in output, f"{text!r} is not in:\n{output}"
