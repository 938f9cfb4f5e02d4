"""Attach: how a process opens a queue's directory, and which processes have it open.

Every attached process holds a shared `flock` on the control file. A process that gets the lock exclusively is alone: it
resets the locks in the control file and recovers what dead processes left, before it lets others in.

Each opening also takes a slot in the control file, with its process id and the start time of that process, so that a
slot of a dead process is not mistaken for one whose process id was given to another. Slots only inform (`statistics`,
`wanted`): nothing waits for them, and a process that finds no free slot works without one.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import QueueAccessError, QueueBusyError, QueueDamagedError
from headrace.files import open_regular
from headrace.kernel import _kernel as kernel
from headrace.log.config import QueueConfig, read_config, upgrade_config
from headrace.log.directory import (
    check_control,
    check_path,
    check_sanity,
    is_continued,
    learn_names,
    open_checked,
    upgrade_control,
)
from headrace.log.explain import REPAIR, explain, explain_os_error
from headrace.log.locks import lock_file
from headrace.log.recovery import settle
from headrace.log.seams import Resident, Storage

# --- open -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Attached:
    """An opened directory: the log, its configuration, and the descriptor whose flock shows that we are attached."""

    path: Path
    config: QueueConfig
    log: kernel.Log
    presence: int
    read_only: bool = False


def attach(path: Path, storage: Storage, residents: Sequence[Resident], *, read_only: bool = False) -> Attached:
    """Open the queue at `path`; recover what dead processes left if no other process has it open.

    With `read_only`, or if this process may not write, it is opened for reading; see `_attach_to_read`.
    """
    check_path(path)
    while True:
        config = _read_config(path)
        if read_only or not may_write(path):
            return _attach_to_read(path, config)
        presence = _open_control(path, os.O_RDWR)
        try:
            alone = _is_alone(presence)
            if _is_same(presence, path / "control"):
                upgrade_control(path, presence, alone=alone)
                check_control(path, config, presence)
                log = open_checked(path)
                if alone:
                    check_sanity(path, log)
                    upgrade_config(path, config)
                    settle(path, config, log, storage, residents)
                    lock_file(presence, shared=True)
                if log.state["state"] == kernel.STATE_READY and _is_same(presence, path / "control"):
                    learn_names(path, log)
                    log.watch_place(os.fsencode(path / "control"))
                    return Attached(path, config, log, presence)
            os.close(presence)  # the file was replaced, or the process that was recovering it died: start over
        except OSError as error:
            os.close(presence)
            raise explain_os_error(error, path) from error
        except kernel.KernelError as error:
            os.close(presence)
            raise explain(error, path) from None
        except BaseException:
            os.close(presence)
            raise


def may_write(path: Path) -> bool:
    """Whether the operating system lets this process change the queue, as it lets its owner."""
    return os.access(path / "control", os.W_OK, effective_ids=True) or not os.access(path / "control", os.R_OK)


def _read_config(path: Path) -> QueueConfig:
    try:
        return read_config(path)
    except OSError as error:
        raise explain_os_error(error, path) from error


def _open_control(path: Path, flags: int) -> int:
    try:
        return open_regular(path / "control", flags)
    except FileNotFoundError as error:
        raise QueueDamagedError(f"{error.filename} is missing", REPAIR.format(path=path)) from None
    except OSError as error:
        raise explain_os_error(error, path) from error


def _attach_to_read(path: Path, config: QueueConfig) -> Attached:
    """Open the queue without any right to write. It holds the lock of those who are attached, and no slot.

    It recovers nothing. What a dead writer left does not concern it: what readers see was committed. After a restart of
    the machine that is not known before somebody who may write has opened the queue, so until then it is refused.
    """
    presence = _open_control(path, os.O_RDONLY)
    try:
        lock_file(presence, shared=True)
        check_control(path, config, presence)
        log = open_checked(path, read_only=True)
        if not is_continued(log):
            raise QueueAccessError(
                f"{path} was not opened since the machine started, and this process may not recover it",
                f"open it once as a user who may write to it, such as by: headrace queue info {path}",
            )
        check_sanity(path, log)
        learn_names(path, log)
        log.watch_place(os.fsencode(path / "control"))
        return Attached(path, config, log, presence, read_only=True)
    except OSError as error:
        os.close(presence)
        raise explain_os_error(error, path) from error
    except kernel.KernelError as error:
        os.close(presence)
        raise explain(error, path) from None
    except BaseException:
        os.close(presence)
        raise


@contextlib.contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Hold the queue exclusively; QueueBusyError if a process is attached. Makes a control file if there is none."""
    descriptor = open_regular(path / "control", os.O_CREAT | os.O_RDWR)
    try:
        if not is_last(descriptor) or not _is_same(descriptor, path / "control"):
            raise QueueBusyError(
                f"{path} is in use by other processes", "stop them first; headrace queue info lists them"
            )
        yield
    finally:
        os.close(descriptor)


def hold_presence(presence: int) -> int:
    """Another descriptor of the same control file, wherever that is now, which shows that a process is attached."""
    descriptor = os.open(f"/proc/self/fd/{presence}", os.O_RDONLY | os.O_CLOEXEC)
    lock_file(descriptor, shared=True)
    return descriptor


def is_last(presence: int) -> bool:
    """Whether no other process is attached. If so, none can attach until `presence` is closed."""
    return lock_file(presence, wait=False)


def _is_alone(descriptor: int) -> bool:
    """Try for the exclusive lock; if others are attached, wait until none of them holds it exclusively."""
    if is_last(descriptor):
        return True
    lock_file(descriptor, shared=True)
    return False


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether the opened file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


# --- who is attached --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attachment:
    """One opening of the queue by a living process."""

    slot: int
    pid: int
    reads: bool
    writes: bool
    attached_ns: int


def process_start(pid: int) -> int:
    """When `pid` started, in clock ticks since boot; 0 if there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def list_attachments(log: kernel.Log) -> list[Attachment]:
    """The openings by processes that are alive."""
    return [
        Attachment(slot, pid, bool(roles & kernel.ROLE_READER), bool(roles & kernel.ROLE_WRITER), attached_ns)
        for slot, pid, started, roles, attached_ns in log.attachments()
        if process_start(pid) == started
    ]


class Presence:
    """The slot of this opening."""

    def __init__(self, log: kernel.Log, read_only: bool = False) -> None:
        self._log, self._is_hidden = log, read_only
        self.roles = 0
        self._pid = os.getpid()
        self._started = process_start(self._pid)
        self._attached_ns = log.now_ns()
        self._slot = self._take()

    def _take(self) -> int | None:
        if self._is_hidden:
            return None
        with self._log.held():
            taken = {slot: process_start(pid) == started for slot, pid, started, *_ in self._log.attachments()}
            for slot in range(kernel.ATTACHMENTS_MAX):
                if not taken.get(slot, False):
                    self._write(slot)
                    return slot
            return None

    def _write(self, slot: int) -> None:
        self._log.set_attachment(slot, self._pid, self._started, self.roles, self._attached_ns)

    def add_role(self, role: int) -> None:
        """Show that this opening reads (kernel.ROLE_READER) or writes (kernel.ROLE_WRITER)."""
        self.roles |= role
        if self._slot is not None:
            self._write(self._slot)

    def leave(self) -> None:
        """Free the slot, unless it belongs to the parent of this process."""
        if self._slot is not None and self._pid == os.getpid():
            self._log.set_attachment(self._slot, 0, 0, 0, 0)
            self._slot = None
