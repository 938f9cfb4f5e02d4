"""Template: text with fields, filled in from a product or from a row of a table.

    template("{feed}/{created:%Y%m%d}/{1}.txt", "path", rule.select.ident)
        .text({"feed": "wx/text/metar", "ident": "SAUS70 KWBC 060000", "created": …})      one row
        .column(batch)                                                                     a RecordBatch

template_field.py describes the fields between braces, template_safety.py escapes values so that they are harmless. `{{`
and `}}` are literal braces. A template is plain data. Executors make their own by `template`, which caches the latest.

A row that cannot fill in a template has an error instead of a text, and becomes a dead letter.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RuleError, excerpt_of
from headrace.pipeline.rules.template_field import PATH, Field, groups_in, parse_field
from headrace.pipeline.rules.template_safety import Purpose, check_result, safe
from headrace.pipeline.rules.template_time import FULL, beyond, grain

TEMPLATE_MAX = 4096
_SLASHES = re.compile("//+")
_PIECE = re.compile(r"\{\{|\}\}|\{(?P<field>[^{}]*)\}|[{}]|[^{}]+")

Part = str | Field
RowError = tuple[int, str]  # the number of a row, and its error


class Filled(NamedTuple):
    """The results for a batch."""

    texts: Any  # pa.StringArray; null where there is an error
    errors: list[RowError]


@dataclass(frozen=True, slots=True)
class Template:
    """Text with fields, for one purpose."""

    source: str
    purpose: Purpose
    pattern: str | None  # of the ident; its groups may be fields
    parts: tuple[Part, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(part for part in self.parts if isinstance(part, Field))

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the rows need."""
        return frozenset(column for field in self.fields for column in field.columns)

    @property
    def is_constant(self) -> bool:
        return not self.fields

    def text(self, row: Mapping[str, Any]) -> str:
        """The text for one row. RuleError: the row cannot fill it in."""
        filled = [part if isinstance(part, str) else self._filled(part, row) for part in self.parts]
        text = self._checked("".join(filled))
        assert text is not None
        return text

    def column(self, rows: pa.RecordBatch) -> Filled:
        """The texts for all rows of a batch. Each distinct value is formatted once."""
        count = rows.num_rows
        errors: dict[int, str] = {}
        columns = [
            pa.repeat(pa.scalar(part), count) if isinstance(part, str) else self._field_column(part, rows, errors)
            for part in self.parts
        ]
        texts = pc.binary_join_element_wise(*columns, "") if columns else pa.repeat(pa.scalar(""), count)
        checked = _mapped(texts, self._checked, errors)
        return Filled(_without(checked, errors), sorted(errors.items()))

    def _filled(self, field: Field, row: Mapping[str, Any]) -> str:
        missing = [column for column in field.columns if column not in row]
        if missing:
            raise RuleError(f"{{{field.source}}} needs the column {missing[0]!r}", "select it too")
        return self._piece(field, tuple(row[column] for column in field.columns))

    def _piece(self, field: Field, values: tuple[Any, ...]) -> str:
        text = field.text(values, self.pattern)
        if text is None:
            raise RuleError(f"{{{field.source}}} is missing", f"write {{{field.source}|…}} to give a default")
        return safe(text, self.purpose, field.keeps_slashes)

    def _field_column(self, field: Field, rows: pa.RecordBatch, errors: dict[int, str]) -> Any:
        columns = [showable(_column(rows, field, name), name, errors) for name in field.columns]
        if len(columns) == 1:
            return _mapped(_coarse(columns[0], field), lambda value: self._piece(field, (value,)), errors)
        pairs = list(zip(*(column.to_pylist() for column in columns), strict=True))
        return _listed(pairs, lambda values: self._piece(field, values), errors)

    def _checked(self, text: str | None) -> str | None:
        """The text, if it is valid. None: a field is missing, and the error is recorded already."""
        if text is None:
            return None
        if self.purpose == "path" and any(field.format == PATH for field in self.fields):
            text = _SLASHES.sub("/", text).strip("/")  # those of values are kept, and may meet others
        check_result(text, self.purpose, self._begins_with_value)
        return text

    @property
    def _begins_with_value(self) -> bool:
        return bool(self.parts) and isinstance(self.parts[0], Field)


