"""Opening: where commands get their QUEUE from, a directory or the endpoint of a site.

Who connects to a site that wants to know him says so in the environment, which no list of processes shows:

    HEADRACE_USER, HEADRACE_PASSWORD_FILE                          name, and the file with the password
    HEADRACE_AUTHORITY, HEADRACE_CERTIFICATE, HEADRACE_KEY         for endpoints with tls or quic
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import FabricError, OptionError
from headrace.queue import AnyQueue, Queue
from headrace.remote.client.connect import connect, is_endpoint

if TYPE_CHECKING:
    from headrace.link.credentials import TlsTerms, UserTerms

_PATIENCE_S = 10.0  # a person waits


def open_queue(where: str) -> AnyQueue:
    """The queue at a directory or an endpoint; SiteUnreachableError and others say what is in the way."""
    if not is_endpoint(where):
        return Queue.open(where)
    return connect(where, patience=_PATIENCE_S, tls=_tls(), user=_user())


def open_here(path: str) -> Queue:
    """The queue in a directory, for commands that need its files; an endpoint is refused."""
    if is_endpoint(path):
        raise OptionError(
            f"{path} is the endpoint of a site, and this command needs the directory of a queue",
            f"run it where the queue lies; a directory of that name is written ./{path}",
        )
    return Queue.open(path)


def credentials() -> "tuple[TlsTerms | None, UserTerms | None]":
    """Whom the environment says that we are."""
    return _tls(), _user()


def _user() -> "UserTerms | None":
    from headrace.link.credentials import UserTerms

    name, file = os.environ.get("HEADRACE_USER"), os.environ.get("HEADRACE_PASSWORD_FILE")
    if not name and not file:
        return None
    if not file:
        raise OptionError("HEADRACE_USER is set without a password", "set HEADRACE_PASSWORD_FILE as well")
    if not name:
        raise OptionError("HEADRACE_PASSWORD_FILE is set without a name", "set HEADRACE_USER as well")
    try:
        return UserTerms(name, Path(file).read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise FabricError(
            f"the password file {file} cannot be read: {reason}", "check HEADRACE_PASSWORD_FILE"
        ) from None


def _tls() -> "TlsTerms | None":
    from headrace.link.credentials import TlsTerms

    authority, certificate, key = (os.environ.get(f"HEADRACE_{part}") for part in ("AUTHORITY", "CERTIFICATE", "KEY"))
    if not authority:
        if certificate or key:
            raise OptionError(
                "HEADRACE_CERTIFICATE or HEADRACE_KEY is set without an authority", "set HEADRACE_AUTHORITY as well"
            )
        return None
    return TlsTerms(Path(authority), Path(certificate) if certificate else None, Path(key) if key else None)
