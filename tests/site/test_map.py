"""The map of a fabric: sites, links, round trips and requests, and what each client may see."""

import json
from pathlib import Path

import msgspec
import pytest

from headrace.errors import FabricMessageError
from headrace.link.keys import audience_stream, site_key
from headrace.link.rights import Feeds
from headrace.link.session import SessionTerms, open_session
from headrace.relay.messages.description import TEXT_MAX, FeedStatus, Problem, largest, shortened, visible_to
from headrace.relay.messages.query import Identify, IdentifyReply, decode_query, decode_reply, encode
from headrace.relay.site_client import SiteClient, round_trips
from headrace.site.map import Map, Node, gather
from support.fleet import Fabric, want
from support.waiting import until


def drawn_from(fabric: Fabric, name: str) -> Map:
    """The map that a client of this site sees."""
    session = open_session(SessionTerms("client", connect=(fabric._endpoints[name],)))
    try:
        return gather(session)
    finally:
        session.close()  # type: ignore[no-untyped-call]


def place(drawn: Map, name: str) -> Node:
    (found,) = [place for place in drawn.nodes if place.name == name]
    return found


def is_live(fabric: Fabric, name: str, count: int = 1) -> bool:
    states = [upstream.counts.state for upstream in fabric.sites[name].statistics().upstreams]
    return states.count("live") >= count


def chain(fabric: Fabric) -> None:
    """a - b - c; b requests all feeds, and c some of them from b."""
    a = fabric.add("a")
    fabric.add("b", want("**", "oldest", name="all"), near=("a",))
    fabric.add("c", want("wx/**", "oldest", "b", name="weather"), near=("b",))
    for number in range(20):
        a.put(b"%d" % number, feed=("wx/text", "tel/frames")[number % 2])
    until(lambda: fabric.queues["b"].next == 21 and fabric.queues["c"].next == 11, "all arrive")
    until(lambda: is_live(fabric, "b") and is_live(fabric, "c"), "all listen")


def test_the_map_has_all_sites_with_their_links_and_descriptions(fabric: Fabric) -> None:
    chain(fabric)
    drawn = drawn_from(fabric, "c")
    assert [(place.name, place.state) for place in drawn.nodes] == [("a", "here"), ("b", "here"), ("c", "here")]
    assert {frozenset((link.one, link.other)) for link in drawn.links} == {frozenset("ab"), frozenset("bc")}
    assert all(link.round_trip_s is not None and link.round_trip_s > 0 for link in drawn.links)
    assert all(place.round_trip_s is not None for place in drawn.nodes)
    told = place(drawn, "b").description
    assert told is not None
    assert told.zid == str(fabric.sessions["b"].zid()) == place(drawn, "b").zid
    assert {feed.feed: feed.products for feed in told.feeds} == {"wx/text": 10, "tel/frames": 10}
    assert (told.held_products, told.next, told.feeds_in_all, told.flows_in_all) == (20, 21, 2, 2)
    (request,) = told.requests
    assert (request.name, request.selection, request.products, request.duplicates) == ("all", "**", 20, 0)
    upstream = next(each for each in told.upstreams if each.site == "a")
    assert (upstream.request, upstream.state, upstream.products, upstream.lost_sequences) == ("all", "live", 20, 0)
    assert {(flow.origin, flow.feed) for flow in told.flows} == {("a", "wx/text"), ("a", "tel/frames")}
    (relayed,) = [stream for stream in told.streams if stream.name != "own"]
    assert (relayed.feed, relayed.has_listeners) == ("wx/**", True)
    assert json.loads(msgspec.json.encode(drawn))["links"]


def test_a_stopped_site_that_others_request_is_on_the_map(fabric: Fabric) -> None:
    chain(fabric)
    fabric.stop("a")
    until(lambda: place(drawn_from(fabric, "b"), "a").state == "away", "a is missed")
    drawn = drawn_from(fabric, "b")
    assert {frozenset((link.one, link.other)) for link in drawn.links} == {frozenset("bc")}


def test_a_site_that_does_not_answer_is_silent(fabric: Fabric) -> None:
    fabric.add("a")
    tokens = [fabric.sessions["a"].liveliness().declare_token(site_key(name, "abc")) for name in ("ghost", "no name")]
    found = place(drawn_from(fabric, "a"), "ghost")
    assert (found.state, found.description, found.round_trip_s) == ("silent", None, None)
    assert found.problem
    assert len(drawn_from(fabric, "a").nodes) == 2  # a token with an invalid site name is ignored
    for token in tokens:
        token.undeclare()


