"""The pictures of the documentation are those that docs/drawings draws, and every page that explains something has one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
IMAGES = DOCS / "images"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that the script writes, by name."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(DOCS / "drawings", folder / "drawings")
    (folder / "images").mkdir()
    subprocess.run([sys.executable, str(folder / "drawings")], check=True)
    return {file.name: file.read_text() for file in (folder / "images").iterdir()}


def test_the_script_reproduces_every_picture_exactly(drawn: dict[str, str]) -> None:
    kept = {file.name: file.read_text() for file in IMAGES.glob("*.svg") if file.name != "demo.svg"}
    assert kept.keys() == drawn.keys()
    assert [name for name in kept if kept[name] != drawn[name]] == [], "run make drawings"


def test_every_picture_is_complete_and_has_light_and_dark_colours(drawn: dict[str, str]) -> None:
    for name, text in drawn.items():
        root = ElementTree.fromstring(text)
        assert root.findtext("{http://www.w3.org/2000/svg}title"), name
        assert "prefers-color-scheme: dark" in text, name
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|href|<script|@import", text) == [], name


def test_every_page_has_a_picture_and_every_picture_a_page(drawn: dict[str, str]) -> None:
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("tasks/*.md")]
    pages.remove(DOCS / "licences.md")  # a list
    shown = {page: re.findall(r"!\[[^\]]+\]\([^)]*images/([\w-]+\.svg)\)", page.read_text()) for page in pages}
    assert [page.name for page, images in shown.items() if not images] == []
    assert drawn.keys() == {image for images in shown.values() for image in images}
