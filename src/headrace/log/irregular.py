"""Irregular: what stands in a queue's directory in the place of a file or folder of the queue, and is none.

A FIFO, a device, a socket or a link under the name of a file of the queue, a directory where a file belongs, a file
where a folder belongs: nothing opens them (headrace.files), and a repair moves them to `damaged/`. Other names are not
looked at: they are not the queue's.
"""

import os
import re
import stat
from pathlib import Path

from headrace.files import make_folder

_FOLDERS = re.compile(r"segments|stations|channels|shares|dictionaries|site")
_FILES = re.compile(
    r"control|names|cursors|lock|wake|signatures-.*|.*\.(json|part|segment|moving|chain|line|suppliers|slices|share|dictionary)"
)


def put_irregular_aside(path: Path) -> list[str]:
    """Move them to `damaged/`; what was done, in words. OSError if that is impossible."""
    done = []
    for found in irregular_in(path):
        home = path / "damaged"
        make_folder(home)
        found.rename(home / f"{found.name}.{os.urandom(4).hex()}")
        done.append(f"moved {found.relative_to(path)} to {home}: it is not a regular file")
    return done


def irregular_in(path: Path) -> list[Path]:
    """All of them in the queue at `path`."""
    found = []
    for folder in [path, *(each for each in path.iterdir() if _FOLDERS.fullmatch(each.name))]:
        if folder != path and not stat.S_ISDIR(folder.lstat().st_mode):
            found.append(folder)
            continue
        found += [each for each in folder.iterdir() if _FILES.fullmatch(each.name) and not _is_regular(each)]
    return sorted(found)


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:  # removed by another process
        return True
