"""`headrace`: the list of commands, and the one place where errors become messages and exit codes.

A command is imported only when it is called: the library below loads NumPy and Arrow, which a help page does not need,
and Spark, Zenoh and matplotlib take seconds. The one-line help of each command is therefore in the table here, beside
the module that defines it.

A command returns its exit code, or None for 0. Every exception it raises ends here.
"""

import gc
import importlib
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from headrace import extras
from headrace.cli import failure
from headrace.cli.group import Group
from headrace.errors import HeadraceError
from headrace.text import visible_lines

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_SERVICES = ("serve", "run")
_COMPLETE = "_HEADRACE_COMPLETE"  # the shell sets it to complete a line
_TRACE_LINES_MAX = 200
_TWICE_S = 0.1  # between two signals that are one request


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command that is not imported yet: `module:attribute` below `headrace.cli`, and its one-line help."""

    target: str
    help: str

    def load(self) -> click.Command:
        """Import the command. Modules stay until the process ends, so the garbage collector is kept away from them:
        it would traverse them again and again, here and on the way out, for a third of the time of a short command.
        """
        gc.disable()
        try:
            module, _, attribute = self.target.partition(":")
            command = getattr(importlib.import_module(f"headrace.cli.{module}"), attribute)
        finally:
            gc.freeze()
            gc.enable()
        assert isinstance(command, click.Command)
        return command


COMMANDS = {
    "queue": LazyCommand("queue:queue", "Create, inspect, check, repair and delete queues."),
    "put": LazyCommand("put:put", "Put files, standard input or lines of text into a queue."),
    "watch": LazyCommand("watch:watch", "Follow a queue, one line per product."),
    "cat": LazyCommand("cat:cat", "Write payloads to standard output or to files."),
    "send": LazyCommand("send:send", "Send files and directories through a queue, in fragments."),
    "receive": LazyCommand("receive:receive", "Receive files and directories that are sent in fragments."),
    "select": LazyCommand("select:select", "Check a selection, and try it on samples."),
    "cursor": LazyCommand("cursor:cursor", "Create, list, move and delete durable positions."),
    "station": LazyCommand("station:station", "Create, inspect, change, move and delete stations."),
    "lag": LazyCommand("station_show:lag", "Show how far each station is behind."),
    "top": LazyCommand("top.command:top", "Watch a queue, its stations and consumers at work."),
    "channel": LazyCommand("channel:channel", "Manage channels: feed subtrees with a quality of service."),
    "slices": LazyCommand("slices:slices", "Share a stream between processing nodes, and balance them."),
    "serve": LazyCommand("serve:serve", "Run a site: a queue that is connected to the fabric."),
    "sites": LazyCommand("sites:sites", "Show all sites, their links, requests and latencies."),
    "audit": LazyCommand("audit:audit", "Show who joined a site, was refused, and changed what."),
    "clock": LazyCommand("clock:clock", "Show how right the time of a queue or a site is, and by whom."),
    "hop": LazyCommand("sites:hop", "Show through which site a product came."),
    "wanted": LazyCommand("serve:wanted", "Show whether a feed has subscribers."),
    "config": LazyCommand("config:config", "Check and show the configuration of a site."),
    "certs": LazyCommand("certs:certs", "Create and show certificates for sites and users."),
    "keys": LazyCommand("keys:keys", "Create, show and revoke keys by which sites sign products."),
    "users": LazyCommand("users:users", "Say who may connect to a site with a password."),
    "pipeline": LazyCommand("pipeline:pipeline", "Decode, file, store and publish products by rules, on Spark."),
    "replay": LazyCommand("replay:replay", "Replay a window of a queue or a table, at its pace or faster."),
    "archive": LazyCommand("archive:archive", "List products that were stored in tables, and restore them."),
    "generate": LazyCommand("generate:generate", "Generate products like those of real feeds."),
    "verify": LazyCommand("verify:verify", "Compare the products in a queue with those that were sent."),
    "completion": LazyCommand("completion:completion", "Install the completion of your shell."),
    "context": LazyCommand("context:context", "Name queues and their credentials, and choose the default."),
    "demo": LazyCommand("demo:demo", "Run two sites, a cut link, workers and a pipeline for a minute."),
    "bench": LazyCommand("bench:bench", "Run the benchmarks."),
}


class RootGroup(Group):
    """The outermost group: imports the command that is called, runs it, and exits with its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        return found.load() if found else None

    def suggestion(self, ctx: click.Context, word: str) -> str:
        """Also commands of groups: `headrace info` means `headrace queue info`."""
        found = super().suggestion(ctx, word)
        if found:
            return found
        groups = {name: self.get_command(ctx, name) for name in COMMANDS}
        inner = [f"{name} {word}" for name, each in groups.items() if isinstance(each, Group) and word in each.commands]
        return f"; did you mean {' or '.join(map(repr, inner))}?" if inner else ""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """The commands from the table, so that completing imports none of them; options as click does."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=each.help) for name, each in COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, as click does from the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> NoReturn:
        words = list(sys.argv[1:] if args is None else args) or ["--help"]
        settings |= {"standalone_mode": False, "complete_var": _COMPLETE}
        sys.exit(self._run(words, "--json" in words, more, settings))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. It is not an error if the reader of the output goes away."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            failure.discard_stdout()
            return failure.BROKEN_PIPE
        return code

    def _run(self, words: list[str], as_json: bool, more: tuple[Any, ...], settings: dict[str, Any]) -> int:
        started_s = time.monotonic()
        try:
            if _COMPLETE in os.environ:
                from headrace.cli.completion import begin

                begin()
            code = super().main(words, *more, **settings)
            failure.tell(f"took {time.monotonic() - started_s:.3f} s")
        except (KeyboardInterrupt, click.Abort):
            return failure.INTERRUPTED
        except (HeadraceError, click.ClickException, OSError, ModuleNotFoundError) as error:
            missing = extras.explain(error) if isinstance(error, ModuleNotFoundError) else error
            shown = failure.explain_bug(error) if missing is None else failure.explain(missing, words)
            return _show(shown, error, as_json, words)
        except Exception as error:  # noqa: BLE001 - a bug; it is shown, with its own exit code
            return _show(failure.explain_bug(error), error, as_json, words)
        finally:
            failure.end_details()
        return code if isinstance(code, int) else failure.OK


@click.command(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
      0    success
      1    the command did its work, and the answer is no: `queue check` found damage
      2    the input is invalid: an option, an argument, or a file that the command reads
      3    it failed: a queue, station or site is missing or refuses; network, disk
      4    internal error: a bug in Headrace
      130  ended by Ctrl-C; 143 by SIGTERM; 141 because the reader of the output went away

    QUEUE is the directory of a queue, a site by its name (site:denver) or its endpoint (tcp/host:7447), or a context
    (`headrace context`). It may be left out if HEADRACE_QUEUE is set or a context is in use; `@` stands for that
    default. Every command has --help, --json for its output and its errors, and --verbose.
    """


