"""Follow a feed from another machine, and continue after an outage or a restart.

For everybody who reads the queue of a site. The position is a cursor that the site keeps under a name: the next start
of this program continues there. It is committed after the work: a crash in between repeats a batch, and skips nothing.

    headrace serve site_upstream.toml &
    python follow_feed.py site:denver                            until Ctrl-C
    python follow_feed.py site:denver --until-idle 2             until nothing new has come for 2 s
    python follow_feed.py wx.queue 'wx/text/**'                  a queue on this machine works as well
"""

import argparse

import headrace


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the products of a feed, from where the last run stopped.")
    parser.add_argument("where", help="a site, such as site:denver, its endpoint, or the folder of a queue")
    parser.add_argument("select", nargs="?", default="**", help="which products")
    parser.add_argument("--until-idle", type=float, metavar="SECONDS", help="end when nothing new has come for so long")
    options = parser.parse_args()

    count = 0
    with headrace.connect(options.where) as queue:
        cursor = queue.cursor("follow-feed")
        for batch in cursor.follow(options.select, timeout=options.until_idle):
            if batch.lost:  # the queue no longer had them when we came back: an exact range
                print(f"lost: {batch.lost}")
            for product in batch:
                print(f"{product.created:%H:%M:%S} {product.feed} {product.ident} {product.size} bytes")
            count += len(batch)
            cursor.commit(batch)  # after the work
    print(f"{count} new products")


if __name__ == "__main__":
    try:
        main()
    except headrace.SiteUnreachableError as error:
        raise SystemExit(f"follow_feed: {error}") from None
