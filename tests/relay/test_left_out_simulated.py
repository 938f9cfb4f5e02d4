"""Products that expire at the origin, by simulation: each that did not come is counted, each that came is not.

Each run follows from its seed. To see what happened in one: HEADRACE_SEED=17 pytest -s tests/relay/test_left_out_simulated.py
"""

import logging
import os
from collections.abc import Iterator

import pytest
from simulated_driver import Driver
from simulation import HOLDER, ORIGIN, Corpus, Holder, Network, Origin, Site, World

from headrace import Selection
from headrace.relay.receive.upstream import Upstream

SEEDS = 400
PRODUCTS = 60
FEEDS = ("wx/a", "wx/b", "tel/c")
SELECTIONS = ("**", "wx/**", '** ident ~ "[02468]$"')
ROUGH_S = 8.0


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    folder = tmp_path_factory.mktemp("corpora")
    return [Corpus(folder, seed, PRODUCTS, FEEDS) for seed in range(1, 4)]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("headrace.fabric")
    logger.disabled = True
    yield
    logger.disabled = False


def simulate(seed: int, corpora: list[Corpus]) -> tuple[World, Origin, Driver, str]:
    """A rough network for some seconds, in which products expire before or after they are put, then a calm one."""
    world = World(seed)
    chance, selection = world.chance, world.chance.choice(SELECTIONS)
    network = Network(world, drop=chance.choice((0.0, 0.05, 0.3)), duplicate=chance.choice((0.0, 0.2)),
                      delay_s=chance.choice((0.02, 0.3)))  # fmt: skip
    origin = Origin(world, network, ORIGIN, corpora[seed % len(corpora)])
    sites: dict[str, Site] = {ORIGIN: origin}
    if chance.random() < 0.3:
        holder = sites[HOLDER] = Holder(world, network, HOLDER, origin.corpus, queue=b"h" * 16)
        world.after(ROUGH_S / 2, lambda: holder.take(list(range(1, origin.next))))
        world.after(ROUGH_S / 2, origin.leave)
        world.after(ROUGH_S - 1, origin.come_back)
    upstream = Upstream(ORIGIN, Selection.parse(selection), "oldest", lambda: world.now)
    driver = Driver(world, network, sites, upstream)
    origin.subscribers.append(driver)
    for _ in range(20):
        world.after(chance.uniform(0, ROUGH_S), lambda: origin.put(chance.randint(1, 4)))
    for _ in range(chance.randint(0, 20)):
        sequence = chance.randint(1, PRODUCTS)
        world.after(chance.uniform(0, ROUGH_S), lambda sequence=sequence: origin.expire(sequence))
    world.run(ROUGH_S)
    network.is_rough = False
    world.run(ROUGH_S + 300, lambda: upstream.track.base >= origin.next - 1)
    return world, origin, driver, selection


def test_each_product_that_did_not_come_is_counted_once(corpora: list[Corpus]) -> None:
    seeds = [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else range(SEEDS)
    counted = 0
    for seed in seeds:
        world, origin, driver, selection = simulate(seed, corpora)
        if "HEADRACE_SEED" in os.environ:
            print(*world.trace, sep="\n")
        wanted = origin.corpus.wanted(selection)
        requested = {sequence for sequence in range(1, origin.next) if wanted[sequence]}
        missing = requested - set(driver.stored.get(origin.corpus.name, {}))
        assert missing <= origin.expired, f"seed {seed}"
        counts = driver.upstream.statistics
        assert counts.left_out.get("expired", 0) == len(missing), f"seed {seed}: {sorted(missing)}"
        assert counts.lost == [], f"seed {seed}"
        counted += len(missing)
    print(f"{counted} products were left out in {len(seeds)} runs")
    assert counted > len(seeds) or len(seeds) == 1


def test_a_site_whose_log_never_replies_is_failing_until_something_comes(corpora: list[Corpus]) -> None:
    """It identifies itself again and again, and each time the request seems to catch up."""
    world = World(1)
    origin = Origin(world, Network(world, is_rough=False), ORIGIN, corpora[0])
    origin.put(5)
    upstream = Upstream(ORIGIN, Selection("**"), "oldest", lambda: world.now)
    serve, origin.pages = origin.pages, lambda query: iter(())  # type: ignore[method-assign]
    Driver(world, origin.network, {ORIGIN: origin}, upstream)
    world.run(1.0)
    states = set()
    for moment in range(1001, 15000, 5):
        world.run(moment / 1000)
        states.add(upstream.statistics.state)
        assert upstream.statistics.failing == "no page came", world.now
    assert "catching up" in states
    origin.pages = serve  # type: ignore[method-assign]
    world.run(60.0)
    assert (upstream.statistics.failing, upstream.behind, upstream.track.base) == ("", 0, 5)