def _show(shown: failure.Failure, error: Exception, as_json: bool, words: list[str]) -> int:
    """Show an error; return the exit code. A shell that completes gets no message.

    The traceback of a bug needs --verbose, except in services, which nobody can run again for it.
    """
    if _COMPLETE in os.environ:
        return shown.exit
    if shown.exit == failure.INTERNAL and {"--verbose", *_SERVICES} & set(words):
        for line in visible_lines("".join(traceback.format_exception(error)), _TRACE_LINES_MAX):
            click.echo(line, err=True)
    failure.show_failure(shown, as_json)
    return shown.exit


def main() -> NoReturn:
    """The program `headrace`."""
    signal.signal(signal.SIGTERM, _Termination())
    from headrace.cli.harmless_output import make_output_harmless

    make_output_harmless()
    headrace.main(prog_name=os.path.basename(sys.argv[0]))


class _Termination:
    """SIGTERM: exit as Ctrl-C does; queues are closed and children are ended on the way out.

    `timeout` and others send it to the process and to its group, so that it comes twice at once: that is one request.
    """

    def __init__(self) -> None:
        self._last_s = -math.inf

    def __call__(self, number: int, frame: object) -> None:
        now_s = time.monotonic()
        if now_s > self._last_s + _TWICE_S:
            self._last_s = now_s
            sys.exit(failure.TERMINATED)
