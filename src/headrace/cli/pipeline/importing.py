"""`headrace pipeline import`: LDM's pqact.conf as rules."""

from pathlib import Path

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, many
from headrace.errors import OptionError


@click.command("import")
@click.argument("file", metavar="PQACT.CONF", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--queue", default="wx.queue", show_default=True, help="The queue that the rules read.")
@click.option("--feed", "feeds", multiple=True, metavar="TYPE=FEED",
              help="What a feed type of LDM is here, such as NEXRAD3=wx/radar/nexrad3; may be repeated.")  # fmt: skip
@json_option
def import_rules(file: Path, queue: str, feeds: tuple[str, ...], as_json: bool) -> int:
    """Write the rules of PQACT.CONF to standard output, and to standard error what could not be translated.

    Exit code 1 if something could not.

    \b
    Example:
      headrace pipeline import etc/pqact.conf > rules.toml
      headrace pipeline check rules.toml
    """
    from headrace.pipeline.rules.pqact.translation import translate

    mapping = dict(_pair(text) for text in feeds)
    made = translate(file.read_text(errors="surrogateescape"), queue=queue, feeds=mapping, source=file.name)
    if as_json:
        echo_json({"rules": made.rules, "toml": made.toml, "remarks": made.remarks})
    else:
        click.echo(made.toml, nl=False)
        for remark in made.remarks:
            click.echo(str(remark), err=True)
        click.echo(f"{many(made.rules, 'rule')}, {len(made.untranslated)} that could not be translated", err=True)
    return NEGATIVE if made.untranslated else OK


def _pair(text: str) -> tuple[str, str]:
    name, equals, feed = text.partition("=")
    if not equals or not name or not feed:
        raise OptionError(f"--feed {text!r} is not TYPE=FEED", "write it like NEXRAD3=wx/radar/nexrad3")
    return name, feed
