"""`headrace`: the list of commands, and the one place where errors become messages and exit codes.

Commands return their exit code, or nothing for 0. Whatever they raise ends here.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from headrace.cli import failure
from headrace.cli.lazy import LazyGroup, Place
from headrace.errors import HeadraceError

COMMANDS = {
    "queue": Place("headrace.cli.queue.group:queue", "Create, inspect, check, mend and delete queues."),
    "put": Place("headrace.cli.put:put", "Put files, standard input or lines of text into a queue."),
    "watch": Place("headrace.cli.watch:watch", "Follow a queue, one line per product."),
    "cat": Place("headrace.cli.cat:cat", "Write payloads to standard output or into files."),
    "select": Place("headrace.cli.select:select", "Check a selection, and try it on samples."),
    "cursor": Place("headrace.cli.cursor:cursor", "List, move and remove durable positions."),
    "station": Place("headrace.cli.station.group:station", "Make, inspect, change, move and remove stations."),
    "lag": Place("headrace.cli.lag:lag", "Tell how far stations are behind."),
    "top": Place("headrace.cli.top.command:top", "See a queue, its stations and consumers at work."),
    "channel": Place("headrace.cli.channel:channel", "Give feed subtrees a quality of service."),
    "serve": Place("headrace.cli.serve:serve", "Run a site: a queue with its place in the fabric."),
    "sites": Place("headrace.cli.sites.command:sites", "Show the map: sites, links, requests, latencies."),
    "wanted": Place("headrace.cli.wanted:wanted", "Tell whether anybody wants a feed."),
    "config": Place("headrace.cli.config:config", "Check and show the configuration of a site."),
    "certs": Place("headrace.cli.certs:certs", "Make and show certificates for sites and users."),
    "pipeline": Place("headrace.cli.pipeline.group:pipeline", "Decode, file, store and publish by rules, on Spark."),
    "archive": Place("headrace.cli.archive:archive", "Look into tables of products, and put them again."),
    "generate": Place("headrace.cli.generate:generate", "Make products like those of real feeds."),
    "verify": Place("headrace.cli.verify:verify", "Compare a queue with what was sent."),
    "demo": Place("headrace.demo.command:demo", "See generator, queue and two watchers at work."),
    "bench": Place("headrace.cli.bench:bench", "Measure what is claimed about speed."),
}


class Root(LazyGroup):
    """The outermost group: runs a command and ends with its exit code."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> NoReturn:
        words = list(sys.argv[1:] if args is None else args) or ["--help"]
        settings["standalone_mode"] = False
        sys.exit(self._run(words, "--json" in words, more, settings))

    def invoke(self, ctx: click.Context) -> Any:
        """The command; a reader that went away is not an error."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            failure.forget_stdout()
            return failure.UNREAD
        return code

    def _run(self, words: list[str], as_json: bool, more: tuple[Any, ...], settings: dict[str, Any]) -> int:
        try:
            code = super().main(words, *more, **settings)
        except (KeyboardInterrupt, click.Abort):
            return failure.INTERRUPTED
        except (HeadraceError, click.ClickException, OSError) as error:
            told = failure.explain(error)
            failure.show(told, as_json)
            return told.exit
        return code if isinstance(code, int) else failure.OK


@click.command(cls=Root, places=COMMANDS)
@click.version_option(package_name="headrace", message="headrace %(version)s")
def headrace() -> None:
    """Move streams of scientific data products between programs and sites, and lose none.

    \b
    Example:
      headrace queue create wx.queue --size 2GiB --age 1h
      headrace generate wx.queue --duration 1min &
      headrace watch wx.queue --select 'wx/radar/**'

    \b
    Exit codes:
      0    done
      1    a negative finding: check, verify or demo found something
      2    a wrong option, or input that cannot be used
      3    trouble with the queue or the operating system
      130  ended by Ctrl-C; 143 by SIGTERM; 141 when the reader of the output went away

    QUEUE is the directory of a queue. Commands that put, read or use stations also take the endpoint of a site there,
    such as tcp/host:7447. Every command takes --json, for its output and for its errors, and --help.
    """


def main() -> NoReturn:
    """The program `headrace`."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    headrace.main(prog_name=os.path.basename(sys.argv[0]))


def _terminate(number: int, frame: object) -> NoReturn:
    """As Ctrl-C: queues are closed and children ended on the way out."""
    sys.exit(failure.TERMINATED)
