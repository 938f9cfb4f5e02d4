"""Vector: an expression over many products at once.

Means the same as scalar.py, a column at a time: NumPy for numbers, moments and booleans, Arrow for texts. Integers are
exact, even beside floats: where 64 bits, or the 53 of a float, would not hold a result, that one operation goes through
the functions of scalar.py number by number.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.product.arrow import truths
from headrace.selection.where.columns import EXACT_MAX, MOMENT, NULL, NUMBER, TEXT, TRUTH, Column, Fields, magnitude
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
from headrace.selection.where.scalar import LikePattern, calculate, compare

Truths = npt.NDArray[np.bool_]

_NUMPY: dict[str, Any] = {
    "=": np.equal, "<>": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide,
}  # fmt: skip
_ARROW: dict[str, Any] = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def evaluate(expression: Expression, fields: Fields) -> Column:
    """The value of the expression for each product, or one for all."""
    match expression:
        case Value(value):
            return _constant(value)
        case Name():
            return fields.column(expression)
        case Comparison(sign, left, right):
            return _compare(sign, evaluate(left, fields), evaluate(right, fields))
        case In(operand, values):
            return _membership(evaluate(operand, fields), values)
        case Like(operand, pattern, escape, any_case):
            return _like(evaluate(operand, fields), LikePattern(pattern, escape, any_case))
        case IsNull(operand):
            return _truth(evaluate(operand, fields).kinds == NULL)
        case Arithmetic(sign, left, right):
            return _calculate(sign, evaluate(left, fields), evaluate(right, fields))
        case Negative(operand):
            return _calculate("-", _constant(0), evaluate(operand, fields))
        case Not(operand):
            inner = evaluate(operand, fields)
            return _truth(~inner.is_true, inner.kinds == TRUTH)
        case And(parts):
            return _junction(parts, fields, False)
        case Or(parts):
            return _junction(parts, fields, True)


def is_true(expression: Expression, fields: Fields) -> Truths:
    """For each product: whether the expression is true, not false and not unknown."""
    return np.broadcast_to(evaluate(expression, fields).is_true, (len(fields),))


def _truth(truths: Truths, known: Truths | None = None) -> Column:
    kinds = np.full(len(truths), TRUTH, np.uint8) if known is None else np.where(known, TRUTH, NULL).astype(np.uint8)
    return Column(kinds, truths=truths)


def _constant(value: Constant) -> Column:
    if isinstance(value, str):
        return Column(np.array([TEXT], np.uint8), texts=pa.scalar(value))
    if isinstance(value, bool):
        return Column(np.array([TRUTH], np.uint8), truths=np.array([value]))
    if value is None:
        return Column(np.array([NULL], np.uint8))
    kind = MOMENT if isinstance(value, Moment) else NUMBER
    return Column(
        np.array([kind], np.uint8), numbers=np.array([value], np.float64 if type(value) is float else np.int64)
    )


def _junction(parts: tuple[Expression, ...], fields: Fields, decisive: bool) -> Column:
    """AND is false where one part is, OR true where one is; unknown where it depends on an unknown part."""
    decided, known = np.zeros(1, np.bool_), np.ones(1, np.bool_)
    for part in parts:
        value = evaluate(part, fields)
        is_truth = value.kinds == TRUTH
        decided = decided | (is_truth & (value.is_true == decisive))
        known = known & is_truth
    return _truth(decided == decisive, decided | known)


# --- comparison -----------------------------------------------------------------------------------


def _compare(sign: str, left: Column, right: Column) -> Column:
    same = left.kinds == right.kinds
    result = np.zeros(len(same), np.bool_)
    for kind in np.unique(np.where(same, left.kinds, NULL)).tolist():
        if kind in (NUMBER, MOMENT):
            part = _compare_numbers(sign, left.numbers, right.numbers, same & (left.kinds == kind))
        elif kind == TEXT:
            part = _plain(_ARROW[sign](left.texts, right.texts))
        elif kind == TRUTH:
            part = _NUMPY[sign](left.truths, right.truths)
        else:
            continue
        result = np.where(same & (left.kinds == kind), part, result)
    return _truth(result, same & (left.kinds != NULL))


def _plain(answer: Any) -> Truths:
    """NumPy from Arrow; unknown is False."""
    if isinstance(answer, pa.Scalar):
        return np.array([answer.as_py() is True])
    return truths(pc.fill_null(answer, False))


def _compare_numbers(sign: str, left: Any, right: Any, where: Truths) -> Any:
    if left.dtype == right.dtype != object or _exact_as_floats(left, right):
        return _NUMPY[sign](left, right)
    return _one_by_one(lambda a, b: compare(sign, a, b), left, right, where).astype(np.bool_)


def _exact_as_floats(left: Any, right: Any) -> bool:
    return all(side.dtype == np.float64 or (side.dtype == np.int64 and magnitude(side) <= EXACT_MAX)
               for side in (left, right))  # fmt: skip


def _one_by_one(function: Any, left: Any, right: Any, where: Truths) -> Any:
    """A Python function over two columns of numbers, for the products `where` says."""
    left, right = np.broadcast_to(left, where.shape), np.broadcast_to(right, where.shape)
    result = np.zeros(where.shape, object)
    result[where] = [function(a, b) for a, b in zip(left[where].tolist(), right[where].tolist(), strict=True)]
    return result


def _membership(value: Column, options: tuple[Constant, ...]) -> Column:
    """Equal to one of them; false only if all of them are of the value's kind."""
    found, known = np.zeros(len(value.kinds), np.bool_), np.ones(len(value.kinds), np.bool_)
    texts = [option for option in options if isinstance(option, str)]
    if len(texts) == len(options):
        is_text = value.kinds == TEXT
        if value.texts is not None:
            among = pc.is_in(_array(value.texts), value_set=pa.array(texts, pa.string()))
            found = is_text & np.asarray(among)
        return _truth(found, is_text)
    for option in options:
        equal = _compare("=", value, _constant(option))
        found = found | equal.is_true
        known = known & (equal.kinds == TRUTH)
    return _truth(found, found | known)


