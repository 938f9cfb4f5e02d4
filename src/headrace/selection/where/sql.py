"""SQL conditions: from the text after `where` to an expression.

sqlglot parses the text; this file turns its tree into ours, so that only what is listed here is supported: no
functions, no subqueries, no casts. Every problem is a SelectionError with the column in the text.

    comparison   = <> != < <= > >=           IN (…)   BETWEEN … AND …   LIKE, ILIKE … [ESCAPE '…']   IS [NOT] NULL
    logic        AND OR NOT TRUE FALSE NULL
    arithmetic   + - * /                     on numbers; / never rounds
    names        a field of the header, or else a property; "…" around odd names
                 properties.NAME for a property that has the name of a field
    times        text beside created, inserted or expiry: '2026-01-01T12:00'

Not here: the limits of the text, which are checked before it is parsed (tokens.py).
"""

import re
from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError

from headrace.errors import SelectionError
from headrace.selection.values import parse_moment
from headrace.selection.where.expression import (
    FIELDS,
    PROPERTIES,
    And,
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Moment,
    Name,
    Negative,
    Not,
    Or,
    Value,
)
from headrace.selection.where.tokens import DEPTH_MAX, KNOWN, explain, tokens_of

_COMPARISONS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: dict[type, str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_SIGNS: dict[type, str] = {
    exp.Mod: "%", exp.IntDiv: "DIV", exp.DPipe: "||", exp.NullSafeEQ: "<=>", exp.BitwiseAnd: "&", exp.BitwiseOr: "|",
    exp.BitwiseXor: "^", exp.RegexpLike: "a regular expression", exp.Collate: "COLLATE", exp.Case: "CASE",
    exp.Tuple: "a list of values", exp.Interval: "INTERVAL", exp.Any: "ANY", exp.Column: "a name of three parts",
}  # fmt: skip
_BARE_NAME = re.compile(r"\w+")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def parse_condition(text: str) -> Expression:
    """The expression in `text`; SelectionError has the column."""
    tokens = tokens_of(text)
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition)
    except ParseError as error:
        raise explain(error, text, tokens) from None
    except RecursionError:
        raise SelectionError("the condition nests too deeply", "remove parentheses") from None
    return _Builder(text, tokens).condition(tree, 0)


