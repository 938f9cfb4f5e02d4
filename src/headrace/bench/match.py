"""`headrace bench match`: one product against very many subscriptions.

NaradaBrokering's experiment again: 20,000 to 100,000 subscriptions of one kind, and the time to find those that select
one product. About one of them selects each product, so what grows is the number that does not match.

    integer   tags=[17]                                    the property "tag" is 17
    string    feed topic/000017                            exactly
    tags      25 pairs of name and value                   the same 25 names, each with one of 100 values
    regex     ^S[AP]US\\d\\d K0017 \\d{6} /p(METAR|SPECI)     all different, found by what they require
    sql       where station = 'K00017' AND level > 2
    feed      wx/*/K00017, wx/K00017/**, **/K00017/* …     six forms of wildcards

Selections, table and products are made before the clock starts; the timed call is `table.matches(product)`. There are
several rounds over the products and the best one counts, because other work on the machine can only slow a round down.
The medians contain the clock itself, the means do not.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from headrace.bench.anchors import ANCHORS
from headrace.bench.report import Announce, Figure
from headrace.product.product import MadeProduct, Product
from headrace.product.properties import NO_PROPERTIES, PropertyValue
from headrace.selection import Selection
from headrace.selection.table.table import SubscriptionTable

ROUNDS_MIN = 3
SECONDS_MIN = 1.0  # of rounds, from 20,000 subscriptions on; less for fewer
PRODUCTS = 2000
NAIVE_SUBSCRIPTIONS = 1000
NAIVE_PRODUCTS = 20
GOAL_UP_TO = 100_000  # subscriptions
GROWTH_MAX = 2.0  # where five times as many would take five times as long if each were looked at
NOT_MEASURED = [
    "making and adding selections: parsing SQL takes longer than anything that is measured here",
    "pairs of fewer values or of names that differ between subscriptions, which take longer (docs/decisions, 11)",
    "selections with several clauses, unindexed, and many subscribers to one product",
    "several threads at once: readers take no lock, but the interpreter has one",
    "XPath: no index helps, so each product is evaluated for each subscription that uses it",
    "NaradaBrokering itself: its figures were published in 2005 (1 GHz, Java 1.4), its subscriptions are not described",
]

Pairs = dict[str, PropertyValue]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of subscriptions: number n of them, and a product that number n wants."""

    name: str
    what: str
    goal_us: float | None
    selection: Callable[[int], Selection]
    product: Callable[[int], Product]


def _product(feed: str = "wx/text", ident: str = "SAUS70 KWBC 060000", properties: Pairs | None = None) -> Product:
    return MadeProduct(
        feed=feed,
        ident=ident,
        payload=memoryview(b"x" * 150),
        sequence=1,
        signature=bytes(16),
        origin="bench",
        origin_sequence=1,
        previous=None,
        created_ns=1,
        inserted_ns=1,
        properties=NO_PROPERTIES if properties is None else MappingProxyType(properties),
    )


def _pairs(number: int) -> Pairs:
    chance = random.Random(number)
    return {f"tag{place:02}": chance.randrange(2, 102) for place in range(25)}


def _station(number: int) -> str:
    return f"K{number:05}"


def _pattern(number: int) -> str:
    station = _station(number)
    forms = ("wx/*/{}", "wx/{}/**", "**/{}/*", "wx/radar/*/{}", "*/*/*/{}", "wx/**/{}")
    return forms[number % len(forms)].format(station)


def _feed(number: int) -> str:
    station = _station(number)
    forms = ("wx/radar/{}", "wx/{}/l2/x", "wx/us/{}/x", "wx/radar/l2/{}", "wx/radar/l2/{}", "wx/radar/us/l2/{}")
    return forms[number % len(forms)].format(station)


