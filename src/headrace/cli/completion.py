"""What the shell completes: queues, contexts, stations, cursors, channels, groups, nodes and feeds; and `completion`.

The shell runs `headrace` at each press of the Tab key, with the words so far in the environment, and click finds the
argument that is completed. The functions here give the words for it. They create nothing, wait for a site for about a
second at most, and in doubt they return nothing: an error has no place on a command line that is being written.

The script for bash is our own: bash breaks words at `@` and `:`, which are parts of contexts and endpoints.
"""

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class
from click.shell_completion import split_arg_string as split

from headrace.cli.group import Group, QueueArgument
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.errors import OptionError
from headrace.link.address import SITE, is_remote, parse_address

if TYPE_CHECKING:
    from headrace.cli.place import Place

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HEADRACE_COMPLETE"
_WORDS_MAX = 1000
_CONNECT_S_MAX = 1.0
_REFUSED_S = 0.1
_MARK = "# completion of headrace"

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response value
    response=$(env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
    COMPREPLY=()
    while IFS= read -r value; do
        [[ $value == 'file' ]] && compopt -o default && continue
        value=${value#plain,}
        [[ $value == */ ]] && compopt -o nospace
        [[ -n $value ]] && COMPREPLY+=("$value")
    done <<< "$response"
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completion for bash, by the line itself. What stands before the last break in the word is not repeated."""

    source_template = _BASH

    def source(self) -> str:
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split(line)[1:]
        return (words, "") if line[-1:].isspace() or not words else (words[:-1], words[-1])

    def format_completion(self, item: "CompletionItem[str]") -> str:
        if item.type != "plain":
            return "file"
        _, incomplete = self.get_completion_args()
        breaks = re.escape(os.environ.get("COMP_WORDBREAKS", ""))
        cut = re.match(f"(.*[{breaks}])?", incomplete) if breaks else None
        start = cut.end() if cut else 0
        if incomplete[:start].endswith("@"):
            start -= 1  # readline breaks words before an @, and behind every other break
        return f"plain,{item.value[start:]}"


# --- the words ----------------------------------------------------------------------------------------


def words_for(kind: str, ctx: click.Context, incomplete: str) -> list[str]:
    """The words of one kind that begin with `incomplete`, for the queue of the command; none if anything is wrong."""
    try:
        here = {"queue": _queues, "site": _sites, "context": _contexts}.get(kind)
        every = _named(kind, ctx) if here is None else here(incomplete)
        found = (word for word in every if word.startswith(incomplete) and word.isprintable())
        return sorted(set(islice(found, _WORDS_MAX)))
    except Exception:  # noqa: BLE001 - whatever it is, the next word can still be typed
        return []


def _contexts(incomplete: str) -> Iterator[str]:
    from headrace.link.contexts import read_contexts

    names = read_contexts().contexts
    yield from (f"@{name}" for name in names) if incomplete.startswith("@") else names


def _named_sites(incomplete: str) -> Iterator[str]:
    """The sites that contexts name, once `site:` is written."""
    from headrace.link.contexts import read_contexts

    if incomplete.startswith(SITE):
        for each in read_contexts().contexts.values():
            site = parse_address(each.where).site if is_remote(each.where) else None
            if site is not None:
                yield f"{SITE}{site}"


def _queues(incomplete: str) -> Iterator[str]:
    """Contexts, sites that they name, queues, and directories that may have queues below them."""
    yield from _contexts(incomplete)
    yield from _named_sites(incomplete)
    for word, entry in _entries(incomplete):
        if entry.is_dir():
            yield word if _is_queue(entry) else f"{word}/"


def _sites(incomplete: str) -> Iterator[str]:
    """Contexts, sites that they name, files that may be those of sites, and directories that may have such files."""
    yield from _contexts(incomplete)
    yield from _named_sites(incomplete)
    for word, entry in _entries(incomplete):
        if entry.is_dir() and not _is_queue(entry):
            yield f"{word}/"
        elif entry.name.endswith(".toml") and entry.is_file():
            yield word


def _entries(incomplete: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """The files and directories that a word may become; hidden ones if it begins with their dot."""
    folder, slash, start = incomplete.rpartition("/")
    with os.scandir(os.path.expanduser(folder + slash) or ".") as entries:
        for entry in entries:
            if entry.name.startswith(start) and (start or not entry.name.startswith(".")):
                yield f"{folder}{slash}{entry.name}", entry


def _is_queue(entry: "os.DirEntry[str]") -> bool:
    return os.path.exists(os.path.join(entry.path, "queue.json"))


def _named(kind: str, ctx: click.Context) -> list[str]:
    from headrace.cli.place import DEFAULT, find_place

    word = ctx.params.get("queue_path") or ctx.params.get("path")
    if word is None and ctx.args:  # words before an option whose value is being completed
        word = ctx.args[min(_queue_index(ctx), len(ctx.args) - 1)]
    place = find_place(word or DEFAULT)
    if kind == "node":
        return _node_names(ctx, place)
    return _remote_names(kind, place) if place.is_remote else _local_names(kind, Path(place.where))


def _queue_index(ctx: click.Context) -> int:
    """Which argument of the command is the queue; the first one, if none is."""
    arguments = [param for param in ctx.command.params if isinstance(param, click.Argument)]
    return next((index for index, each in enumerate(arguments) if isinstance(each, QueueArgument)), 0)


def _node_names(ctx: click.Context, place: "Place") -> list[str]:
    """The nodes of the group that the options name, or of the only one."""
    from headrace.cli.slices_group import open_group
    from headrace.remote.client.connect import connect_within

    with connect_within(place.where, _CONNECT_S_MAX, *place.credentials(), _REFUSED_S) as queue:
        state = open_group(queue, ctx.params.get("stream"), ctx.params.get("group")).state()
    return [node.name for node in state.nodes if node.is_alive]


def _local_names(kind: str, path: Path) -> list[str]:
    """From the small files of the queue, which is not opened for names of stations, channels and groups."""
    if kind == "group":
        return [each["group"] for each in msgspec.json.decode((path / "shares.json").read_bytes())["groups"]]
    if kind in ("station", "channel"):
        document = msgspec.json.decode((path / f"{kind}s.json").read_bytes())
        return [each if isinstance(each, str) else each["name"] for each in document[f"{kind}s"]]
    from headrace.log.log import Log

    log = Log(path, ())
    try:
        return log.cursors() if kind == "cursor" else [each.feed for each in log.statistics().feeds]
    finally:
        log.close()


def _remote_names(kind: str, place: "Place") -> list[str]:
    from headrace.remote.client.connect import connect_within

    with connect_within(place.where, _CONNECT_S_MAX, *place.credentials(), _REFUSED_S) as queue:
        if kind == "group":
            return [group for _, group in queue.shares()]
        if kind in ("station", "channel"):
            return queue.stations() if kind == "station" else queue.channels()
        return queue.cursors() if kind == "cursor" else [each.feed for each in queue.statistics().feeds]


# --- headrace completion ------------------------------------------------------------------------------


@click.group(cls=Group)
def completion() -> None:
    """Install the completion of commands, options, queues, contexts, stations, cursors, channels and feeds.

    \b
    Example:
      headrace completion install
    """


_shell = click.argument("shell", type=click.Choice(SHELLS), required=False)


@completion.command(short_help="Install completion for your shell.")
@_shell
@json_option
def install(shell: str | None, as_json: bool) -> None:
    """Install completion for SHELL (bash, zsh or fish), or for the shell that the variable SHELL names.

    The script goes to your data directory. For bash and zsh, one line is added to ~/.bashrc or ~/.zshrc, once; fish
    finds the script by itself. New shells have it.

    \b
    Example:
      headrace completion install
      headrace completion install zsh
    """
    chosen = shell or _own_shell()
    script, start = _files(chosen, os.environ)
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(script_for(chosen))
    line = "" if start is None else f'source "{script}"  {_MARK}\n'
    is_new = start is not None and _add_line(start, line)
    if as_json:
        echo_json({"shell": chosen, "script": str(script), "start": start and str(start), "changed": is_new})
    else:
        added = f", and a line to {start}" if is_new else ""
        click.echo(f"installed completion for {chosen}: {script}{added}; start a new shell to use it")


@completion.command(short_help="Write the script for a shell to standard output.")
@_shell
@json_option
def show(shell: str | None, as_json: bool) -> None:
    """Write the completion script for SHELL (bash, zsh or fish) to standard output.

    \b
    Example:
      headrace completion show bash > /etc/bash_completion.d/headrace
    """
    chosen = shell or _own_shell()
    text = script_for(chosen)
    if as_json:
        echo_json({"shell": chosen, "script": text})
    else:
        click.echo(text, nl=False)


def script_for(shell: str) -> str:
    """The script that a shell runs at its start."""
    found = Bash if shell == "bash" else get_completion_class(shell)
    assert found is not None
    text = found(click.Command("headrace"), {}, "headrace", VARIABLE).source()
    if shell == "zsh":
        text = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n" + text
    return text


def _own_shell() -> str:
    name = os.path.basename(os.environ.get("SHELL", ""))
    if name not in SHELLS:
        raise OptionError(f"the variable SHELL names no shell with completion: {name!r}", f"give {', '.join(SHELLS)}")
    return name


def _files(shell: str, environment: Mapping[str, str]) -> tuple[Path, Path | None]:
    """The script, and the file that the shell reads at its start if that must name the script."""

    def folder(variable: str, usual: str) -> Path:
        given = environment.get(variable, "")
        return Path(given if os.path.isabs(given) else os.path.expanduser(usual))

    if shell == "fish":
        return folder("XDG_CONFIG_HOME", "~/.config") / "fish" / "completions" / "headrace.fish", None
    script = folder("XDG_DATA_HOME", "~/.local/share") / "headrace" / f"completion.{shell}"
    home = folder("ZDOTDIR", "~") if shell == "zsh" else Path(os.path.expanduser("~"))
    return script, home / f".{shell}rc"


def _add_line(file: Path, line: str) -> bool:
    """Append a line, unless the file has it. Returns whether the file was changed."""
    text = file.read_text() if file.exists() else ""
    if line in text:
        return False
    with open(file, "a") as out:
        out.write(("\n" if text and not text.endswith("\n") else "") + line)
    return True


def begin() -> None:
    """Let click use the script for bash that is here."""
    add_completion_class(Bash)
