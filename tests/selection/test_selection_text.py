"""The text of a selection: parsing, writing, and errors with their column."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from headrace import Selection
from headrace.errors import SelectionError
from headrace.selection.writing import CLAUSES

FULL = (
    'wx/radar/** ident ~ "^L2" ident !~ "TEST" tag 7,9 tag run=5 tag type="physics" priority 5.. origin ldm1,ldm2 '
    "slice 0-7,12 created 2026-01-01..2026-01-02T12:00Z age < 1h replay false every 10 "
    "xpath \"//alert[@severity='3']\" where level > 3 AND site IN ('KFTG', 'KDEN')"
)


def test_a_text_equals_its_arguments() -> None:
    assert Selection.parse(FULL) == Selection(
        "wx/radar/**", ident="^L2", not_ident="TEST", tags={"tag": [7, 9], "run": 5, "type": "physics"},
        priority=(5, 7), origin=["ldm2", "ldm1"], slices=[0, 1, 2, 3, 4, 5, 6, 7, 12],
        created=(datetime(2026, 1, 1, tzinfo=UTC), "2026-01-02T12:00"), max_age_s=3600, replay=False, every=10,
        xpath="//alert[@severity='3']", where="level > 3 and site in ('KFTG','KDEN')",
    )  # fmt: skip


def test_a_text_equals_its_table() -> None:
    table = {
        "feed": "wx/radar/**", "ident": "^L2", "not_ident": "TEST", "tags": {"tag": [7, 9], "run": 5, "type": "physics"},
        "priority": "5..", "origin": ["ldm1", "ldm2"], "slices": "0-7,12",
        "created": "2026-01-01..2026-01-02T12:00Z", "max_age_s": 3600.0, "replay": False, "every": 10,
        "xpath": "//alert[@severity='3']", "where": "level > 3 AND site IN ('KFTG', 'KDEN')",
    }  # fmt: skip
    assert Selection.from_dict(table) == Selection.parse(FULL)
    assert Selection.parse(FULL).to_dict() == table


def test_the_canonical_order_of_tags_is_by_name() -> None:
    assert str(Selection.parse(FULL)) == FULL.replace("tag 7,9 tag run=5", "tag run=5 tag 7,9")


def test_a_feed_pattern_alone_is_a_selection() -> None:
    assert Selection.of("wx/radar/**") == Selection("wx/radar/**")
    assert str(Selection("wx/radar/**")) == "wx/radar/**"


def test_two_stars_select_everything() -> None:
    assert str(Selection()) == "**"
    assert Selection.parse("**") == Selection("**") == Selection() == Selection.of(None)
    assert Selection().to_dict() == {}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("priority >= 5", "priority 5.."), ("priority<=3", "priority ..3"), ("priority 4..4", "priority 4"),
        ("priority 0..7", "**"), ("age < 3600s", "age<1h"), ("age < 0.25s", "age < 250ms"),
        ("slice 3,1,2", "slice 1-3"), ("slice 1, 2", "slice 1-2"), ("origin b, a ,b", "origin a,b"),
        ("tag 9,7,7", "tag 7,9"), ("tag tag=7", "tag 7"), ("tag x = 5.0", "tag x=5"), ("tag x=abc", "tag x='abc'"),
        ("tag x=TRUE", "tag x=true"), ("tag b=1 tag a=2", "tag a=2 tag b=1"), ("every 1", "**"),
        ("created 2026-01-01T00:00:00Z..", "created 2026-01-01.."), ("created ..2026-01-01T01:00+01:00", "created ..2026-01-01"),
        ("ident ~ ^SA", 'ident ~ "^SA"'), ("IDENT ~ x WHERE a = 1", 'ident ~ "x" where a=1'),
        ("xpath //a[@b='c']", "xpath \"//a[@b='c']\""), ("a/**/**", "a/**"), ("**/*/a", "*/**/a"),
        ("where a BETWEEN 1 AND 2", "where a >= 1 AND a <= 2"), ("where (((a)))", "where a"), ("where 3 < a", "where a > 3"),
        ("where a != 1", "where a <> 1"),
        ("where created > '2026-01-01T00:00'", "where created > '2026-01-01'"),
    ],
)  # fmt: skip
def test_texts_with_the_same_meaning_are_equal(text: str, same: str) -> None:
    assert Selection.parse(text) == Selection.parse(same)
    assert str(Selection.parse(text)) == str(Selection.parse(same))
    assert hash(Selection.parse(text)) == hash(Selection.parse(same))


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "empty"), ("   ", 4, "empty"), ("wx/** foo 3", 7, "no clause 'foo'"), ("wx/** priorty 3", 7, "did you mean priority"),
        ("wx/** a/b", 7, "comes first"), ("wx run=5", 4, "write tag run=5"), ("wx/ra*dar", 1, "illegal level"),
        ('wx ident ~ "a(', 12, "not closed"), ('wx ident ~ "a("', 12, "missing"), ("wx ident = x", 10, "has no ~"),
        ("wx ident ~", 11, "no value"), ("wx priority 9", 13, "out of range"), ("wx priority 6..5", 13, "out of range"),
        ("wx priority ..", 13, "invalid"), ("wx slice 65535", 10, "out of range"), ("wx slice 3-1", 10, "out of range"),
        ("wx slice x", 10, "invalid"), ("wx every 0", 10, "prescale"), ("wx every ten", 10, "prescale"),
        ("wx origin a/b", 11, "site id"), ("wx created 2026", 12, "not a time range"), ("wx created 2026-01-02..2026-01-01", 12, "before it begins"),
        ("wx created yesterday..", 12, "not a time"), ("wx age 1h", 8, "has no <"), ("wx age < soon", 10, "length of time"),
        ("wx age < 0s", 10, "out of range"), ("wx tag", 7, "no value"), ("wx tag run", 11, "has no value"), ("wx tag 1 tag 2", 10, "given twice"),
        ("wx tag run=5 tag run=6", 14, "given twice"), ("wx tag x=99999999999999999999", 8, "64 bits"), ("wx every 2 every 2", 12, "given twice"),
        ("tag", 4, 'quote a feed of that name: "tag"'), ("wx where", 9, "no condition"), ("wx where a = ", 13, "missing after"),
        ("wx where a = 1 1", 16, "is not allowed"), ("wx where a = 1 every 5", 16, "write every before it"), ("wx where f(a) = 1", 10, r"function f\(\)"), ("wx where a IN (SELECT 1)", 10, "no query"),
        ('wx xpath "//a["', 15, "not closed"), ('wx xpath "//a[""x"" = $y]"', 23, "variables"), ("wx xpath //a::b", 12, "axis 'a'"),
        ("function <f>", 10, "has no text"), ("function", 9, "no value"), ("function a/b", 10, "not the name of a function"), ("wx ident ~ a ident ~ b", 14, "given twice"), ("wx.*", 1, "nats:wx"),
    ],
)  # fmt: skip
def test_an_error_has_its_column(text: str, column: int, words: str) -> None:
    with pytest.raises(SelectionError, match=words) as caught:
        Selection.parse(text)
    assert caught.value.column == column
    shown, caret = str(caught.value).splitlines()[-2:]
    assert shown == f"  {text}"
    assert caret == " " * (column + 1) + "^"
    assert caught.value.hint


def test_an_unknown_clause_names_the_known_ones() -> None:
    with pytest.raises(SelectionError) as caught:
        Selection.parse("wx/** colour red")
    assert all(clause in caught.value.hint for clause in CLAUSES)


def test_a_long_text_is_shown_around_the_error() -> None:
    with pytest.raises(SelectionError) as caught:
        Selection.parse("wx " + " ".join(f"tag t{n}=1" for n in range(500)) + " priority 9")
    shown, caret = caught.value.excerpt.splitlines()
    assert len(shown) < 120
    assert shown[len(caret) - 1 :].startswith("9")


@pytest.mark.parametrize(
    "text", ["a" * 16385, "ident ~ " + "a" * 1025, "where " + " OR ".join(["a=1"] * 2000), "xpath " + "/a" * 600]
)
def test_a_text_over_its_limit_is_refused(text: str) -> None:
    with pytest.raises(SelectionError, match="more than"):
        Selection.parse(text)


@pytest.mark.parametrize(
    "pattern",
    [
        "a.{999}z",
        "(.{0,30}.{0,30}){16}",
        r"\pL{0,100}",
        "((a{100}){10}){2}",
        "|".join(f".*a.{{{n}}}z" for n in range(60)),
    ],
)
def test_a_pattern_that_expands_beyond_its_limit_is_refused(pattern: str) -> None:
    with pytest.raises(SelectionError, match=r"too large|repetition"):
        Selection(ident=pattern)


def test_invalid_arguments_are_refused() -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"priority": 8}, "out of range"), ({"priority": True}, "invalid"), ({"slices": []}, "list of slices is empty"), ({"slices": 3.5}, "invalid"),
        ({"origin": []}, "0 site ids"), ({"origin": 5}, "invalid"), ({"tags": "x"}, "invalid"), ({"tags": []}, "list of tags is empty"),
        ({"tags": {"x": []}}, "0 values"), ({"tags": {"x": float("nan")}}, "nan"), ({"tags": {"": 1}}, "property name '' is invalid"),
        ({"tags": {"x": b"y"}}, "is a"), ({"created": 5}, "range"), ({"created": ("x", None)}, "time"), ({"max_age_s": -1}, "length of time"),
        ({"every": 0}, "prescale"), ({"every": True}, "prescale"), ({"where": 5}, "not text"), ({"xpath": ""}, "not an expression"),
        ({"function": 5}, "callable"), ({"ident": 5}, "not text"), ({"not_ident": "("}, "missing"),
    ]  # fmt: skip
    for arguments, words in bad:
        with pytest.raises(SelectionError, match=words):
            Selection(**arguments)
    with pytest.raises(SelectionError, match="a selection has no"):
        Selection.from_dict({"feeds": "a"})
    with pytest.raises(SelectionError, match="not a selection"):
        Selection.of(5)  # type: ignore[arg-type]


def test_a_condition_given_as_an_argument_is_shown_with_a_caret() -> None:
    with pytest.raises(SelectionError) as caught:
        Selection(where="level >")
    assert (caught.value.column, caught.value.excerpt) == (8, "  level >\n         ^")


def test_replace_changes_and_removes() -> None:
    selection = Selection.parse("wx/** priority 5.. every 3")
    assert selection.replace(every=1, priority=None) == Selection("wx/**")
    assert selection.replace(feed="a", where="b = 1") == Selection.parse("a priority 5.. every 3 where b = 1")


def test_a_function_that_is_named_has_a_text() -> None:
    selection = Selection("wx/**", function="strong_wind", where="a = 1")
    assert str(selection) == "wx/** function strong_wind where a = 1"
    assert Selection.parse(str(selection)) == selection
    assert Selection.from_dict(selection.to_dict()) == selection
    assert pickle.loads(pickle.dumps(selection)) == selection
    with pytest.raises(SelectionError, match="not the name of a function"):
        Selection(function="strong wind")


def test_a_python_function_has_no_text() -> None:
    selection = Selection("wx/**", function=len, where="a = 1")  # type: ignore[arg-type]
    assert str(selection) == "wx/** function <len> where a = 1"
    assert Selection.of(len).function is len  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="function"):
        Selection.parse(str(selection))
    with pytest.raises(SelectionError, match="function"):
        selection.to_dict()


# --- round trips ----------------------------------------------------------------------------------

levels = some.sampled_from(["a", "wx", "tag", "where", "Ident", "é", "x=1", "a,b", "*", "**", "m:n"])
feeds = some.lists(levels, min_size=1, max_size=4).map("/".join)
texts = some.text(some.characters(exclude_categories=["Cs"]), max_size=12)
values = some.one_of(
    some.integers(-(2**63), 2**63 - 1), some.booleans(), some.floats(allow_nan=False, allow_infinity=False), texts
)
moments = some.one_of(some.none(), some.integers(0, 2**63 - 1))
patterns = some.one_of(some.sampled_from(["^SA", "a\"b'c", "x y", "\\d+\n", ""]), some.text("ab\"' .", max_size=6))
paths = some.sampled_from(["//alert[@a='3']", '//a["x"]', "count(//b) > 2", '//a["it\'s"]'])
conditions = some.sampled_from(
    ["a = 1", "level > 3 OR NOT (x LIKE '%''\"')", "created < '2026-01-01'", '"order" IS NULL']
)
arguments = some.fixed_dictionaries(
    {},
    optional={
        "feed": some.lists(feeds, min_size=1, max_size=3).map("|".join),
        "ident": patterns,
        "not_ident": patterns,
        "tags": some.one_of(
            some.lists(some.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
            some.dictionaries(texts.filter(bool), some.one_of(values, some.lists(values, min_size=1, max_size=3)), min_size=1, max_size=3),
        ),
        "priority": some.tuples(some.integers(0, 7), some.integers(0, 7)).map(sorted).map(tuple),
        "origin": some.lists(some.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), min_size=1, max_size=3),
        "slices": some.lists(some.integers(0, 65534), min_size=1, max_size=6),
        "created": some.tuples(moments, moments).filter(lambda c: None in c or c[0] < c[1]),
        "max_age_s": some.floats(1e-9, 1e9),
        "replay": some.booleans() | some.just("00ff" * 4),
        "every": some.integers(1, 10**9),
        "xpath": paths,
        "where": conditions,
    },
)  # fmt: skip


@given(arguments)
@settings(max_examples=200, deadline=None)
def test_every_form_converts_back_to_the_same_selection(given: dict[str, Any]) -> None:
    selection = Selection(**given)
    text = str(selection)
    assert Selection.parse(text) == selection
    assert str(Selection.parse(text)) == text
    assert Selection.from_dict(selection.to_dict()) == selection
    assert selection.replace() == selection
    assert pickle.loads(pickle.dumps(selection)) == selection
    assert hash(Selection.parse(text)) == hash(selection)


@given(arguments)
@settings(max_examples=100, deadline=None)
def test_the_table_survives_toml_and_json(given: dict[str, Any]) -> None:
    import tomllib

    import msgspec

    from headrace.toml.kinds import toml_lines

    table = Selection(**given).to_dict()
    assert msgspec.json.decode(msgspec.json.encode(table)) == table
    assert Selection.from_dict(tomllib.loads("\n".join(toml_lines(table)))) == Selection(**given)


@given(some.text("wx/* ident~!tag=\"'priority59.,<where()x-", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_parses_or_raises_an_error_with_its_column(text: str) -> None:
    try:
        selection = Selection.parse(text)
    except SelectionError as error:
        assert error.column is None or 1 <= error.column <= len(text) + 1
    else:
        assert Selection.parse(str(selection)) == selection
