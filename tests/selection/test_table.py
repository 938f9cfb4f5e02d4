"""The table finds exactly the subscriptions that match a product, whichever index holds them."""

import dataclasses
import random
from collections.abc import Hashable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SelectionError
from headrace.product.product import MadeProduct, Product
from headrace.selection import Selection
from headrace.selection.table.table import SubscriptionTable

EMPTY = MadeProduct(
    feed="wx/text/metar", ident="SAUS70 KWBC 060000 /pMETAR", payload=memoryview(b"<a><b>7</b></a>"), sequence=1,
    signature=b"", origin="here", origin_sequence=1, previous=None, created_ns=1_000_000_000, inserted_ns=2,
)  # fmt: skip


def product(**fields: Any) -> Product:
    if "properties" in fields:
        fields["properties"] = MappingProxyType(dict(fields["properties"]))
    return dataclasses.replace(EMPTY, **fields)


def keys(table: SubscriptionTable, **fields: Any) -> list[Hashable]:
    return sorted(table.matches(product(**fields)), key=str)


def holds_nothing(table: SubscriptionTable) -> bool:
    """No index keeps an entry of a removed subscription."""
    return (
        len(table) == 0
        and all(len(index) == 0 for index in table._indexes.values())
        and not table._finders
        and not table._by_meaning
        and not table._owned
    )


# --- exactness ------------------------------------------------------------------------------------

