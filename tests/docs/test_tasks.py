"""The examples of the pages by task, and of the guides, run as they are printed: each page alone, and twice."""

from pathlib import Path

import pytest

from support.printed import blocks_of, perform
from support.shell import Shell

DOCS = Path(__file__).parent.parent.parent / "docs"
SHOWN = {
    "tasks/share-work.md": [" has 10 products", "nothing is parked at decode"],
    "tasks/follow-a-feed.md": ["SAUS70_KWBC_061400.txt", "a new one", "mine.queue"],
    "tasks/two-sites-with-tls.md": ["valid", "SAUS70_KWBC_061400.txt"],
    "from-kafka.md": ["group:"],
    "from-et.md": ["hits"],
    "from-ldm.md": ["SAUS70_KWBC_061400.txt"],
}
WITH_SPARK = {"tasks/replace-pqact.md", "tasks/products-into-a-table.md"}  # in test_examples_with_spark.py


def test_every_page_by_task_and_every_guide_is_run() -> None:
    pages = [*DOCS.glob("tasks/*.md"), *DOCS.glob("from-*.md")]
    assert {str(page.relative_to(DOCS)) for page in pages} == SHOWN.keys() | WITH_SPARK


@pytest.mark.processes
@pytest.mark.parametrize("page", SHOWN)
def test_the_examples_of_a_page_run_as_printed_and_twice(shell: Shell, tmp_path: Path, page: str) -> None:
    for _ in range(2):
        output = perform(shell, blocks_of((DOCS / page).read_text()), tmp_path)
        for text in SHOWN[page]:
            assert text in output, f"{text!r} is not in:\n{output}"
