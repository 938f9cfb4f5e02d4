"""Users: the file of those who may connect to a site, one `name:secret` per line.

    users create ──► users file, mode 0600 ──► checked when a session opens ──► Zenoh's dictionary, in memory only

A secret is derived from a password (passwords.py). Files of earlier versions have passwords in clear: they are accepted
with a warning, and `headrace users import` converts them. Zenoh gets the secrets through a file that exists in memory
only, and has no name that another process could open.

Invariant: a file without users is refused, because Zenoh would admit everybody.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import FabricError
from headrace.link.credentials import secret_text
from headrace.link.passwords import is_secret, secret_of

Users = dict[str, str]  # secrets, or passwords in clear, by name


def read_users(path: Path) -> Users:
    """What a users file says; FabricError names the first invalid line, or says that others may read it."""
    users = _parsed(path, secret_text(path, "the users file") if path.exists() else _text(path))
    if not users:
        raise FabricError(f"{path} has no users", f"create one with: headrace users create {path} NAME")
    return users


def in_clear(users: Mapping[str, str]) -> list[str]:
    """The names of the users whose password the file has."""
    return [name for name, stored in users.items() if not is_secret(stored)]


@contextmanager
def dictionary(path: Path | None) -> Iterator[Path | None]:
    """The secrets of a users file as a file for Zenoh, for as long as the block lasts; None without a file.

    FabricError as `read_users`.
    """
    if path is None:
        yield None
        return
    secrets = {name: secret_of(name, stored) for name, stored in read_users(path).items()}
    memory = os.memfd_create("headrace-users", os.MFD_CLOEXEC)
    try:
        os.write(memory, _lines(secrets))
        yield Path(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)


@contextmanager
def changed_users(path: Path) -> Iterator[Users]:
    """`with changed_users(path) as users:` change them; the file is replaced at the end, unless the block raises.

    The new file belongs to the owner of the old one, and has mode 0600. Changes wait for each other.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = path.stat() if path.exists() else None
        users = _parsed(path, _text(path)) if before else {}
        kept = dict(users)
        yield users
        if users != kept or before is None or before.st_mode & 0o077:
            _replace(path, _lines(users), before)
    finally:
        os.close(folder)


def _replace(path: Path, content: bytes, before: os.stat_result | None) -> None:
    """At no time can others read the new content."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if before is not None:
            with suppress(PermissionError):
                os.fchown(file, before.st_uid, before.st_gid)
        os.write(file, content)
        os.fsync(file)
    finally:
        os.close(file)
    part.rename(path)


def _lines(users: Mapping[str, str]) -> bytes:
    return "".join(f"{name}:{secret}\n" for name, secret in users.items()).encode()


def _parsed(path: Path, text: str) -> Users:
    users: Users = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, stored = (part.strip() for part in line.partition(":"))
        if not line.strip():
            continue
        if not (name and colon and stored):
            raise FabricError(
                f"{path}, line {number}: not a name and a secret",
                f"create users with: headrace users create {path} NAME",
            )
        if name in users:
            raise FabricError(f"{path}, line {number}: user {name} is listed twice", "remove one of the lines")
        users[name] = stored
    return users


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise FabricError(
            f"the users file does not exist: {path}", f"create it with: headrace users create {path} NAME"
        ) from None
    except UnicodeDecodeError:
        raise FabricError(f"the users file {path} is not text", "give a file of lines name:secret") from None
    except OSError as error:
        hint = "make the file readable for the user that runs this program"
        raise FabricError(f"the users file {path} is not readable: {error.strerror}", hint) from None
