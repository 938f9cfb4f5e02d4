"""Sample files for the tutorial: a few weather bulletins, and a pqact.conf.

`python -m headrace.samples` copies them to ./samples, and with --queue puts the bulletins into a queue. Both may be
repeated. The bulletins are made up; products in large numbers come from `headrace generate`.
"""

import shutil
from pathlib import Path

from headrace.queue import Duplicate, Queue

FILES = Path(__file__).parent / "files"
FEED = "wx/text/metar"
ORIGIN = "denver"

__all__ = ["copy_samples", "put_samples"]


def copy_samples(folder: Path) -> list[Path]:
    """Copy the sample files to `folder`, over those that are there; their new paths."""
    shutil.copytree(FILES, folder, dirs_exist_ok=True)
    return sorted(folder / path.relative_to(FILES) for path in FILES.rglob("*") if path.is_file())


def put_samples(where: Path) -> int:
    """Put the bulletins into the queue at `where`, which is created if it does not exist; how many were new.

    Feed and idents are those of `headrace put QUEUE samples/metar/*.txt --feed wx/text/metar`.
    """
    with Queue.open(where) if where.exists() else Queue.create(where, size="64MiB", origin=ORIGIN) as queue:
        receipts = [queue.put(file.read_bytes(), feed=FEED, ident=file.name) for file in bulletins()]
    return sum(not isinstance(receipt, Duplicate) for receipt in receipts)


def bulletins() -> list[Path]:
    return sorted((FILES / "metar").glob("*.txt"))
