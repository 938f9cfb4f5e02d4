"""How a command ends: exit codes, and errors as people and programs read them.

    0    success
    1    the command did its work, and the answer is no: damage was found, a limit is exceeded, you answered no
    2    the input is invalid: an option, an argument, or a file that the command reads; a file that does not exist, too
    3    it failed: the queue, station or site is missing or refuses, the network or the operating system failed
    4    internal error: a bug in Headrace
    130  ended by Ctrl-C (128 + SIGINT); 143 by SIGTERM; 141 because the reader of the output went away

An error is two lines on standard error, `headrace: problem` and `  try: hint`; with `--json` it is one JSON object. A
mistake in a selection also shows its text, with a caret below the column. `--verbose` tells on standard error what a
command does and where it looks (`tell`), and shows the traceback of an internal error.

Every command loads this module, `headrace --help` included, so it imports nothing heavy.
"""

import errno
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headrace.errors import HeadraceError, InvalidError, OracleError, SelectionError
from headrace.files import IrregularFileError
from headrace.text import harmless, visible, visible_lines
from headrace.units import format_count

if TYPE_CHECKING:
    from headrace.toml.document import Problem

OK, NEGATIVE, USAGE, FAILED, INTERNAL = 0, 1, 2, 3, 4
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143
_CLOSE = 0.65  # how much two words must have in common, from 0 to 1, to be a suggestion
_WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
_OS_HINTS = {
    **dict.fromkeys(_WRONG_PATH, "check the path"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change its owner or its permissions, or run as another user"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space"),
    errno.EROFS: "choose a path on a file system that is writable",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class Failure(msgspec.Struct, frozen=True):
    """An error, ready to be shown."""

    error: str  # the name of its class
    problem: str
    hint: str = ""
    exit: int = FAILED
    column: int | msgspec.UnsetType = msgspec.UNSET  # of a mistake in a selection
    excerpt: str | msgspec.UnsetType = msgspec.UNSET  # the selection, with a caret below that column


def explain(error: HeadraceError | click.ClickException | OSError, words: Sequence[str] = ()) -> Failure:
    """The message and the exit code for an error that reached the command line, which has these words.

    A path that does not exist is invalid input if the command line names it. Elsewhere it is a failure: a service whose
    directory has gone may be started again, and one with invalid input may not.
    """
    name = type(error).__name__
    if isinstance(error, click.NoSuchOption):
        problem = (
            f"there is no option {error.option_name!r}{did_you_mean(error.option_name, error.possibilities or ())}"
        )
        return Failure(name, problem, _usage_hint(error), USAGE)
    if isinstance(error, click.ClickException):
        return Failure(name, error.format_message().rstrip("."), _usage_hint(error), USAGE)
    if isinstance(error, HeadraceError):
        code = USAGE if isinstance(error, InvalidError | OracleError) else FAILED
        if isinstance(error, SelectionError) and error.column is not None:
            return Failure(name, error.problem, error.hint, code, error.column, error.excerpt)
        return Failure(name, error.problem, error.hint, code)
    where = f"{error.filename}: " if error.filename else ""
    code = USAGE if error.errno in _WRONG_PATH and str(error.filename) in words else FAILED
    return Failure(name, f"{where}{error.strerror or error}", os_hint(error), code)


def explain_bug(error: Exception) -> Failure:
    """The message for an exception that no command should raise."""
    hint = "run it again with --verbose, and report the traceback: this is a bug in Headrace"
    return Failure(type(error).__name__, f"internal error: {type(error).__name__}: {error}", hint, INTERNAL)


def os_hint(error: OSError) -> str:
    """What to do about an error of the operating system; empty if the error alone does not tell."""
    if isinstance(error, IrregularFileError):
        return "move it away, and find out who put it there"
    return _OS_HINTS.get(error.errno or 0, "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the words that were probably meant, if there are any."""
    meant = get_close_matches(word, known, n=2, cutoff=_CLOSE)
    return f"; did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def _usage_hint(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"{ctx.command_path} --help" if ctx else ""


def show_failure(failure: Failure, as_json: bool) -> None:
    """Write one error to standard error."""
    if as_json:
        click.echo(_json_of(msgspec.to_builtins(failure)), err=True)
        return
    click.echo(f"headrace: {visible(failure.problem)}", err=True)
    if isinstance(failure.excerpt, str):
        _echo_excerpt(failure.excerpt, err=True)
    if failure.hint:
        click.echo(f"  try: {visible(failure.hint)}", err=True)


def _echo_excerpt(excerpt: str, err: bool = False) -> None:
    """A text and a caret below it; another site may have written both."""
    for line in visible_lines(excerpt, 2):
        click.echo(line, err=err)


def json_line(value: Any) -> str:
    """A value as JSON on one line, in which no character acts or hides."""
    return harmless(msgspec.json.encode(value).decode())


def _json_of(values: dict[str, Any]) -> str:
    """As JSON; bytes of a file name that are not UTF-8 are escaped."""
    encodable = {
        key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for key, value in values.items()
    }
    return json_line(encodable)


def notice(text: str, as_json: bool, **values: Any) -> None:
    """Write a warning to standard error and continue; with `--json`, write `values` instead of the text."""
    click.echo(_json_of(values) if as_json else f"headrace: {visible(text)}", err=True)


def warn(text: str) -> None:
    """Write a warning of this command to standard error, with `--json` as JSON."""
    notice(f"warning: {text}", _is_json(), warning=text)


def _is_json() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("as_json"))


class _Warnings(logging.Handler):
    """Writes what a queue, a link or a site warns of, such as for whom a put waits, to standard error."""

    as_json = False  # of the command: threads have no context of Click's

    def emit(self, record: logging.LogRecord) -> None:
        notice(record.getMessage(), self.as_json, warning=record.getMessage())


_WARNINGS = _Warnings(logging.WARNING)
_WARNED_OF = ("headrace.queue", "headrace.link", "headrace.remote", "headrace.slices")


def show_warnings() -> None:
    """From now on, show the warnings of queues, links, sites and nodes as this command shows its own."""
    _WARNINGS.as_json = _is_json()
    for name in _WARNED_OF:
        logging.getLogger(name).addHandler(_WARNINGS)  # once, however often it is called


# --- what --verbose tells -------------------------------------------------------------------------


class _Details(logging.Handler):
    """Writes what happens to standard error. What `show_warnings` has shown is not repeated."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING or not record.name.startswith(_WARNED_OF):
            click.echo(f"headrace: {visible(record.getMessage())}", err=True)


_DETAILS = _Details(logging.INFO)
_LOGGER = logging.getLogger("headrace")


def tell_details() -> None:
    """From now on, tell what is done. The messages are those of the loggers of Headrace, level INFO."""
    _LOGGER.addHandler(_DETAILS)
    _LOGGER.setLevel(logging.INFO)


def tell(text: str) -> None:
    """With --verbose, one line on standard error about what is done now."""
    _LOGGER.info(text)


def end_details() -> None:
    """The command has ended; the next one in this process is silent again."""
    if _DETAILS in _LOGGER.handlers:
        _LOGGER.removeHandler(_DETAILS)
        _LOGGER.setLevel(logging.NOTSET)


def show_problems(path: str, problems: "Sequence[Problem]", warnings: int, as_json: bool) -> int:
    """List every problem of a configuration or rules file. Return the exit code: 2 if there is any.

    warnings: how many were shown; they change no exit code.
    """
    if as_json:
        told = {"path": path, "ok": not problems, "warnings": warnings, "problems": problems}
        click.echo(json_line(told))
        return USAGE if problems else OK
    for problem in problems:
        click.echo(visible(str(problem)))
        if problem.excerpt:
            _echo_excerpt(problem.excerpt)
        if problem.hint:
            click.echo(f"  try: {visible(problem.hint)}")
    if not problems:
        click.echo(f"{path} is valid" + (f", with {format_count(warnings, 'warning')}" if warnings else ""))
        return OK
    click.echo(f"{path}: {format_count(len(problems), 'problem')}", err=True)
    return USAGE


def confirm(question: str) -> bool:
    """Ask on standard error. No answer (end of file, Ctrl-C) means no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def discard_stdout() -> None:
    """After a broken pipe: redirect standard output to /dev/null, so that the interpreter's last flush succeeds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
