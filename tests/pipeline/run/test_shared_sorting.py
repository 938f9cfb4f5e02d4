"""Rows of a shared query, sorted by action: exactly those that each rule selects; without Spark."""

import random

import pyarrow as pa
import pytest

from headrace import Selection
from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.prepared import Recipe
from headrace.pipeline.run.shared_batch import Done, Failures, Sorter
from headrace.pipeline.source.columns import SCHEMA
from headrace.product.product import Product
from support.seeds import random_seed

FEEDS = ["wx/text", "wx/text/metar", "wx/radar/KFTG", "tel/frames"]
SELECTIONS = [
    "", "wx/**", "wx/text", "wx/text priority 5..", 'wx/** ident ~ "^SA"', 'wx/** ident ~ "7" ident !~ "^SA"',
    "** origin denver", "** slice 1,2", "*/frames", 'tel/** ident ~ "[0-9]$" priority ..3',
]  # fmt: skip


def rows_of(chance: random.Random, count: int) -> tuple[pa.RecordBatch, list[Product]]:
    products = [
        Product(
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
    found = {number: batch.column("sequence").to_pylist() for number, batch in Sorter(tuple(SELECTIONS), recipes)(rows)}
    for number, (rule, _) in enumerate(recipes):
        select = Selection.parse(SELECTIONS[rule]) if SELECTIONS[rule] else Selection()
        assert found.get(number, []) == [product.sequence for product in products if select.wants(product)]


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
