"""Spark logs in to sites: right credentials give rows, wrong ones an error that names them, and no secret is shown."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.errors import OptionError
from headrace.link.certificates import make_authority
from headrace.pipeline.source.options import read_options, write_options
from pipeline.jobs import (
    HEADRACE,
    PASSWORD,
    PATIENCE_S,
    TABLE,
    files_with,
    numbers,
    put,
    site,
    write_guarded_site,
    write_rules,
)

LOGIN = """
[pipeline.tls]
authority = "certs/authority.crt"
[pipeline.user]
name = "ann"
password_file = "ann.password"
"""
EVERYTHING = """
[spark]
eventLog.enabled = true
eventLog.dir = "file://{folder}/events"
eventLog.compress = false
ui.enabled = true
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Options that log in to a running site."""
    Queue.create(tmp_path / "wx.queue", size="4MiB").close()
    put(tmp_path, 0, 20)
    endpoint = write_guarded_site(tmp_path)
    with site(tmp_path):
        yield {
            "site": endpoint, "authority": str(tmp_path / "certs" / "authority.crt"), "user": "ann",
            "passwordFile": str(tmp_path / "ann.password"),
        }  # fmt: skip


def test_right_credentials_give_rows_in_batches_and_streams(
    guarded: dict[str, str], tmp_path: Path, spark: Any
) -> None:
    products = spark.read.format("headrace").options(**guarded).load()
    assert products.count() == 20
    plan = products._jdf.queryExecution().toString()
    stream = spark.readStream.format("headrace").options(**guarded).option("startingOffsets", "earliest").load()
    query = (
        stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 20
    assert PASSWORD not in plan + str(query.lastProgress)
    assert files_with(tmp_path, PASSWORD, "users", "ann.password") == []


def test_wrong_credentials_are_named_and_not_shown(guarded: dict[str, str], tmp_path: Path, spark: Any) -> None:
    (tmp_path / "wrong.password").write_text("another-secret\n")
    make_authority(tmp_path / "others")
    wrong = {
        "refused user ann": {"passwordFile": str(tmp_path / "wrong.password")},
        "certificate": {"authority": str(tmp_path / "others" / "authority.crt")},
        "nowhere is not readable": {"passwordFile": str(tmp_path / "nowhere")},
    }
    for told, options in wrong.items():
        with pytest.raises(Exception, match=told) as raised:
            spark.read.format("headrace").options(**guarded | options).load().count()
        assert "another-secret" not in str(raised.value)
        assert PASSWORD not in str(raised.value)


def test_a_password_as_an_option_is_refused_and_not_shown(spark: Any) -> None:
    reader = spark.read.format("headrace").option("site", "tcp/127.0.0.1:1").option("password", PASSWORD)
    with pytest.raises(Exception, match="give that file as option passwordFile") as raised:
        reader.load()
    assert PASSWORD not in str(raised.value)


def test_a_pipeline_leaves_no_secret_behind(guarded: dict[str, str], tmp_path: Path) -> None:
    """In its output, tables, checkpoints and event logs."""
    (tmp_path / "events").mkdir()
    rules = LOGIN + TABLE.format(name="a") + EVERYTHING.format(folder=tmp_path)
    path = write_rules(tmp_path, rules, f'site = "{guarded["site"]}"')
    with (tmp_path / "run.log").open("wb") as log:
        command = [HEADRACE, "pipeline", "run", str(path), "--master", "local[2]"]
        assert subprocess.run(command, stdout=log, stderr=log, timeout=PATIENCE_S, check=False).returncode == 0
    assert numbers(tmp_path, "a") == list(range(20))
    assert any(each.stat().st_size for each in (tmp_path / "events").rglob("*") if each.is_file())
    assert files_with(tmp_path, PASSWORD, "users", "ann.password") == []


def test_the_environment_logs_in_if_no_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_AUTHORITY", "/etc/authority.crt")
    assert read_options({"site": "tls/host:7447"}).address.login.authority == "/etc/authority.crt"
    assert read_options({"queue": "q"}).address.login.authority is None
    given = write_options({"site": "tcp/host:7447", "user": "ann", "passwordFile": "secrets/ann"}).address
    assert given.login.given() == {"user": "ann", "password_file": os.path.abspath("secrets/ann")}
    assert given.options()["passwordFile"] == os.path.abspath("secrets/ann")


def test_a_login_without_a_site_is_refused() -> None:
    with pytest.raises(OptionError, match="option user has no effect without a site"):
        read_options({"queue": "q", "user": "ann", "passwordFile": "p"})
