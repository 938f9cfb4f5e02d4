"""`headrace users`: who may connect to a site with a password. link/users.py keeps the file.

A password is read from the terminal or from standard input, never from the command line, which other users can see. No
command shows a password or writes one.
"""

import sys
from pathlib import Path

import click

from headrace.cli.failure import NEGATIVE, OK, did_you_mean
from headrace.cli.group import Group
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.errors import FabricError, OptionError
from headrace.text import visible
from headrace.units import format_count

_FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@click.group(cls=Group)
def users() -> None:
    """Say who may connect to a site with a password: the users file that its configuration names.

    The file has a secret for each user, derived from the password by scrypt. It does not tell the password, but it is
    enough to log in: keep it secret. A running site takes a change at SIGHUP.

    \b
    Example:
      headrace users create users alice
      headrace users list users
    """


@users.command(short_help="Create a user, or change a password.")
@_FILE
@click.argument("name")
@json_option
def create(file: Path, name: str, as_json: bool) -> None:
    """Create the user NAME in FILE, or change the password of that user. FILE is created if it does not exist.

    The password is asked for, or is the first line of standard input.

    \b
    Example:
      headrace users create users alice
      pwgen --secure 20 1 | tee alice.password | headrace users create users alice
    """
    from headrace.link.credentials import UserTerms
    from headrace.link.passwords import check_new_password
    from headrace.link.users import changed_users

    password = check_new_password(_asked(name, twice=True))
    secret = UserTerms(name, password).secret
    with changed_users(file) as found:
        is_new = name not in found
        found[name] = secret
    if as_json:
        echo_json({"created": name, "new": is_new, "users": len(found)})
    else:
        click.echo(visible(f"{name} is created" if is_new else f"the password of {name} is changed"))


@users.command(short_help="Delete a user.")
@_FILE
@click.argument("name")
@json_option
def delete(file: Path, name: str, as_json: bool) -> None:
    """Delete the user NAME from FILE. Links that exist are closed when the site reloads its configuration.

    \b
    Example:
      headrace users delete users alice
    """
    from headrace.link.users import changed_users, read_users

    read_users(file)
    with changed_users(file) as found:
        if name not in found:
            raise OptionError(
                f"{file} has no user {name!r}{did_you_mean(name, found)}", f"see: headrace users list {file}"
            )
        if len(found) == 1:
            raise OptionError(
                f"{name} is the only user of {file}, and a site refuses a file without users",
                "create another user first, or remove dictionary_file from the configuration of the site",
            )
        del found[name]
    if as_json:
        echo_json({"deleted": name, "users": len(found)})
    else:
        click.echo(visible(f"{name} is deleted"))


@users.command("list", short_help="List the users.")
@_FILE
@json_option
def list_all(file: Path, as_json: bool) -> None:
    """List the users in FILE, and whether it has their passwords in clear.

    \b
    Example:
      headrace users list users
    """
    from headrace.link.users import in_clear, read_users

    found = read_users(file)
    clear = in_clear(found)
    for name in found:
        if as_json:
            echo_json({"name": name, "in_clear": name in clear})
        else:
            click.echo(visible(f"{name} (password in clear)" if name in clear else name))


@users.command(short_help="Check a users file, or a password.")
@_FILE
@click.argument("name", required=False)
@json_option
def check(file: Path, name: str | None, as_json: bool) -> int:
    """Check that FILE is valid, has no password in clear, and is readable for its owner only. Exit code 1 if not.

    With NAME, check the password of that user instead, which is asked for or read from standard input.

    \b
    Example:
      headrace users check users
      headrace users check users alice < alice.password
    """
    from headrace.link.passwords import secret_of
    from headrace.link.users import in_clear, read_users

    found, problems = {}, list[str]()
    try:
        found = read_users(file)
    except FabricError as error:
        if name is not None or not file.exists():
            raise
        problems = [f"{error.problem}: {error.hint}"]
    if name is None:
        problems += [f"the password of {each} is in clear: headrace users import {file}" for each in in_clear(found)]
        if found and file.stat().st_mode & 0o077:
            problems.append(f"others can read or write it: chmod 600 {file}")
    elif name not in found:
        raise OptionError(f"{file} has no user {name!r}{did_you_mean(name, found)}", f"see: headrace users list {file}")
    else:
        is_right = secret_of(name, _asked(name, twice=False)) == secret_of(name, found[name])
        problems = [] if is_right else [f"this is not the password of {name}"]
    if as_json:
        echo_json({"file": str(file), "users": len(found), "problems": problems})
    else:
        right = f"{file} is valid, with {format_count(len(found), 'user')}" if name is None else f"it is that of {name}"
        for line in [f"{file}: {each}" for each in problems] or [right]:
            click.echo(visible(line))
    return NEGATIVE if problems else OK


@users.command("import", short_help="Convert a file with passwords in clear.")
@_FILE
@json_option
def import_clear(file: Path, as_json: bool) -> None:
    """Replace the passwords in FILE, lines of name:password, by secrets. Clients go on to use their passwords.

    Copies of the old file still have them: delete those.

    \b
    Example:
      headrace users import users
    """
    from headrace.link.passwords import secret_of
    from headrace.link.users import changed_users, in_clear, read_users

    read_users(file)
    with changed_users(file) as found:
        converted = in_clear(found)
        found.update({name: secret_of(name, found[name]) for name in converted})
    if as_json:
        echo_json({"converted": converted, "users": len(found)})
    else:
        click.echo(visible(f"{format_count(len(converted), 'password')} of {file} converted"))


def _asked(name: str, *, twice: bool) -> str:
    """The password of a user, from the terminal or from standard input."""
    if sys.stdin.isatty():
        return str(click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=twice, err=True))
    line = sys.stdin.readline()
    if not line.strip():
        raise OptionError("there is no password on standard input", "give one line, or run it in a terminal")
    return line.rstrip("\r\n")
