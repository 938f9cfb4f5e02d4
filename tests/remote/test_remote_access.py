"""What a remote client may read, put and use, by the access rules of the site."""

import os
from collections.abc import Callable

import pytest

from headrace import Selection
from headrace.errors import AccessDeniedError, StationMissingError
from headrace.link.rights import Rule
from headrace.product.put import Put
from headrace.queue import Member
from headrace.remote.client.cursor import RemoteCursor
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.envelope import Envelope, encode
from headrace.remote.protocol.hello import VERSION
from headrace.remote.server.access import ClientAccess
from support.serving import Router, Served, Stranger


def test_access_follows_the_rules() -> None:
    rules = (
        Rule(("ann",), receive=("a/**",), station=("**",)), Rule(("*",), publish=("p",)),
        Rule(("bob",), manage=("**",)),
    )  # fmt: skip
    ann, bob, nobody = (ClientAccess(rules, name) for name in ("ann", "bob", None))
    ann.check_new_station("s", Selection("a/b/*"), stops_writers=False)
    ann.check_new_station("s", Selection("a/b|a/c/**"), stops_writers=False)
    bob.check_new_station("s", Selection(), stops_writers=True)
    for rights in (ann, bob, nobody):
        rights.check_publish(["p"])
        with pytest.raises(AccessDeniedError, match="may not publish feed q"):
            rights.check_publish(["p", "q"])
    for selection in (Selection(), Selection("*/b"), Selection("b"), Selection("a/b|b")):
        with pytest.raises(AccessDeniedError, match="ann may not receive all of"):
            ann.check_new_station("s", selection, stops_writers=False)
    with pytest.raises(AccessDeniedError, match="a client without a name may not receive anything"):
        nobody.check_receive()
    assert not nobody.is_empty
    assert ClientAccess(rules[:1], None).is_empty
    assert not ClientAccess((), None).is_empty


def test_a_client_sees_members_that_concern_feeds_it_may_use() -> None:
    rules = (Rule(("ann",), receive=("a/**",), publish=("p/x",)), Rule(("bob",), receive=("**",)))
    ann, bob = (ClientAccess(rules, name) for name in ("ann", "bob"))
    site = Member("site", "denver", "denver", "1", ("a/1", "b/1"))
    client = Member("client", "eve", "here", "1", (), "eve")
    suppliers = [Member("supplier", feed, "here", "1-1", (feed,), "eve", 7) for feed in ("a/**", "b/**", "p/**")]
    consumers = [Member("consumer", feed, "here", "1-1", (feed,), "eve", 7) for feed in ("a/b|a/c", "a/b|b", "p/**")]
    for member in (site, client, *suppliers, *consumers):
        assert bob.visible_member(member) == member
    seen = [ann.visible_member(member) for member in (site, client, *suppliers, *consumers)]
    assert [member and (member.name, member.feeds, member.user, member.pid) for member in seen] == [
        ("denver", ("a/1",), "", 0), None,
        ("a/**", ("a/**",), "", 0), None, ("p/**", ("p/**",), "", 0),
        ("a/b|a/c", ("a/b|a/c",), "", 0), None, None,
    ]  # fmt: skip


def test_a_restricted_client_learns_nothing_of_members_that_come_and_go_elsewhere(
    make_served: Callable[..., Served],
) -> None:
    served = make_served(rules=(Rule(("*",), receive=("a/**",)),))
    mine, other = served.queue.channel("mine", "a/**"), served.queue.channel("other", "b/**")
    stream = served.connect().members(timeout=240)
    with other.supplier(), mine.supplier():
        told = [str(next(stream)), str(next(stream))]
    with other.supplier():
        told += [str(next(stream))]
    with other.supplier(), mine.supplier():
        told += [str(next(stream))]
    assert told == [
        f"site:{served.name} joined (present)", "supplier:mine joined (present)", "supplier:mine left (stopped)",
        "supplier:mine joined (new)",
    ]  # fmt: skip


def test_a_client_reads_and_puts_what_the_rules_allow(make_served: Callable[..., Served]) -> None:
    served = make_served(rules=(Rule(("*",), receive=("a/**",), publish=("a/x",), station=("a/**",)),))
    for feed in ("a/1", "b", "a/2", "b"):
        served.queue.put(feed.encode() + os.urandom(3), feed=feed)
    remote = served.connect()
    batch = remote.read_batch()
    assert (batch.feeds, batch.next) == (["a/1", "a/2"], 5)
    assert [told.feed for told in remote.statistics().feeds] == ["a/1", "a/2"]
    assert remote.put(b"1", feed="a/x") == 5
    assert [batch.feeds for batch in remote.follow("oldest", limit=1, timeout=0)] == [["a/1"], ["a/2"], ["a/x"]]
    for use in (lambda: remote.put(b"2", feed="b"), lambda: remote.put_many([b"2"], feed="a/y"),
                lambda: remote.station("s", "**"), lambda: remote.put_batch(served.queue.read_batch())):  # fmt: skip
        with pytest.raises(AccessDeniedError):
            use()
    served.queue.station("all", "**")
    for use in (lambda: remote.station("all").attach(), lambda: remote.station("all")):
        with pytest.raises(AccessDeniedError):
            use()
    with remote.station("mine", "a/**", start="oldest").attach() as consumer:
        assert consumer.get(9).feeds == ["a/1", "a/2", "a/x"]


@pytest.fixture
def guarded(make_served: Callable[..., Served]) -> Served:
    """Everybody may receive a/**, have stations of it, and publish p."""
    return make_served(rules=(Rule(("*",), receive=("a/**",), publish=("p",), station=("**",), consume=("mine",)),))