def test_routers_that_are_not_sites_are_on_the_map(fabric: Fabric, tmp_path: Path) -> None:
    fabric.add("a")
    router = open_session(SessionTerms("router", connect=(fabric._endpoints["a"],)))
    until(lambda: len(fabric.sessions["a"].info.routers_zid()) == 1, "it is linked")
    drawn = drawn_from(fabric, "a")
    assert place(drawn, f"router {str(router.zid())[:8]}").state == "router"
    (link,) = drawn.links
    assert (link.one, link.round_trip_s, link.loss) == ("a", None, None)
    router.close()  # type: ignore[no-untyped-call]


def test_gaps_are_reported_as_the_loss_of_a_link(fabric: Fabric) -> None:
    a = fabric.add("a")
    fabric.add("b", want("**"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    ((_, upstream),) = fabric.sites["b"]._receiver.upstreams()
    a.put(b"1", feed="x")
    until(lambda: upstream.statistics.live == 1, "it arrives and is counted")
    upstream.statistics.gaps, upstream.statistics.live = 1, 3
    upstream.statistics.lose(7, 9, "evicted", 0.0)
    drawn = drawn_from(fabric, "a")
    (link,) = drawn.links
    assert (link.live_pages, link.gaps, link.loss) == (3, 1, 0.25)
    told = place(drawn, "b").description
    assert told is not None
    assert (told.upstreams[0].lost, told.upstreams[0].lost_sequences) == (((7, 9, "evicted"),), 3)


def test_a_description_hides_feeds_that_its_reader_may_not_receive(fabric: Fabric) -> None:
    chain(fabric)
    told = fabric.sites["b"].describe()
    troubled = msgspec.structs.replace(told, problems=(Problem("link", "tcp/h:1", "secret", "do", 3.0),), answered=7)
    mine = audience_stream("ada", "0123456789abcdef")
    stream = msgspec.structs.replace(told.streams[0], name=mine)
    troubled = msgspec.structs.replace(troubled, streams=(*told.streams, stream))
    weather = visible_to(troubled, Feeds(["wx/**"]), (3, 40), audience_stream("ada", ""))
    assert (weather.problems, weather.answered, weather.refused) == ((), 0, 0)
    assert (weather.held_products, weather.held_bytes) == (3, 40)
    assert [feed.feed for feed in weather.feeds] == ["wx/text"]
    assert [flow.feed for flow in weather.flows] == ["wx/text"]
    assert (weather.feeds_in_all, weather.flows_in_all) == (1, 1)
    assert weather.requests == weather.upstreams == ()  # they select all feeds
    assert [stream.name for stream in weather.streams] == [mine]
    nothing = visible_to(told, Feeds(), (0, 0), audience_stream("ada", ""))
    assert (nothing.feeds, nothing.flows, nothing.streams, nothing.wanted) == ((), (), (), ())
    assert nothing.links == told.links


def test_a_description_is_bounded(fabric: Fabric) -> None:
    feeds = [FeedStatus(f"f/{number}", number, 0) for number in range(10)]
    assert [feed.products for feed in largest(feeds, 3, lambda feed: feed.products)] == [7, 8, 9]
    assert largest(feeds, 10, lambda feed: feed.products) == tuple(feeds)
    assert len(shortened("x" * 10_000)) == TEXT_MAX + 1
    a = fabric.add("a")
    a.put_many([b"%d" % number for number in range(500)], feed=[f"feed/{number}" for number in range(500)])
    told = fabric.sites["a"].describe()
    assert (len(told.feeds), told.feeds_in_all) == (200, 500)
    assert len(encode(told)) < 20_000


def test_round_trips_are_measured_until_a_site_does_not_answer(fabric: Fabric) -> None:
    fabric.add("a")
    assert len(round_trips(fabric.sessions["a"], "a", 4)) == 4
    assert round_trips(fabric.sessions["a"], "nobody", 4) == ()


TOO_OFTEN = encode({"type": "measure", "site": "a", "times": 11})


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x81\xa4type\xa7measure", TOO_OFTEN])
def test_an_invalid_query_is_refused(payload: bytes) -> None:
    with pytest.raises(FabricMessageError):
        decode_query(payload)


def test_an_invalid_reply_is_refused() -> None:
    with pytest.raises(FabricMessageError, match="invalid reply of site a"):
        decode_reply(b"\x00", IdentifyReply, "a")


def test_a_site_identifies_itself_by_the_id_of_its_session(fabric: Fabric) -> None:
    fabric.add("a")
    assert SiteClient(fabric.sessions["a"], "a").query(Identify(), IdentifyReply).zid == str(fabric.sessions["a"].zid())
