"""Helpers for tests of rules: write a rule file, load it, and list its problems."""

from pathlib import Path

from headrace import Queue
from headrace.pipeline.rules import RuleFile, check_rules, load_rules
from headrace.toml.document import Problem

PIPELINE = '[pipeline]\nqueue = "wx.queue"\n'
RULE = '[[rule]]\nname = "a"\nselect = "wx/text/metar"\n'


def written(folder: Path, text: str, name: str = "rules.toml") -> Path:
    """A rule file, beside an empty queue."""
    if not (folder / "wx.queue").exists():
        Queue.create(folder / "wx.queue", size="16MiB").close()
    path = folder / name
    path.write_text(text)
    return path


def told(path: Path) -> list[str]:
    """Every problem, without its file."""
    return [str(problem).removeprefix(f"{path}").removeprefix(":").strip() for problem in check_rules(path)]


def only(path: Path) -> Problem:
    """The only problem."""
    problems = check_rules(path)
    assert len(problems) == 1, [str(each) for each in problems]
    return problems[0]


def loaded(path: Path) -> RuleFile:
    assert told(path) == []
    return load_rules(path)
