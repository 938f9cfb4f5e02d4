"""`headrace demo`: the options.

demo_show.py runs it and shows the result, demo_view.py shows it while it runs, demo_values.py has the result as JSON.
"""

import click

from headrace.cli.group import Command
from headrace.cli.options import json_option
from headrace.errors import OptionError
from headrace.extras import require


@click.command(cls=Command)
@click.option(
    "--seconds", type=click.FloatRange(1, 45), default=16, show_default=True, help="How long to put products."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same products.")
@click.option(
    "--keep",
    metavar="[FOLDER]",
    is_flag=False,
    flag_value="headrace-demo",
    help="Keep queues, rules, tables and plot, in ./headrace-demo or in a new FOLDER.",
)
@click.option(
    "--plot",
    metavar="FILE",
    help="Where to save the plot; not with --no-pipeline. [default: headrace-demo.png in FOLDER; else new, in /tmp]",
)
@click.option("--pipeline/--no-pipeline", default=True, help="With or without Spark, its tables and the plot.")
@json_option
def demo(seconds: float, seed: int, keep: str | None, plot: str | None, pipeline: bool, as_json: bool) -> int:
    """Run everything at once: two sites and a link that is cut, a generator, watchers, a station, a pipeline on Spark.

    2,000 products per second, some of them duplicates, are put at the first site and arrive at the second. There one
    watcher reads everything, another the radar feeds, and three workers share the weather feeds at a station. One
    worker is killed while it holds products, which the other workers then receive. Half way the link between the sites
    is cut for some seconds.

    A pacer releases the pictures of a camera across the Atlantic, which is simulated, as evenly as they were taken; the
    jitter is compared with that on arrival.

    When everything has arrived, a processing node works on the latest products of a stream that is cut into slices; a
    second node joins it, slices move to it, and the load spreads.

    Meanwhile the pipeline decodes METAR reports into a table, computes hourly statistics, files radar products and
    publishes alerts; garbled bulletins become dead letters. The same seed gives the same products, except for the
    observation times of METAR reports, which end now.

    At the end the oracle compares what was put at the first site with what each watcher received at the second, with
    what the workers acknowledged and the nodes worked on, and with the tables and files. Exit code 0 if nothing was
    lost, duplicated, out of order or altered, and 1 otherwise. The verdict on watchers and workers comes first, because
    Spark takes longer. A plot of the backlog, the latencies, the work of workers and nodes, the hourly table and
    the jitter is saved.

    With --keep, the last lines are three commands to try on what is left behind.

    \b
    Example:
      headrace demo
      headrace demo --keep
      headrace demo --seconds 5 --no-pipeline
    """
    if plot is not None and not pipeline:
        raise OptionError(
            "--plot and --no-pipeline exclude each other: the plot shows the tables of the pipeline",
            "leave out one of them",
        )
    require("sites", *(["spark", "plots"] if pipeline else []))  # at once, and not after a minute
    from headrace.cli.demo_show import run_demo

    return run_demo(seconds, seed, keep, plot, pipeline, as_json)
