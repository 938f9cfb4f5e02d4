"""`headrace pipeline check`: rules, without a stream."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.complaints import show_complaints
from headrace.cli.failure import visible
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.cli.samples import samples_of

if TYPE_CHECKING:
    from headrace.pipeline.rules.trial import Trial


@click.command()
@click.argument("file", metavar="RULES.TOML", type=click.Path(path_type=Path))
@click.option("--sample", "samples", multiple=True, metavar="PATH",
              help="A payload, products as `watch --json` writes them, or a queue: its newest 20.")  # fmt: skip
@click.option("--feed", default="sample", show_default=True, help="The feed of a sample that is a payload.")
@click.option("--ident", help="Its ident; default: the name of the file.")
@json_option
def check(file: Path, samples: tuple[str, ...], feed: str, ident: str | None, as_json: bool) -> int:
    """List every mistake in RULES.TOML, each with its line and its remedy, and try samples on its rules.

    Nothing is started and nothing is changed. Exit code 2 if there is a mistake.

    \b
    Example:
      headrace pipeline check rules.toml
      headrace pipeline check rules.toml --sample wx.queue
      headrace pipeline check rules.toml --sample report.txt --feed wx/text/metar --ident 'SAUS70 KWBC 060000'
    """
    from headrace.pipeline.rules.load import check_rules, load_rules
    from headrace.pipeline.rules.trial import try_rules

    complaints = check_rules(file)
    if complaints or not samples:
        return show_complaints(str(file), complaints, as_json)
    tried = [sample for path in samples for sample in samples_of(path, feed, ident, {})]
    for trial in try_rules(load_rules(file), [sample.product for sample in tried]):
        source = tried[trial.place].source
        if as_json:
            echo_json({"sample": source, "trial": trial})
        else:
            _show(source, trial)
    return 0


def _show(source: str, trial: "Trial") -> None:
    if not trial.is_taken:
        click.echo(visible(f"{source}: rule {trial.rule} does not want it ({trial.refused_by})"))
        return
    made = "" if trial.rows is None else f", {trial.rows} rows"
    click.echo(visible(f"{source}: rule {trial.rule} takes it{made}" if trial.error is None else
                       f"{source}: rule {trial.rule} takes it, and cannot decode it: {trial.error}"))  # fmt: skip
    for preview in trial.previews:
        ident = "" if preview.ident is None else f" as {preview.ident}"
        wrong = "" if preview.error is None else f": {preview.error}"
        click.echo(visible(f"  {preview.action} {preview.target}{ident}{wrong}"))
