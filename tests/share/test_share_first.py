"""The first groups of a queue, made by several nodes at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace import Queue

NODES = 6


def test_nodes_that_make_the_first_groups_at_the_same_time_all_succeed(tmp_path: Path) -> None:
    for turn in range(15):
        path = tmp_path / f"q{turn}"
        with Queue.create(path, size="4MiB") as queue:
            queue.channel("s", "a/**", slices=4)
            together = threading.Barrier(NODES)

            def make(number: int, path: Path = path, together: threading.Barrier = together) -> None:
                with Queue.open(path) as own:
                    together.wait(60)
                    own.share("s", f"g{number % 3}")

            with ThreadPoolExecutor(NODES) as pool:
                list(pool.map(make, range(NODES)))
            assert queue.shares() == [("s", "g0"), ("s", "g1"), ("s", "g2")]
            assert queue.check() == []
