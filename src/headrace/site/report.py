"""Report: every complaint about one document, each with its line, its table and its key."""

import difflib
from collections.abc import Iterable

from headrace.errors import HeadraceError, SelectionError
from headrace.site.complaint import Complaint
from headrace.site.config import REPEATED, TABLES, keys_of
from headrace.site.document import Document, KeyPath

_ELSEWHERE = {
    ("queue", "origin"): "the origin of the queue is the name of the site: [site] name",
    ("request", "feed"): "write the feed pattern as select",
    ("users", "password"): "write it into a file, and name that file as password_file",
    ("users", "user"): "did you mean 'name'?",
}


class Report:
    """Complaints in the order in which they are found; `complaints()` has them in the order of the file."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._found: list[Complaint] = []
        self._wrong: list[KeyPath] = []

    def add(self, path: KeyPath, problem: str, hint: str) -> None:
        """Complain of a key or a table."""
        table, key = title(path), name(path)
        line = self.document.line(path)
        self._keep(
            path, Complaint(file=self.document.file, line=line, table=table, key=key, problem=problem, hint=hint)
        )

    def refuse(self, path: KeyPath, error: HeadraceError) -> None:
        """Complain of a value in the words of the error that it caused."""
        problem = error.problem.removeprefix(f"{name(path)} ").lstrip()
        line, column, excerpt = self.document.line(path), None, ""
        if isinstance(error, SelectionError) and error.column is not None:
            line, column = self.document.place_within(path, error.column)
            excerpt = error.excerpt
        complaint = Complaint(
            file=self.document.file, line=line, column=column, table=title(path), key=name(path), problem=problem,
            hint=error.hint, excerpt=excerpt,
        )  # fmt: skip
        self._keep(path, complaint)

    def unknown(self, path: KeyPath, known: Iterable[str]) -> None:
        """Complain of a key that a table does not have."""
        key = str(path[-1])
        complaint = Complaint(
            file=self.document.file, line=self.document.line(path), table=title(path[:-1]),
            problem=f"unknown key {key!r}", hint=_remedy(str(path[0]), key, list(known)),
        )  # fmt: skip
        self._keep(path, complaint)

    def unknown_table(self, table: str) -> None:
        near = difflib.get_close_matches(table, TABLES, 1)
        homes = [bracketed(home) for home, struct in TABLES.items() if table in [key.name for key in keys_of(struct)]]
        hint = "tables are: " + ", ".join(map(bracketed, TABLES))
        if near:
            hint = f"did you mean {bracketed(near[0])}?"
        elif homes:
            hint = f"it belongs below {' or '.join(homes)}"
        line = self.document.line((table,))
        self._keep(
            (table,), Complaint(file=self.document.file, line=line, problem=f"unknown table {table!r}", hint=hint)
        )

    def is_wrong(self, path: KeyPath) -> bool:
        """Whether there was a complaint of this key, or of something in it or around it."""
        return any(wrong[: len(path)] == path[: len(wrong)] for wrong in self._wrong)

    def complaints(self) -> list[Complaint]:
        return sorted(self._found, key=lambda complaint: (complaint.line or 0, complaint.column or 0))

    def _keep(self, path: KeyPath, complaint: Complaint) -> None:
        self._wrong.append(path)
        self._found.append(complaint)


def bracketed(table: str) -> str:
    return f"[[{table}]]" if table in REPEATED else f"[{table}]"


def title(path: KeyPath) -> str:
    """`[site]`, `[[request]] 2`."""
    number = path[1] if len(path) > 1 else None
    return f"{bracketed(str(path[0]))} {number + 1}" if isinstance(number, int) else bracketed(str(path[0]))


def name(path: KeyPath) -> str:
    """The key that a path leads to or through; empty if it is that of a table."""
    keys = [part for part in path[1:] if isinstance(part, str)]
    return keys[0] if keys else ""


def _remedy(table: str, key: str, known: list[str]) -> str:
    """What may have been meant."""
    if (table, key) in _ELSEWHERE:
        return _ELSEWHERE[table, key]
    near = difflib.get_close_matches(key, known, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    homes = [bracketed(home) for home, struct in TABLES.items() if key in [each.name for each in keys_of(struct)]]
    return f"it belongs below {' or '.join(homes)}" if homes else f"keys are: {', '.join(known)}"
