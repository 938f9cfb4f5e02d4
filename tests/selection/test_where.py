"""Conditions in SQL: meaning, errors, and SQLite as the reference."""

import math
import sqlite3
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from products import NOW_NS, batch_of, product

from headrace import Queue
from headrace.errors import SelectionError
from headrace.selection.where import expression as ex
from headrace.selection.where.columns import Fields
from headrace.selection.where.expression import text_of
from headrace.selection.where.scalar import compiled
from headrace.selection.where.sql import parse_condition
from headrace.selection.where.vector import evaluate
from headrace.selection.where.where import Where


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("level > 3", True), ("level > 3.5", True), ("level = 5.0", True), ("level = '5'", False), ("level <> '5'", False), ("NOT level = '5'", False),
        ("site = 'KFTG'", True), ("site = 5", False), ("site LIKE 'K%'", True), ("site LIKE 'k%'", False), ("site ILIKE 'k%'", True),
        ("site LIKE '_FTG'", True), ("site NOT LIKE 'K%'", False), ("site IN ('KDEN', 'KFTG')", True), ("site NOT IN ('KDEN')", True),
        ("level IN (1, 'KFTG', 5)", True), ("level NOT IN (1, 'x')", False), ("level IN (5, NULL)", True), ("level NOT IN (1, NULL)", False),
        ("flag", True), ("NOT flag", False), ("flag = TRUE", True), ("flag = 1", False), ("flag AND level > 3", True),
        ("nothing = 5", False), ("NOT nothing = 5", False), ("nothing IS NULL", True), ("level IS NOT NULL", True), ("nothing IS NULL OR nothing > 3", True),
        ("level BETWEEN 5 AND 6", True), ("level NOT BETWEEN 5 AND 6", False), ("level + 1 = 6 AND level * 2 - 4 = 6", True),
        ("level / 2 = 2.5", True), ("level / 0 = 1", False), ("NOT level / 0 = 1", False), ("-level < 0", True), ("site + 1 = 2", False),
        ("feed = 'wx/text'", True), ("ident LIKE 'SAUS%'", True), ("origin = 'here'", True), ("priority >= 4", True), ("size = 7", True),
        ("sequence = 7 AND origin_sequence = 3", True), ("slice IS NULL", True), ("slice = 3", False), ("expiry IS NULL", True),
        ("created = '2027-01-15T08:00:00Z'", True), ("created < '2027-01-15T08:00'", False), ("inserted > created", True),
        ("created BETWEEN '2027-01-01' AND '2028-01-01'", True), ("created IN ('2027-01-15T08:00')", True), ("expiry > created", False),
        ("\"odd name\" = 'x'", True), ("properties.size = 'big'", True), ("properties.\"size\" = 'big'", True), ("nan IS NULL", True),
        ("NULL", False), ("TRUE", True), ("FALSE OR NULL", False), ("site LIKE 'K!%' ESCAPE '!'", False), ("percent LIKE '50!%' ESCAPE '!'", True),
        ("big = 9007199254740993", True), ("big = 9007199254740992.0", False), ("big + 1 > big", True), ("big * big > 1e31", True),
    ],
)  # fmt: skip
def test_a_condition_matches_as_in_sql(queue: Queue, condition: str, wanted: bool) -> None:
    properties: dict[str, Any] = {
        "level": 5, "site": "KFTG", "flag": True, "odd name": "x", "size": "big", "nan": math.nan, "percent": "50%",
        "big": 2**53 + 1,
    }  # fmt: skip
    where = Where(condition)
    assert where.test(product(**properties)) is wanted
    queue.put(b"payload", feed="wx/text", ident="SAUS70 KWBC", created=NOW_NS, properties=properties)
    kept = queue.read_batch()
    if "sequence" not in condition and "inserted" not in condition:
        assert where.mask(kept, 0).tolist() == [wanted]


