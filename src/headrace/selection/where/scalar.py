"""Scalar: an expression becomes a function of one product.

Slow, with one Python call per node; vector.py does the same for many products at once and must agree. A value is an
int, a float, a str, a bool, a Moment, or None for NULL; only values of one kind can be compared.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from headrace.product.arrow import truths
from headrace.product.product import Product
from headrace.selection.where.expression import (
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

Evaluate = Callable[[Product], Constant]

_NUMBER, _TEXT, _TRUTH, _MOMENT = 1, 2, 3, 4
_KINDS: Mapping[type, int] = {int: _NUMBER, float: _NUMBER, str: _TEXT, bool: _TRUTH, Moment: _MOMENT}
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CALCULATE: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
_FIELDS: Mapping[str, Evaluate] = {
    "feed": lambda product: product.feed,
    "ident": lambda product: product.ident,
    "origin": lambda product: product.origin,
    "priority": lambda product: product.priority,
    "slice": lambda product: product.slice,
    "size": lambda product: product.size,
    "sequence": lambda product: product.sequence,
    "origin_sequence": lambda product: product.origin_sequence,
    "created": lambda product: Moment(product.created_ns),
    "inserted": lambda product: Moment(product.inserted_ns),
    "expiry": lambda product: None if product.expiry_ns is None else Moment(product.expiry_ns),
}
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


class LikePattern:
    """SQL's LIKE, in time linear in the text for one text, and by RE2 for a column.

    `%` matches any text, `_` one character, and either itself after the escape character. Upper and lower case differ
    unless `any_case` is set, and then only for the letters A to Z.
    """

    __slots__ = ("_any_case", "_first", "_last", "_middle", "_regex")

    def __init__(self, pattern: str, escape: str = "", any_case: bool = False) -> None:
        self._any_case = any_case
        pieces = _pieces(pattern.translate(_LOWER) if any_case else pattern, escape)
        regexes = ["".join("." if char is None else re.escape(char) for char in piece) for piece in pieces]
        self._regex = "(?s)^" + ".*".join(_re2(piece) for piece in pieces) + "$"
        self._first = re.compile(regexes[0], re.S)
        self._middle = [re.compile(regex, re.S) for regex in regexes[1:-1]]
        self._last = (re.compile(regexes[-1], re.S), len(pieces[-1])) if len(pieces) > 1 else None

    def matches(self, text: str) -> bool:
        """The first piece matches at the beginning, the last at the end, the others in order in between."""
        if self._any_case:
            text = text.translate(_LOWER)
        if self._last is None:
            return self._first.fullmatch(text) is not None
        begin, (last, length) = self._first.match(text), self._last
        if begin is None or len(text) - length < begin.end() or not last.fullmatch(text, len(text) - length):
            return False
        place, end = begin.end(), len(text) - length
        for piece in self._middle:
            found = piece.search(text, place, end)
            if found is None:
                return False
            place = found.end()
        return True

    def mask(self, texts: Any) -> npt.NDArray[np.bool_]:
        """For an Arrow array of texts; False where there is none."""
        if self._any_case:
            texts = pc.ascii_lower(texts)
        return truths(pc.fill_null(pc.match_substring_regex(texts, self._regex), False))


def _pieces(pattern: str, escape: str) -> list[list[str | None]]:
    """The pattern between its `%`; None is any one character."""
    pieces: list[list[str | None]] = [[]]
    signs = iter(pattern)
    for sign in signs:
        if escape and sign == escape:
            pieces[-1].append(next(signs))
        elif sign == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if sign == "_" else sign)
    return pieces


def _re2(piece: list[str | None]) -> str:
    return "".join("." if char is None else _re2_literal(char) for char in piece)


def _re2_literal(char: str) -> str:
    return char if char.isalnum() or char in " _" else f"\\x{{{ord(char):x}}}"


def compiled(expression: Expression) -> Evaluate:
    """The function that evaluates it."""
    match expression:
        case Value(value):
            return lambda product: value
        case Name(name, is_field):
            return _FIELDS[name] if is_field else _property(name)
        case Comparison(sign, left, right):
            return _comparison(_COMPARE[sign], compiled(left), compiled(right))
        case In(operand, values):
            return _membership(compiled(operand), values)
        case Like(operand, pattern, escape, any_case):
            return _like(compiled(operand), LikePattern(pattern, escape, any_case))
        case IsNull(operand):
            inner = compiled(operand)
            return lambda product: inner(product) is None
        case Arithmetic(sign, left, right):
            return _arithmetic(sign, compiled(left), compiled(right))
        case Negative(operand):
            return _arithmetic("-", lambda product: 0, compiled(operand))
        case Not(operand):
            return _negation(compiled(operand))
        case And(parts):
            return _junction([compiled(part) for part in parts], False)
        case Or(parts):
            return _junction([compiled(part) for part in parts], True)


def compare(sign: str, left: Constant, right: Constant) -> bool | None:
    """NULL unless both are of one kind."""
    kind = _KINDS.get(type(left))
    return _COMPARE[sign](left, right) if kind is not None and kind == _KINDS.get(type(right)) else None


def calculate(sign: str, left: Constant, right: Constant) -> int | float | None:
    """NULL unless both are numbers and the result is one; an int that needs more than 64 bits becomes a float."""
    if _KINDS.get(type(left)) != _NUMBER or _KINDS.get(type(right)) != _NUMBER:
        return None
    try:
        result: int | float = _CALCULATE[sign](left, right)
        if type(result) is int and not -(1 << 63) <= result < 1 << 63:
            result = float(result)
    except (ZeroDivisionError, OverflowError):
        return None
    return result if result == result else None


def _property(name: str) -> Evaluate:
    def evaluate(product: Product) -> Constant:
        value = product.properties.get(name)
        return value if value == value else None  # NaN is NULL

    return evaluate


def _comparison(test: Callable[[Any, Any], bool], left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(product: Product) -> bool | None:
        a, b = left(product), right(product)
        kind = _KINDS.get(type(a))
        return test(a, b) if kind is not None and kind == _KINDS.get(type(b)) else None

    return evaluate


def _membership(operand: Evaluate, values: tuple[Constant, ...]) -> Evaluate:
    """False if all constants are of the kind of the value and differ, NULL if there are other kinds."""
    by_kind: dict[int, set[Constant]] = {}
    for value in values:
        by_kind.setdefault(_KINDS[type(value)], set()).add(value)
    single = len(by_kind) == 1

    def evaluate(product: Product) -> bool | None:
        value = operand(product)
        kind = _KINDS.get(type(value))
        if kind is None:
            return None
        if value in by_kind.get(kind, ()):
            return True
        return False if single and kind in by_kind else None

    return evaluate


def _like(operand: Evaluate, pattern: LikePattern) -> Evaluate:
    def evaluate(product: Product) -> bool | None:
        value = operand(product)
        return pattern.matches(value) if isinstance(value, str) else None

    return evaluate


def _arithmetic(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda product: calculate(sign, left(product), right(product))


def _negation(operand: Evaluate) -> Evaluate:
    def evaluate(product: Product) -> bool | None:
        value = operand(product)
        return not value if isinstance(value, bool) else None

    return evaluate


def _junction(parts: list[Evaluate], decisive: bool) -> Evaluate:
    """AND is decided by the first False, OR by the first True; a value that is not a boolean is unknown."""

    def evaluate(product: Product) -> bool | None:
        known = True
        for part in parts:
            value = part(product)
            if value is decisive:
                return decisive
            known = known and isinstance(value, bool)
        return not decisive if known else None

    return evaluate
