"""Rows of a shared query, sorted by action: exactly those that each rule selects; without Spark."""

import io
import random

import pyarrow as pa
import pytest

from headrace import Selection
from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.prepared import Recipe, message_of
from headrace.pipeline.run.pile import Pile, Sorter
from headrace.pipeline.run.shared_batch import Done, Failures
from headrace.pipeline.source.columns import SCHEMA
from headrace.product.product import MadeProduct, Product
from support.seeds import random_seed

FEEDS = ["wx/text", "wx/text/metar", "wx/radar/KFTG", "tel/frames"]
SELECTIONS = [
    "", "wx/**", "wx/text", "wx/text priority 5..", 'wx/** ident ~ "^SA"', 'wx/** ident ~ "7" ident !~ "^SA"',
    "** origin denver", "** slice 1,2", "*/frames", 'tel/** ident ~ "[0-9]$" priority ..3',
]  # fmt: skip


def rows_of(chance: random.Random, count: int) -> tuple[pa.RecordBatch, list[Product]]:
    products = [
        MadeProduct(
            chance.choice(FEEDS), f"{chance.choice(['SA', 'FT', 'x'])}{chance.randrange(100)}", memoryview(b"p"), number,
            b"", chance.choice(["denver", "boulder"]), number, None, 0, 0, chance.randrange(8), None,
            chance.choice([None, 0, 1, 2]),
        )
        for number in range(count)
    ]  # fmt: skip
    columns: dict[str, list[object]] = {
        name: [getattr(product, name) for product in products]
        for name in ("sequence", "feed", "ident", "origin", "origin_sequence", "priority", "slice")
    }
    columns |= {"payload": [b"p"] * count, "signature": [None] * count, "expiry": [None] * count}
    columns |= {"created": [0] * count, "inserted": [0] * count, "properties": [[]] * count}
    return pa.RecordBatch.from_pydict({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA), products


def test_every_action_gets_exactly_the_rows_that_its_rule_selects_in_their_order() -> None:
    chance = random.Random(random_seed())
    rows, products = rows_of(chance, 300)
    recipe = Recipe((("{ident}", "path"),), None, "payload")
    recipes = tuple((rule, recipe) for rule in range(len(SELECTIONS)) for _ in range(1 + rule % 2))
    sorter = Sorter(tuple(enumerate(SELECTIONS)), recipes)
    found = {number: batch.column("sequence").to_pylist() for number, batch in sorter(rows)}
    for number, (rule, _) in enumerate(recipes):
        select = Selection.parse(SELECTIONS[rule]) if SELECTIONS[rule] else Selection()
        assert found.get(number, []) == [product.sequence for product in products if select.wants(product)]


def test_a_rule_with_otherwise_gets_what_no_rule_above_selects() -> None:
    chance = random.Random(random_seed())
    rows, products = rows_of(chance, 300)
    order = chance.sample(SELECTIONS[1:], len(SELECTIONS) - 1)
    otherwise = frozenset(chance.sample(range(1, len(order)), 4))
    recipe = Recipe((("{ident}", "path"),), None, "payload")
    sorter = Sorter(tuple(enumerate(order)), tuple((rule, recipe) for rule in range(len(order))), otherwise)
    found = {number: batch.column("sequence").to_pylist() for number, batch in sorter(rows)}
    selections = [Selection.parse(text) for text in order]
    for rule, select in enumerate(selections):
        above = selections[:rule] if rule in otherwise else []
        expected = [each.sequence for each in products if select.wants(each) and not any(a.wants(each) for a in above)]
        assert found.get(rule, []) == expected


def test_rows_of_several_actions_come_in_the_order_of_their_products() -> None:
    chance = random.Random(random_seed())
    recipe, pile, given = Recipe((("{ident}", "path"),), None, "payload"), Pile(io.BytesIO()), []
    for begin in range(0, 300, 50):  # batches of the source, in order
        rows, _ = rows_of(chance, 300)
        for number in range(6):
            places = sorted(chance.sample(range(begin, begin + 50), chance.randrange(50)))
            made = recipe(rows.take(pa.array(places, pa.int32())))
            for part in (made.slice(0, 10), made.slice(10)):
                if part.num_rows:
                    pile.add(number, message_of(part))
            given += [(place, number) for place in places]
    assert [(row.sequence, number) for number, row in pile.rows(range(6))] == sorted(given)
    assert [(row.sequence, number) for number, row in pile.rows([4, 1])] == sorted(g for g in given if g[1] in (1, 4))
    assert pile.numbers() == list(range(6))


def test_all_rules_have_their_turn_before_a_failure_is_raised_and_permanent_ones_come_first() -> None:
    failures = Failures()
    for label, error in (("rule 'a'", TargetError("full", "make room")), ("rule 'b'", PipelineError("damaged"))):
        with failures.of(label):
            raise error
    with pytest.raises(PipelineError, match="rule 'b': damaged"):
        failures.report()
    Failures().report()


def test_what_was_done_of_a_batch_is_known_until_the_next_batch() -> None:
    done = Done()
    done.of(3)[7] = "counts"  # type: ignore[assignment]
    assert 7 in done.of(3)
    assert done.of(4) == {}
