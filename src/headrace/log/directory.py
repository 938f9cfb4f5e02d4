"""The directory of a queue, and how a process attaches to it.

    queue.json              the terms (config.py)
    control                 lock, head, directory of segments, counters        (kernel: Control)
    names                   feeds and origins by number                        (kernel: Name)
    cursors                 named positions (cursor.py)
    signatures-…            the duplicate memory                               (kernel: Bucket)
    segments/….segment      records and their index rows                       (kernel: Record, Row)

Every attached process holds a shared `flock` on the control file. Whoever can get it exclusively is alone: it puts
the locks in order and settles what dead processes left, before it lets others in.
"""

import contextlib
import fcntl
import os
import secrets
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import (
    NotAQueueError,
    QueueBusyError,
    QueueDamagedError,
    QueueMissingError,
    QueueVersionError,
)
from headrace.kernel import _kernel as kernel
from headrace.log.config import (
    DURABILITIES,
    FORMAT,
    SEGMENT_MAX,
    SEGMENT_MIN,
    SIGNATURES,
    SIZE_MAX,
    SIZE_MIN,
    QueueConfig,
    read_config,
)
from headrace.log.cursor import CURSORS_BYTES
from headrace.log.explain import REPAIR, explain, explain_os_error
from headrace.log.seams import Resident
from headrace.log.storage import Storage

NAME_BYTES = 320
FEEDS_BEGIN = 4096  # names below are origins
NAMES_MAX = 262144
DIRECTORY = 2048
STATE_READY, STATE_RECOVERING = 1, 2


@dataclass(slots=True)
class Attached:
    """An opened directory: the log, the terms, and the descriptor whose flock tells others that we are there."""

    path: Path
    config: QueueConfig
    log: kernel.Log
    presence: int


def boot_id() -> bytes:
    """Sixteen bytes that change with every start of the machine."""
    return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes


def format_control(directory: Path, config: QueueConfig, state: int = STATE_READY) -> None:
    """Write the control file of an empty queue, into the file that is there or a new one."""
    descriptor = os.open(directory / "control", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o660)
    try:
        os.ftruncate(descriptor, kernel.CONTROL_BYTES)
        kernel.format_control(
            descriptor,
            state,
            uuid.UUID(config.uuid).bytes,
            boot_id(),
            config.size,
            config.age_ns,
            config.segment_bytes,
            DURABILITIES.index(config.durability),
            SIGNATURES.index(config.dedup),
            secrets.token_bytes(16),
            1,
        )
    finally:
        os.close(descriptor)