def _array(texts: Any) -> Any:
    return pa.array([texts.as_py()], pa.string()) if isinstance(texts, pa.Scalar) else texts


def _like(value: Column, pattern: LikePattern) -> Column:
    is_text = value.kinds == TEXT
    if value.texts is None:
        return _truth(np.zeros(len(is_text), np.bool_), is_text)
    return _truth(is_text & pattern.mask(_array(value.texts)), is_text)


# --- arithmetic -----------------------------------------------------------------------------------


def _calculate(sign: str, left: Column, right: Column) -> Column:
    known = (left.kinds == NUMBER) & (right.kinds == NUMBER)
    if not known.any():
        return Column(np.full(len(known), NULL, np.uint8))
    if _fits(sign, left.numbers, right.numbers):
        with np.errstate(all="ignore"):
            numbers = _NUMPY[sign](left.numbers, right.numbers)
            if sign == "/":
                known = known & (right.numbers != 0)
    else:
        numbers = _one_by_one(lambda a, b: calculate(sign, a, b), left.numbers, right.numbers, known)
        known = known & (numbers != None)  # noqa: E711 - elementwise
    if numbers.dtype == np.float64:
        known = known & ~np.isnan(numbers)
    return Column(np.where(known, NUMBER, NULL).astype(np.uint8), numbers=numbers)


def _fits(sign: str, left: Any, right: Any) -> bool:
    """Whether NumPy gives the same result as Python."""
    if left.dtype == right.dtype == np.int64 and sign != "/":
        a, b = magnitude(left), magnitude(right)
        return (a * b if sign == "*" else a + b) < 1 << 63
    return _exact_as_floats(left, right)
