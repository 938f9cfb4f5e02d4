"""Contexts: names for queues that are used often, with the credentials that each needs; here they are read.

    $XDG_CONFIG_HOME/headrace/contexts.json      (~/.config/headrace/contexts.json)

A context has the endpoint, the site or the directory of a queue, and may name a user and files: the password, the
certificate, the key. It holds no secret itself; the files are read when a program connects. `headrace context` writes
the file (`cli/contexts.py`); a search for a site by its name looks at the endpoints in it, too (`known.py`).

Nothing is loaded here that takes long: a completion reads contexts at every press of the Tab key.
"""

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headrace.decoding import Decoder
from headrace.errors import ConfigError
from headrace.files import exposure, open_to_read

if TYPE_CHECKING:
    from headrace.link.login import Login

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")  # no dot and no slash: paths have those
VERSION = 1
_BYTES_MAX = 1 << 20
_FILE = "contexts.json"

log = logging.getLogger("headrace.link")


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

    version: int = VERSION
    default: str | None = None
    contexts: dict[str, Context] = {}


_DECODER: Decoder[Contexts] = Decoder(Contexts, bytes_max=_BYTES_MAX, encoding="json")


def contexts_path() -> Path:
    """The file, as the XDG base directory specification has it; a relative $XDG_CONFIG_HOME is ignored."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(folder if os.path.isabs(folder) else os.path.expanduser("~/.config")) / "headrace" / _FILE


def read_contexts() -> Contexts:
    """All contexts; none if there is no file. ConfigError if the file is invalid, with its path and the reason."""
    path = contexts_path()
    try:
        with open_to_read(path, follow=True) as file:
            data, open_to_others = file.read(_BYTES_MAX + 1), exposure(path)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except PermissionError as error:  # a service that runs as another user has no contexts, and needs none
        log.info("no contexts: %s: %s", path, error.strerror)
        return Contexts()
    if open_to_others:
        raise ConfigError(f"{path} {open_to_others}", f"run: chmod 600 {path}")
    try:
        found = _DECODER.decode(data)
        _check(found)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is invalid: {error}", "correct the file, or move it away") from None
    return found


def _check(found: Contexts) -> None:
    if found.version != VERSION:
        raise msgspec.ValidationError(f"it has version {found.version}, and this Headrace knows {VERSION}")
    if wrong := [name for name in found.contexts if not NAME.fullmatch(name)]:
        raise msgspec.ValidationError(f"{wrong[0]!r} is not the name of a context")
    if found.default is not None and found.default not in found.contexts:
        raise msgspec.ValidationError(f"its default {found.default!r} is not one of its contexts")