KINDS = (
    Kind(
        "integer", "integer topics", 2, lambda n: Selection(tags=[n + 2]), lambda n: _product(properties={"tag": n + 2})
    ),
    Kind("string", "string topics", 2, lambda n: Selection(f"topic/{n:06}"), lambda n: _product(f"topic/{n:06}")),
    Kind(
        "tags", "25 tag=value pairs", 10, lambda n: Selection(tags=_pairs(n)), lambda n: _product(properties=_pairs(n))
    ),
    Kind(
        "regex",
        "ident regexes",
        1000,
        lambda n: Selection(ident=rf"^S[AP]US\d\d {_station(n)} \d{{6}} /p(METAR|SPECI)"),
        lambda n: _product(ident=f"SAUS70 {_station(n)} 060000 /pMETAR"),
    ),
    Kind(
        "sql",
        "SQL with an equality",
        None,
        lambda n: Selection(where=f"station = '{_station(n)}' AND level > 2"),
        lambda n: _product(properties={"station": _station(n), "level": n % 5}),
    ),
    Kind("feed", "feed patterns with wildcards", 10, lambda n: Selection(_pattern(n)), lambda n: _product(_feed(n))),
)


def run(numbers: Sequence[int], progress: Announce) -> Iterator[Figure]:
    """All figures, kind by kind."""
    for kind in KINDS:
        yield from _measured(kind, sorted(numbers), progress)


def _measured(kind: Kind, numbers: list[int], progress: Announce) -> Iterator[Figure]:
    small, table = SubscriptionTable(), SubscriptionTable()
    for number in numbers:
        progress(f"{kind.what}, {number:,} subscriptions")
        for key in range(len(table), number):
            selection = kind.selection(key)
            table.add(key, selection)
            if number == numbers[0]:
                small.add(key, selection)
        median, mean = _best_us([(table, _products(kind, number))])[0]
        goal = kind.goal_us if number <= GOAL_UP_TO else None
        beside = ANCHORS.get(f"match-{kind.name}", "")
        name, what = f"{kind.name}-{number}", f"{kind.what}, {number:,} subscriptions"
        yield Figure(f"{name}-p50", f"{what}: median", median, "µs/product", goal, True, beside)
        yield Figure(f"{name}-mean", f"{what}: mean", mean, "µs/product", None, True)
    yield _growth(kind, [small, table])
    yield _naive(kind, min(NAIVE_SUBSCRIPTIONS, numbers[-1]))


def _growth(kind: Kind, tables: list[SubscriptionTable]) -> Figure:
    """The largest table against the smallest, in turns, so that both see the same machine."""
    few, many = map(len, tables)
    times = _best_us([(table, _products(kind, len(table))) for table in tables])
    what = f"{kind.what}: {many:,} against {few:,} subscriptions, medians"
    return Figure(f"{kind.name}-growth", what, times[1][0] / times[0][0], "ratio", GROWTH_MAX, True)


def _products(kind: Kind, number: int) -> list[Product]:
    """Products, each wanted by another of the subscriptions."""
    chance = random.Random(number)
    return [kind.product(chance.randrange(number)) for _ in range(PRODUCTS)]


def _best_us(tables: list[tuple[SubscriptionTable, list[Product]]]) -> list[tuple[float, float]]:
    """Median and mean of one `matches` for each table, of its best round."""
    rounds: list[list[tuple[float, float]]] = []
    end = time.perf_counter() + SECONDS_MIN * min(1.0, len(tables[-1][0]) / 20_000)
    while len(rounds) < ROUNDS_MIN or time.perf_counter() < end:
        rounds.append([_round_us(table, products) for table, products in tables])
    by_table = zip(*rounds, strict=True)
    return [(min(median for median, _ in some), min(mean for _, mean in some)) for some in by_table]


def _round_us(table: SubscriptionTable, products: list[Product]) -> tuple[float, float]:
    matches, clock = table.matches, time.perf_counter_ns
    times = []
    for product in products:
        begun = clock()
        matches(product)
        times.append(clock() - begun)
    begun = clock()
    for product in products:
        matches(product)
    mean_ns = (clock() - begun) / len(products)
    return sorted(times)[len(times) // 2] / 1000, mean_ns / 1000


def _naive(kind: Kind, number: int) -> Figure:
    """The same question without a table."""
    selections = [(key, kind.selection(key)) for key in range(number)]
    products = _products(kind, number)[:NAIVE_PRODUCTS]
    begun = time.perf_counter()
    for product in products:
        _ = [key for key, selection in selections if selection.wants(product)]
    spent_us = (time.perf_counter() - begun) / len(products) * 1e6
    what = f"{kind.what}: a loop over {number:,} selections instead, mean"
    return Figure(f"{kind.name}-naive", what, spent_us, "µs/product", None, True)
