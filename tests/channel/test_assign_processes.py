"""Processes that put without a pause while a channel with slices is created, removed and created again beside them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace import Queue
from support.slice_oracle import slice_of
from support.waiting import until

PRODUCER = """
import sys
from headrace import Queue

queue, name, number = Queue.open(sys.argv[1]), sys.argv[2], 0
while True:
    number += 1
    queue.put(b"", feed="wx/a", ident=f"{name}-{number}")
    queue.put_many([b"", b""], feed=["wx/b", "elsewhere"], ident=f"{name}/{number}")
"""


@contextmanager
def producers(path: Path, count: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", PRODUCER, str(path), f"p{each}"]) for each in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def test_no_product_of_another_process_escapes_a_channel_that_begins_or_ends(shared_memory: Path) -> None:
    with Queue.create(shared_memory / "q", size="64MiB", durability="memory", origin="here", dedup="none") as queue:

        def check(slices: int | None) -> None:
            begin = queue.next
            until(lambda: queue.next >= begin + 300, "products arrive")
            for product in queue.read(begin, stop=begin + 300):
                is_sliced = slices is not None and product.feed != "elsewhere"
                expected = slice_of("ident", slices or 1, product.ident, {}) if is_sliced else None
                assert product.slice == expected, product

        with producers(queue.path, 2):
            until(lambda: len({each.ident[:2] for each in queue.read("1s", limit=20_000)}) == 2, "both put")
            for slices in range(8, 24):
                channel = queue.channel("c", "wx", slices=slices)
                check(slices)
                channel.remove()
                check(None)
        assert queue.check() == []
