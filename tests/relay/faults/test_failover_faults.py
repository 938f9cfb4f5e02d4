"""Fail-over with sites in their own processes: whatever the clocks say, and whoever dies when, everything arrives once.

s ─┬─ a ─┬─ c        s puts, a and b relay, c requests from a, or from b if a is away
   └─ b ─┘
"""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from clocks import COMPILER, WrongClock
from harness import HEADRACE, Fleet

from headrace import Queue
from support.seeds import random_seed
from support.waiting import until

HOUR_S = 3600
FAILOVER = {"sites": ["a", "b"], "redundancy": "failover"}
needs_compiler = pytest.mark.skipif(not COMPILER, reason="a C compiler is needed to set clocks")


def diamond(folder: Path, seed: int, **terms: Any) -> Fleet:
    links = [("s", "a"), ("s", "b"), ("a", "c"), ("b", "c")]
    requests = {"c": FAILOVER, "a": {"sites": ["s"]}, "b": {"sites": ["s"]}}
    return Fleet(folder, "sabc", links, seed, requests=requests, **terms)


def put(fleet: Fleet, site: str, *names: str, size: int = 0) -> None:
    with Queue.open(fleet.path(site)) as queue:
        for name in names:
            queue.put(name.encode() + bytes(size), feed="wx/x", ident=name)


