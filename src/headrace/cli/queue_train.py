"""`headrace queue train`: a dictionary for small products, from the products of a queue."""

import click

from headrace.channel.compression import LEVEL_DEFAULT, LEVEL_MAX, LEVEL_MIN, compression_options
from headrace.cli.group import QueueArgument
from headrace.cli.options import SIZE, completes, json_option, open_local_queue
from headrace.cli.output import echo_json
from headrace.payload.compression.training import SAMPLES_DEFAULT, SIZE_DEFAULT, Training
from headrace.queue.request_files import has_site
from headrace.units import format_count, format_size


@click.command(short_help="Train a dictionary for the compression of small products.")
@click.argument("path", cls=QueueArgument, metavar="QUEUE")
@click.argument("feed", shell_complete=completes("feed"))
@click.option("--products", type=int, default=SAMPLES_DEFAULT, show_default=True, help="How many, the newest ones.")
@click.option("--size", type=SIZE, default=SIZE_DEFAULT, help="Bytes of the dictionary, at most. [default: 32KiB]")
@click.option(
    "--level",
    type=click.IntRange(LEVEL_MIN, LEVEL_MAX),
    default=LEVEL_DEFAULT,
    show_default=True,
    help="The level of compression that it is tried with.",
)
@click.option(
    "--channel", metavar="NAME", help="Use it for this channel from now on.", shell_complete=completes("channel")
)
@json_option
def train(path: str, feed: str, products: int, size: int, level: int, channel: str | None, as_json: bool) -> None:
    """Train a dictionary with products of FEED and all below it, and store it with QUEUE.

    A dictionary has what the products have in common, and helps most where these are small: bulletins, observations,
    events. Half of the products train it, the other half shows what it saves.

    \b
    Example:
      headrace queue train wx.queue 'wx/text/**' --channel text
    """
    with open_local_queue(path, "the dictionary is stored with its files") as queue:
        used = None if channel is None else queue.channel(channel)  # first: a wrong name must not leave a dictionary
        training = queue.train_dictionary(feed, products=products, size=size, level=level)
        name = training.dictionary.name
        if used is not None:
            now = compression_options(used.definition.compression).get("compress", f"zstd:{level}")
            used.change(compress=now, dictionary=name)
        is_of_site = has_site(queue.path)
    if as_json:
        echo_json({"dictionary": name, "feed": training.dictionary.feed, "bytes": len(training.dictionary.content),
                   "products": training.products, "plain_bytes": training.plain_bytes,
                   "alone_bytes": training.alone_bytes, "with_bytes": training.with_bytes,
                   "channel": channel})  # fmt: skip
        return
    click.echo(_said(training))
    if channel is None:
        click.echo(f"to use it: headrace channel change {path} CHANNEL --compress zstd --dictionary {name}")
        return
    click.echo(f"channel {channel} uses it from now on")
    if is_of_site:
        click.echo(
            f"if [[channel]] {channel} of the configuration of the site names a dictionary, write "
            f'dictionary = "{name}" there, or leave the key out: with another one the site does not start again'
        )


def _said(training: Training) -> str:
    share = [100 * bytes_ / max(1, training.plain_bytes) for bytes_ in (training.alone_bytes, training.with_bytes)]
    size = format_size(len(training.dictionary.content))
    tried = f"{format_count(training.products, 'other product')} of {format_size(training.plain_bytes)}"
    return (
        f"dictionary {training.dictionary.name}, {size}: {tried} take {share[1]:.0f}% of that with it, "
        f"{share[0]:.0f}% compressed without it"
    )
