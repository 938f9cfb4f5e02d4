"""Sites in their own processes, while links and processes fail: nothing is lost, duplicated, altered or out of order."""

from itertools import count
from pathlib import Path

from clocks import COMPILER, WrongClock
from harness import Fleet, chain, ring
from scenes import cut, flap, freeze, in_turn, kill, play

from headrace import Queue
from support.seeds import random_seed
from support.waiting import until


def test_a_chain_recovers_from_cuts_and_kills(tmp_path: Path) -> None:
    """`play` waits until all sites are level and prints how long it took; the time is judged in the soak test."""
    scene = in_turn(cut(("b", "c"), 1.5), kill("b", seconds=0.5), freeze("c", 1.5), flap(("c", "d"), 2))
    with chain(tmp_path, random_seed()) as fleet:
        play(fleet, "chain", "cut, kill -9, SIGSTOP, flap in turn", scene, feed="ad", seconds=9)


def test_a_ring_routes_around_a_dead_link_and_a_dead_site_whatever_the_clocks_say(tmp_path: Path) -> None:
    with ring(tmp_path, random_seed()) as fleet:
        if COMPILER:
            fleet.environ("a", **WrongClock(tmp_path, "a", 5 * 3600).environment)
            fleet.environ("c", **WrongClock(tmp_path, "c", -3 * 3600).environment)
        fleet.start()
        for site in "ac":
            fleet.feed(site, 9.5)
        fleet.wait_for_more("abcd")
        fleet.network.cut(("b", "c"))
        without_link_s = fleet.wait_for_more("abcd")
        fleet.network.heal(("b", "c"))
        fleet.wait_for_more("abcd")
        fleet.kill("b")
        without_site_s = fleet.wait_for_more("acd")
        fleet.start("b")
        fleet.settle()
        fleet.judge()
    print(f"products came {without_link_s:.2f} s after a link was cut, {without_site_s:.2f} s after a site was killed")


def test_products_evicted_before_a_site_returns_are_named_exactly(tmp_path: Path) -> None:
    with chain(tmp_path, random_seed(), "ab", queues={"a": {"size": "2MiB"}}) as fleet:
        fleet.start()
        fleet.feed("a", 2, 100)
        until(lambda: fleet.timeline.count("b", "a") > 0, "products come")
        fleet.kill("b")
        had = _sequences(fleet, "b")
        fleet.wait_fed()
        fleet.feed("a", 20, 200, fast=True)
        fleet.wait_fed()
        with Queue.open(fleet.path("a")) as queue:
            oldest, end = queue.oldest, queue.next
        lost = (next(number for number in count(1) if number not in had), oldest - 1)
        assert oldest > max(had) + 1, "nothing was evicted"
        fleet.start("b")
        until(lambda: fleet.timeline.count("b", "a") == len(had) + end - oldest, "b has what there is")
        assert fleet.lost("b", "a") == [lost]
        (told,) = [upstream for upstream in fleet.describe("b")["upstreams"] if upstream["site"] == "a"]
        assert told["lost"] == [[*lost, "evicted"]]
        fleet.stop("a", "b")
        assert _sequences(fleet, "b") == [*had, *range(oldest, end)]


def _sequences(fleet: Fleet, site: str) -> list[int]:
    """What is there of a, in a's numbers."""
    with Queue.open(fleet.path(site)) as queue:
        assert queue.check() == []
    return fleet.held(site, "a")
