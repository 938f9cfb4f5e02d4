"""The examples of the pages by task, and of the guides, run as they are printed: each page alone, and twice."""

import tempfile
from collections.abc import Iterator
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
SHOWN_WITH_SPARK = {
    "tasks/replace-pqact.md": ["3 rules, 0 not translated", "METAR KPHX 061251Z"],
    "tasks/products-into-a-table.md": ["KPHX", "wx/text/metar"],
}


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with tempfile.TemporaryDirectory() as folder, Shell(Path(folder) / "shell") as shell:
        yield shell


def run_page(shell: Shell, page: str, folder: Path, shown: list[str]) -> None:
    output = perform(shell, blocks_of((DOCS / page).read_text()), folder)
    for text in shown:
        assert text in output, f"{page}: {text!r} is not in:\n{output}"


def test_every_page_by_task_and_every_guide_is_run() -> None:
    pages = [*DOCS.glob("tasks/*.md"), *DOCS.glob("from-*.md")]
    assert {str(page.relative_to(DOCS)) for page in pages} == {*SHOWN, *SHOWN_WITH_SPARK}


@pytest.mark.processes
@pytest.mark.parametrize("page", SHOWN)
def test_the_examples_of_a_page_run_as_printed_and_twice(shell: Shell, tmp_path: Path, page: str) -> None:
    for _ in range(2):
        run_page(shell, page, tmp_path, SHOWN[page])


@pytest.mark.spark
@pytest.mark.parametrize("page", SHOWN_WITH_SPARK)
def test_the_examples_of_a_page_with_spark_run_as_printed(shell: Shell, tmp_path: Path, page: str) -> None:
    run_page(shell, page, tmp_path, SHOWN_WITH_SPARK[page])
