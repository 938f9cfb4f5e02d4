"""The directory of a queue: what is in it, how it is created, and whether its files are sane.

    queue.json              the configuration (config.py)
    control                 lock, head, directory of segments, counters        (kernel: Control)
    names                   feeds and origins by number                        (kernel: Name)
    cursors                 named positions (cursor.py)
    signatures-…            the duplicate memory                               (kernel: Bucket)
    segments/….segment      records and their index rows                       (kernel: Record, Row)

A queue is created under a temporary name and renamed into place. So it exists complete or not at all, and of two
processes that create it at the same time one succeeds and the other gets QueueExistsError.

Not here: how processes attach (attach.py), what follows a crash (recovery.py), stations and channels, which have files
of their own in the same directory.
"""

import errno
import os
import uuid
from pathlib import Path

from headrace.errors import (
    HeadraceError,
    NotAQueueError,
    OptionError,
    QueueDamagedError,
    QueueExistsError,
    QueueMissingError,
    QueueVersionError,
)
from headrace.files import make_folder, open_regular, write_regular
from headrace.kernel import _kernel as kernel
from headrace.log.config import (
    CONFIG_FILE,
    SEGMENT_MAX,
    SEGMENT_MIN,
    SIGNATURE_KINDS,
    SIZE_MAX,
    SIZE_MIN,
    QueueConfig,
    write_config,
)
from headrace.log.cursor import CURSORS_BYTES
from headrace.log.explain import REPAIR, explain, explain_os_error
from headrace.log.rights import Rights
from headrace.log.seams import Disk


def boot_id() -> bytes:
    """Sixteen bytes that change with every start of the machine."""
    return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes


def check_path(path: Path) -> None:
    """QueueMissingError or NotAQueueError if there is no directory at `path`."""
    if not path.exists():
        raise QueueMissingError(f"there is no queue at {path}", f"create it with: headrace queue create {path}")
    if not path.is_dir():
        raise NotAQueueError(f"{path} is a file, not a queue", "give the directory of a queue")


# --- create -----------------------------------------------------------------------------------------


def create_directory(path: Path, config: QueueConfig, rights: Rights = Rights()) -> None:  # noqa: B008 - immutable
    """Create an empty queue at `path`; QueueExistsError if something is there already."""
    if path.is_symlink() or path.is_file():
        raise QueueExistsError(f"{path} is a file", "choose a path that does not exist yet")
    if path.is_dir() and any(path.iterdir()):
        known = "is a queue already" if (path / CONFIG_FILE).exists() else "exists and is not empty"
        raise QueueExistsError(f"{path} {known}", "open it, delete it, or choose another path")
    part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_memory(path.parent, config)
        part.mkdir(0o700)
        rights.give(part)
        _fill(part, config)
        os.rename(part, path)
        Disk().sync_directory(path.parent)
    except OSError as error:
        _discard(part)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise QueueExistsError(f"{path} was created by another process at the same time", "open it") from None
        error.filename = str(path)
        raise explain_os_error(error, path) from error
    except kernel.KernelError as error:
        _discard(part)
        raise explain(error, path) from None
    except HeadraceError:
        _discard(part)
        raise


def _discard(part: Path) -> None:
    import shutil  # loads four compressors, and a failed creation is rare

    shutil.rmtree(part, ignore_errors=True)


def _check_memory(parent: Path, config: QueueConfig) -> None:
    if config.durability == "memory" and not is_in_memory(parent):
        raise OptionError(
            f"durability 'memory' needs a file system in memory, and {parent} is on a disk",
            "choose a path below /dev/shm, or durability 'process'",
        )


def is_in_memory(path: Path) -> bool:
    """Whether the file system that holds `path` is tmpfs or ramfs."""
    kinds: dict[str, str] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        kinds[mount.encode().decode("unicode_escape")] = kind
    here = path.resolve()
    for folder in (here, *here.parents):
        if str(folder) in kinds:
            return kinds[str(folder)] in ("tmpfs", "ramfs")
    return False


def _fill(part: Path, config: QueueConfig) -> None:
    make_folder(part / "segments")
    write_config(part, config)
    write_regular(part / "names", b"")
    write_regular(part / "cursors", bytes(CURSORS_BYTES))
    format_control(part, config)
    log = open_log(part)
    log.set_state(origin=log.add_name(2, config.origin))
    kernel.rebuild_dedup(log)
    disk = Disk()
    for file in part.iterdir():
        if file.is_file():
            disk.sync_file(file)
    disk.sync_directory(part)


def format_control(directory: Path, config: QueueConfig, state: int = kernel.STATE_READY) -> None:
    """Write the control file of an empty queue, into the existing file or a new one."""
    descriptor = open_regular(directory / "control", os.O_CREAT | os.O_RDWR)
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
            kernel.DURABILITIES[config.durability],
            config.signature_kind,
            os.urandom(16),
            1,
        )
    finally:
        os.close(descriptor)


# --- open and check ---------------------------------------------------------------------------------