@pytest.mark.parametrize(
    ("condition", "column", "words"),
    [
        ("", 1, "empty"), ("a =", 4, "missing after '='"), ("a = 1 b", 7, "'b' is not allowed here"), ("(a = 1", 1, "not closed"), ("a = 1)", 6, "has no matching"),
        ("a = 'x", 5, "quote"), ("a = 1; DROP TABLE x", 6, "';'"), ("lower(a) = 'x'", 1, r"LOWER\(\)"), ("f(a) = 1", 1, r"f\(\)"), ("b = 1 AND count(*) > 1", 11, "COUNT"),
        ("a IN (SELECT 1)", 1, "no query"), ("(SELECT 1) = 1", 2, "query inside"), ("EXISTS (SELECT 1)", 1, "query inside"), ("a IN ()", 1, "empty list"),
        ("CAST(a AS INT) = 1", 6, "cast"), ("a::int = 1", 1, "cast"), ("a % 2 = 0", 1, "%"), ("a || 'x' = 'y'", 1, r"\|\|"), ("CASE WHEN a THEN b END", 11, "CASE"),
        ("x = 1 AND created > 'noon'", 21, "not a time"), ("created > 5", 11, "created is never 5"), ("feed = 5", 8, "feed is never 5"), ("priority = 'high'", 12, "never 'high'"),
        ("created + 1 > 3", 1, "only numbers"), ("'a' + 1 > 3", 1, "only numbers"), ("Size > 3", 1, "field or a property"), ("a.b = 1", 1, "not a name"), ("a.b.c = 1", 1, "three parts"),
        ("a LIKE b", 1, "takes a text"), ("a LIKE 'x' ESCAPE 'ab'", 1, "one character"), ("a LIKE 'x!' ESCAPE '!'", 1, "ends with its escape"), ("a IS TRUE", 1, "IS takes NULL"),
        ("size", 1, "not a condition"), ("a = 1 AND 5", 11, "not a condition"), ("NOT 'x'", 5, "not a condition"), ("a + 1", 1, "not a condition"), ("a = ‘x’", 5, "not a name"),
        ("a = 1e999", 5, "out of range"), ("(1, 2) = (1, 2)", 2, "list of values"), ("a = ?", 1, "Placeholder"),
    ],
)  # fmt: skip
def test_an_error_has_its_column(condition: str, column: int, words: str) -> None:
    with pytest.raises(SelectionError, match=words) as caught:
        Where(condition)
    assert caught.value.column == column


@pytest.mark.parametrize(
    "condition",
    ["(" * 100 + "a" + ")" * 100, "NOT " * 100 + "a", "- " * 100 + "a = 1", " + ".join("a" * 500) + " = 1", "a = 1 OR " * 700 + "a = 1",
     "(" * 8000, "a" * 9000, "a IN (" * 60 + "1" + ")" * 60],
)  # fmt: skip
def test_a_condition_over_a_limit_is_refused(condition: str) -> None:
    with pytest.raises(SelectionError):
        Where(condition)


def test_equalities_are_the_comparisons_joined_by_and() -> None:
    assert Where("a = 1 AND 'x' = b AND c > 2 AND (d = 3 OR e = 4) AND NOT f = 5").equalities == {"a": 1, "b": "x"}
    assert Where("a = 1 OR b = 2").equalities == {}
    assert Where("feed = 'wx' AND properties.feed = 7").equalities == {"feed": "wx", "properties.feed": 7}
    assert Where("feed = 'wx' AND (properties.size > 7 OR x IN (1))").names == {"feed", "properties.size", "x"}


def test_values_of_several_types_may_share_a_name(queue: Queue) -> None:
    rows: list[dict[str, Any]] = [
        {"x": 5},
        {"x": 5.0},
        {"x": "5"},
        {"x": True},
        {},
        {"x": 2**60},
        {"y": 5},
        {"xx": 5, "x": 6},
    ]
    batch = batch_of(queue, rows)
    for condition in (
        "x = 5",
        "x = '5'",
        "x",
        "NOT x",
        "x > 5",
        "x <> 5",
        "x IN (5, '5')",
        "x IS NULL",
        "x + 1 = 6",
        "x LIKE '5'",
        "x * x > 30",
    ):
        where = Where(condition)
        assert where.mask(batch, 0).tolist() == [where.test(product) for product in batch], condition


def test_the_mask_of_an_empty_batch_is_empty(queue: Queue) -> None:
    assert Where("x = 5 AND feed LIKE 'a%'").mask(queue.read_batch(), 0).tolist() == []


# --- SQLite as the reference ----------------------------------------------------------------------
#
# The common subset: typed columns, so that no comparison mixes types, and division of floats only.

