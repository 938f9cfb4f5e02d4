"""`headrace bench payload`: large files in fragments; compression.

payload_files.py has the files, payload_compression.py the ratio and the rate of compression.
"""

from collections.abc import Iterator
from pathlib import Path

from headrace.bench import payload_compression, payload_files
from headrace.bench.report import Announce, Figure

NOT_MEASURED = [
    "several machines, real networks, TLS: everything shares the cores and the memory of this machine",
    "disks, unless --place is on one; a file is synced before it gets its name",
    "many small files: what each of them costs beside its bytes",
    "rsync and scp, where ssh, sshd or they themselves are not installed; their figures include encryption",
    *payload_compression.NOT_MEASURED,
]


def run(place: Path, scale: float, progress: Announce) -> Iterator[Figure]:
    yield from payload_files.figures(place, scale, progress)
    yield from payload_compression.figures(place, scale, progress)
