"""Which Java is used: the first that fits."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext, java_gateway

from headrace.errors import PipelineError
from headrace.pipeline.spark import java
from headrace.pipeline.spark.java import ending_java, java_home, write_script

JAVA_11, JAVA_17 = (f"""echo 'openjdk version "{number}.0.1"' >&2""" for number in (11, 17))

SLEEPER = [sys.executable, "-c", "import time; time.sleep(1000)"]


def fake_java(home: Path, script: str) -> Path:
    write_script(home / "bin" / "java", f"#!/bin/sh\n{script}\n")
    return home


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no Java but that of PyPI, whose script is not writable."""
    (tmp_path / "prefix").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_java_home_is_used_even_if_the_environment_of_python_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "java", JAVA_17)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_a_script_for_java_that_cannot_be_written_is_an_error_with_a_remedy() -> None:
    with pytest.raises(PipelineError, match=r"prefix.* is not writable: Not a directory; .*set JAVA_HOME"):
        java_home()


@pytest.mark.parametrize("script", [JAVA_11, "exec sleep 3600", "exit 1"])
def test_a_java_that_is_old_or_does_not_reply_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(java, "_TIMEOUT_S", 5)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "bad", script)))
    home = fake_java(tmp_path / "good", JAVA_17)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    assert java_home() == home


def test_java_is_called_without_the_flag_that_it_warns_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "writable"))
    real = fake_java(tmp_path / "java", f'{JAVA_17}\necho "$@"')
    monkeypatch.setenv("JAVA_HOME", str(real))
    home = java_home()
    assert home != real
    words = [str(home / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "-Xmx1g a b\n"
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_a_start_that_is_interrupted_ends_the_java_that_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    processes = []
    with pytest.raises(KeyboardInterrupt), ending_java():
        processes.append(vars(java_gateway)["Popen"](SLEEPER))
        raise KeyboardInterrupt
    assert processes[0].poll() is not None
    assert vars(java_gateway)["Popen"] is subprocess.Popen


def test_java_stays_if_spark_fails_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object())
    with pytest.raises(ValueError, match="setting"), ending_java():
        process = vars(java_gateway)["Popen"](SLEEPER)
        raise ValueError("a setting is invalid")
    assert process.poll() is None, "another start uses it"
    process.kill()
    process.wait()