def names(*numbers: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{number}" for number in range(*numbers)]


def held(fleet: Fleet, site: str) -> list[str]:
    with Queue.open(fleet.path(site)) as queue:
        return [product.ident for batch in queue.follow("oldest", timeout=0) for product in batch]


def have(fleet: Fleet, sites: str, wanted: list[str], what: str) -> None:
    until(lambda: all(set(wanted) <= set(held(fleet, site)) for site in sites), what)


def serving(fleet: Fleet, site: str = "c") -> list[tuple[str, str]]:
    """Which sites serve the request now, and how."""
    upstreams = fleet.describe(site)["upstreams"]
    return [(each["site"], each["state"]) for each in upstreams if not each["stands_by"]]


def stand_by_at(fleet: Fleet, site: str, other: str) -> bool:
    """Whether `other` stands by for `site`, and has been compared."""
    upstreams = fleet.describe(site)["upstreams"]
    return any(each["site"] == other and each["state"] == "standby" for each in upstreams)


def finish(fleet: Fleet, site: str, wanted: list[str]) -> None:
    """It has each of these once, and its queue is clean."""
    fleet.stop(*list(fleet._processes))
    assert sorted(held(fleet, site)) == sorted(wanted)
    with Queue.open(fleet.path(site)) as queue:
        assert queue.check() == []


@needs_compiler
@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_standby_whose_clock_is_set_during_the_outage_skips_nothing(tmp_path: Path, step_s: int) -> None:
    with diamond(tmp_path, random_seed()) as fleet:
        clock = WrongClock(tmp_path, "b", 0)
        fleet.environ("b", **clock.environment)
        fleet.start()
        put(fleet, "s", *names(10))
        have(fleet, "abc", names(10), "everything is everywhere")
        until(lambda: serving(fleet) == [("a", "live")] and stand_by_at(fleet, "c", "b"), "b stands by")
        fleet.kill("a")
        put(fleet, "s", *names(10, 40))
        have(fleet, "b", names(40), "half of it came before the clock was set")
        clock.set(step_s)
        put(fleet, "s", *names(40, 70))
        have(fleet, "c", names(70), "60 of 60 arrive through b")
        assert serving(fleet)[0][0] == "b"
        finish(fleet, "c", names(70))


@needs_compiler
def test_what_only_the_standby_has_had_for_a_quarter_of_an_hour_arrives(tmp_path: Path) -> None:
    with diamond(tmp_path, random_seed()) as fleet:
        clock = WrongClock(tmp_path, "b", 0)
        fleet.environ("b", **clock.environment)
        fleet.start()
        put(fleet, "s", *names(10))
        have(fleet, "abc", names(10), "everything is everywhere")
        until(lambda: serving(fleet) == [("a", "live")] and stand_by_at(fleet, "c", "b"), "b stands by")
        put(fleet, "b", *names(60, prefix="only b "))
        clock.set(HOUR_S // 4)
        fleet.kill("a")
        put(fleet, "s", *names(10, 20))
        everything = names(20) + names(60, prefix="only b ")
        have(fleet, "c", everything, "all arrive")
        finish(fleet, "c", everything)


@pytest.mark.parametrize("round_", [0, *(pytest.param(each, marks=pytest.mark.soak) for each in range(1, 6))])
def test_a_receiver_that_is_killed_during_the_switch_goes_on_where_it_was(tmp_path: Path, round_: int) -> None:
    with diamond(tmp_path, random_seed()) as fleet:
        fleet.start()
        put(fleet, "s", *names(200))
        have(fleet, "abc", names(200), "everything is everywhere")
        until(lambda: stand_by_at(fleet, "c", "b"), "b stands by")
        put(fleet, "b", *names(50, prefix="only b "))
        fleet.kill("a")
        put(fleet, "s", *names(200, 400))
        moments = [fleet.chance.uniform(0, 9), fleet.chance.uniform(0, 9)]
        for moment in moments:  # the switch comes some seconds after the death of a
            time.sleep(moment)
            fleet.kill("c")
            put(fleet, "s", f"while c is down {moment}")
            fleet.start("c")
        everything = names(400) + names(50, prefix="only b ") + [f"while c is down {moment}" for moment in moments]
        have(fleet, "c", everything, "all arrive")
        finish(fleet, "c", everything)


def test_a_receiver_with_a_small_queue_stores_nothing_again(tmp_path: Path) -> None:
    """The standby holds thirty times as much as the receiver."""
    with diamond(tmp_path, random_seed(), queues={"c": {"size": "2MiB"}}) as fleet:
        fleet.start()
        put(fleet, "s", *names(600), size=100_000)
        until(lambda: _received(fleet) == 600, "c has received everything", 120)
        until(lambda: _base(fleet, "b") == 600, "b has been compared")
        fleet.kill("a")
        put(fleet, "s", *names(600, 620), size=100_000)
        until(lambda: _base(fleet, "b") == 620 and serving(fleet) == [("b", "live")], "b serves")
        assert _received(fleet) == 620
        until(lambda: _received(fleet) == 620, "and nothing more")


def _received(fleet: Fleet) -> int:
    return int(fleet.describe("c")["requests"][0]["products"])


def _base(fleet: Fleet, site: str) -> int:
    return max(int(each["base"]) for each in fleet.describe("c")["upstreams"] if each["site"] == site)


def test_a_site_with_a_new_queue_is_read_from_its_oldest_product(tmp_path: Path) -> None:
    """Also if the request is `from = "now"`: what was put before we noticed must not be skipped."""
    with Fleet(tmp_path, "ab", [("a", "b")], random_seed(), requests={"b": {"from": "now"}}) as fleet:
        fleet.start()
        until(lambda: serving(fleet, "b") == [("a", "live")], "b listens")
        put(fleet, "a", *names(5))
        have(fleet, "b", names(5), "they arrive")
        fleet.stop("a")
        fleet.timeline.detach("a")
        Queue.remove(fleet.path("a"))
        Queue.create(fleet.path("a"), size="256MiB", origin="a").close()
        put(fleet, "a", *names(100, 105))
        fleet.start("a")
        put(fleet, "a", *names(105, 110))
        have(fleet, "b", names(100, 110), "those that were put before b noticed arrive, too")
        finish(fleet, "b", names(5) + names(100, 110))


def test_sites_that_have_only_each_other_fail_the_check_until_the_source_comes(tmp_path: Path) -> None:
    links = [("s", "x"), ("s", "y"), ("x", "y")]
    requests = {"x": {**FAILOVER, "sites": ["y", "s"]}, "y": {**FAILOVER, "sites": ["x", "s"]}}
    with Fleet(tmp_path, "sxy", links, random_seed(), requests=requests) as fleet:
        fleet.start("x", "y")
        said = "sites x, y take ** from each other only; s is named and not used"
        until(lambda: said in _check(tmp_path / "x.toml", 1), "the check fails and says why")
        until(lambda: "neither gets anything new" in fleet.log("x") + fleet.log("y"), "the log says it, too")
        fleet.start("s")
        put(fleet, "s", *names(10))
        have(fleet, "xy", names(10), "both get what is new")
        until(lambda: "s" in {site for name in "xy" for site, _ in serving(fleet, name)}, "one is served by the source")
        until(lambda: said not in _check(tmp_path / "x.toml"), "there is no island any more")


def _check(file: Path, code: int | None = None) -> str:
    done = subprocess.run([*HEADRACE, "sites", str(file), "--check"], capture_output=True, check=False, text=True)
    assert code is None or done.returncode == code, done.stderr
    return " ".join((done.stdout + done.stderr).split())
