"""Contexts: names for queues that are used often, with the credentials that each needs.

    $XDG_CONFIG_HOME/headrace/contexts.json      (~/.config/headrace/contexts.json)

A context has the endpoint or directory of a queue, and may name a user and files: the password, the certificate, the
key. It holds no secret itself; the files are read when a command connects. The file belongs to its user (mode 0600, in
a directory of mode 0700), and is replaced as a whole, under a lock, so that two commands do not undo each other.

Nothing is loaded here that takes long: a completion reads contexts at every press of the Tab key.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headrace.cli.failure import did_you_mean, tell
from headrace.errors import ConfigError, OptionError

if TYPE_CHECKING:
    from headrace.link.login import Login

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")  # no dot and no slash: paths have those
CONTEXTS_MAX = 1000
_VERSION = 1
_BYTES_MAX = 1 << 20
_FILE = "contexts.json"


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a queue is, and how to log in there: names of a user and of files, and no secret."""

    where: str
    user: str | None = None
    password_file: str | None = None
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def login(self) -> "Login | None":
        """How to log in; None if the context says nothing about that."""
        from headrace.link.login import Login

        values = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "where" and value}
        return Login(**values) if values else None


class Contexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of the file. `default` is the context that commands without a queue use."""

    version: int = _VERSION
    default: str | None = None
    contexts: dict[str, Context] = {}

    def get(self, name: str) -> Context:
        """The context; OptionError lists those that exist."""
        found = self.contexts.get(name)
        if found is None:
            known = ", ".join(sorted(self.contexts))
            hint = f"the contexts are: {known}" if known else "create it with: headrace context create"
            raise OptionError(f"there is no context {name!r}{did_you_mean(name, self.contexts)}", hint)
        return found


def contexts_path() -> Path:
    """The file, as the XDG base directory specification has it; a relative $XDG_CONFIG_HOME is ignored."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(folder if os.path.isabs(folder) else os.path.expanduser("~/.config")) / "headrace" / _FILE


def read_contexts() -> Contexts:
    """All contexts; none if there is no file. ConfigError if the file is invalid, with its path and the reason."""
    path = contexts_path()
    try:
        with open(path, "rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except PermissionError as error:  # a service that runs as another user has no contexts, and needs none
        tell(f"no contexts: {path}: {error.strerror}")
        return Contexts()
    try:
        if len(data) > _BYTES_MAX:
            raise msgspec.ValidationError(f"it is larger than {_BYTES_MAX >> 20} MiB")
        found = msgspec.json.decode(data, type=Contexts)
        _check(found)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is invalid: {error}", "correct the file, or move it away") from None
    return found


def _check(found: Contexts) -> None:
    if found.version != _VERSION:
        raise msgspec.ValidationError(f"it has version {found.version}, and this Headrace knows {_VERSION}")
    if wrong := [name for name in found.contexts if not NAME.fullmatch(name)]:
        raise msgspec.ValidationError(f"{wrong[0]!r} is not the name of a context")
    if found.default is not None and found.default not in found.contexts:
        raise msgspec.ValidationError(f"its default {found.default!r} is not one of its contexts")


@contextmanager
def changed_contexts() -> Iterator[list[Contexts]]:
    """`with changed_contexts() as kept:` change `kept[0]`; it is written at the end, unless the block raises."""
    from headrace.log.documents import replace_file

    path = contexts_path()
    if not path.is_absolute():
        raise OptionError("this user has no home directory for contexts", "set XDG_CONFIG_HOME to an absolute path")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = read_contexts()
        kept = [before]
        yield kept
        if kept[0] != before:
            replace_file(path, msgspec.json.format(msgspec.json.encode(kept[0])), None, mode=0o600)
    finally:
        os.close(folder)


def check_name(name: str) -> str:
    """The name of a context; OptionError if it could be a path."""
    if not NAME.fullmatch(name):
        raise OptionError(f"{name!r} is not the name of a context", "use 1 to 64 letters, digits, - and _")
    return name