def open_log(path: Path, *, read_only: bool = False) -> kernel.Log:
    """Map the queue. The Log owns the descriptors from here on."""
    queue_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    segments_fd = os.open(path / "segments", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return kernel.Log(queue_fd, segments_fd, True) if read_only else kernel.Log(queue_fd, segments_fd)


def open_checked(path: Path, *, read_only: bool = False) -> kernel.Log:
    """As `open_log`, after checking that no file is shorter than what is mapped."""
    for name in ("names", "cursors", "segments"):
        if not (path / name).exists():
            raise QueueDamagedError(f"{path / name} is missing", REPAIR.format(path=path))
    for name in ("names", "cursors"):
        os.close(open_regular(path / name))
    size = (path / "cursors").stat().st_size
    if size != CURSORS_BYTES:
        raise QueueDamagedError(
            f"{path / 'cursors'} has {size} bytes instead of {CURSORS_BYTES}",
            REPAIR.format(path=path),
        )
    return open_log(path, read_only=read_only)


def learn_names(path: Path, log: kernel.Log) -> None:
    """Load the names of feeds and origins; QueueDamagedError if their file is incomplete."""
    state = log.state
    count = state["feeds_end"] if state["feeds_end"] > kernel.ORIGINS_MAX else state["origins_end"]
    try:
        if (path / "names").stat().st_size < count * kernel.NAME_BYTES:
            raise kernel.KernelError(kernel.CODES["damaged"])
        log.learn_names()
    except kernel.KernelError:
        raise QueueDamagedError(f"{path / 'names'} is cut short or altered", REPAIR.format(path=path)) from None


def upgrade_control(path: Path, descriptor: int, *, alone: bool) -> None:
    """Bring a control file of an older version to this one; QueueVersionError unless `alone`.

    Version 1 had no clock. Until version 3 a signature was compared without its kind and origin, so the duplicate table
    was another one: without its number, it is filled again as the queue is opened.
    """
    start = os.pread(descriptor, 64, 0)
    magic, version, _ = kernel.read_control_start(start.ljust(64, b"\0"))
    size = os.fstat(descriptor).st_size
    if magic != b"HRCONTRL" or version not in (1, 2) or size not in (kernel.CONTROL_BYTES_1, kernel.CONTROL_BYTES):
        return
    if not alone:
        raise QueueVersionError(
            f"{path} is in use by programs of an older Headrace", "end them; then the queue is upgraded as it is opened"
        )
    if version == 1:
        os.posix_fallocate(descriptor, 0, kernel.CONTROL_BYTES)
        os.pwrite(descriptor, bytes(kernel.CONTROL_BYTES - kernel.CONTROL_BYTES_1), kernel.CONTROL_BYTES_1)
    for table in path.glob("signatures-*"):
        table.unlink()
    os.pwrite(descriptor, kernel.FORMAT_VERSION.to_bytes(4, "little"), len(magic))


def check_control(path: Path, config: QueueConfig, descriptor: int) -> None:
    """The control file must be complete, of a known format, and of this queue."""
    file = path / "control"
    start = os.pread(descriptor, 64, 0)
    magic, version, owner = kernel.read_control_start(start.ljust(64, b"\0"))
    if magic != b"HRCONTRL":
        raise QueueDamagedError(f"{file} is not a control file", REPAIR.format(path=path))
    if version == 0:
        raise QueueDamagedError(f"{file} has no format", REPAIR.format(path=path))
    if version > kernel.FORMAT_VERSION:
        raise QueueVersionError(
            f"{file} has format {version}; this Headrace knows up to {kernel.FORMAT_VERSION}", "upgrade Headrace"
        )
    size = os.fstat(descriptor).st_size
    if size != kernel.CONTROL_BYTES:
        raise QueueDamagedError(f"{file} has {size} bytes instead of {kernel.CONTROL_BYTES}", REPAIR.format(path=path))
    if owner != uuid.UUID(config.uuid).bytes:
        raise QueueDamagedError(f"{file} belongs to another queue", REPAIR.format(path=path))


def check_sanity(path: Path, log: kernel.Log) -> None:
    """QueueDamagedError if numbers in the control file are impossible. Call only while alone: they change together.

    After a restart of the machine, pages of the file may come from different moments. Then only the limits have to make
    sense.
    """
    state = log.state
    sane = (
        SEGMENT_MIN <= state["segment_bytes"] <= SEGMENT_MAX
        and state["segment_bytes"] % 4096 == 0
        and SIZE_MIN <= state["size_bytes"] <= SIZE_MAX
        and state["durability"] in kernel.DURABILITIES.values()
        and state["signature_kind"] in SIGNATURE_KINDS
        and state["tail"] < 1 << 62
        and state["synced"] < 1 << 62
    )
    if sane and is_continued(log):
        sane = _is_log_sane(log)
    if not sane:
        raise QueueDamagedError(f"{path / 'control'} holds impossible numbers", REPAIR.format(path=path))


def is_continued(log: kernel.Log) -> bool:
    """Whether the control file is from this run of the machine and no process died during recovery."""
    return log.state["boot"] == boot_id() and log.state["state"] == kernel.STATE_READY


def _is_log_sane(log: kernel.Log) -> bool:
    state = log.state
    oldest, newest = state["segment_oldest"], state["segment_newest"]
    return (
        state["oldest"] <= state["tail"]
        and state["head"] <= state["tail"]
        and oldest >= 1
        and -1 <= newest - oldest < kernel.SEGMENTS_MAX - 1
        and state["origin"] < state["origins_end"] <= kernel.ORIGINS_MAX <= state["feeds_end"] <= kernel.NAMES_MAX
        and all(_is_entry_sane(log.entry(number), number, state["tail"]) for number in range(oldest, newest + 1))
    )


def _is_entry_sane(entry: "kernel.Entry", number: int, tail: int) -> bool:
    rows = (entry["end"] or max(tail, entry["first"])) - entry["first"]
    return (
        entry["number"] == number and SEGMENT_MIN <= entry["size"] <= 2 * SIZE_MAX and 0 <= rows <= entry["size"] // 88
    )
