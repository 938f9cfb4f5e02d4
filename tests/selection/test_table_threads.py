"""Threads match products while others add and remove subscriptions."""

import random
import sys
import threading
from collections.abc import Iterator

import pytest
from test_table import holds_nothing, product

from headrace.product.product import Product
from headrace.selection import Selection
from headrace.selection.table.table import SubscriptionTable

STATION = [f"K{number:03}" for number in range(60)]


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Switch between threads as often as possible."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def _selection(number: int) -> Selection:
    """A selection for each index in turn."""
    station = STATION[number % 60]
    clauses = (
        {"tags": {"station": station, "kind": "metar"}},
        {"tags": {"station": station, "kind": "metar"}, "where": f"size < {100 + number}"},
        {"feed": f"wx/*/{station}"},
        {"feed": f"wx/**/{station}", "priority": 4},
        {"feed": f"wx/text/{station}"},
        {"ident": f"^SAUS70 {station}"},
        {"where": f"station = '{station}' AND size < {100 + number}"},
    )[number % 7]
    return Selection.from_dict(clauses)


SELECTIONS = [_selection(number) for number in range(420)]  # each matches the products of one station


def product_of(station: str) -> Product:
    return product(
        feed=f"wx/text/{station}", ident=f"SAUS70 {station} 060000", properties={"station": station, "kind": "metar"}
    )


@pytest.mark.usefixtures("frequent_switches")
def test_readers_find_every_lasting_key_and_no_removed_key() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    table = SubscriptionTable()
    stays = range(420)
    for number in stays:
        table.add(number, SELECTIONS[number])
    gone = [("gone", number) for number in range(420)]
    for key in gone:
        table.add(key, SELECTIONS[key[1]])
    for key in gone:
        table.remove(key)
    expected = {
        station: {number for number in stays if SELECTIONS[number].wants(product_of(station))} for station in STATION
    }
    assert all(expected.values())
    stop, faults = threading.Event(), []

    def read(station: str) -> None:
        some = product_of(station)
        while not stop.is_set():
            found = table.matches(some)
            if len(set(found)) != len(found):
                faults.append(f"twice: {found}")
            fixed = {key for key in found if isinstance(key, int)}
            if fixed != expected[station] or any(key in gone for key in found):
                faults.append(f"{station}: {fixed ^ expected[station]}")

    def write(writer: int) -> None:
        chance = random.Random(seed + writer)
        held: list[tuple[str, int, int]] = []
        for number in range(500):
            key = ("comes", writer, number)
            table.add(key, chance.choice(SELECTIONS))
            held.append(key)
            if len(held) > 100:
                assert table.remove(held.pop(chance.randrange(len(held))))
        for key in held:
            table.remove(key)

    readers = [threading.Thread(target=read, args=(STATION[number],)) for number in range(3)]
    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert faults == []
    assert len(table) == 420
    for number in stays:
        table.remove(number)
    assert holds_nothing(table)


@pytest.mark.usefixtures("frequent_switches")
def test_a_key_is_found_after_add_returns_and_not_after_remove_returns() -> None:
    table = SubscriptionTable()
    some = product_of("K001")
    faults = []

    def come_and_go(owner: int) -> None:
        for number in range(300):
            key = (owner, number)
            table.add(key, SELECTIONS[1 + 60 * (number % 7)])
            if table.matches(some).count(key) != 1:
                faults.append(f"{key} is not found")
            table.remove(key)
            if key in table.matches(some):
                faults.append(f"{key} is found")

    threads = [threading.Thread(target=come_and_go, args=(owner,)) for owner in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert holds_nothing(table)
