"""Creation: how a queue comes into being.

It is filled under another name and renamed into place, so that it is there as a whole or not at all, and of two
creations at once one wins and the other is told.
"""

import errno
import os
import secrets
import shutil
from pathlib import Path

from headrace.errors import HeadraceError, OptionError, QueueExistsError
from headrace.kernel import _kernel as kernel
from headrace.log.config import QueueConfig, write_config
from headrace.log.cursor import CURSORS_BYTES
from headrace.log.directory import format_control, open_log
from headrace.log.explain import explain, explain_os_error
from headrace.log.storage import Disk


def create_directory(path: Path, config: QueueConfig) -> None:
    """Make an empty queue at `path`; QueueExistsError if there is anything already."""
    if path.is_symlink() or path.is_file():
        raise QueueExistsError(f"{path} is a file", "choose a path that does not exist yet")
    if path.is_dir() and any(path.iterdir()):
        known = "is a queue already" if (path / "queue.json").exists() else "exists and is not empty"
        raise QueueExistsError(f"{path} {known}", "open it, delete it, or choose another path")
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_memory(path.parent, config)
        part.mkdir()
        _fill(part, config)
        os.rename(part, path)
        Disk().sync_directory(path.parent)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise QueueExistsError(f"{path} was created by somebody else just now", "open it") from None
        error.filename = str(path)
        raise explain_os_error(error, path) from error
    except kernel.KernelError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise explain(error, path) from None
    except HeadraceError:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _check_memory(parent: Path, config: QueueConfig) -> None:
    if config.durability == "memory" and not _is_memory(parent):
        raise OptionError(
            f"durability 'memory' needs a file system in memory, and {parent} is none",
            "choose a path below /dev/shm, or durability 'process'",
        )


def _is_memory(path: Path) -> bool:
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
    (part / "segments").mkdir()
    write_config(part, config)
    (part / "names").touch()
    (part / "cursors").write_bytes(bytes(CURSORS_BYTES))
    format_control(part, config)
    log = open_log(part)
    log.set_state(origin=log.add_name(2, config.origin))
    kernel.rebuild_dedup(log)
    disk = Disk()
    for file in part.iterdir():
        if file.is_file():
            disk.sync_file(file)
    disk.sync_directory(part)
