"""Functions of a site: the table [functions], which gives functions of users the names by which selections use them.

    [functions]
    strong_wind = "my_site.filters:strong_wind"

The modules are imported when the site starts, as its process finds them (PYTHONPATH), and not when other programs read
the configuration. Every function that cannot be loaded is a problem of the file, with its line.

Not here: what a function may be, and how it is called (selection/functions.py).
"""

from collections.abc import Mapping
from typing import Any

from headrace.errors import InvalidError, OptionError
from headrace.selection.functions import Function, check_function, check_function_name
from headrace.toml.document import Document, Problem, config_error
from headrace.toml.layout import Layout
from headrace.toml.report import Report
from headrace.user_objects import load_object

TABLE = "functions"
_EXAMPLE = 'strong_wind = "my_site.filters:strong_wind"'


def read_functions(report: Report) -> dict[str, str]:
    """The table as it is written; what cannot be a name, or the place of a function, is reported."""
    table = report.document.data.get(TABLE, {})
    if not isinstance(table, dict):
        report.add((TABLE,), "it is not a table", f"write [{TABLE}], and below it {_EXAMPLE}")
        return {}
    found: dict[str, str] = {}
    for name, place in table.items():
        try:
            found[check_function_name(name)] = _checked(place)
        except InvalidError as error:
            report.refuse((TABLE, name), error)
    return found


def _checked(place: Any) -> str:
    module, colon, path = place.partition(":") if isinstance(place, str) else ("", "", "")
    names = [*module.split("."), *path.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise OptionError(f"{place!r} does not name a function", f'write "module:function", such as {_EXAMPLE}')
    return str(place)


def load_functions(document: Document, layout: Layout, places: Mapping[str, str]) -> dict[str, Function]:
    """Import the functions; ConfigError lists those that cannot be loaded."""
    functions, problems = _loaded(document, layout, places)
    if problems:
        raise config_error(problems, f"headrace config check {document.file}")
    return functions


def function_problems(document: Document, layout: Layout, places: Mapping[str, str]) -> list[Problem]:
    """Every function that cannot be loaded."""
    return _loaded(document, layout, places)[1]


def _loaded(document: Document, layout: Layout, places: Mapping[str, str]) -> tuple[dict[str, Function], list[Problem]]:
    report, functions = Report(document, layout), dict[str, Function]()
    for name, place in places.items():
        try:
            functions[name] = check_function(name, load_object(place, folders="PYTHONPATH of the site"))
        except InvalidError as error:
            report.refuse((TABLE, name), error)
    return functions, report.problems()
