"""Each line of the threat model has a test, and each test that the page names exists and is collected."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
MODEL = PAGE.split("\n## Threat model\n")[1].split("\n## ")[0]


def threats() -> list[list[str]]:
    """The lines of the threat model: who, what, measure, test."""
    lines = [line.strip("|").split(" | ") for line in MODEL.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines[2:]]


def collected(file: Path) -> set[str]:
    """The tests of a module, as pytest finds them by name; those that are always skipped are not."""
    found = set()
    for each in ast.walk(ast.parse(file.read_text())):
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
            marks = [ast.unparse(mark) for mark in each.decorator_list]
            if not any(mark.startswith(("pytest.mark.skip(", "pytest.mark.xfail")) for mark in marks):
                found.add(each.name)
    return found


def test_each_line_of_the_threat_model_names_a_measure_and_a_test() -> None:
    assert len(threats()) >= 20
    for cells in threats():
        assert len(cells) == 4, cells
        assert all(cells), cells
        assert all(test for _, test in NAMED.findall(cells[3])), cells
        assert NAMED.search(cells[3]), cells


def test_each_test_that_the_page_names_exists_and_is_collected() -> None:
    for file, test in NAMED.findall(PAGE):
        path = ROOT / file
        assert path.is_file(), file
        assert path.name.startswith("test_"), file
        assert not test or test in collected(path), f"{file}::{test}"


def test_the_page_names_each_module_of_attacks() -> None:
    modules = {f"tests/security/{path.name}" for path in (ROOT / "tests" / "security").glob("test_*.py")}
    tools = {"tests/security/test_realm.py"}  # tests of what these tests use
    assert modules - {file for file, _ in NAMED.findall(PAGE)} <= tools


def test_no_line_of_the_threat_model_is_there_twice() -> None:
    seen = [(who, what) for who, what, *_ in threats()]
    assert len(seen) == len(set(seen))
