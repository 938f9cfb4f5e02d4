"""Rules in Python: a file with a function `rules()` instead of TOML.

    from headrace import Selection
    from headrace.pipeline.rules import PipelineTerms, Rule, TableAction

    pipeline = PipelineTerms(queue="wx.queue")

    def rules():
        return [Rule(name=f"metar-{site}", select=Selection("wx/text/metar", origin=site), decode="metar",
                     table=TableAction(path=f"metar/{site}")) for site in ("denver", "boulder")]

The structs are those of a TOML file, and are checked in the same way: they are converted to the content of a file and
read like one. Values may have the form of the structs or that of a file (`timeout_s=30.0` or "30s"). A problem names
the rule and the key; it has no line.
"""

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from headrace.pipeline.rules.rule import ACTIONS, LAYOUT, PipelineTerms, Rule
from headrace.pipeline.rules.views import importable
from headrace.selection import Selection
from headrace.toml.document import Document, Problem
from headrace.toml.layout import keys_of

SUFFIX = ".py"
_HINT = "write pipeline = PipelineTerms(queue=…) and a function rules() that returns a list of Rule"


def read_module(path: Path) -> Document | Problem:
    """The rules of a module as a document, or the problem that prevents it."""
    file = str(path)
    if not path.is_file():
        return Problem(file=file, problem="there is no such file", hint="correct the path")
    try:
        module = _imported(path)
        made = module.rules() if callable(getattr(module, "rules", None)) else None
        rules = list(made) if isinstance(made, Iterable) else None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may raise anything
        line = _line_of(error, file)
        return Problem(file=file, line=line, problem=f"it fails: {type(error).__name__}: {error}", hint="fix it")
    terms = getattr(module, "pipeline", None)
    if rules is None or not all(isinstance(rule, Rule) for rule in rules):
        return Problem(file=file, problem="it has no function rules() that returns a list of Rule", hint=_HINT)
    if not isinstance(terms, PipelineTerms):
        return Problem(file=file, problem="it has no pipeline = PipelineTerms(…)", hint=_HINT)
    data: dict[str, Any] = {"pipeline": written(terms), "rule": [written(rule) for rule in rules]}
    if isinstance(spark := getattr(module, "spark", None), Mapping):
        data["spark"] = dict(spark)
    return Document(file, path.absolute().parent, data, {}, has_lines=False)


def _imported(path: Path) -> ModuleType:
    """The module under a unique name. It can import modules of its folder."""
    name = f"headrace_rules_{abs(hash(path.absolute()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with importable(path.absolute().parent):
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        finally:
            del sys.modules[name]
    return module


def _line_of(error: BaseException, file: str) -> int | None:
    """The last line of the file in the traceback of an error."""
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def written(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct as the content of a file, without keys that have their defaults."""
    values: dict[str, Any] = {}
    for key in keys_of(type(struct)):
        value = getattr(struct, key.field)
        if value is not None and (key.is_required or value != key.default):
            values[key.name] = _plain(value, key.kind)
    if isinstance(struct, PipelineTerms):
        for name in LAYOUT.tables["pipeline"].inner:
            if (inner := getattr(struct, name)) is not None:
                values[name] = written(inner) if isinstance(inner, msgspec.Struct) else inner
    if isinstance(struct, Rule):
        for name in ACTIONS:
            if actions := getattr(struct, name):
                each = actions if isinstance(actions, list | tuple) else [actions]
                values[name] = [written(one) if isinstance(one, ACTIONS[name]) else one for one in each]
    return values


def _plain(value: Any, kind: Any) -> Any:
    if isinstance(value, str | Selection):
        return value
    try:
        return kind.write(value)
    except (TypeError, ValueError, AttributeError):
        return list(value) if isinstance(value, tuple) else value
