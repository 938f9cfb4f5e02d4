"""`headrace queue create`."""

import click

from headrace.cli.options import AGE, SIZE, json_option
from headrace.cli.output import echo_json
from headrace.cli.queue.info import terms_of
from headrace.log.config import DURABILITIES, SIGNATURES
from headrace.queue import Queue
from headrace.units import format_size


@click.command()
@click.argument("path")
@click.option("--size", type=SIZE, default="1GiB", show_default=True, help="Bytes that it may hold.")
@click.option("--age", type=AGE, help="Drop products that are older, such as 1h. [default: only the size counts]")
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    default="process",
    show_default=True,
    help="What a product survives once it is put: memory (below /dev/shm), process (a crash), disk (a power failure).",
)
@click.option(
    "--dedup",
    type=click.Choice(SIGNATURES),
    default="blake3",
    show_default=True,
    help="The signature by which duplicates are known; xxh3 only for trusted sources.",
)
@click.option("--origin", metavar="ID", help="Id of this site. [default: the name of the host]")
@json_option
def create(
    path: str, size: int, age: float | None, durability: str, dedup: str, origin: str | None, as_json: bool
) -> None:
    """Make an empty queue at PATH, a directory that does not exist yet.

    \b
    Example:
      headrace queue create wx.queue --size 2GiB --age 1h
    """
    with Queue.create(path, size=size, age=age, durability=durability, dedup=dedup, origin=origin) as queue:
        if as_json:
            echo_json({"path": str(queue.path), "terms": queue.config})
            return
        terms = terms_of(queue.config)
        click.echo(f"created {queue.path}: {format_size(size)}, age {terms['age']}, {durability}, dedup {dedup}")
