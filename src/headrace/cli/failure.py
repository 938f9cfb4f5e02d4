"""How a command ends: exit codes, and errors as people and programs read them.

    0    done
    1    done, and the finding is negative: check, verify or demo found something, a product was passed over
    2    a wrong option, or input that cannot be used
    3    trouble with the queue or the operating system
    130  ended by Ctrl-C (128 + SIGINT); 143 by SIGTERM; 141 because the reader of the output went away

An error is two lines on standard error, `headrace: problem` and `  try: hint`, or with `--json` one JSON object. A
mistake in a selection shows its text in between, with a caret below the place. A traceback is a fault of Headrace.
"""

import os
import sys
from typing import Any

import click
import msgspec

from headrace.errors import HeadraceError, InvalidError, OracleError, SelectionError

OK, NEGATIVE, USAGE, TROUBLE = 0, 1, 2, 3
INTERRUPTED, UNREAD, TERMINATED = 130, 141, 143


class Failure(msgspec.Struct, frozen=True):
    """An error, ready to be shown."""

    error: str  # the name of its class
    problem: str
    hint: str = ""
    exit: int = TROUBLE
    column: int | msgspec.UnsetType = msgspec.UNSET  # of a mistake in a text, and
    excerpt: str | msgspec.UnsetType = msgspec.UNSET  # the text with a caret below it


def explain(error: HeadraceError | click.ClickException | OSError) -> Failure:
    """What to tell of an error that reached the command line."""
    name = type(error).__name__
    if isinstance(error, click.ClickException):
        return Failure(name, error.format_message().rstrip("."), _usage_hint(error), USAGE)
    if isinstance(error, HeadraceError):
        code = USAGE if isinstance(error, InvalidError | OracleError) else TROUBLE
        if isinstance(error, SelectionError) and error.column is not None:
            return Failure(name, error.problem, error.hint, code, error.column, error.excerpt)
        return Failure(name, error.problem, error.hint, code)
    where = f"{error.filename}: " if error.filename else ""
    return Failure(name, f"{where}{error.strerror or error}", "", TROUBLE)


def _usage_hint(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"{ctx.command_path} --help" if ctx else ""


def show(failure: Failure, as_json: bool) -> None:
    """One error on standard error."""
    if as_json:
        click.echo(msgspec.json.encode(failure).decode(), err=True)
        return
    click.echo(f"headrace: {visible(failure.problem)}", err=True)
    if isinstance(failure.excerpt, str):
        click.echo(failure.excerpt, err=True)  # has no control characters
    if failure.hint:
        click.echo(f"  try: {visible(failure.hint)}", err=True)


def notice(text: str, as_json: bool, **values: Any) -> None:
    """Something worth telling on standard error that ends nothing; programs get `values`."""
    click.echo(msgspec.json.encode(values).decode() if as_json else f"headrace: {visible(text)}", err=True)


def visible(text: str) -> str:
    """Text with its control characters spelt out, so that no name can play tricks on a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def forget_stdout() -> None:
    """After a broken pipe: let the interpreter's last flush go nowhere instead of failing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
