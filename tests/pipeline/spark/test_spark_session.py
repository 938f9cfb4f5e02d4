"""Settings of a Spark session, without starting one."""

import importlib.util
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipeline.spark.java import write_script
from headrace.pipeline.spark.python import DAEMON, using_daemon
from headrace.pipeline.spark.session import default_settings, with_retries


@pytest.mark.parametrize(
    ("master", "used"),
    [
        ("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[2]", "local[2,4]"), ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"), ("spark://host:7077", "spark://host:7077"),
    ],
)  # fmt: skip
def test_tasks_are_retried_on_one_machine_as_on_a_cluster(master: str, used: str) -> None:
    assert with_retries(master) == used


def test_the_daemon_of_python_workers_can_be_imported_by_its_name() -> None:
    daemon = default_settings("local[2]")["spark.python.daemon.module"]
    assert importlib.util.find_spec(daemon) is not None
    assert "spark.python.daemon.module" not in default_settings("spark://host:7077")


def test_a_script_is_executable_and_replaced_only_if_its_text_changes(tmp_path: Path) -> None:
    path = tmp_path / "bin" / "java"
    write_script(path, "#!/bin/sh\nexit 1\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    first = path.stat().st_ino
    write_script(path, "#!/bin/sh\nexit 1\n")
    assert path.stat().st_ino == first
    write_script(path, "#!/bin/sh\nexit 2\n")
    assert path.read_text() == "#!/bin/sh\nexit 2\n"


def test_spark_starts_our_daemon_instead_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/echo")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/a/python/of/the/user")
    with using_daemon(for_tasks=True):
        script, of_user = os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]
        said = [
            subprocess.run([script, *words], capture_output=True, text=True, check=True).stdout.split()
            for words in (["-m", "pyspark.daemon", "pyspark.worker"], ["-m", "pyspark.other", "x"], ["-c", "a b"])
        ]
    assert said == [["-m", DAEMON, "pyspark.worker"], ["-m", "pyspark.other", "x"], ["-c", "a", "b"]]
    assert of_user == "/a/python/of/the/user"
    assert os.environ["PYSPARK_PYTHON"] == "/bin/echo"
    with using_daemon(for_tasks=False):
        assert os.environ["PYSPARK_PYTHON"] == "/bin/echo", "other machines have no script"


def test_a_session_starts_without_our_daemon_where_no_script_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "share").write_text("a file where a folder must be")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with using_daemon(for_tasks=True):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
