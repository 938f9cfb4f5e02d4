"""The list of licences has every library that users get, and `make sbom` writes a valid document about them."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOR_DEVELOPERS = {"test", "docs", "lint", "sbom", "all"}


def libraries() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].items()
    needs = [
        *project["dependencies"],
        *(each for extra, some in extras if extra not in FOR_DEVELOPERS for each in some),
    ]
    names = (re.match(r"[\w.-]+", each) for each in needs)
    return {name[0] for name in names if name}


def test_the_page_of_licences_has_every_library_and_no_other() -> None:
    rows = re.findall(r"^\| ([\w.-]+) \| ([^|]+) \|", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE)
    licences = {name: licence.strip() for name, licence in rows if name != "library"}
    assert set(licences) == libraries()
    assert all(licences.values())


@pytest.mark.processes
def test_make_sbom_writes_a_valid_document_of_what_users_get(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py", reason="of the extra sbom, which make test installs")
    target = tmp_path / "sbom.cdx.json"
    subprocess.run([sys.executable, str(ROOT / ".ci" / "sbom.py"), str(target)], check=True, timeout=240)
    document = json.loads(target.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["name"] == "headrace"
    names = {re.sub(r"[-_.]+", "-", each["name"]).lower() for each in document["components"]}
    assert {name.lower() for name in libraries()} <= names
    assert not names & {"pytest", "ruff", "mypy", "hypothesis", "cyclonedx-bom"}
    assert all(each["version"] for each in document["components"])
