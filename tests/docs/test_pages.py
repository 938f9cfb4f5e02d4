"""The documentation is correct: the files and functions that it names exist, links resolve, examples run."""

import re
import shlex
from pathlib import Path

import click
import pytest

from headrace.cli.main import headrace
from support.printed import blocks_of

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("docs/**/*.md")])
SOURCE = ROOT / "src" / "headrace"
CODE = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxi")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for link in re.findall(r"\]\((?!\w+:)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_every_function_named_in_the_journey_exists() -> None:
    text = (ROOT / "docs" / "journey.md").read_text()
    named = re.findall(r"`([\w/.]+\.(?:py|pxi)): ([\w.]+)`", text)
    assert len(named) >= 20
    for file, name in named:
        where = [path for path in SOURCE.rglob(Path(file).name) if str(path).endswith(file)]
        assert where, file
        code = where[0].read_text()
        for part in name.split("."):
            assert re.search(rf"\b(def|class|cdef|cpdef)\b[^\n]*\b{part}\b", code), f"{file}: {name}"
    for name in re.findall(r"`([a-z_]+)`", text):
        if "_" in name:
            assert any(re.search(rf"\b{name}\b", path.read_text()) for path in CODE), name


COMMANDS = {
    page: [line.split(" #")[0] for _, _, text in blocks_of(page.read_text()) for line in text.splitlines()
           if line.startswith("headrace ") and "…" not in line]
    for page in PAGES
}  # fmt: skip


def test_the_page_of_the_command_line_has_every_group_of_commands() -> None:
    named = {line.split()[1] for line in COMMANDS[ROOT / "docs" / "commands.md"]}
    assert set(headrace.list_commands(click.Context(headrace))) - named == {"demo"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if COMMANDS[page]], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_use_only_options_that_exist(page: Path) -> None:
    for line in COMMANDS[page]:
        words = shlex.split(line)[1:]
        path, command = [], headrace
        while isinstance(command, click.Group):
            path.append(words[len(path)])
            found = command.get_command(click.Context(command), path[-1])
            assert found is not None, line
            command = found
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_no_page_or_source_file_contains_the_path_of_this_checkout() -> None:
    for path in [*PAGES, *CODE]:
        assert str(ROOT) not in path.read_text(), path
