"""Scalar: an expression becomes a function of one product.

The slow way, one Python call per node; vector.py does the same for many products at once and must agree. A value is an
int, a float, a str, a bool, a Moment, or None for NULL, and only values of one kind can be compared.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from headrace.product.product import Product
from headrace.selection.expression import (
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
from headrace.selection.like import LikePattern

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
        return value if value == value else None  # NaN is no number

    return evaluate


def _comparison(test: Callable[[Any, Any], bool], left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(product: Product) -> bool | None:
        a, b = left(product), right(product)
        kind = _KINDS.get(type(a))
        return test(a, b) if kind is not None and kind == _KINDS.get(type(b)) else None

    return evaluate


def _membership(operand: Evaluate, values: tuple[Constant, ...]) -> Evaluate:
    """False if there is one of the same kind to be different from, and NULL if there is none."""
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
    """AND is decided by the first False, OR by the first True; what is no truth value is unknown."""

    def evaluate(product: Product) -> bool | None:
        known = True
        for part in parts:
            value = part(product)
            if value is decisive:
                return decisive
            known = known and isinstance(value, bool)
        return not decisive if known else None

    return evaluate
