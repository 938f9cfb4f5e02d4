"""Expression: what a SQL condition becomes, and its one canonical text.

    level > 3 and site in ('KDEN','KFTG')   →   level > 3 AND site IN ('KDEN', 'KFTG')

A small tree of frozen nodes, made by sql.py and evaluated by scalar.py (one product) and vector.py (many). A value is a
number, a text, a boolean, a moment, or NULL for what is missing. Comparing values of different kinds gives NULL, which
is neither true nor false, as in SQL.

`text_of` writes a tree so that parsing the text gives an equal tree. Not here: evaluation.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.selection.values import format_moment

FIELDS: Mapping[str, str] = {
    "feed": "text", "ident": "text", "origin": "text",
    "priority": "number", "slice": "number", "size": "number", "sequence": "number", "origin_sequence": "number",
    "created": "moment", "inserted": "moment", "expiry": "moment",
}  # fmt: skip
PROPERTIES = "properties"  # `properties.size` is the property, `size` the field

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Moment(int):
    """A point in time in nanoseconds since 1970: comparable with other moments only."""

    __slots__ = ()


Constant: TypeAlias = int | float | str | bool | Moment | None


@dataclass(frozen=True, slots=True)
class Value:
    """A constant."""

    value: Constant


@dataclass(frozen=True, slots=True)
class Name:
    """A field of the header, or a property."""

    name: str
    is_field: bool

    @property
    def key(self) -> str:
        """How others refer to it: a property that has the name of a field gets a prefix."""
        return self.name if self.is_field or self.name not in FIELDS else f"{PROPERTIES}.{self.name}"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: str  # + - * /
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Negative:
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str  # = <> < <= > >=
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class In:
    """Equal to one of some constants, none of which is NULL."""

    operand: "Expression"
    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`%` is any text, `_` one character; after `escape` either is itself. `any_case` holds for A-Z only."""

    operand: "Expression"
    pattern: str
    escape: str
    any_case: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Expression", ...]


Expression: TypeAlias = Value | Name | Arithmetic | Negative | Comparison | In | Like | IsNull | Not | And | Or


def children(expression: Expression) -> tuple[Expression, ...]:
    match expression:
        case And(parts) | Or(parts):
            return parts
        case Arithmetic(_, left, right) | Comparison(_, left, right):
            return left, right
        case Negative(operand) | In(operand, _) | Like(operand, _, _, _) | IsNull(operand) | Not(operand):
            return (operand,)
        case _:
            return ()


def names_in(expression: Expression) -> Iterator[Name]:
    """Every name, as often as it occurs."""
    if isinstance(expression, Name):
        yield expression
    for child in children(expression):
        yield from names_in(child)


def equalities_of(expression: Expression) -> dict[str, Constant]:
    """The constants that names must have for the whole to be true, as far as `=` and AND determine them."""
    found: dict[str, Constant] = {}
    for part in expression.parts if isinstance(expression, And) else (expression,):
        match part:
            case Comparison("=", Name() as name, Value(value)) | Comparison("=", Value(value), Name() as name):
                found.setdefault(name.key, value)
            case _:
                pass
    return found


# --- text -----------------------------------------------------------------------------------------
#
# Precedence, lowest first; an operand of lower precedence is put in parentheses.

_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _UNARY, _ATOM = range(8)


def text_of(expression: Expression) -> str:
    """The canonical text."""
    return _text(expression)[0]


def _text(expression: Expression) -> tuple[str, int]:
    match expression:
        case Value(value):
            return constant_text(value), _ATOM
        case Name():
            return name_text(expression), _ATOM
        case Negative(operand):
            return f"- {_operand(operand, _ATOM)}", _UNARY
        case Arithmetic(operator, left, right):
            level = _SUM if operator in "+-" else _PRODUCT
            return f"{_operand(left, level)} {operator} {_operand(right, level + 1)}", level
        case Comparison(operator, left, right):
            return f"{_operand(left, _SUM)} {operator} {_operand(right, _SUM)}", _COMPARISON
        case In(operand, values):
            return f"{_operand(operand, _SUM)} IN ({', '.join(map(constant_text, values))})", _COMPARISON
        case Like():
            return _like_text(expression), _COMPARISON
        case IsNull(operand):
            return f"{_operand(operand, _SUM)} IS NULL", _COMPARISON
        case Not(operand):
            return f"NOT {_operand(operand, _ATOM)}", _NOT
        case And(parts):
            return " AND ".join(_operand(part, _NOT) for part in parts), _AND
        case Or(parts):
            return " OR ".join(_operand(part, _AND) for part in parts), _OR


def _operand(expression: Expression, loosest: int) -> str:
    text, level = _text(expression)
    return text if level >= loosest else f"({text})"


def _like_text(like: Like) -> str:
    word = "ILIKE" if like.any_case else "LIKE"
    escape = f" ESCAPE {constant_text(like.escape)}" if like.escape else ""
    return f"{_operand(like.operand, _SUM)} {word} {constant_text(like.pattern)}{escape}"


def constant_text(value: Constant) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, Moment):
        return f"'{format_moment(value)}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def name_text(name: Name) -> str:
    """The bare name where it is unambiguous, otherwise quoted."""
    if name.is_field:
        return name.name
    plain = _PLAIN_NAME.fullmatch(name.name) and name.name.lower() not in FIELDS
    text = name.name if plain and name.name.lower() not in _RESERVED else '"' + name.name.replace('"', '""') + '"'
    return f"{PROPERTIES}.{text}" if name.name.lower() in FIELDS else text


# Keywords of SQL, which need quotes as names.
_RESERVED = frozenset(
    [
        "all", "alter", "and", "any", "array", "as", "asc", "between", "by", "call", "case", "cast", "collate",
        "connect_by_root", "create", "cross", "current_catalog", "current_date", "current_time", "current_timestamp",
        "current_user", "default", "delete", "desc", "distinct", "div", "do", "drop", "else", "end", "escape",
        "except", "execute", "exists", "explain", "extract", "false", "fetch", "for", "from", "full", "function",
        "glob", "global", "grant", "group", "having", "if", "ilike", "in", "index", "inner", "insert", "intersect",
        "interval", "into", "is", "isnull", "join", "json", "lateral", "left", "like", "limit", "localtime",
        "localtimestamp", "map", "merge", "natural", "not", "notnull", "null", "offset", "on", "optimize", "or",
        "order", "outer", "overlaps", "partition", "partitioned_by", "prepare", "prior", "properties", "qualify",
        "regexp", "rename", "replace", "returning", "revoke", "right", "rlike", "rollback", "row", "rows", "select",
        "session_user", "set", "show", "similar", "some", "sql", "straight_join", "struct", "table", "tablesample",
        "then", "to", "true", "truncate", "try", "uncache", "union", "unique", "unnest", "update", "use", "using",
        "vacuum", "values", "view", "when", "where", "window", "with", "within", "xor",
    ]
)  # fmt: skip
