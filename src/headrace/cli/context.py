"""`headrace context`: names for queues, with the credentials that each needs. contexts.py keeps them in a file.

The commands show names of users and files, never the content of a file, and they connect to nothing.
"""

import os
from typing import Any

import click
import msgspec

from headrace.cli.contexts import CONTEXTS_MAX, changed_contexts, check_name, get_context
from headrace.cli.group import Group
from headrace.cli.options import completes, json_option
from headrace.cli.output import echo_json, show_fields, show_table
from headrace.errors import OptionError
from headrace.link.address import is_remote, parse_address
from headrace.link.contexts import NAME, Context, Contexts, contexts_path, read_contexts
from headrace.text import visible
from headrace.units import format_count

_FIELDS = {
    "user": "--user", "password_file": "--password-file", "authority": "--authority", "certificate": "--certificate",
    "key": "--key",
}  # fmt: skip


@click.group(cls=Group)
def context() -> None:
    """Name queues and their credentials, and choose the default. A context is written @NAME, or NAME, as QUEUE.

    \b
    Example:
      headrace context create lab tcp/192.0.2.7:7447 --user ada --password-file ~/.lab-password
      headrace context use lab
      headrace watch
    """


@context.command(short_help="Create a context.")
@click.argument("name")
@click.argument("where", metavar="SITE|ENDPOINT|DIRECTORY")
@click.option("--user", metavar="NAME", help="The user to log in as; needs --password-file.")
@click.option("--password-file", metavar="FILE", help="A file with one line, the password.")
@click.option("--authority", metavar="FILE", help="The certificate of the authority, for tls and quic.")
@click.option("--certificate", metavar="FILE", help="Your certificate; needs --key.")
@click.option("--key", metavar="FILE", help="The key of your certificate.")
@click.option("--use", is_flag=True, help="Make it the default, as `headrace context use` does.")
@click.option("--replace", is_flag=True, help="Replace a context of that name.")
@json_option
def create(name: str, where: str, use: bool, replace: bool, as_json: bool, **login: str | None) -> None:
    """Create the context NAME for the queue of a site, by its name (site:NAME) or endpoint, or in a directory.

    Only the names of files are stored, not their content: each command reads them when it connects. NAME has letters,
    digits, - and _, so that it is no path.

    \b
    Example:
      headrace context create lab tcp/192.0.2.7:7447 --user ada --password-file ~/.lab-password --use
      headrace context create archive /data/wx.queue
    """
    created = _checked(check_name(name), where, login)
    with changed_contexts() as kept:
        before = kept[0].contexts
        if name in before and before[name] != created and not replace:
            raise OptionError(f"the context {name!r} exists already", "choose another name, or give --replace")
        if len(before) >= CONTEXTS_MAX and name not in before:
            raise OptionError(f"there are {CONTEXTS_MAX} contexts, the maximum", "delete one: headrace context delete")
        default = name if use else kept[0].default
        kept[0] = Contexts(default=default, contexts={**before, name: created})
    if as_json:
        echo_json({"created": name not in before, **_values(name, created, default)})
    else:
        done = "created" if name not in before else "replaced" if before[name] != created else "unchanged:"
        click.echo(visible(f"{done} {name}: {created.where}{' (the default)' if default == name else ''}"))


def _checked(name: str, where: str, login: dict[str, str | None]) -> Context:
    """A context with absolute paths. OptionError: an invalid name or endpoint, or a file without its counterpart."""
    from headrace.link.login import Login
    from headrace.remote.client.connect import check_not_address

    expanded = {field: os.path.expanduser(value) if value else None for field, value in login.items()}
    given = Login.of({**expanded, "user": login["user"]}, _FIELDS).given()
    if is_remote(where):
        return Context(str(parse_address(where)), **given)
    check_not_address(where)
    if given:
        raise OptionError(f"{where} is a directory, which needs no credentials", "leave these options out")
    if where.startswith("@") or (NAME.fullmatch(where) and where in read_contexts().contexts):
        raise OptionError(f"{where!r} is a context", f"give its endpoint or directory, or write ./{where}")
    return Context(os.path.abspath(os.path.expanduser(where)))


@context.command("list", short_help="List all contexts.")
@json_option
def list_all(as_json: bool) -> None:
    """List all contexts; the default has a star.

    \b
    Example:
      headrace context list
    """
    found = read_contexts()
    if as_json:
        for name, each in sorted(found.contexts.items()):
            echo_json(_values(name, each, found.default))
    elif found.contexts:
        rows = [
            ("*" if name == found.default else "", name, each.where, each.user or "")
            for name, each in sorted(found.contexts.items())
        ]
        show_table("contexts", ("", "name", "queue", "user"), rows)
    else:
        click.echo("there are no contexts; create one with: headrace context create")


@context.command(short_help="Show one context.")
@click.argument("name", shell_complete=completes("context"), required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show the context NAME, or the default: its queue, and the names of its user and files.

    \b
    Example:
      headrace context show lab
    """
    found = read_contexts()
    chosen = name.removeprefix("@") if name is not None else found.default
    if chosen is None:
        raise OptionError("no context is the default", "give a NAME, or choose one: headrace context use NAME")
    shown = get_context(found, chosen)
    values = _values(chosen, shown, found.default)
    if as_json:
        echo_json(values)
    else:
        fields = {key.replace("_", " "): value for key, value in values.items() if value is not None}
        show_fields(chosen, {**fields, "default": "yes" if chosen == found.default else "no"})


@context.command(short_help="Choose the default.")
@click.argument("name", shell_complete=completes("context"), required=False)
@click.option("--none", "nothing", is_flag=True, help="No context is the default.")
@json_option
def use(name: str | None, nothing: bool, as_json: bool) -> None:
    """Make the context NAME the default: commands without a QUEUE use it, unless HEADRACE_QUEUE is set.

    \b
    Example:
      headrace context use lab
      headrace context use --none
    """
    if (name is None) != nothing:
        raise click.UsageError("Give either the name of a context or --none")
    chosen = name.removeprefix("@") if name is not None else None
    with changed_contexts() as kept:
        if chosen is not None:
            get_context(kept[0], chosen)
        kept[0] = msgspec.structs.replace(kept[0], default=chosen)
    if as_json:
        echo_json({"default": chosen})
    else:
        click.echo(f"the default is {chosen}" if chosen else "no context is the default")
    if os.environ.get("HEADRACE_QUEUE"):
        click.echo("headrace: HEADRACE_QUEUE is set, and takes precedence", err=True)


@context.command(short_help="Delete contexts.")
@click.argument("names", nargs=-1, shell_complete=completes("context"), required=True, metavar="NAME...")
@json_option
def delete(names: tuple[str, ...], as_json: bool) -> None:
    """Delete contexts. Their queues and the files of their credentials stay.

    \b
    Example:
      headrace context delete lab
    """
    gone = {name.removeprefix("@") for name in names}
    with changed_contexts() as kept:
        for name in gone:
            get_context(kept[0], name)
        rest = {name: each for name, each in kept[0].contexts.items() if name not in gone}
        kept[0] = Contexts(default=kept[0].default if kept[0].default in rest else None, contexts=rest)
    if as_json:
        echo_json({"deleted": sorted(gone), "path": str(contexts_path())})
    else:
        click.echo(f"deleted {format_count(len(gone), 'context')}: {', '.join(sorted(gone))}")


def _values(name: str, shown: Context, default: str | None) -> dict[str, Any]:
    return {"name": name, **msgspec.structs.asdict(shown), "default": name == default}