@lru_cache(16384)  # imported files have thousands of rules, and each batch may use all of them
def template(source: str, purpose: Purpose, pattern: str | None = None) -> Template:
    """Parse a template; `pattern` is the ident pattern of the selection. RuleError has the position."""
    if len(source) > TEMPLATE_MAX:
        raise RuleError(f"the template has {len(source)} characters", f"keep it within {TEMPLATE_MAX}")
    groups = frozenset[str]() if pattern is None else groups_in(pattern).names
    made = Template(source, purpose, pattern, tuple(_joined(_parts(source, groups))))
    _check_shape(made)
    return made


def _parts(source: str, groups: frozenset[str]) -> Iterator[Part]:
    for found in _PIECE.finditer(source):
        if found["field"] is not None:
            try:
                yield parse_field(found["field"], groups)
            except RuleError as error:
                raise at_place(error, source, found.start()) from None
        elif found[0] in ("{", "}"):
            hint = "write {{ or }} for a literal brace"
            raise at_place(RuleError("a brace is unbalanced", hint), source, found.start())
        else:
            yield {"{{": "{", "}}": "}"}.get(found[0], found[0])


def _joined(parts: Iterator[Part]) -> Iterator[Part]:
    """Join consecutive texts."""
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        if text:
            yield text
        text = ""
        yield part
    if text:
        yield text


def _check_shape(made: Template) -> None:
    """Filled with letters, the template must be valid for its purpose."""
    check_result("".join(part if isinstance(part, str) else "x" for part in made.parts), made.purpose)


def at_place(error: RuleError, source: str, place: int) -> RuleError:
    """The same error with a position (from 0) in a text."""
    return RuleError(error.problem, error.hint, column=place + 1, excerpt=excerpt_of(source, place))


# --- columns --------------------------------------------------------------------------------------


def _column(rows: pa.RecordBatch, field: Field, name: str) -> Any:
    if name not in rows.schema.names:
        raise RuleError(f"{{{field.source}}} needs the column {name!r}", "select it too")
    return rows.column(name)


def showable(column: Any, name: str, errors: dict[int, str]) -> Any:
    """The column without times outside Python's range; they are added to `errors`."""
    found = beyond(column)
    if not found.any():
        return column
    for place in np.flatnonzero(found).tolist():
        errors.setdefault(place, f"{name} is a time outside the years 1 to 9999")
    return pc.if_else(pa.array(found), None, column)


def _without(texts: Any, errors: dict[int, str]) -> Any:
    """Null in rows with an error: where a time was removed, the text has a default."""
    if not errors:
        return texts
    return pc.if_else(pa.array(np.isin(np.arange(len(texts)), list(errors))), None, texts)


def _coarse(column: Any, field: Field) -> Any:
    """Times truncated to the precision of the format, so that few distinct values are left."""
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.floor_temporal(column, unit=grain(field.time_format or FULL))


def _mapped(column: Any, fill: Any, errors: dict[int, str]) -> Any:
    """The column with `fill` applied to each distinct value; null if that raises."""
    if pa.types.is_nested(column.type):
        return _listed(column.to_pylist(), fill, errors)
    encoded = column.dictionary_encode(null_encoding="encode")
    reasons: dict[int, str] = {}
    texts = _listed(encoded.dictionary.to_pylist(), fill, reasons)
    if reasons:
        for place, index in enumerate(encoded.indices.to_pylist()):
            if index in reasons:
                errors.setdefault(place, reasons[index])
    return texts.take(encoded.indices)


def _listed(values: list[Any], fill: Any, errors: dict[int, str]) -> Any:
    texts: list[str | None] = []
    for place, value in enumerate(values):
        try:
            texts.append(fill(value))
        except RuleError as error:
            texts.append(None)
            errors.setdefault(place, error.problem)
    return pa.array(texts, pa.string())
