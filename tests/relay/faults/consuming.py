"""A consumer in a process of its own, behind a blocking station: `consuming.py QUEUE FILE`.

It notes the sequence of each product that it gets, and then acknowledges it; puts into the queue wait for it.
"""

import sys
from pathlib import Path

from headrace import Queue

STATION = "decode"
CAPACITY = 20


def main(path: str, file: Path) -> None:
    with Queue.open(path) as queue, file.open("a", buffering=1) as noted:
        station = queue.station(
            STATION, "**", start="oldest", blocking=True, capacity=CAPACITY, order="fifo", hung_after=0
        )
        with station.attach() as consumer:
            for product in consumer:
                noted.write(f"{product.sequence}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
