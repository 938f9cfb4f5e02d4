"""The programs of examples/ run as they say at their top, in a copy of the folder. Those with Spark: test_examples_with_spark.py."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from support.printed import free_ports
from support.shell import Shell

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NOTEBOOK = "look_into_a_queue.ipynb"
FILES = {file.name for file in EXAMPLES.iterdir() if file.is_file()} - {"README.md"}
HERE = {
    "weather_files.py", "detector_workers.py", "telescope_monitor.py", "carma.py", "follow_feed.py", "store_once.py",
    "site_upstream.toml", "site_downstream.toml", NOTEBOOK,
}  # fmt: skip
WITH_SPARK = {"weather_rules.toml", "spark_stream.py", "spark_batch.py"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples, to work in."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    return tmp_path


def ran(folder: Path, *words: str) -> str:
    """The output of an example, started as a user starts it."""
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_run_and_listed() -> None:
    assert FILES == HERE | WITH_SPARK
    listed = re.findall(r"\]\((\w+\.(?:py|toml|ipynb))\)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == sorted(FILES)


def test_every_example_says_what_it_shows_for_whom_and_how_to_run_it() -> None:
    for name in FILES - {NOTEBOOK}:
        text = (EXAMPLES / name).read_text()
        opening = ast.get_docstring(ast.parse(text)) if name.endswith(".py") else text.partition("\n[")[0]
        assert opening is not None, name
        assert re.search(r"^(# )?For ", opening, re.M), name
        assert re.search(rf"^#? +(python|headrace) .*{name}", opening, re.M), name
        assert len(text.splitlines()) <= 80, name


def test_rows_and_lines_are_stored_once(folder: Path, shell: Shell) -> None:
    shell.run("python -m headrace.samples --queue wx.queue", folder)
    for more in ("", " --file idents.txt"):
        for _ in range(2):
            output = shell.run(f"python store_once.py wx.queue --until-idle 0{more}", folder)
            assert output == "4 products stored so far\n"
    shell.run("echo more | headrace put wx.queue - --feed wx/text --ident more", folder)
    assert "5 products stored so far" in shell.run("python store_once.py wx.queue --until-idle 0", folder)


def test_weather_files_are_filed_by_every_rule_and_only_once(folder: Path) -> None:
    assert ran(folder, "weather_files.py").splitlines()[-1] == "4 products filed so far"
    filed = sorted(path for path in (folder / "files").rglob("*") if path.is_file())
    assert len(filed) == 3 + 4
    assert (folder / "files/us/SAUS70_KWBC_061200.txt").read_text().startswith("SAUS70 KWBC 061200")
    assert ran(folder, "weather_files.py") == "4 products filed so far\n"


@pytest.mark.processes
def test_detector_workers_leave_no_event_undone(folder: Path) -> None:
    lines = ran(folder, "detector_workers.py").splitlines()
    assert lines[0] == "2000 events acknowledged; 50 of them had been held by the victim"
    assert sum(int(line.split()[-2]) for line in lines[1:-1]) == 2000
    assert lines[-1] == "missing: 0"


def test_the_monitor_drops_readings_and_no_alarm(folder: Path) -> None:
    lines = ran(folder, "telescope_monitor.py").splitlines()
    assert lines[0] == "display: 30 of 600 readings"
    assert lines[1].endswith("tick 199")
    assert re.fullmatch(r"log: [1-9]\d* alarms, the most urgent first: north: cryostat at 1[67]\.\d\d K", lines[2])
    assert lines[3] == "dropped so far: 570 readings, 0 alarms"


@pytest.mark.processes
def test_the_readings_of_the_antennas_reach_both_consumers_or_expire(folder: Path) -> None:
    lines = ran(folder, "carma.py").splitlines()
    assert lines[0] == "so far, over all runs: 24 pushed"
    for name, line in zip(("display", "archive"), lines[1:], strict=True):
        counts = re.fullmatch(rf"{name}: (\d+) received, (\d+) expired, 0 waiting", line)
        assert counts is not None, line
        assert int(counts[1]) + int(counts[2]) == 24


@pytest.mark.processes
def test_two_sites_relay_and_a_program_follows_each_of_them(folder: Path, shell: Shell) -> None:
    (port,) = free_ports(1)
    for name in ("site_upstream.toml", "site_downstream.toml"):
        (folder / name).write_text((folder / name).read_text().replace("7447", str(port)))
    output = shell.run(
        f"""
        python -m headrace.samples --queue wx.queue
        headrace config check site_upstream.toml
        headrace config check site_downstream.toml
        headrace serve site_upstream.toml & upstream=$!
        headrace serve site_downstream.toml & downstream=$!
        until headrace sites tcp/127.0.0.1:{port}; do sleep 1; done
        until headrace sites site:downstream; do sleep 1; done
        headrace watch site:downstream --from oldest --count 4
        python follow_feed.py site:denver --until-idle 1
        python follow_feed.py site:denver --until-idle 1
        python follow_feed.py mirror.queue 'wx/text/**' --until-idle 1
        kill $upstream $downstream; wait
        """,
        folder,
        HEADRACE_SITES="local",
    )
    assert output.count("site_upstream.toml is valid") == output.count("site_downstream.toml is valid") == 1
    assert re.findall(r"^(\d) new products$", output, re.M) == ["4", "0", "4"]
    assert output.count(" wx/text/metar SAUS70_KWBC_061200.txt 186 bytes") == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_runs_and_is_kept_without_outputs(folder: Path) -> None:
    kept = nbformat.read(EXAMPLES / NOTEBOOK, as_version=4)
    nbformat.validate(kept)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in kept.cells)
    done = NotebookClient(kept, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in done.cells for output in cell.get("outputs", [])]
    shown = [output.get("data", {}) for output in outputs]
    assert next(output.text for output in outputs if output.output_type == "stream") == "1475 products\n"
    assert sum("image/png" in data for data in shown) == 1
    assert any("wx/radar" in data.get("text/html", "") for data in shown)
