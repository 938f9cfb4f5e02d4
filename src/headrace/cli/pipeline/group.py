"""`headrace pipeline`: the list of its commands."""

import click

from headrace.cli.lazy import LazyGroup, Place

COMMANDS = {
    "run": Place("headrace.cli.pipeline.run:run", "Run rules on Spark until it is told to stop."),
    "check": Place("headrace.cli.pipeline.check:check", "List every mistake in rules, and try samples on them."),
    "import": Place("headrace.cli.pipeline.importing:import_rules", "Make rules of LDM's pqact.conf."),
    "prepare": Place("headrace.cli.pipeline.prepare:prepare", "Make Spark start in half the time from now on."),
    "status": Place("headrace.cli.pipeline.status:status", "Show how the rules of a pipeline get on."),
}


@click.command(cls=LazyGroup, places=COMMANDS)
def pipeline() -> None:
    """Decode, file, store and publish products by rules, on Spark.

    \b
    Example:
      headrace pipeline check rules.toml
      headrace pipeline run rules.toml &
      headrace pipeline status rules.toml
    """
