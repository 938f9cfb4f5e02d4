"""Makes a site of pages that are written for GitHub: mkdocs calls these functions.

Links between pages work in both places because they are relative, with two exceptions. README.md and its neighbours
are not below docs/, so they are added here, README.md as the first page. And a link from a page below docs/ to a file
of the repository (../contrib/site.toml) leads out of the site, so the file is copied into it and the link is changed.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
BOOSTS = {"tasks": 2, "decisions": 0.3}  # which pages search shows first
COPIED = "repository"
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for path in sorted((ROOT / "contrib").iterdir()):
        files.append(File.generated(config, f"{COPIED}/contrib/{path.name}", abs_src_path=str(path)))
    files.append(File.generated(config, f"{COPIED}/LICENSE", abs_src_path=str(ROOT / "LICENSE")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The page with links as the site has them, and its weight in search."""
    page.meta.setdefault("search", {"boost": BOOSTS.get(posixpath.dirname(page.file.src_uri), 1)})
    written_in = {new: old for old, new in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    here = posixpath.dirname(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        if re.match(r"\w+:", link[2]):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(written_in), link[2]))
        return f"{link[1]}{posixpath.relpath(place_of(target), here or '.')}{link[3]}"

    return LINK.sub(moved, markdown)


def place_of(path: str) -> str:
    """Where the site has a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{COPIED}/{path}"
