"""Makes a site of pages that are written for GitHub: mkdocs calls these functions.

Links between pages work in both places because they are relative, with two exceptions. README.md, its neighbours and
examples/README.md are not below docs/, so they are added here, README.md as the first page. And a link from a page
below docs/ to a file of the repository (../contrib/site.toml) leads out of the site, so the file is copied into it and
the link is changed.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {path.name: path.name for path in sorted(ROOT.glob("*.md"))} | {
    "README.md": "index.md",
    "examples/README.md": "examples.md",
}
BOOSTS = {"tasks": 2, "decisions": 0.3}  # which pages search shows first
COPIED = "repository"
LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)((?:#[^)]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for path in sorted(linked_files()):
        files.append(File.generated(config, place_of(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The page with links as the site has them, and its weight in search."""
    here = posixpath.dirname(page.file.src_uri)
    page.meta.setdefault("search", {"boost": BOOSTS.get(here, 1)})
    written_in = {new: old for old, new in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def moved(link: re.Match[str]) -> str:
        return f"{link[1]}{posixpath.relpath(place_of(target_of(written_in, link[2])), here or '.')}{link[3]}"

    return LINK.sub(moved, markdown)


def linked_files() -> set[str]:
    """The files of the repository to which pages link, other than pages and pictures."""
    pages = [*PAGES, *(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]
    targets = {target_of(page, link[2]) for page in pages for link in LINK.finditer((ROOT / page).read_text())}
    return {path for path in targets - PAGES.keys() if not path.startswith("docs/") and (ROOT / path).is_file()}


def target_of(page: str, link: str) -> str:
    """The path in the repository to which a link on a page leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def place_of(path: str) -> str:
    """Where the site has a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{COPIED}/{path}"
