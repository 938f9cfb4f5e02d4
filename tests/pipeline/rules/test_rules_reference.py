"""docs/rules.md agrees with the code: keys, defaults, examples and problems."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from rulefile import PIPELINE, check_rules, loaded, told, written

from headrace.pipeline.decoders import DECODERS
from headrace.pipeline.rules.pqact.substitution import _DATE_ITEMS
from headrace.pipeline.rules.rule import ACTIONS, PipelineTerms, Rule, TlsTable, UserTable
from headrace.selection.table_keys import CLAUSES
from headrace.toml.kinds import toml_lines
from headrace.toml.layout import Key, keys_of

REFERENCE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text()
TABLES: dict[str, type[msgspec.Struct]] = {
    "[pipeline]": PipelineTerms, "[pipeline.tls]": TlsTable, "[pipeline.user]": UserTable, "[[rule]]": Rule, **{f"[rule.{name}]": struct for name, struct in ACTIONS.items()},
}  # fmt: skip


def rows(title: str) -> dict[str, list[str]]:
    """Value, default and meaning of each key."""
    section = REFERENCE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert cells[0] == ["key", "value", "default", "meaning"]
    return {name: row[1:] for row in cells[2:] for name in re.findall(r"`([^`]+)`", row[0])}


def default_text(key: Key) -> str | None:
    """A default as the reference has it; None if the reference describes it in words."""
    if key.is_required:
        return "required"
    if key.default is None:
        return None
    (line,) = toml_lines({"x": key.kind.write(key.default)})
    return f"`{line.removeprefix('x = ')}`"


@pytest.mark.parametrize("title", TABLES)
def test_the_reference_has_every_key_with_its_kind_and_default_and_no_other(title: str) -> None:
    keys = {key.name: key for key in keys_of(TABLES[title])}
    found = rows(title)
    assert list(found) == [*keys, *(CLAUSES if title == "[[rule]]" else ())]
    for name, key in keys.items():
        assert found[name][0] == key.kind.name, name
        assert found[name][1] == default_text(key) or (default_text(key) is None and found[name][1]), name


def test_the_examples_check_clean(tmp_path: Path) -> None:
    first, *others = re.findall(r"```toml\n(.*?)```", REFERENCE, re.S)
    assert len(first.splitlines()) == 8
    assert told(written(tmp_path, first)) == []
    assert len(others) == 2
    for other in others:
        assert told(written(tmp_path, PIPELINE + other)) == []
    (python,) = re.findall(r"```python\n(.*?)```", REFERENCE, re.S)
    assert [rule.name for rule in loaded(written(tmp_path, python, "rules_of_reference.py")).rules] == [
        "metar-denver", "metar-boulder",
    ]  # fmt: skip


def test_the_problems_in_the_reference_are_those_that_check_reports(tmp_path: Path) -> None:
    text = re.findall(r"```toml\n(.*?)```", REFERENCE, re.S)[0]
    path = written(tmp_path, text.replace("select station", "select staton").replace("table =", "tabel ="))
    problems = check_rules(path)
    assert len(problems) > 1
    for problem in problems:
        assert str(problem).removeprefix(f"{tmp_path}/") in REFERENCE
        assert f"try: {problem.hint}" in REFERENCE


def test_the_decoders_of_the_reference_exist() -> None:
    row = next(line for line in REFERENCE.splitlines() if line.startswith("| decoder |"))
    named = set(re.findall(r'`"([a-z0-9]+)"`', row))
    assert named
    assert named <= set(DECODERS)


def test_the_date_forms_of_the_reference_are_those_that_are_translated() -> None:
    row = next(line for line in REFERENCE.splitlines() if line.startswith("| `(\\1:yyyy)`"))
    words = re.findall(r"`([^`]+)`", row)
    assert [words[0].removeprefix("(\\1:").removesuffix(")"), *words[1:6]] == list(_DATE_ITEMS)
    assert [words[6].removeprefix("{time(1):").removesuffix("}"), *words[7:]] == list(_DATE_ITEMS.values())


def test_the_rule_file_of_the_reference_is_toml() -> None:
    for text in re.findall(r"```toml\n(.*?)```", REFERENCE, re.S):
        tomllib.loads(text)
