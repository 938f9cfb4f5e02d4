"""The home of Spark: created once, complete or not at all; class archives that Java accepts."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest

from headrace.errors import PipelineError
from headrace.pipeline.spark.home import (
    ClassArchives,
    class_archives,
    publish_archive,
    remove_stale_homes,
    spark_home,
    using_home,
)
from headrace.pipeline.spark.java import java_home

JARS = Path(pyspark.__file__).parent / "jars"


@pytest.fixture(autouse=True)
def no_spark_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_a_home_has_all_jars_and_no_copy_of_pyspark(tmp_path: Path) -> None:
    home = spark_home(tmp_path)
    assert home is not None
    assert {jar.resolve() for jar in (home / "jars").iterdir()} == set(JARS.resolve().glob("*.jar"))
    assert not [jar for jar in (home / "jars").iterdir() if jar.name.startswith("slf4j-api-")]
    assert (home / "bin" / "spark-submit").exists()
    assert not (home / "python").exists()
    assert [path.name for path in tmp_path.iterdir()] == [home.name]


def test_a_home_stays_unchanged_until_its_jars_are_missing(tmp_path: Path) -> None:
    home = spark_home(tmp_path)
    assert home is not None
    (home / "mark").touch()
    assert spark_home(tmp_path) == home
    assert (home / "mark").exists()
    core = next((home / "jars").glob("spark-core*"))
    core.unlink()
    core.symlink_to(tmp_path / "gone")
    assert spark_home(tmp_path) == home
    assert not (home / "mark").exists()
    assert next((home / "jars").glob("spark-core*")).exists()


def test_several_threads_may_create_a_home_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        homes = {future.result() for future in [pool.submit(spark_home, tmp_path) for _ in range(16)]}
    assert [path.name for path in tmp_path.iterdir()] == [home.name for home in homes if home is not None]


def test_homes_without_jars_are_removed(tmp_path: Path) -> None:
    home = spark_home(tmp_path)
    (tmp_path / "spark-0.1" / "jars").mkdir(parents=True)
    remove_stale_homes(tmp_path)
    assert list(tmp_path.iterdir()) == [home]


def test_spark_home_of_the_environment_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert spark_home(tmp_path) is None
    with using_home(None):
        assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_an_unwritable_folder_gives_no_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert spark_home(tmp_path / "file") is None


def test_java_gets_options_only_for_archives_that_exist(tmp_path: Path) -> None:
    archives = ClassArchives(tmp_path / "base.jsa", tmp_path / "spark.jsa")
    assert archives.options_to_use() == ""
    archives.base.touch()
    assert archives.options_to_use() == ""
    archives.spark.touch()
    assert f'"-XX:SharedArchiveFile={archives.base}:{archives.spark}"' in archives.options_to_use()


def test_an_archive_is_published_although_java_wrote_it_read_only(tmp_path: Path) -> None:
    part = tmp_path / "spark.part"
    part.write_bytes(b"classes")
    part.chmod(0o444)
    publish_archive(part, tmp_path / "spark.jsa")
    assert (tmp_path / "spark.jsa").read_bytes() == b"classes"
    with pytest.raises(PipelineError, match="does not write class archives"):
        publish_archive(part, tmp_path / "spark.jsa")


@pytest.mark.spark
def test_java_accepts_the_prepared_archives() -> None:
    home, java = spark_home(), java_home()
    assert home is not None
    archives = class_archives(home, java)
    if not archives.exist:
        pytest.skip("headrace pipeline prepare was not run here")
    options = [option.strip('"') for option in archives.options_to_use().split(" ")]
    classes = f"{home}/conf/:{home}/jars/*"
    command = [java / "bin" / "java", *options, "-Xshare:on", "-cp", classes, "org.apache.spark.deploy.SparkSubmit"]
    taken = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    assert taken.returncode == 0, taken.stderr
    assert pyspark.__version__ in taken.stderr
    other = [*command[:-2], f"{JARS}/*", command[-1], "--version"]
    refused = subprocess.run(other, capture_output=True, check=False)
    assert refused.returncode != 0, "-Xshare:on: Java does not start without its archive"
