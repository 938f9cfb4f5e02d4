"""Fail-over: a request reads from one of several sites at a time, without a gap."""

from relaying import has_examined, put, texts

from headrace import Selection
from headrace.relay.receive.failover_thread import taken_from
from headrace.relay.receive.receiver import Request
from headrace.relay.receive.track import Known
from support.fleet import Fabric
from support.waiting import until


def wanting(*sites: str) -> Request:
    return Request("r", Selection("**"), "oldest", sites, "failover")


def used(fabric: Fabric, name: str) -> list[str]:
    return [upstream.site for upstream in fabric.sites[name].describe().upstreams if not upstream.stands_by]


def test_the_second_site_takes_over_and_nothing_is_missing(fabric: Fabric) -> None:
    source = fabric.add("s")
    relay = Request("r", Selection("**"), "oldest")
    first = fabric.add("a", relay, near=("s",))
    second = fabric.add("b", relay, near=("s",))
    reader = fabric.add("c", wanting("a", "b"), near=("a", "b"))
    put(source, "x", *map(str, range(50)))
    until(lambda: reader.next == 51, "all arrive")
    assert used(fabric, "c") == ["a"]
    until(lambda: first.next == second.next == 51, "a and b have them")
    fabric.stop("a")
    put(source, "x", *map(str, range(50, 100)))
    until(lambda: reader.next == 101, "the others arrive through b")
    assert used(fabric, "c") == ["b"]
    assert texts(reader) == list(map(str, range(100)))


def test_a_switch_survives_a_restart(fabric: Fabric) -> None:
    source = fabric.add("s")
    relay = Request("r", Selection("**"), "oldest")
    fabric.add("a", relay, near=("s",))
    fabric.add("b", relay, near=("s",))
    reader = fabric.add("c", wanting("a", "b"), near=("a", "b"))
    put(source, "x", "1", "2")
    until(lambda: reader.next == 3, "both arrive")
    fabric.stop("a")
    put(source, "x", "3")
    until(lambda: reader.next == 4, "the third arrives through b")
    fabric.stop("c")
    put(source, "x", "4")
    fabric.start("a")
    fabric.start("c")
    until(lambda: reader.next == 5, "the fourth arrives")
    until(lambda: has_examined(fabric, "c", used(fabric, "c")[0]), "c has everything")
    assert texts(reader) == ["1", "2", "3", "4"]


def test_what_was_refused_has_not_arrived_from_the_site_in_use() -> None:
    """A standby asks that site where it holds a product, and takes what it holds there for arrived."""
    known = Known(b"q" * 16, base=90, began=5)
    assert taken_from(known, 0) == known
    assert taken_from(known, 40).began == 41
    assert taken_from(known, 3).began == 5