class _Builder:
    """Turns sqlglot's nodes into ours."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens

    def condition(self, node: Any, depth: int) -> Expression:
        """An expression that can be true or false."""
        expression = self.build(node, depth)
        no_truth = isinstance(expression, Value) and not isinstance(expression.value, bool | None)
        if no_truth or isinstance(expression, Arithmetic | Negative) or _is_field(expression):
            raise self._error("this is not a condition", node, "compare it with something: size > 1000")
        return expression

    def build(self, node: Any, depth: int) -> Expression:
        if depth > 2 * DEPTH_MAX:
            raise self._error("the condition nests too deeply", node, "split it by AND or OR")
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self.condition(part, depth + 1) for part in node.flatten(unnest=False))
            return _joined(And if isinstance(node, exp.And) else Or, parts)
        if type(node) in _COMPARISONS:
            left, right = self._pair(node, depth)
            return self._compared(_COMPARISONS[type(node)], left, right, node)
        if type(node) in _ARITHMETIC:
            left, right = self._pair(node, depth)
            self._check_numbers(node, left, right)
            return Arithmetic(_ARITHMETIC[type(node)], left, right)
        rule = _RULES.get(type(node))
        if rule is None:
            raise self._unsupported(node)
        return rule(self, node, depth + 1)

    def _pair(self, node: Any, depth: int) -> tuple[Expression, Expression]:
        return self.build(node.this, depth + 1), self.build(node.expression, depth + 1)

    def _paren(self, node: Any, depth: int) -> Expression:
        return self.build(node.this, depth)

    def _not(self, node: Any, depth: int) -> Expression:
        return Not(self.condition(node.this, depth))

    def _negative(self, node: Any, depth: int) -> Expression:
        operand = self.build(node.this, depth)
        if isinstance(operand, Value) and type(operand.value) in (int, float):
            return Value(-operand.value)  # type: ignore[operator]
        self._check_numbers(node, operand)
        return Negative(operand)

    def _boolean(self, node: Any, depth: int) -> Expression:
        return Value(bool(node.this))

    def _null(self, node: Any, depth: int) -> Expression:
        return Value(None)

    def _literal(self, node: Any, depth: int) -> Expression:
        if node.is_string:
            return Value(str(node.this))
        try:
            number: int | float = int(node.this) if node.this.isdecimal() else float(node.this)
        except ValueError:
            raise self._error(f"{node.this} is not a number", node, "write digits") from None
        if isinstance(number, int) and number >= 1 << 63:
            number = float(number)
        if number != number or abs(number) == float("inf"):
            raise self._error(f"{node.this} is out of range", node, "numbers end at 1.7e308")
        return Value(number)

    def _column(self, node: Any, depth: int) -> Expression:
        name, table = node.this.name, node.args.get("table")
        if not isinstance(node.this, exp.Identifier) or node.args.get("db"):
            raise self._unsupported(node)
        if not node.this.quoted and not _BARE_NAME.fullmatch(name):
            raise self._error(f"{name} is not a name", node, "put texts in '…' and odd names in \"…\"")
        if table is not None:
            if table.name != PROPERTIES:
                raise self._error(f"{table.name}.{name} is not a name", node, f"write {name}, or {PROPERTIES}.{name}")
            return Name(name, False)
        if name in FIELDS and not node.this.quoted:
            return Name(name, True)
        if name.lower() in FIELDS:
            hint = f'write {name.lower()} for the field, {PROPERTIES}."{name}" for a property'
            raise self._error(f"{name!r} may be a field or a property", node, hint)
        return Name(name, False)

    def _in(self, node: Any, depth: int) -> Expression:
        options = node.expressions
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise self._error("IN takes a list of values here, no query", node, "write IN (1, 2, 3)")
        if not options:
            raise self._error("IN has an empty list", node, "write IN (1, 2, 3)")
        operand = self.build(node.this, depth)
        equal = [self._compared("=", operand, self.build(option, depth), node) for option in options]
        values = tuple(_constant_of(part) for part in equal)
        if any(value is None for value in values):
            return _joined(Or, tuple(equal))
        return In(operand, tuple(dict.fromkeys(values, None)) if _one_kind(values) else values)

    def _between(self, node: Any, depth: int) -> Expression:
        operand = self.build(node.this, depth)
        low, high = self.build(node.args["low"], depth), self.build(node.args["high"], depth)
        if node.args.get("symmetric"):
            raise self._error("BETWEEN SYMMETRIC is not offered", node, "write the smaller value first")
        return And((self._compared(">=", operand, low, node), self._compared("<=", operand, high, node)))

    def _like(self, node: Any, depth: int, escape: str = "") -> Expression:
        operand, pattern = self._pair(node, depth)
        if not isinstance(pattern, Value) or not isinstance(pattern.value, str):
            raise self._error("LIKE takes a text", node, "write LIKE 'K%'")
        if escape and _dangling(pattern.value, escape):
            raise self._error(f"the pattern ends with its escape {escape!r}", node, "write the escape twice")
        like = Like(operand, pattern.value, escape, isinstance(node, exp.ILike))
        return Not(like) if node.args.get("negate") else like

    def _escape(self, node: Any, depth: int) -> Expression:
        sign = node.expression
        if not isinstance(node.this, exp.Like | exp.ILike):
            raise self._unsupported(node)
        if not isinstance(sign, exp.Literal) or not sign.is_string or len(sign.this) != 1:
            raise self._error("ESCAPE takes one character", node, "write LIKE '50!%' ESCAPE '!'")
        return self._like(node.this, depth, sign.this)

    def _is(self, node: Any, depth: int) -> Expression:
        if not isinstance(node.expression, exp.Null):
            raise self._error("IS takes NULL", node, "write IS NULL or IS NOT NULL; compare by =")
        return IsNull(self.build(node.this, depth))

    # --- moments and numbers ----------------------------------------------------------------------

    def _compared(self, operator: str, left: Expression, right: Expression, node: Any) -> Expression:
        """A comparison; a text beside a moment is read as one, and the constant stands on the right."""
        if isinstance(left, Value) and not isinstance(right, Value):
            left, right, operator = right, left, _MIRRORED[operator]
        if isinstance(left, Name) and left.is_field and isinstance(right, Value) and right.value is not None:
            right = self._fitting(left, right, node)
        return Comparison(operator, left, right)

    def _fitting(self, field: Name, constant: Value, node: Any) -> Value:
        """The constant, as far as the field can ever be compared with it."""
        kind, value = FIELDS[field.name], constant.value
        node = next((part for part in node.find_all(exp.Literal) if part.this == str(value)), node)
        if kind == "moment" and isinstance(value, str):
            try:
                return Value(Moment(parse_moment(value, field.name)))
            except SelectionError as error:
                raise self._error(error.problem, node, error.hint) from None
        if kind == "moment" or (kind == "text") != isinstance(value, str) or isinstance(value, bool):
            example = {"moment": "'2026-01-01T12:00'", "text": "'…'", "number": "5"}[kind]
            hint = f"compare it with a {'time' if kind == 'moment' else kind}, such as {example}"
            raise self._error(f"{field.name} is never {value!r}", node, hint)
        return constant

    def _check_numbers(self, node: Any, *operands: Expression) -> None:
        for operand in operands:
            text = isinstance(operand, Value) and isinstance(operand.value, str | bool)
            name = isinstance(operand, Name) and operand.is_field and FIELDS[operand.name] != "number"
            if text or name:
                raise self._error("only numbers can be calculated with", node, "compare times and texts as they are")

    # --- mistakes ---------------------------------------------------------------------------------

    def _unsupported(self, node: Any) -> SelectionError:
        what = _SIGNS.get(type(node), type(node).__name__)
        if type(node) in _SIGNS:
            pass
        elif isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            what = "a query inside a condition"
        elif isinstance(node, exp.Anonymous):
            what = f"the function {node.this}()"
        elif isinstance(node, exp.Cast):
            what = "a cast"
        elif isinstance(node, exp.Func):
            what = f"the function {node.sql_name()}()"
        return self._error(f"{what} is not offered", node, KNOWN)

    def _error(self, problem: str, node: Any, hint: str) -> SelectionError:
        """At the first word of the node; sqlglot remembers the places of names and constants, not of all words."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            starts += [
                token.start for token in self._tokens if token.token_type in (TokenType.SELECT, TokenType.EXISTS)
            ]
        return SelectionError.at(problem, hint, self._text, min(starts, default=self._tokens[0].start))


def _is_field(expression: Expression) -> bool:
    return isinstance(expression, Name) and expression.is_field


def _joined(kind: type[And] | type[Or], parts: tuple[Expression, ...]) -> Expression:
    """AND within AND is one AND."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) else (part,)
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _constant_of(part: Expression) -> Constant:
    right = part.right if isinstance(part, Comparison) else None
    return right.value if isinstance(right, Value) else None


def _one_kind(values: tuple[Constant, ...]) -> bool:
    return not any(isinstance(value, bool) for value in values)


def _dangling(pattern: str, escape: str) -> bool:
    return (len(pattern) - len(pattern.rstrip(escape))) % 2 == 1


_RULES: dict[type, Callable[[_Builder, Any, int], Expression]] = {
    exp.Paren: _Builder._paren, exp.Not: _Builder._not, exp.Neg: _Builder._negative,
    exp.Boolean: _Builder._boolean, exp.Null: _Builder._null, exp.Literal: _Builder._literal,
    exp.Column: _Builder._column, exp.In: _Builder._in, exp.Between: _Builder._between,
    exp.Like: _Builder._like, exp.ILike: _Builder._like, exp.Escape: _Builder._escape, exp.Is: _Builder._is,
}  # fmt: skip
