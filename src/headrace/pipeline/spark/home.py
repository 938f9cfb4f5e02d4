"""Home: the folder in which Java finds Spark, laid out so that both start quickly.

    <environment>/share/headrace/spark-<version>/
        bin  ──► PySpark's scripts              conf/   empty
        jars/*  ──► PySpark's jars, one by one
        base-<java>.jsa, spark-<java>.jsa       class archives: classes of Java and of Spark, as that Java maps them

Java spends most of a start on reading, verifying and linking ten thousand classes. It skips this for classes in an
archive of its own (class data sharing). `headrace pipeline prepare` writes the archives: the base archive is written
here, the one with Spark's classes by a run of Spark (run/warm_up.py). Java accepts an archive only if the class path is
the one that it was written with; so the jars have a folder of their own. Spark's launcher names one jar twice, which
Java 21 does not accept; it has another name here.

Spark makes each Python process that it starts import PySpark from <home>/python/lib/pyspark.zip, which has no compiled
files: each process would compile for a second. There is no such file here, so they import the installed PySpark.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyspark

from headrace.errors import PipelineError

JAVA_TIMEOUT_S = 300
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # no output about an archive that does not fit
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for a Java that soon ends
_NAMED_TWICE = "slf4j-api-"


# --- the folder -----------------------------------------------------------------------------------


def spark_home(root: Path | None = None) -> Path | None:
    """Return the home; create it if it is missing. None: SPARK_HOME is set, or the home is not writable."""
    if "SPARK_HOME" in os.environ:
        return None
    home = _root(root) / f"spark-{pyspark.__version__}"
    if not _is_complete(home):
        with suppress(OSError):
            _create(home, Path(pyspark.__file__).parent)
    return home if _is_complete(home) else None


@contextmanager
def using_home(home: Path | None) -> Iterator[None]:
    """A Java that is started inside this context has this home."""
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def remove_stale_homes(root: Path | None = None) -> None:
    """Remove homes of other versions whose jars no longer exist."""
    for home in _root(root).glob("spark-*"):
        if not _is_complete(home):
            shutil.rmtree(home, ignore_errors=True)


def _root(root: Path | None) -> Path:
    return root or Path(sys.prefix) / "share" / "headrace"


def _is_complete(home: Path) -> bool:
    return (home / "bin" / "spark-submit").exists() and any(jar.exists() for jar in (home / "jars").glob("spark-core*"))


def _create(home: Path, origin: Path) -> None:
    """Build it aside and rename it once it is complete. Of several processes one wins; the others use its home."""
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
        if home.exists() and not _is_complete(home):
            home.rename(aside / "old")
        aside.rename(home)
        shutil.rmtree(home / "old", ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


# --- class archives -------------------------------------------------------------------------------


class ClassArchives(NamedTuple):
    """Two files; the second needs the first."""

    base: Path
    spark: Path

    @property
    def exist(self) -> bool:
        return self.base.exists() and self.spark.exists()

    def options_to_use(self) -> str:
        """Java's options that use the archives; empty if they do not exist."""
        return f'"-XX:SharedArchiveFile={self.base}:{self.spark}" {_QUIET}' if self.exist else ""

    def options_to_record(self, part: Path) -> str:
        """Java's options that write all classes in use to `part` when Java ends."""
        return f'"-XX:SharedArchiveFile={self.base}" "-XX:ArchiveClassesAtExit={part}" {_BRIEF} {_QUIET}'


def class_archives(home: Path, java: Path) -> ClassArchives:
    """The paths of the archives for this Java, whether they exist or not."""
    key = hashlib.sha256(os.fsencode(java.resolve())).hexdigest()[:8]
    return ClassArchives(home / f"base-{key}.jsa", home / f"spark-{key}.jsa")


def write_base_archive(java: Path, archives: ClassArchives) -> None:
    """Write the archive of Java's own classes, which not every Java comes with. PipelineError, OSError, or
    subprocess.TimeoutExpired."""
    part = archives.base.with_suffix(f".{os.getpid()}.part")
    try:
        subprocess.run(
            [java / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={part}"],
            capture_output=True, check=False, timeout=JAVA_TIMEOUT_S,
        )  # fmt: skip
        publish_archive(part, archives.base)
    finally:
        part.unlink(missing_ok=True)


def publish_archive(part: Path, archive: Path) -> None:
    """Flush `part` and rename it to `archive`, so that another process finds it complete or not at all."""
    if not part.exists():
        raise PipelineError(
            "this Java does not write class archives", "nothing depends on them but the time that a start takes"
        )
    descriptor = os.open(part, os.O_RDONLY | os.O_CLOEXEC)  # Java writes it without write permission
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.replace(archive)
