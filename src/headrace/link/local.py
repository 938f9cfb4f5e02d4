"""Local: the Unix socket in the directory of a queue, by which programs on this machine reach its site.

    wx.queue/socket/           can be entered by those who may write to wx.queue
    wx.queue/socket/key        who can read it has all rights at the socket (access.py)
    wx.queue/socket/site       the socket: `listen = ["local"]` of a site
    /run/user/1000/headrace/
        8f14e45fceea167a ──►   wx.queue/socket, by which `site:NAME` finds the socket

Who may write to the directory of a queue can do everything with it, so the socket gives them nothing new; others cannot
connect. The folder decides, because a socket is made with whatever mode the process has just then. The key is what
programs prove that with; it stays for ever, so that they connect again after a restart of the site.

The links also make long paths short: the kernel takes 107 bytes for the path of a socket. They are in a folder that no
other user can change, one per user, or /run/headrace for services.

Not here: Zenoh, which makes the socket and removes one that a dead process left.
"""

import hashlib
import logging
import os
import re
import secrets
import socket
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headrace.errors import FabricError
from headrace.files import read_regular, write_regular
from headrace.link.endpoint import LOCAL, PATH_BYTES_MAX, UNIX
from headrace.link.keys import name_at_socket

_FOLDER, _SOCKET, _KEY = "socket", "site", "key"
_SYSTEM = Path("/run/headrace")  # of services; only root and systemd can make it
_ID_CHARS = 16
_KEY_BYTES = 16
_KEY_MODE = 0o444  # the folder decides who can come so far
_KEY_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62}) ([0-9a-f]{32})\n")

log = logging.getLogger("headrace.link")


def local_endpoint(queue: Path) -> str:
    """The endpoint of the socket in the directory of a queue, through the link if its own path is too long."""
    path = queue / _FOLDER / _SOCKET
    return f"{UNIX}/{path if _fits(path) else links_folder() / _link_name(queue) / _SOCKET}"


def prepare_socket(queue: Path) -> None:
    """Make the folder of the socket, and the link to it, which stays for the next start of the site.

    FabricError: the folder cannot be made, or the path is too long even through a link.
    """
    try:
        _make_folder(queue)
    except OSError as error:
        raise FabricError(
            f"the folder of the socket {queue / _FOLDER} cannot be made: {error.strerror}",
            f'make {queue} writable, or listen elsewhere than on "{LOCAL}"',
        ) from None
    link = links_folder() / _link_name(queue)
    try:
        _make_link(link, queue / _FOLDER)
    except OSError as error:
        _explain_no_link(queue, link, error)
    _check_fits(queue, link)


def socket_key(queue: Path, site: str) -> str:
    """The key beside the socket, made if there is none for this site; call `prepare_socket` before."""
    path = queue / _FOLDER / _KEY
    known = _read_key(path)
    if known is not None and known[0] == site:
        return known[1]
    key, new = secrets.token_hex(_KEY_BYTES), path.with_name(f"{_KEY}.new")
    try:
        new.unlink(missing_ok=True)
        write_regular(new, f"{site} {key}\n".encode(), mode=_KEY_MODE)
        new.replace(path)
    except OSError as error:
        raise FabricError(f"{path} cannot be made: {error.strerror}", f"make {path.parent} writable") from None
    return key


def name_by_socket(endpoint: str) -> str | None:
    """The name that a program has at this Unix socket; None: no name, because there is no key, or not for this user."""
    found = _read_key(Path(endpoint.partition("/")[2]).with_name(_KEY))
    return None if found is None else name_at_socket(*found)


def _read_key(path: Path) -> tuple[str, str] | None:
    """The name of the site, and the key."""
    try:
        found = _KEY_LINE.fullmatch(read_regular(path).decode("ascii", "replace"))
    except OSError:
        return None
    return None if found is None else (found[1], found[2])


def admit(queue: Path) -> None:
    """Let everybody use the socket who can enter its folder; called once Zenoh has made it."""
    os.chmod(queue / _FOLDER / _SOCKET, 0o666)


def local_endpoints() -> list[str]:
    """The sockets of sites on this machine that accept this user now."""
    found = []
    for folder in dict.fromkeys((links_folder(), _SYSTEM)):
        if not _is_trustworthy(folder):
            continue
        with suppress(OSError):
            names = sorted(entry.name for entry in os.scandir(folder) if entry.is_symlink())
            sockets = [folder / name / _SOCKET for name in names]
            found += [f"{UNIX}/{path}" for path in sockets if _fits(path) and _accepts(path)]
    return found


def links_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's sites are listed: of the service, of the login session, of root, or a private one."""
    for variable, below in (("RUNTIME_DIRECTORY", "."), ("XDG_RUNTIME_DIR", "headrace")):
        given = environment.get(variable, "").partition(":")[0]
        if os.path.isabs(given):
            return Path(given) / below
    return _SYSTEM if os.getuid() == 0 else Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"


def _link_name(queue: Path) -> str:
    return hashlib.sha256(os.fsencode(queue.resolve())).hexdigest()[:_ID_CHARS]


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= PATH_BYTES_MAX


def _check_fits(queue: Path, link: Path) -> None:
    if not _fits(queue / _FOLDER / _SOCKET) and not _fits(link / _SOCKET):
        raise FabricError(
            f"the path of the socket {link / _SOCKET} has more than {PATH_BYTES_MAX} bytes",
            "set XDG_RUNTIME_DIR to a folder with a short path, or move the queue to one",
        )


def _explain_no_link(queue: Path, link: Path, error: OSError) -> None:
    """Without a link, sites with short paths run on."""
    problem = f"{link} cannot be made: {error.strerror}"
    if not _fits(queue / _FOLDER / _SOCKET):
        raise FabricError(
            f"the path of the socket in {queue} has more than {PATH_BYTES_MAX} bytes, and a link to it, {problem}",
            "set XDG_RUNTIME_DIR to a folder of this user, or move the queue to a shorter path",
        ) from None
    log.warning("programs cannot find the socket in %s by the name of the site: %s", queue, problem)


def _make_folder(queue: Path) -> None:
    """Who may write to the queue's directory may enter; the folder belongs to the owner and group of that."""
    folder, above = queue / _FOLDER, queue.stat()
    folder.mkdir(mode=0o700, exist_ok=True)
    mode = 0o700 | (0o010 if above.st_mode & stat.S_IWGRP else 0) | (0o001 if above.st_mode & stat.S_IWOTH else 0)
    try:
        os.chown(folder, above.st_uid if os.getuid() == 0 else -1, above.st_gid)
    except PermissionError:  # not our group: its members stay out
        mode &= ~0o010
    folder.chmod(mode)


def _make_link(link: Path, target: Path) -> None:
    """Replace a link that an earlier process left, and remove those that lead nowhere."""
    link.parent.mkdir(mode=0o755 if link.parent == _SYSTEM else 0o700, parents=True, exist_ok=True)
    if not _is_trustworthy(link.parent):
        raise PermissionError(1, "other users can change that folder")
    for entry in os.scandir(link.parent):
        if entry.is_symlink() and (entry.name == link.name or not os.path.exists(entry.path)):
            os.unlink(entry.path)
    link.symlink_to(target)


def _is_trustworthy(folder: Path) -> bool:
    """Whether nobody else can put links there: those would lead programs to false sites."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    is_ours = folder == _SYSTEM or status.st_uid in (0, os.getuid())
    return stat.S_ISDIR(status.st_mode) and is_ours and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        link.setblocking(False)
        try:
            link.connect(os.fspath(path))
        except BlockingIOError:  # it is there, and busy
            return True
        except OSError:
            return False
    return True
