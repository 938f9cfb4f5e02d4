"""Rows of a shared query, sorted by action: exactly those that each rule selects; without Spark."""

import io
import random

import pyarrow as pa
import pytest

from headrace import Selection
from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.prepared import Recipe
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


def piled(sorter: Sorter, *batches: pa.RecordBatch) -> Pile:
    numbers = {form: number for number, form in enumerate(sorter.forms)}
    pile = Pile(io.BytesIO(), [numbers[recipe.form] for _, recipe in sorter.recipes])
    for batch in batches:
        for message in sorter.messages(batch):
            pile.add(*message)
    return pile


def sequences(pile: Pile, number: int) -> list[int | None]:
    return [row.sequence for _, row in pile.rows([number])]


RECIPE = Recipe((("{ident}", "path"),), None, "payload")


def test_every_action_gets_exactly_the_rows_that_its_rule_selects_in_their_order() -> None:
    chance = random.Random(random_seed())
    rows, products = rows_of(chance, 300)
    recipes = tuple((rule, RECIPE) for rule in range(len(SELECTIONS)) for _ in range(1 + rule % 2))
    pile = piled(Sorter(tuple(enumerate(SELECTIONS)), recipes), rows)
    for number, (rule, _) in enumerate(recipes):
        select = Selection.parse(SELECTIONS[rule]) if SELECTIONS[rule] else Selection()
        assert sequences(pile, number) == [product.sequence for product in products if select.wants(product)]


def test_a_rule_with_otherwise_gets_what_no_rule_above_selects() -> None:
    chance = random.Random(random_seed())
    rows, products = rows_of(chance, 300)
    order = chance.sample(SELECTIONS[1:], len(SELECTIONS) - 1)
    otherwise = frozenset(chance.sample(range(1, len(order)), 4))
    recipes = tuple((rule, RECIPE) for rule in range(len(order)))
    pile = piled(Sorter(tuple(enumerate(order)), recipes, otherwise), rows)
    selections = [Selection.parse(text) for text in order]
    for rule, select in enumerate(selections):
        above = selections[:rule] if rule in otherwise else []
        expected = [each.sequence for each in products if select.wants(each) and not any(a.wants(each) for a in above)]
        assert sequences(pile, rule) == expected


def test_rows_of_several_actions_come_in_the_order_of_their_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.run.pile.SLICE_ROWS", 40)
    monkeypatch.setattr("headrace.pipeline.actions.prepared.MESSAGE_BYTES", 500)
    chance = random.Random(random_seed())
    rows, products = rows_of(chance, 300)
    numbers = range(len(SELECTIONS))
    pile = piled(Sorter(tuple(enumerate(SELECTIONS)), tuple((rule, RECIPE) for rule in numbers)),
                 rows.slice(0, 170), rows.slice(170))  # fmt: skip
    selections = [Selection.parse(text) if text else Selection() for text in SELECTIONS]
    wanted = [(each.sequence, rule) for each in products for rule in numbers if selections[rule].wants(each)]
    assert [(row.sequence, number) for number, row in pile.rows(numbers)] == wanted
    assert [(row.sequence, n) for n, row in pile.rows([4, 1])] == [each for each in wanted if each[1] in (1, 4)]
    assert pile.numbers() == sorted({rule for _, rule in wanted})


def test_a_product_is_sent_once_for_each_form_of_its_content_however_many_rules_select_it() -> None:
    """With a copy for each rule, a file of 1,700 entries needed more memory than Java had."""
    rows, _ = rows_of(random.Random(1), 50)
    rows = rows.set_column(rows.schema.names.index("payload"), SCHEMA.field("payload"),
                           pa.array([bytes([n]) * 10_000 for n in range(50)], pa.binary()))  # fmt: skip
    forms = [RECIPE, Recipe((("{feed}", "path"),), "x", "payload", metadata="ldm")]
    sorter = Sorter(((0, "**"),), tuple((0, forms[n % 2]) for n in range(200)))
    messages = list(sorter.messages(rows))
    assert sum(len(message) for _, message in messages) < 4 * 50 * 10_000
    for number, row in piled(sorter, rows).rows(range(200)):
        assert row.sequence is not None
        payload = bytes([row.sequence]) * 10_000
        assert row.content == payload if number % 2 == 0 else row.content.endswith(payload)
        assert row.texts == [row.ident if number % 2 == 0 else row.feed]


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
