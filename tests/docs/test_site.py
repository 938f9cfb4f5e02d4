"""The documentation as a site: what can be said without building it. `make docs` builds it, strictly."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CONFIG = (ROOT / "mkdocs.yml").read_text()
ADDED = {"index.md", "examples.md"} | {page.name for page in ROOT.glob("*.md")} - {"README.md"}  # by docs/hooks.py


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r"([\w/.-]+\.md)$", CONFIG[CONFIG.index("\nnav:") :], re.M)
    assert len(named) == len(set(named))
    below_decisions = {f"decisions/{file.name}" for file in (ROOT / "docs" / "decisions").glob("0*.md")}
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert set(named) == (pages - below_decisions) | ADDED


def test_every_name_of_the_api_reference_exists() -> None:
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.M):
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), name


def test_nothing_is_loaded_from_the_network() -> None:
    assert "font: false" in CONFIG
    assert re.findall(r"https?://", CONFIG) == []