def open_log(path: Path) -> kernel.Log:
    """Map the queue; the descriptors belong to the Log from here on."""
    queue_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    segments_fd = os.open(path / "segments", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return kernel.Log(queue_fd, segments_fd)


def learn_names(path: Path, log: kernel.Log) -> None:
    """Take up the names of feeds and origins; QueueDamagedError if their file does not hold them."""
    state = log.state
    places = state["feeds_end"] if state["feeds_end"] > FEEDS_BEGIN else state["origins_end"]
    try:
        if (path / "names").stat().st_size < places * NAME_BYTES:
            raise kernel.KernelError(kernel.TROUBLE["damaged"])
        log.learn_names()
    except kernel.KernelError:
        raise QueueDamagedError(f"{path / 'names'} is cut short or altered", REPAIR.format(path=path)) from None


def check_path(path: Path) -> None:
    """QueueMissingError or NotAQueueError if `path` cannot be a queue."""
    if not path.exists():
        raise QueueMissingError(f"there is no queue at {path}", f"create it with: headrace queue create {path}")
    if not path.is_dir():
        raise NotAQueueError(f"{path} is a file, not a queue", "give the directory of a queue")


def attach(path: Path, storage: Storage, residents: Sequence[Resident]) -> Attached:
    """Open the queue at `path`, settling what dead processes left if nobody else is there."""
    from headrace.log.recovery import settle

    check_path(path)
    while True:
        config = read_config(path)
        try:
            presence = os.open(path / "control", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise QueueDamagedError(f"{error.filename} is missing", REPAIR.format(path=path)) from None
        except OSError as error:
            raise explain_os_error(error, path) from error
        try:
            alone = _is_alone(presence)
            if _is_same(presence, path / "control"):
                check_control(path, config, presence)
                log = _open_checked(path)
                if alone:
                    check_sanity(path, log)
                    settle(path, config, log, storage, residents)
                    fcntl.flock(presence, fcntl.LOCK_SH)
                if log.state["state"] == STATE_READY and _is_same(presence, path / "control"):
                    learn_names(path, log)
                    return Attached(path, config, log, presence)
            os.close(presence)  # it was replaced, or whoever was settling it has died: begin anew
        except OSError as error:
            os.close(presence)
            raise explain_os_error(error, path) from error
        except kernel.KernelError as error:
            os.close(presence)
            raise explain(error, path) from None
        except BaseException:
            os.close(presence)
            raise


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether the opened file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Hold the queue exclusively; QueueBusyError if anybody is attached. Makes a control file if there is none."""
    descriptor = os.open(path / "control", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o660)
    try:
        if not is_last(descriptor) or not _is_same(descriptor, path / "control"):
            raise QueueBusyError(
                f"{path} is in use by other processes", "stop them first; headrace queue info lists them"
            )
        yield
    finally:
        os.close(descriptor)


def _is_alone(descriptor: int) -> bool:
    """Try for the exclusive lock; if others are there, wait until none of them holds it exclusively."""
    if is_last(descriptor):
        return True
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return False


def check_sanity(path: Path, log: kernel.Log) -> None:
    """QueueDamagedError if the control file says what cannot be. Only while alone: its words change together.

    After a restart of the machine its pages may be of different moments; then only the terms must make sense.
    """
    state = log.state
    sane = (
        SEGMENT_MIN <= state["segment_bytes"] <= SEGMENT_MAX
        and state["segment_bytes"] % 4096 == 0
        and SIZE_MIN <= state["size_bytes"] <= SIZE_MAX
        and state["durability"] < len(DURABILITIES)
        and state["signature_kind"] < len(SIGNATURES)
        and state["tail"] < 1 << 62
        and state["synced"] < 1 << 62
    )
    if sane and is_continued(log):
        sane = _sane_log(log)
    if not sane:
        raise QueueDamagedError(f"{path / 'control'} holds numbers that cannot be", REPAIR.format(path=path))


def is_continued(log: kernel.Log) -> bool:
    """Whether the control file is of this run of the machine and nobody died while settling it."""
    return log.state["boot"] == boot_id() and log.state["state"] == STATE_READY


def _sane_log(log: kernel.Log) -> bool:
    state = log.state
    oldest, newest = state["segment_oldest"], state["segment_newest"]
    return (
        state["oldest"] <= state["tail"]
        and state["head"] <= state["tail"]
        and oldest >= 1
        and -1 <= newest - oldest < DIRECTORY - 1
        and state["origin"] < state["origins_end"] <= FEEDS_BEGIN <= state["feeds_end"] <= NAMES_MAX
        and all(_sane_entry(log.entry(number), number, state["tail"]) for number in range(oldest, newest + 1))
    )


def _sane_entry(entry: "kernel.Entry", number: int, tail: int) -> bool:
    rows = (entry["end"] or max(tail, entry["first"])) - entry["first"]
    return (
        entry["number"] == number and SEGMENT_MIN <= entry["size"] <= 2 * SIZE_MAX and 0 <= rows <= entry["size"] // 88
    )


def hold_presence(path: Path) -> int:
    """A descriptor of its own that says that this process is attached."""
    descriptor = os.open(path / "control", os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_last(presence: int) -> bool:
    """Whether nobody else is attached; nobody can then attach until `presence` is closed."""
    try:
        fcntl.flock(presence, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def check_control(path: Path, config: QueueConfig, descriptor: int) -> None:
    """The control file must be ours, whole, of a known format, and of this queue."""
    file = path / "control"
    start = os.pread(descriptor, 64, 0)
    magic, version, owner = kernel.read_control_start(start.ljust(64, b"\0"))
    if magic != b"HRCONTRL":
        raise QueueDamagedError(f"{file} is not a control file", REPAIR.format(path=path))
    if version == 0:
        raise QueueDamagedError(f"{file} has no format", REPAIR.format(path=path))
    if version > FORMAT:
        raise QueueVersionError(f"{file} has format {version}; this Headrace knows up to {FORMAT}", "upgrade Headrace")
    size = os.fstat(descriptor).st_size
    if size != kernel.CONTROL_BYTES:
        raise QueueDamagedError(f"{file} has {size} bytes instead of {kernel.CONTROL_BYTES}", REPAIR.format(path=path))
    if owner != uuid.UUID(config.uuid).bytes:
        raise QueueDamagedError(f"{file} belongs to another queue", REPAIR.format(path=path))


def _open_checked(path: Path) -> kernel.Log:
    """Map the queue after making sure that no file is shorter than what is mapped."""
    for name in ("names", "cursors", "segments"):
        if not (path / name).exists():
            raise QueueDamagedError(f"{path / name} is missing", REPAIR.format(path=path))
    size = (path / "cursors").stat().st_size
    if size != CURSORS_BYTES:
        raise QueueDamagedError(
            f"{path / 'cursors'} has {size} bytes instead of {CURSORS_BYTES}",
            REPAIR.format(path=path),
        )
    return open_log(path)
