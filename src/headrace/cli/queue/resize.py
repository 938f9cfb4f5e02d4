"""`headrace queue resize`."""

import click

from headrace.cli.opening import open_here
from headrace.cli.options import AGE, SIZE, json_option
from headrace.cli.output import echo_json, many
from headrace.cli.queue.info import terms_of
from headrace.errors import OptionError


@click.command()
@click.argument("path")
@click.option("--size", type=SIZE, help="Bytes that it may hold, such as 2GiB.")
@click.option("--age", type=AGE, help="Drop products that are older, such as 1h; 0 lifts that limit.")
@json_option
def resize(path: str, size: int | None, age: float | None, as_json: bool) -> None:
    """Change the limits of the queue at PATH; what no longer fits is evicted at once, the oldest first.

    \b
    Example:
      headrace queue resize wx.queue --size 4GiB --age 0
    """
    if size is None and age is None:
        raise OptionError("there is nothing to change", "give --size, --age or both")
    with open_here(path) as queue:
        before = queue.statistics().evicted_products
        queue.resize(size=size, age=age)
        evicted = queue.statistics().evicted_products - before
        if as_json:
            echo_json({"path": str(queue.path), "terms": queue.config, "evicted": evicted})
            return
        terms = terms_of(queue.config)
        click.echo(f"{path}: size {terms['size']}, age {terms['age']}; {many(evicted, 'product')} evicted")
