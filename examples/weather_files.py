"""File weather products by rules, within milliseconds and without Spark: the FILE entries of a pqact.conf.

For weather sites. A station keeps the position: a program that was killed continues where it was, and several of them
share the work. A product that is handled twice is written twice to the same file, so nothing is duplicated.

    python weather_files.py              file what wx.queue holds, then end; put sample bulletins there if it is missing
    python weather_files.py --follow     go on with new products until Ctrl-C
"""

import os
import sys
from pathlib import Path

from headrace import Product, Queue, Selection
from headrace.samples import put_samples

QUEUE = Path("wx.queue")
RULES = [  # which products, and the path of their file; like pqact, a product goes to every rule that selects it
    (Selection("wx/text/metar", ident="^SAUS"), "files/us/{ident}"),
    (Selection("wx/text/**", where="size < 1000"), "files/by-day/{created:%Y%m%d}/{feed}/{ident}"),
]


def file(product: Product) -> list[Path]:
    """Write the product to the file of each rule that selects it; the paths."""
    paths = [Path(path_of(template, product)) for selection, template in RULES if selection.wants(product)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, product.payload)
    return paths


def path_of(template: str, product: Product) -> str:
    """Idents come from strangers: a slash in one does not lead to another folder."""
    return template.format(feed=product.feed, ident=product.ident.replace("/", "%2F"), created=product.created)


def write_whole(path: Path, payload: memoryview) -> None:
    """Whoever reads the file sees all of it or none: it gets its name when it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(payload)
    os.replace(part, path)


def main() -> None:
    if not QUEUE.exists():
        put_samples(QUEUE)
    timeout = None if "--follow" in sys.argv else 0
    with Queue.open(QUEUE) as queue:
        station = queue.station("filing", "wx/**", start="oldest")
        with station.attach() as consumer:
            for batch in consumer.batches(100, timeout=timeout):  # acknowledged when the loop asks for the next one
                for product in batch:
                    for path in file(product):
                        print(f"{product.ident} -> {path}")
        print(f"{station.statistics().acknowledged} products filed so far")


if __name__ == "__main__":
    main()
