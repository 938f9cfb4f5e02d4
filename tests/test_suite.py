"""The suite itself: tests of a file run in one process, and all that share the SparkSession in one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import grouping

SPARK_FILES = sorted(Path(__file__).parent.glob("pipeline/*/test_*.py"))
A_FILE = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(8))
def test_x({parameter}number, tmp_path_factory):
    seen = tmp_path_factory.getbasetemp().parent / "{group}"
    with seen.open("a") as file:
        file.write(f"{{os.getpid()}}\\n")
"""


def test_groups_are_files_and_one_group_for_all_that_share_spark() -> None:
    groups = {
        path.name: grouping.group_of(f"tests/{path.relative_to(Path(__file__).parent)}::t") for path in SPARK_FILES
    }
    assert groups["test_source.py"] == groups["test_job_faults.py"] == groups["test_action_table.py"] == grouping.SPARK
    assert groups["test_rules_template.py"] == "tests/pipeline/rules/test_rules_template.py"
    assert grouping.rank("tests/pipeline/source/test_source.py::t") == 0
    later = ["relay/test_relay.py", "demo/test_demo.py", "toml/test_toml_document.py"]
    assert [grouping.rank(f"tests/{file}::t") for file in later] == [1, 2, 3]


@pytest.mark.processes
def test_pytest_xdist_keeps_the_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it does not, each process starts a Java of its own, and every fixture of a file is made several times."""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "from support import grouping\n"
        "from pathlib import Path\n"
        "grouping.ROOT = Path(__file__).parent\n"
        "pytest_xdist_make_scheduler = grouping.make_scheduler\n"
        "@pytest.fixture\n"
        "def spark(): return None\n"
    )
    for name, group in (("one", "spark"), ("two", "alone"), ("three", "spark")):
        (tmp_path / f"test_{name}.py").write_text(
            A_FILE.format(parameter="spark: object, " if group == "spark" else "", group=group)
        )
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder",
             "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "temp")]  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    for group, count in (("spark", 16), ("alone", 8)):
        processes = (tmp_path / "temp" / group).read_text().split()
        assert (len(processes), len(set(processes))) == (count, 1)
