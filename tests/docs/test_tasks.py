"""The examples of the pages by task, and of the guides, run as they are printed: each page alone, and twice."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from headrace import Queue
from support.commandline import PROGRAM
from support.printed import blocks_of, perform
from support.shell import Shell

DOCS = Path(__file__).parent.parent.parent / "docs"
SHOWN = {
    "tasks/share-work.md": [" has 10 products", "nothing is parked at decode"],
    "tasks/follow-a-feed.md": ["SAUS70_KWBC_061400.txt", "a new one", "mine.queue"],
    "tasks/two-sites-with-tls.md": ["valid", "SAUS70_KWBC_061400.txt"],
    "send.md": ["the file arrived", "results/finished.txt", "full disk 6000000 bytes"],
    "from-kafka.md": ["group:"],
    "from-et.md": ["hits"],
    "from-ldm.md": ["SAUS70_KWBC_061400.txt"],
}
WITH_SPARK = {"tasks/replace-pqact.md", "tasks/products-into-a-table.md"}  # in test_examples_with_spark.py


def test_every_page_by_task_and_every_guide_is_run() -> None:
    pages = [*DOCS.glob("tasks/*.md"), *DOCS.glob("from-*.md"), DOCS / "send.md"]
    assert {str(page.relative_to(DOCS)) for page in pages} == SHOWN.keys() | WITH_SPARK


@pytest.mark.processes
@pytest.mark.parametrize("page", SHOWN)
def test_the_examples_of_a_page_run_as_printed_and_twice(shell: Shell, tmp_path: Path, page: str) -> None:
    for _ in range(2):
        output = perform(shell, blocks_of((DOCS / page).read_text()), tmp_path)
        for text in SHOWN[page]:
            assert text in output, f"{text!r} is not in:\n{output}"


@pytest.mark.processes
def test_the_entry_for_pqact_puts_each_product_under_its_ident_because_of_close(tmp_path: Path) -> None:
    """As pqact does: the groups of the pattern in the command line, the product on its standard input, end of file."""
    (entry,) = [block.text for block in blocks_of((DOCS / "from-ldm.md").read_text()) if block.title == "pqact.conf"]
    _, pattern, action, option, command = entry.strip().replace("\n\t", "\t").split("\t")
    assert (action, option) == ("PIPE", "-close")
    Queue.create(tmp_path / "wx.queue", size="16MiB").close()
    products = {"SAUS70 KWBC 061300": b"first\r\r\n", "SPUS {name} %d": b"second"}

    def program(ident: str) -> list[str]:
        found = re.search(pattern, ident)
        assert found
        name, *words = shlex.split(command.replace("\\1", found[1]))
        assert name == "headrace"
        return [*PROGRAM, *(word.replace("/var/lib/headrace", str(tmp_path)) for word in words)]

    for ident, payload in products.items():
        subprocess.run(program(ident), input=payload, check=True, timeout=60)
    with Queue.open(tmp_path / "wx.queue") as queue:
        assert {product.ident: bytes(product.payload) for product in queue.read()} == products
