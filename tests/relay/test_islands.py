"""Islands: sites that take a request from each other only are found, avoided, and reported."""

from dataclasses import dataclass

import pytest
from relaying import put, texts

from headrace import Selection
from headrace.relay.islands import Island, is_circular, islands
from headrace.relay.messages.description import Description, FeedStatus, RequestStatus, UpstreamStatus
from headrace.relay.receive.receiver import Request
from headrace.site.map import gather
from support.fleet import Fabric
from support.waiting import until


@dataclass
class Asks:
    """One request of a site: its list, and who serves it now."""

    feed: str
    sites: tuple[str, ...]
    by: str
    state: str = "live"
    redundancy: str = "failover"


def describe(name: str, *asked: Asks, puts: str = "") -> Description:
    requests = tuple(
        RequestStatus(f"r{place}", each.feed, each.feed, each.sites, each.redundancy, 0, 0, 0, 0, 0, {})
        for place, each in enumerate(asked)
    )
    upstreams = tuple(
        UpstreamStatus(f"r{place}", site, each.state if site == each.by else "standby", "", 0, 0, 0, 0, 0, 0, 0, 0, 0.0,
                       (), 0, {}, stands_by=each.redundancy == "failover" and site != each.by)
        for place, each in enumerate(asked) for site in each.sites or (each.by,)
    )  # fmt: skip
    feeds = (FeedStatus(puts, 1, 1, put_here=True),) if puts else ()
    return Description(
        site=name, zid="0", started_ns=0, oldest=1, next=1, held_products=0, held_bytes=0, size=1, links=(), users=0,
        feeds=feeds, feeds_in_all=len(feeds), wanted=(), requests=requests, upstreams=upstreams, streams=(), flows=(),
        flows_in_all=0, answered=0, refused=0, problems=(),
    )  # fmt: skip


def found(*descriptions: Description) -> list[Island]:
    return islands({each.site: each for each in descriptions})


S = describe("s", puts="wx/x")


def test_two_sites_that_serve_each_other_are_an_island() -> None:
    x, y = describe("x", Asks("wx/**", ("y", "s"), "y")), describe("y", Asks("wx/**", ("x", "s"), "x"))
    (island,) = found(S, x, y)
    assert island == Island(("x", "y"), "wx/**", ("s",))
    assert island.problem == "sites x, y take wx/** from each other only; s is named and not used"


def test_three_sites_in_a_circle_are_an_island() -> None:
    lists = {"x": "y", "y": "z", "z": "x"}
    sites = [describe(name, Asks("**", (other, "s"), other)) for name, other in lists.items()]
    (island,) = found(S, *sites)
    assert island.sites == ("x", "y", "z")


@pytest.mark.parametrize(
    "y",
    [
        pytest.param(describe("y", Asks("wx/**", ("x", "s"), "s")), id="it takes it from the source"),
        pytest.param(describe("y", Asks("wx/**", ("x", "s"), "x", "unreachable")), id="nobody serves it"),
        pytest.param(describe("y", Asks("tel/**", ("x", "s"), "x")), id="it takes other feeds"),
        pytest.param(describe("y", Asks("wx/**", (), "s", redundancy="all")), id="it takes it from the origins"),
        pytest.param(describe("y"), id="it requests nothing"),
    ],
)
def test_a_site_that_has_something_new_is_no_island(y: Description) -> None:
    assert found(S, describe("x", Asks("wx/**", ("y", "s"), "y")), y) == []


def test_an_island_with_an_origin_of_its_own_is_an_island() -> None:
    """What is put at y comes to x; what is put at s comes to neither."""
    x, y = describe("x", Asks("**", ("y", "s"), "y")), describe("y", Asks("**", ("x", "s"), "x"), puts="wx/y")
    assert [island.sites for island in found(S, x, y)] == [("x", "y")]
    described = {each.site: each for each in (S, x, y)}
    assert not is_circular("y", "**", "x", described.get), "it has something new for x"
    assert is_circular("x", "**", "y", described.get)


def test_a_source_that_takes_from_those_who_take_from_it_is_no_island() -> None:
    """x and s exchange everything; y is there for x if s is away, and has nothing else."""
    s = describe("s", Asks("**", ("x",), "x", redundancy="all"), puts="wx/s")
    x, y = describe("x", Asks("**", ("s", "y"), "s")), describe("y", Asks("**", ("s", "x"), "s"))
    described = {each.site: each for each in (s, x, y)}
    assert islands(described) == []
    assert not is_circular("s", "**", "x", described.get)


def test_sites_that_have_nobody_else_are_no_island() -> None:
    """They exchange what each of them puts, or will put."""
    x, y = describe("x", Asks("**", ("y",), "y", redundancy="all")), describe("y", Asks("**", ("x",), "x"))
    assert found(S, x, y) == []


def test_a_site_that_says_nothing_is_believed_to_have_something() -> None:
    assert found(describe("x", Asks("wx/**", ("y", "s"), "y"))) == []
    assert not is_circular("y", "wx/**", "x", lambda _: None)


def test_a_circle_beside_the_way_does_not_matter() -> None:
    """z takes from x and y, which are an island without it."""
    x, y = describe("x", Asks("**", ("y", "s"), "y")), describe("y", Asks("**", ("x", "s"), "x"))
    z = describe("z", Asks("**", ("x", "y"), "x"))
    assert [island.sites for island in found(S, x, y, z)] == [("x", "y")]
    described = {each.site: each for each in (S, x, y, z)}
    assert not is_circular("x", "**", "z", described.get)


# --- running sites ----------------------------------------------------------------------------------


def prefers(*sites: str) -> Request:
    return Request("r", Selection("**"), "oldest", sites, "failover")


def serving(fabric: Fabric, name: str) -> list[str]:
    return [each.site for each in fabric.sites[name].describe().upstreams if not each.stands_by]


def test_sites_that_prefer_each_other_leave_the_circle(fabric: Fabric) -> None:
    source = fabric.add("s")
    x = fabric.add("x", prefers("y", "s"), near=("s",))
    y = fabric.add("y", prefers("x", "s"), near=("s", "x"))
    until(lambda: "s" in serving(fabric, "x") + serving(fabric, "y"), "one of them takes it from the source")
    put(source, "wx/x", "1", "2")
    until(lambda: texts(x) == texts(y) == ["1", "2"], "both have it")


def test_a_circle_that_cannot_be_left_is_reported(fabric: Fabric, caplog: pytest.LogCaptureFixture) -> None:
    """The source is away, so that there is no choice."""
    fabric.add("x", prefers("y", "s"))
    fabric.add("y", prefers("x", "s"), near=("x",))
    until(lambda: "neither gets anything new" in caplog.text, "it is logged")
    assert "request r: site " in caplog.text
    (island,) = gather(fabric.sessions["x"]).islands
    assert (island.sites, island.outside) == (("x", "y"), ("s",))