LEVELS = ["a", "b", "c"]
VALUES = st.sampled_from([0, 1, 2, 7, 1.0, 2.5, True, False, "a", "7", ""])
NAMES = st.sampled_from(["tag", "x", "y", "size", "feed"])
PROPERTIES = st.dictionaries(NAMES, VALUES, max_size=4)
FEEDS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join)
PATTERN = st.lists(st.sampled_from([*LEVELS, "*", "**"]), min_size=1, max_size=6).map("/".join)
PATTERNS = st.one_of(PATTERN, st.lists(PATTERN, min_size=2, max_size=3).map("|".join))
IDENTS = st.text("abcdABkKsS \n-éſ\u212a", max_size=8)
REGEXES = st.sampled_from(
    [
        "abc", "^abc", "abc$", "^abc$", "a.*bcd", "(abc|bcd)", "abc|b", "(?i)abk", "(?i)sss|kkk", "ab?cd", "[ab]bc",
        "a+bcd", "(abc)+", "(abc)*", "x*", "", "^$", "$^", "^^abc", "a{2}b", r"\bab c", r"\Qab c\E", "(?m)^abc$", "é",
        "(?i)éabc", "[[:alpha:]]bcd", "(abc|)d", "(?:ab|cd)(?:ab|cd)", "(?:^|b)abc", "a|^bcd", r"\Aabc\z",
    ]
)  # fmt: skip
CONDITIONS = st.sampled_from(
    [
        "x = 1", "x = 7 AND y = 'a'", "x = TRUE", "x = 2.5", "feed = 'a/b'", "ident = 'abc'", "origin = 'here'",
        "slice = 3", "size = 15", "properties.size = 7", "x = 1 OR y = 2", "x > 1", "x = 7 AND size > 3", "x = NULL",
        "NOT x = 7", "priority = 4 AND x = 7", "'a' = x", "x = 7 AND x = 1", "tag IN (1, 7)", "ident = 'abcabc'",
    ]
)  # fmt: skip
TAGS = st.one_of(
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.dictionaries(NAMES, st.one_of(VALUES, st.lists(VALUES, min_size=1, max_size=3)), min_size=1, max_size=3),
)
SELECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "feed": PATTERNS, "ident": REGEXES, "not_ident": REGEXES, "tags": TAGS, "where": CONDITIONS,
        "origin": st.sampled_from(["here", "there", ["here", "there"]]), "slices": st.sampled_from(["3", "0-7", "9"]),
        "priority": st.sampled_from(["5..", 4]), "xpath": st.sampled_from(["//b = 7", "//c"]),
    },
).map(lambda clauses: Selection(**clauses))  # fmt: skip
PRODUCTS = st.builds(
    product,
    feed=FEEDS, ident=IDENTS, properties=PROPERTIES, origin=st.sampled_from(["here", "else"]),
    slice=st.sampled_from([None, 3, 9]), priority=st.integers(3, 6),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(SELECTIONS, st.builds(Selection, tags=TAGS), st.builds(Selection, feed=PATTERNS)), max_size=40),
    st.lists(PRODUCTS, min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_table_finds_exactly_the_matching_selections(
    selections: list[Selection], products: list[Product], chance: random.Random
) -> None:
    table = SubscriptionTable()
    held = dict(enumerate(selections))
    for key, selection in held.items():
        table.add(key, selection)
    for _ in range(2):
        for some in products:
            found = table.matches(some)
            assert sorted(found) == [key for key, selection in held.items() if selection.wants(some)]  # type: ignore[type-var]
        for key in chance.sample(sorted(held), len(held) // 2):
            assert table.remove(key)
            del held[key]
    for key in held:
        table.remove(key)
    assert holds_nothing(table)


@settings(max_examples=100, deadline=None)
@given(st.lists(REGEXES, max_size=12), st.lists(IDENTS, min_size=1, max_size=8))
def test_patterns_are_found_by_the_texts_that_they_require(regexes: list[str], idents: list[str]) -> None:
    table = SubscriptionTable()
    for number, regex in enumerate(regexes):
        table.add(number, Selection(ident=regex))
    for ident in [*idents, "abc", "abcd bcd", "ABK", "ſſſ \u212akK"]:
        some = product(ident=ident)
        wanted = [number for number, regex in enumerate(regexes) if Selection(ident=regex).wants(some)]
        assert sorted(table.matches(some)) == wanted  # type: ignore[type-var]


def test_equal_selections_are_evaluated_once_for_all_their_keys() -> None:
    table = SubscriptionTable()
    for number in range(100):
        table.add(number, Selection("wx/**", where="size > 3"))
    assert len(keys(table)) == 100
    statistics = table.statistics()
    assert (statistics.keys, statistics.selections, statistics.checked) == (100, 1, 1)


def test_true_and_one_are_different_tags() -> None:
    table = SubscriptionTable()
    for key, value in (("true", True), ("one", 1), ("real", 1.0), ("text", "1")):
        table.add(key, Selection(tags={"x": value}))
    assert keys(table, properties={"x": True}) == ["true"]
    assert keys(table, properties={"x": 1}) == ["one", "real"]
    assert keys(table, properties={"x": "1"}) == ["text"]


def test_every_nth_is_counted_for_each_key_from_its_addition() -> None:
    table = SubscriptionTable()
    table.add("all", "wx/**")
    table.add("third", Selection("wx/**", every=3))
    found = [keys(table)]
    table.add("second", Selection("wx/**", every=2))
    table.add("late", Selection("wx/**", every=3))
    found += [keys(table) for _ in range(3)]
    table.matches(product(feed="other"))
    assert found == [["all"], ["all"], ["all", "second", "third"], ["all", "late"]]


def test_the_age_is_measured_against_the_given_time() -> None:
    table = SubscriptionTable()
    table.add("fresh", Selection("wx/**", max_age_s=10))
    assert table.matches(product(), now_ns=5_000_000_000) == ["fresh"]
    assert table.matches(product(), now_ns=50_000_000_000) == []


def test_a_function_that_raises_matches_nothing_and_is_counted() -> None:
    def broken(_: Product) -> bool:
        raise RuntimeError("broken")

    table = SubscriptionTable()
    table.add("sound", "wx/**")
    table.add("broken", broken)
    assert [keys(table) for _ in range(3)] == [["sound"]] * 3
    assert table.statistics().failed == 3
    assert table.remove("broken")
    assert table.statistics().failed == 3


# --- keys -----------------------------------------------------------------------------------------


def test_any_hashable_value_is_a_key() -> None:
    table = SubscriptionTable()
    for key in (1, "1", (1, 2), None, frozenset([3])):
        table.add(key, "wx/**")
    assert len(keys(table)) == len(table) == 5
    assert (1, 2) in table
    assert (2, 1) not in table


def test_a_key_in_use_is_refused_and_changes_nothing() -> None:
    table = SubscriptionTable()
    table.add("a", "wx/**")
    with pytest.raises(SelectionError, match="under another key"):
        table.add("a", "other/**")
    assert keys(table) == ["a"]
    assert keys(table, feed="other/x") == []


def test_remove_returns_whether_the_key_was_present() -> None:
    table = SubscriptionTable()
    table.add("a", "wx/**")
    assert table.remove("a")
    assert not table.remove("a")
    assert holds_nothing(table)


def test_removal_in_any_order_leaves_nothing_behind() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    table = SubscriptionTable()
    for number in range(2000):
        table.add(number, _some_selection(chance, number))
    order = list(range(2000))
    chance.shuffle(order)
    for number in order:
        assert table.remove(number)
    assert holds_nothing(table)


def _some_selection(chance: random.Random, number: int) -> Selection:
    kind = number % 8
    if kind == 0:
        return Selection(tags=[chance.randrange(50), chance.randrange(50)])
    if kind == 1:
        return Selection(tags={f"t{name}": chance.randrange(3) for name in chance.sample(range(9), 4)})
    if kind == 2:
        return Selection(ident=f"^S[AP]US7{number} (KWBC|KFTG)")
    if kind == 3:
        return Selection("/".join(chance.choices(["wx", "a", "*", "**", "x"], k=4)))
    if kind == 4:
        return Selection(where=f"x = {chance.randrange(20)} AND size > {number}")
    if kind == 5:
        return Selection(f"wx/{chance.randrange(9)}", priority="5..")
    if kind == 6:
        return Selection(slices=[number, number + 1], origin=f"site{number % 7}")
    return Selection(where=f"size > {number}", every=1 + number % 3)


# --- bounds ---------------------------------------------------------------------------------------


def test_patterns_without_usable_text_are_unindexed_and_bounded() -> None:
    table = SubscriptionTable(unindexed_max=3)
    for number, pattern in enumerate([".*x.*", "[a-z]+", "^$"]):
        table.add(number, Selection(ident=pattern))
    with pytest.raises(
        SelectionError, match=r"3 subscriptions are already checked one by one for every product.*unindexed_max"
    ):
        table.add("more", Selection(ident="y"))
    assert table.statistics().unindexed == len(table) == 3
    table.add("same", Selection(ident=".*x.*"))
    table.add("indexed", Selection(ident="KWBC"))
    table.remove(1)
    table.add("more", Selection(ident="y"))


def test_the_unindexed_subscriptions_of_one_owner_are_bounded() -> None:
    table = SubscriptionTable(unindexed_owner_max=2)
    for number in range(2):
        table.add(number, Selection(where=f"size > {number}"), owner="anna")
    with pytest.raises(SelectionError, match=r"'anna' already has 2 subscriptions.*unindexed_owner_max"):
        table.add(2, Selection(where="size > 2"), owner="anna")
    assert 2 not in table
    assert table.statistics().selections == 2
    table.add(2, Selection(where="size > 2"), owner="berta")
    table.add("indexed", Selection("wx/**"), owner="anna")
    table.remove(0)
    table.add(0, Selection(where="size > 0"), owner="anna")


def test_the_subscriptions_under_one_index_term_are_bounded() -> None:
    table = SubscriptionTable(unindexed_max=5)
    for number in range(5):
        table.add(number, Selection("wx/**", where=f"size > {number}"))
    with pytest.raises(SelectionError, match="under the same feed pattern"):
        table.add(5, Selection("wx/**", where="size > 5"))
    for number in range(5, 50):
        table.add(number, "wx/**")
    assert len(keys(table)) == 50


def test_a_selection_is_indexed_under_its_least_crowded_term() -> None:
    table = SubscriptionTable()
    for number in range(500):
        table.add(number, Selection("wx/text/metar", ident=f"K{number:03}"))
    assert keys(table, ident="SAUS70 K017") == [17]
    assert table.statistics().checked < 20


@pytest.mark.parametrize("pattern", ["(a|b)*a(a|b){40}c", "((a{0,30}){0,30})x", "(.*){0,30}a(a|b){400}c"])
def test_the_cost_of_a_pathological_pattern_is_charged_to_its_owner(pattern: str) -> None:
    table = SubscriptionTable()
    table.add("good", Selection(ident="KWBC"))
    table.add("bad", Selection(ident=pattern), owner="eve")
    long = "ab" * 400
    assert keys(table, ident=f"{long}KWBC") == ["good"]
    assert keys(table, ident=long) == []
    bad = next(expense for expense in table.statistics().costliest if expense.a_key == "bad")
    assert (bad.owner, bad.place, bad.checked) == ("eve", "unindexed", 2)
    assert bad.spent_s > 0


def test_a_pattern_over_its_budget_is_refused() -> None:
    table = SubscriptionTable()
    with pytest.raises(SelectionError):
        table.add("huge", {"ident": r"\pL{1,500}"})
    assert len(table) == 0


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_show_the_index_and_the_cost_of_each_selection() -> None:
    table = SubscriptionTable()
    table.add("exact", "wx/text/metar")
    table.add("pattern", "wx/**")
    table.add("tagged", Selection(tags=[7]))
    table.add("ident", Selection(ident="KWBC"))
    table.add("sliced", Selection(slices="3"))
    table.add("origin", Selection(origin="here"))
    table.add("sql", Selection(where="run = 5 AND size > 3"))
    table.add("unindexed", Selection(where="size > 3"), owner="anna")
    table.add("all", None)
    assert keys(table) == ["all", "exact", "ident", "origin", "pattern", "unindexed"]
    statistics = table.statistics()
    assert statistics.placed == {
        "feed": 1, "feed pattern": 1, "tags": 2, "ident": 1, "slice": 1, "origin": 1, "unindexed": 2,
    }  # fmt: skip
    assert (statistics.unindexed, statistics.products, statistics.checked) == (1, 1, 2)
    assert statistics.spent_s > 0
    assert {expense.a_key for expense in statistics.costliest[:2]} == {"ident", "unindexed"}
    expense = next(expense for expense in statistics.costliest if expense.a_key == "unindexed")
    assert (expense.owner, expense.checked, expense.wanted, expense.selection) == ("anna", 1, 1, "where size > 3")
