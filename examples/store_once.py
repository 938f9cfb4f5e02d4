"""Store a row for each product once, however often this program is killed: the position is in the same database.

For everybody who keeps results of their own. A cursor would be committed after the work, so that a crash in between
repeats a batch. A bookmark moves in the transaction that stores the rows: both are stored, or neither is.

    python -m headrace.samples --queue wx.queue
    python store_once.py wx.queue --until-idle 0                 again: only what is new is added
    python store_once.py site:denver                             a queue at another site, until Ctrl-C
    python store_once.py wx.queue --file idents.txt              lines of a file, which has a bookmark beside it
"""

import argparse
from contextlib import suppress

import headrace
from headrace.queue import AnyQueue


def store_rows(queue: AnyQueue, until_idle: float | None) -> int:
    """One row for each product, in products.db."""
    with headrace.SqliteBookmark("products.db", "store-once") as bookmark:
        bookmark.database.execute("CREATE TABLE IF NOT EXISTS products (feed TEXT, ident TEXT, bytes INTEGER)")
        for batch in bookmark.follow(queue, timeout=until_idle):
            if batch.lost:  # the queue no longer had them when we came back: an exact range
                print(f"lost: {batch.lost}")
            with bookmark.store(batch) as database:  # commits the rows and the position at its end
                rows = [(product.feed, product.ident, product.size) for product in batch]
                database.executemany("INSERT INTO products VALUES (?, ?, ?)", rows)
        return int(bookmark.database.execute("SELECT count(*) FROM products").fetchone()[0])


def store_lines(queue: AnyQueue, until_idle: float | None, path: str) -> int:
    """One line for each product, in a file."""
    with headrace.FileBookmark(path) as bookmark:
        for batch in bookmark.follow(queue, timeout=until_idle):
            with bookmark.store(batch) as file:
                file.writelines(f"{product.feed} {product.ident}\n".encode() for product in batch)
    with open(path) as lines:
        return sum(1 for _ in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Store something of each product, once.")
    parser.add_argument("where", help="a site, such as site:denver, its endpoint, or the folder of a queue")
    parser.add_argument("--file", help="store lines in this file instead of rows in products.db")
    parser.add_argument("--until-idle", type=float, metavar="SECONDS", help="end when nothing new has come for so long")
    options = parser.parse_args()
    with headrace.connect(options.where) as queue:
        if options.file:
            count = store_lines(queue, options.until_idle, options.file)
        else:
            count = store_rows(queue, options.until_idle)
    print(f"{count} products stored so far")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
