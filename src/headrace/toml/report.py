"""Report: every problem of one document, each with its line, its table and its key."""

import difflib
from collections.abc import Collection, Iterable, Mapping

from headrace.errors import HeadraceError, RuleError, SelectionError
from headrace.toml.document import Document, KeyPath, Problem
from headrace.toml.layout import Layout, Table


class Report:
    """Collects problems as they are found; `problems()` has them in the order of the file."""

    def __init__(self, document: Document, layout: Layout) -> None:
        self.document = document
        self.layout = layout
        self._found: list[Problem] = []
        self._wrong: list[KeyPath] = []

    def add(self, path: KeyPath, problem: str, hint: str) -> None:
        """Report a key or a table."""
        table, key = self.about(path)
        line = self.document.line(path)
        self._keep(path, Problem(file=self.document.file, line=line, table=table, key=key, problem=problem, hint=hint))

    def refuse(self, path: KeyPath, error: HeadraceError) -> None:
        """Report a value with the message of the error that it caused."""
        table, key = self.about(path)
        problem = error.problem.removeprefix(f"{key} ").lstrip()
        line, column, excerpt = self.document.line(path), None, ""
        if isinstance(error, SelectionError | RuleError) and error.column is not None:
            excerpt = error.excerpt
            if line is not None:
                line, column = self.document.place_within(path, error.column)
        found = Problem(
            file=self.document.file, line=line, column=column, table=table, key=key, problem=problem, hint=error.hint,
            excerpt=excerpt,
        )  # fmt: skip
        self._keep(path, found)

    def unknown(self, path: KeyPath, known: Iterable[str]) -> None:
        """Report a key that the table does not have."""
        key = str(path[-1])
        found = Problem(
            file=self.document.file, line=self.document.line(path), table=self.about(path[:-1])[0],
            problem=f"unknown key {key!r}", hint=self._remedy(path, list(known)),
        )  # fmt: skip
        self._keep(path, found)

    def unknown_table(self, table: str) -> None:
        bracketed, tables = self.layout.bracketed, self.layout.tables
        near = difflib.get_close_matches(table, tables, 1)
        homes = self.layout.homes(table)
        hint = "tables are: " + ", ".join(map(bracketed, tables))
        if near:
            hint = f"did you mean {bracketed(near[0])}?"
        elif homes:
            hint = f"it belongs below {' or '.join(homes)}"
        line = self.document.line((table,))
        self._keep((table,), Problem(file=self.document.file, line=line, problem=f"unknown table {table!r}", hint=hint))

    def is_wrong(self, path: KeyPath) -> bool:
        """Whether this key, something in it, or something around it was reported."""
        return any(wrong[: len(path)] == path[: len(wrong)] for wrong in self._wrong)

    def problems(self) -> list[Problem]:
        return sorted(self._found, key=lambda problem: (problem.line or 0, problem.column or 0))

    def about(self, path: KeyPath) -> tuple[str, str]:
        """The table that a path leads into, as people write it, and the key in it, if there is one.

        `[site]` and `queue`; `[[request]] 2`; `[[rule]] 2 [rule.file]` and `path`. An inner table that is written as
        a value counts as a key.
        """
        titles: list[str] = []
        name, place = "", 0
        tables: Mapping[str, Table] = self.layout.tables
        while place < len(path) and (not titles or self._is_table(path[: place + 1], set(tables))):
            part = str(path[place])
            name = f"{name}.{part}" if name else part
            tables = tables[part].inner if part in tables else {}
            place += 1
            number = path[place] if place < len(path) else None
            if isinstance(number, int):
                titles.append(f"[[{name}]] {number + 1}")
                place += 1
            else:
                titles.append(self.layout.bracketed(name))
        keys = [part for part in path[place:] if isinstance(part, str)]
        return " ".join(titles), keys[0] if keys else ""

    def _is_table(self, path: KeyPath, tables: Collection[str | int]) -> bool:
        value = self.document.at(path)
        is_list = isinstance(value, list) and any(isinstance(each, dict) for each in value)
        return path[-1] in tables and (isinstance(value, dict) or is_list)

    def _keep(self, path: KeyPath, problem: Problem) -> None:
        self._wrong.append(path)
        self._found.append(problem)

    def _remedy(self, path: KeyPath, known: list[str]) -> str:
        """A hint at what was probably meant."""
        key = str(path[-1])
        table = ".".join(part for part in path[:-1] if isinstance(part, str))
        if (table, key) in self.layout.elsewhere:
            return self.layout.elsewhere[table, key]
        near = difflib.get_close_matches(key, known, 1)
        if near:
            return f"did you mean {near[0]!r}?"
        homes = self.layout.homes(key)
        return f"it belongs below {' or '.join(homes)}" if homes else f"keys are: {', '.join(known)}"
