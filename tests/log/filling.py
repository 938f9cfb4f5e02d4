"""Many small products, for tests of the log."""

from headrace import Queue


def fill(queue: Queue, count: int, feed: str = "a", size: int = 100) -> None:
    """Put products with idents `p1` … and payloads numbered by their sequences, so that none is a duplicate."""
    end = queue.next + count
    for start in range(queue.next, end, 1000):
        numbers = range(start, min(start + 1000, end))
        payloads = [number.to_bytes(8, "big").ljust(size, b".") for number in numbers]
        queue.put_many(payloads, feed=feed, ident=[f"p{number}" for number in numbers])