@pytest.mark.parametrize(
    "selection", ["b", "b/**", "**", "** ident ~ secret", "** where ident = 'secret'", "b every 2"]
)
def test_a_client_learns_nothing_about_products_that_it_may_not_receive(
    router: Router, guarded: Served, selection: str
) -> None:
    """Not even by the end of a reply, by its counts of skipped products, or by its size."""
    someone, told = Stranger(router[0], guarded), []
    for feed in ("b", "c"):
        for number in range(4):
            guarded.queue.put(b"%d" % number, feed=feed, ident="secret" if feed == "b" else "other")
        position = guarded.queue.next - 4
        came = someone.call(calls.ReadProducts(selection, position, 1, 1))
        assert isinstance(came, replies.Products)
        told.append((came.count, came.next - position, came.payload_bytes, came.passed_over))
    assert told[0] == told[1]
    assert told[0][:2] == (0, 4)


def test_a_client_learns_nothing_about_stations_that_it_may_not_use(guarded: Served) -> None:
    guarded.queue.station("all", "**")
    guarded.queue.station("hidden", "b/**", group="g")
    remote = guarded.connect()
    remote.station("mine", "a/**")
    assert remote.stations() == ["mine"]
    for use in (lambda: remote.station("hidden", "a/**"), lambda: remote.station("hidden").terms,
                lambda: remote.station("behind", "a/**", after="hidden"),
                lambda: remote.station("beside", "a/**", group="g")):  # fmt: skip
        with pytest.raises(AccessDeniedError) as caught:
            use()
        assert "b/**" not in str(caught.value)
    for feed in ("a/1", "p"):
        assert remote.wanted_by(feed)
    with pytest.raises(AccessDeniedError):
        remote.wanted_by("b/1")


def test_a_client_creates_a_station_of_everything_only_if_it_may_receive_everything(guarded: Served) -> None:
    remote = guarded.connect()
    with pytest.raises(AccessDeniedError, match="may not receive all of"):
        remote.station("s")
    with pytest.raises(StationMissingError):
        remote.station("s", create=False)
    assert guarded.queue.stations() == []
    guarded.queue.station("s", "a/**")
    assert remote.station("s").terms.selection == "a/**"


def test_a_client_cannot_move_stations_that_it_may_not_use(guarded: Served) -> None:
    """A seek moves all stations of a chain."""
    remote = guarded.connect()
    remote.station("mine", "a/**", start="oldest")
    assert remote.station("mine").seek("next") == 1
    guarded.queue.station("behind", "**", after="mine")
    with pytest.raises(AccessDeniedError):
        remote.station("mine").seek("next")


def test_new_payloads_need_the_right_to_publish_the_feed(guarded: Served) -> None:
    guarded.queue.station("mine", "a/**")
    guarded.queue.put(b"true", feed="a/1")
    with guarded.connect().station("mine").attach() as consumer:
        batch = consumer.get(1)
        with pytest.raises(AccessDeniedError, match="may not publish feed a/1"):
            consumer.ack(batch, payloads=[b"false"])
        consumer.ack(batch, payloads=[None])
    assert guarded.queue.station("mine").statistics().acknowledged == 1


def test_a_client_cannot_put_products_of_another_origin(router: Router, make_served: Callable[..., Served]) -> None:
    """Unless it is a relay, or only a rule for everybody allows it to publish."""
    served = make_served(
        rules=(
            Rule(("ann",), publish=("p",)),
            Rule(("relay",), publish=("p",), relay=True),
            Rule(("*",), receive=("p",)),
        )
    )
    someone = Stranger(router[0], served)

    def put(name: str, number: int, origin: str | None) -> replies.Reply | str:
        call = calls.PutOne("p", facts=Put(origin=origin, origin_sequence=number if origin else 0))
        head = encode(Envelope(VERSION, someone.client, None, number, number, call))
        return someone.send(head, b"%d" % number, name)

    assert put("ann", 1, None) == replies.Number(1)
    assert put("ann", 2, "ann") == replies.Number(2)
    told = put("ann", 3, "bob")
    assert isinstance(told, replies.Failure)
    assert "ann may not put products of origin bob" in told.problem
    assert put("relay", 4, "bob") == replies.Number(3)
    ClientAccess((Rule(("*",), publish=("p",)),), None).check_put([("p", "bob")])


def test_a_client_that_only_publishes_has_no_cursors(make_served: Callable[..., Served]) -> None:
    served = make_served(rules=(Rule(("*",), publish=("p",)),))
    served.queue.cursor("c")
    remote = served.connect()
    assert remote.cursors() == []
    with pytest.raises(AccessDeniedError):
        remote.cursor("c")
    with pytest.raises(AccessDeniedError):
        RemoteCursor(remote, remote._connection, "c").state


def test_a_client_that_no_rule_names_is_refused(router: Router, make_served: Callable[..., Served]) -> None:
    served = make_served(rules=(Rule(("ann",), receive=("**",)),))
    with pytest.raises(AccessDeniedError, match="has no access rule for you"):
        served.connect()
    someone = Stranger(router[0], served)
    told = someone.call(calls.GetStatistics())
    assert isinstance(told, replies.Failure)
    head = encode(Envelope(VERSION, someone.client, None, 0, 0, calls.GetStatistics()))
    assert isinstance(someone.send(head, name="ann"), replies.Details)  # Zenoh lets only ann use that name
