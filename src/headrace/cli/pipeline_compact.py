"""`headrace pipeline compact`: merge the small files of tables while the pipeline is stopped."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.group import Command
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, show_table
from headrace.text import visible

if TYPE_CHECKING:
    from headrace.pipeline.run.tables import TableReport

_HEADER = ("rule", "table", "files fewer", "rows removed", "files removed")


@click.command(cls=Command, short_help="Merge small files of tables while the pipeline is stopped.")
@click.argument("file", metavar="RULES.TOML", type=click.Path(path_type=Path))
@click.argument("rules", metavar="[RULE]...", nargs=-1)
@json_option
def compact(file: Path, rules: tuple[str, ...], as_json: bool) -> int:
    """Merge the small files in the tables of RULES.TOML, or of some rules, and remove rows older than `keep`.

    Without a RULE, dead letters are compacted too. The pipeline must not run: a table has one writer. While it runs,
    it compacts tables that have `compact`. At most 1 GiB of a Parquet table is merged in ten minutes, because readers
    may still list the old files; repeat the command for the rest. Exit code 1 if a table cannot be compacted, 3 if the
    pipeline is running.

    \b
    Example:
      headrace pipeline compact rules.toml
      headrace pipeline compact rules.toml metar radar --json
    """
    from headrace.pipeline.rules.load import load_rules
    from headrace.pipeline.run.tables import compact_tables

    def show(table: str) -> None:
        if not as_json:
            click.echo(visible(f"compacting {table}"), err=True)

    reports = list(compact_tables(load_rules(file), rules, show))
    ok = not any(report.failure for report in reports)
    if as_json:
        echo_json({"tables": reports, "ok": ok})
    else:
        _show(reports)
    return OK if ok else NEGATIVE


def _show(reports: "list[TableReport]") -> None:
    rows = [
        (each.rule, each.path, f"{each.fewer_files:,}", f"{each.removed_rows:,}", f"{each.removed_files:,}")
        for each in reports
    ]
    show_table("tables", _HEADER, rows, right=range(2, len(_HEADER)))
    for each in reports:
        if each.failure:
            click.echo(visible(each.failure), err=True)
