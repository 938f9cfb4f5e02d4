"""Home: the folder in which Java finds Spark, arranged so that both start quickly.

    <environment>/share/headrace/spark-<version>/
        bin  ──► PySpark's scripts              conf/   nothing
        jars/*  ──► PySpark's jars, one by one
        base-<java>.jsa, spark-<java>.jsa       classes of Java and of Spark as that Java keeps them in memory

Java spends most of a start on reading, checking and linking ten thousand classes. It need not for those that it finds
in an archive of its own (class data sharing), which `rehearsal.py` has it write. Java takes an archive only if the path
of classes is the one that it was written with; so the jars have a place of their own, and there the one that Spark's
launcher would name twice, which Java 21 does not get over, has another name.

Spark has each Python process that it starts take PySpark from <home>/python/lib/pyspark.zip, which has no compiled
files: each would compile a second long. There is none here, so they take it from where pip has put it.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyspark

_QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # an archive that does not fit is no matter; standard output is ours
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for a Java that soon ends
_NAMED_TWICE = "slf4j-api-"


class Archives(NamedTuple):
    """Files; the second needs the first."""

    base: Path
    spark: Path

    @property
    def are_there(self) -> bool:
        return self.base.exists() and self.spark.exists()


def spark_home(root: Path | None = None) -> Path | None:
    """The home, made unless it is there. None: the user has one of his own, or this one cannot be written."""
    if "SPARK_HOME" in os.environ:
        return None
    home = _root(root) / f"spark-{pyspark.__version__}"
    if not _is_whole(home):
        with suppress(OSError):
            _make(home, Path(pyspark.__file__).parent)
    return home if _is_whole(home) else None


def archives_of(home: Path, java: Path) -> Archives:
    """Where those of this Java are, or would be."""
    key = hashlib.sha256(os.fsencode(java)).hexdigest()[:8]
    return Archives(home / f"base-{key}.jsa", home / f"spark-{key}.jsa")


def sharing(archives: Archives) -> str:
    """Java's options that use the archives, if they are there."""
    return f'"-XX:SharedArchiveFile={archives.base}:{archives.spark}" {_QUIET}' if archives.are_there else ""


def recording(archives: Archives, part: Path) -> str:
    """Java's options that write all classes in use to `part` when Java ends."""
    return f'"-XX:SharedArchiveFile={archives.base}" "-XX:ArchiveClassesAtExit={part}" {_BRIEF} {_QUIET}'


@contextmanager
def at_home(home: Path | None) -> Iterator[None]:
    """A Java that is started meanwhile has this home."""
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def remove_old(root: Path | None = None) -> None:
    """Homes of other versions whose jars are gone."""
    for home in _root(root).glob("spark-*"):
        if not _is_whole(home):
            shutil.rmtree(home, ignore_errors=True)


def _root(root: Path | None) -> Path:
    return root or Path(sys.prefix) / "share" / "headrace"


def _is_whole(home: Path) -> bool:
    return (home / "bin" / "spark-submit").exists() and any(jar.exists() for jar in (home / "jars").glob("spark-core*"))


def _make(home: Path, origin: Path) -> None:
    """Aside, and renamed when it is whole; of several processes one is the first, and the others take its home."""
    home.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".home-", dir=home.parent))
    try:
        aside.chmod(0o755)
        (aside / "conf").mkdir()
        (aside / "jars").mkdir()
        (aside / "bin").symlink_to(origin / "bin")
        for jar in (origin / "jars").glob("*.jar"):
            name = f"first-{jar.name}" if jar.name.startswith(_NAMED_TWICE) else jar.name
            (aside / "jars" / name).symlink_to(jar)
        if home.exists() and not _is_whole(home):
            home.rename(aside / "old")
        aside.rename(home)
        shutil.rmtree(home / "old", ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
