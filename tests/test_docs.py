"""The documentation is correct: the files and functions that it names exist, links resolve, examples run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from headrace.cli.main import headrace
from support.daemon import Daemon

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCE = ROOT / "src" / "headrace"
CODE = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxi")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
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


def test_the_programs_of_the_readme_run(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(programs) == 5
    for _ in range(2):  # the second time, everything is there
        first = subprocess.run(
            [sys.executable, "-c", programs[0]], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert first.returncode == 0, first.stderr
        assert first.stdout.splitlines()[0].startswith("1 wx/text/metar SAUS70 KWBC 060000")
        assert len(first.stdout.splitlines()) == 3
    second = programs[1].replace('follow("wx/radar/**")', 'follow("wx/radar/**", timeout=0)')
    done = subprocess.run([sys.executable, "-c", second], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    third = programs[2].replace(
        "for product in consumer:", "for product in map(lambda batch: batch[0], consumer.batches(1, 0)):"
    )
    assert third != programs[2]
    done = subprocess.run([sys.executable, "-c", third], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3), done.stderr
    with served(tmp_path) as endpoint:
        fourth = programs[3].replace("tcp/site.example.org:7447", endpoint).replace(
            'queue.station("decode", "wx/**").attach()',
            'itertools.islice(queue.station("other", "wx/**", start="oldest").attach(), 3)',
        )  # fmt: skip
        assert "islice" in fourth
        words = [sys.executable, "-c", "import itertools\n" + fourth]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 3), done.stderr
    done = subprocess.run(
        [sys.executable, "-c", programs[4]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"wx/radar/KFTG\|\s+2\|", done.stdout), done.stdout


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The endpoint of a site with the queue of the README."""
    (folder / "site.toml").write_text('[site]\nqueue = "wx.queue"\nlisten = ["tcp/127.0.0.1:0"]\n')
    with Daemon(folder / "site.toml") as site:
        yield site.wait_until_ready()


def test_commands_in_the_readme_use_only_options_that_exist() -> None:
    block = next(part for part in (ROOT / "README.md").read_text().split("```") if "headrace queue create" in part)
    lines = [line.split("#")[0] for line in block.splitlines() if line.startswith("headrace ")]
    assert len(lines) >= 15
    for line in lines:
        words = shlex.split(line)[1:]
        path, command = [], headrace
        while isinstance(command, click.Group):
            path.append(words[len(path)])
            found = command.get_command(click.Context(command), path[-1])
            assert found is not None, line
            command = found
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_no_page_or_source_file_contains_the_path_of_this_checkout() -> None:
    for path in [*PAGES, *CODE]:
        assert str(ROOT) not in path.read_text(), path