NUMBERS, TEXTS = ("a", "b"), ("s", "t")
constants = some.one_of(some.integers(-4, 4).map(str), some.sampled_from(["0.5", "-1.5", "2.0"]))
words = some.sampled_from(["'x'", "'xy'", "'X'", "''", "'%'", "'é'", "'x_'"])


def _numbers() -> some.SearchStrategy[str]:
    leaf = some.one_of(some.sampled_from(NUMBERS), constants)
    return some.recursive(
        leaf,
        lambda inner: some.one_of(
            some.tuples(inner, some.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            some.tuples(inner, inner).map(lambda t: f"((1.0 * {t[0]}) / {t[1]})"),
            inner.map(lambda t: f"(- {t})"),
        ),
        max_leaves=4,
    )


def _tests() -> some.SearchStrategy[str]:
    signs = some.sampled_from(["=", "<>", "<", "<=", ">", ">=", "!="])
    numbers, texts = _numbers(), some.one_of(some.sampled_from(TEXTS), words)
    negation = some.sampled_from(["", "NOT "])
    leaf = some.one_of(
        some.tuples(numbers, signs, numbers).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        some.tuples(texts, signs, texts).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        some.tuples(numbers, negation, some.lists(some.one_of(constants, some.just("NULL")), min_size=1, max_size=3)).map(
            lambda t: f"{t[0]} {t[1]}IN ({', '.join(t[2])})"
        ),
        some.tuples(texts, negation, some.lists(words, min_size=1, max_size=3)).map(lambda t: f"{t[0]} {t[1]}IN ({', '.join(t[2])})"),
        some.tuples(numbers, negation, numbers, numbers).map(lambda t: f"{t[0]} {t[1]}BETWEEN {t[2]} AND {t[3]}"),
        some.tuples(some.sampled_from(TEXTS), negation, some.text("x%_y!", max_size=4)).map(
            lambda t: f"{t[0]} {t[1]}LIKE '{t[2]}'" if t[2].endswith("!") or "!" not in t[2] else f"{t[0]} {t[1]}LIKE '{t[2]}!!' ESCAPE '!'"
        ),
        some.tuples(some.sampled_from(NUMBERS + TEXTS), negation).map(lambda t: f"{t[0]} IS {t[1]}NULL"),
    )  # fmt: skip
    return some.recursive(
        leaf,
        lambda inner: some.one_of(
            some.tuples(inner, some.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
            inner.map(lambda t: f"NOT ({t})"),
        ),
        max_leaves=5,
    )


rows = some.fixed_dictionaries(
    {},
    optional={
        "a": some.one_of(some.integers(-4, 4), some.sampled_from([0.5, -1.5, 2.0])),
        "b": some.one_of(some.integers(-4, 4), some.sampled_from([0.5, -1.5, 2.0])),
        "s": some.sampled_from(["x", "xy", "X", "", "%", "é", "x!", "y"]),
        "t": some.sampled_from(["x", "xy", "X", "", "%", "é", "yx", "y"]),
    },
)


@given(_tests(), some.lists(rows, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_scalar_evaluation_agrees_with_sqlite(condition: str, given_rows: list[dict[str, Any]]) -> None:
    judge = sqlite3.connect(":memory:")
    judge.execute("PRAGMA case_sensitive_like = ON")
    evaluate_one = compiled(parse_condition(condition))
    for row in given_rows:
        values = [row.get(name) for name in NUMBERS + TEXTS]
        (answer,) = judge.execute(f"SELECT {condition} FROM (SELECT ? AS a, ? AS b, ? AS s, ? AS t)", values).fetchone()
        assert evaluate_one(product(**row)) is (None if answer is None else bool(answer)), (condition, row)
    judge.close()


# --- scalar and vector evaluation -----------------------------------------------------------------

names = some.sampled_from(["x", "y", "order", "odd name", "size", "Feed", 'q"uote', "null"]).map(
    lambda name: ex.Name(name, False)
)
fields = some.sampled_from(list(ex.FIELDS)).map(lambda name: ex.Name(name, True))
scalars = some.one_of(
    some.integers(-(2**63) + 1, 2**63 - 1), some.integers(-3, 3), some.floats(allow_nan=False, allow_infinity=False), some.booleans(),
    some.sampled_from(["", "a", "ab", "it's", 'q"', "%"]), some.none(),
)  # fmt: skip
given_values = some.one_of(scalars.filter(lambda value: value is not None), some.just(math.nan), some.just(math.inf))


def _trees() -> some.SearchStrategy[Any]:
    leaf = some.one_of(names, scalars.map(ex.Value))
    pairs = some.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    return some.recursive(
        leaf,
        lambda inner: some.one_of(
            some.builds(ex.Comparison, pairs, inner, inner),
            some.builds(ex.Arithmetic, some.sampled_from("+-*/"), inner, inner),
            some.builds(ex.Negative, inner),
            some.builds(ex.Not, inner),
            some.builds(ex.IsNull, inner),
            some.builds(ex.Like, inner, some.text("ab%_A", max_size=4), some.just(""), some.booleans()),
            some.builds(ex.In, inner, some.lists(scalars.filter(lambda v: v is not None), min_size=1, max_size=3).map(tuple)),
            some.builds(ex.And, some.tuples(inner, inner)),
            some.builds(ex.Or, some.tuples(inner, inner)),
        ),
        max_leaves=6,
    )  # fmt: skip


@pytest.fixture(scope="module")
def one_queue(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Queue.create(tmp_path_factory.mktemp("where") / "q", size="8MiB", dedup="none", origin="here") as queue:
        yield queue


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


def _value(column: Any, place: int) -> Any:
    """The value of a column at one place, as a Python value."""
    at = place if len(column.kinds) > 1 else 0
    kind = column.kinds[at]
    if kind == 0:
        return None
    if kind == 2:
        texts = column.texts
        return texts.as_py() if not hasattr(texts, "__len__") else texts[at].as_py()
    if kind == 3:
        return bool(column.truths[at if len(column.truths) > 1 else 0])
    number = column.numbers[at if len(column.numbers) > 1 else 0]
    return number.item() if isinstance(number, np.generic) else number


@given(
    _trees(), some.lists(some.dictionaries(some.sampled_from(["x", "y", "order", "odd name", "size"]), given_values, max_size=4), min_size=1, max_size=5)
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_scalar_and_vector_evaluation_agree(one_queue: Queue, tree: Any, given_rows: list[dict[str, Any]]) -> None:
    batch = batch_of(one_queue, given_rows)
    column = evaluate(tree, Fields(batch, np.arange(len(batch))))
    evaluate_one = compiled(tree)
    for place, row in enumerate(batch):
        one, many = evaluate_one(row), _value(column, place)
        numbers = isinstance(one, int | float) and isinstance(many, int | float) and not isinstance(one, bool)
        assert one == many if numbers else _same(one, many), (text_of(tree), given_rows[place])


@given(_trees())
@settings(max_examples=300, deadline=None)
def test_the_canonical_text_parses_to_the_same_condition(tree: Any) -> None:
    text = text_of(tree)
    try:
        again = parse_condition(text)
    except SelectionError:
        return  # a tree that no text can mean: 'a' + 1, or one that is not a condition
    assert text_of(parse_condition(text_of(again))) == text_of(again)
    for row in ({}, {"x": 1, "y": 2.5}, {"x": "a", "order": True, "odd name": "ab", "size": 3, 'q"uote': -1}):
        one = product(**row)
        assert compiled(again)(one) == compiled(tree)(one)


def test_every_word_of_sql_can_name_a_property() -> None:
    from sqlglot.tokens import Tokenizer

    for word in sorted({word.lower() for word in Tokenizer.KEYWORDS if word.isidentifier()}):
        tree = ex.Comparison("=", ex.Name(word, False), ex.Value(1))
        assert parse_condition(text_of(tree)) == tree, word


def test_a_truncated_property_block_gives_no_value(queue: Queue) -> None:
    from headrace.selection.where.columns import _Blocks

    sound = queue.put(b"1", feed="a", properties={"x": 5, "y": "text"})
    block = queue.read_batch(int(sound)).property_block(0)  # type: ignore[arg-type]
    cut = [block[:length] for length in range(len(block))]
    kinds = _Blocks([*cut, block]).column("y").kinds.tolist()
    assert kinds == [0] * len(cut) + [2]


def test_a_property_is_found_among_many(queue: Queue) -> None:
    batch = batch_of(queue, [{f"n{n}": n for n in range(100)}, {"n99": "text"}, {}])
    assert Where("n99 = 99 AND n0 = 0").mask(batch, 0).tolist() == [True, False, False]
