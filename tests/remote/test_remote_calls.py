"""Calls as bytes: what cannot be is refused and counted, and everything has a limit."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zenoh

from headrace import Selection
from headrace.errors import AccessDeniedError, FabricError, FabricMessageError, HeadraceError
from headrace.link.access import Rule
from headrace.link.keys import call_key
from headrace.product.put import Put
from headrace.remote.client.cursor import RemoteCursor
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.replies import error_of, failure_of
from headrace.remote.server import pending_call as pending_calls
from headrace.remote.server.access import ClientAccess
from headrace.remote.server.reads import ClientRead, RecentReads
from support.fleet import free_port, open_plain, until
from support.serving import Served

SEED = int(os.environ.get("HEADRACE_SEED", "20261115"))
Router = tuple[zenoh.Session, str]
SEND = pending_calls._send


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    session = open_plain([endpoint], [])
    yield session, endpoint
    session.close()


@pytest.fixture
def make_served(shared_memory: Path, router: Router) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(**terms: Any) -> Served:
        made.append(Served(shared_memory, router, **terms))
        return made[-1]

    yield make
    for served in made:
        served.close()


@pytest.fixture
def served(make_served: Callable[..., Served]) -> Served:
    return make_served()


class Stranger:
    """Sends whatever it likes to a site's calls."""

    def __init__(self, session: zenoh.Session, served: Served) -> None:
        self._session, self._key = session, call_key(served.name)
        self.client = os.urandom(16)
        self._numbers = 0

    def send(self, head: bytes | None, payload: bytes = b"", name: str = "") -> replies.Reply | str:
        """The answer, or the words of the refusal."""
        key = f"{self._key}/{name}" if name else self._key
        for reply in self._session.get(key, payload=payload, attachment=head, timeout=5):
            if reply.ok is not None:
                assert reply.ok.attachment is not None
                return replies.decode_reply(reply.ok.attachment.to_bytes())
            assert reply.err is not None
            return reply.err.payload.to_bytes().decode()
        return "silence"

    def call(
        self, call: calls.Call, payload: bytes = b"", number: int | None = None, oldest: int = 0
    ) -> replies.Reply | str:
        """With the number of the last call and one, if it is one that has a number."""
        if number is None:
            number = self._numbers + 1 if isinstance(call, calls.Numbered) else 0
        self._numbers = max(self._numbers, number)
        return self.send(calls.encode(calls.Envelope(calls.VERSION, self.client, None, number, oldest, call)), payload)


@pytest.fixture
def stranger(router: Router, served: Served) -> Stranger:
    return Stranger(router[0], served)


# --- what cannot be ---------------------------------------------------------------------------------


def test_what_cannot_be_read_is_refused_and_counted(served: Served, stranger: Stranger) -> None:
    chance = random.Random(SEED)
    good = calls.encode(calls.Envelope(1, bytes(16), None, 0, 0, calls.PutOne("a", "ident")))
    bad: list[bytes | None] = [None, b"", b"\xc1", good[:-1], good + b"x", chance.randbytes(50)]
    bad += [calls.encode([1, bytes(15), None, 0, 0, {"type": "ends"}]), calls.encode([1, bytes(16), None, -1, 0, {"type": "ends"}]),
            calls.encode([2, bytes(16), None, 0, 0, {"type": "ends"}]), calls.encode([1, bytes(16), None, 0, 0, {"type": "explode"}]),
            calls.encode([1, bytes(16), None, 0, 0, {"type": "ends", "more": 1}]),
            calls.encode([1, bytes(16), None, 0, 0, {"type": "put", "feed": "a", "priority": 8}]),
            calls.encode([1, bytes(16), None, 0, 0, {"type": "get", "attachment": 1, "n": 1, "wait_s": 1e9}])]  # fmt: skip
    for head in bad:
        told = stranger.send(head)
        assert isinstance(told, str), (head, told)
        assert "cannot be read" in told or "version" in told
    assert served.site is not None
    assert served.site.statistics().attendant.refused == len(bad)
    assert served.queue.next == 1


def test_altered_calls_do_no_harm(served: Served, stranger: Stranger) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    samples = [
        calls.PutOne("a", "i", Put(properties=b"\1\1\x08\0n" + bytes(8))), calls.PutMany(b"\1\0\0\0", calls.encode(calls.Columns("a"))),
        calls.ReadProducts("**", 1, 10, 10), calls.OpenStation("s", "next", {"selection": "a", "capacity": 5}), calls.Attach("s", 1.0),
        calls.Get(1, 1, 0.0), calls.Settle(1, 1, 1, "ack"), calls.SaveCursor("c", 5), calls.Unpark("s", [1], True),
    ]  # fmt: skip
    for turn in range(1, 301):
        call = chance.choice(samples)
        number = turn if isinstance(call, calls.Numbered) else 0
        head = bytearray(calls.encode(calls.Envelope(1, stranger.client, None, number, turn, call)))
        for _ in range(chance.randrange(1, 4)):
            head[chance.randrange(len(head))] = chance.randrange(256)
        assert stranger.send(bytes(head), chance.randbytes(chance.randrange(4))) != "silence"
    assert isinstance(stranger.call(calls.GetBounds()), replies.Bounds)


@pytest.mark.parametrize(
    ("call", "payload"),
    [(calls.PutMany(b"\1\0\0", calls.encode(calls.Columns("a"))), b"x"),
     (calls.PutMany(b"\2\0\0\0", calls.encode(calls.Columns("a"))), b"x"),
     (calls.PutMany(b"\1\0\0\0", b"\xc1"), b"x"),
     (calls.PutMany(b"\1\0\0\0", calls.encode(calls.Columns(["a", "b"]))), b"x"),
     (calls.PutMany(b"\1\0\0\0", calls.encode(calls.Columns("a", facts={"priority": b"\x09"}))), b"x"),
     (calls.PutMany(b"\1\0\0\0", calls.encode(calls.Columns("a", facts={"created": b"123"}))), b"x"),
     (calls.PutOne("a", facts=Put(properties=b"nonsense")), b"x"),
     (calls.PutOne("a b"), b"x"),
     (calls.PutBatch(), b"no records"),
     (calls.PutBatch(keep=b"\1"), b""),
     (calls.ReadProducts("where (", 1, 1, 1), b""),
     (calls.ReadProducts("**", -5, 1, 1), b""),
     (calls.OpenStation("s", "next", {"nonsense": 1}), b"")],
)  # fmt: skip
def test_what_makes_no_sense_is_an_error_and_changes_nothing(
    served: Served, stranger: Stranger, call: calls.Call, payload: bytes
) -> None:
    told = stranger.call(call, payload)
    assert isinstance(told, replies.Failure), told
    assert issubclass(type(error_of(told)), HeadraceError)
    assert (served.queue.next, served.queue.stations()) == (1, [])


def test_nobody_uses_what_another_client_has_attached(served: Served, stranger: Stranger) -> None:
    served.queue.put(b"1", feed="a")
    with served.connect().station("s", "**", start="oldest").attach() as consumer:
        batch = consumer.get(1)
        number = consumer._attachment  # type: ignore[attr-defined]
        for call in (calls.Get(number, 1, 0.0), calls.Settle(number, batch.got, 1, "ack"), calls.DescribeConsumer(number)):  # type: ignore[attr-defined]
            assert isinstance(stranger.call(call), replies.NotAttached)
        stranger.call(calls.Detach(number))
        stranger.call(calls.Leave())
        consumer.ack(batch)


def test_places_and_payloads_that_do_not_fit_are_refused(served: Served, stranger: Stranger) -> None:
    served.queue.put(b"1", feed="a")
    served.queue.station("s", "**", start="oldest")
    attached = stranger.call(calls.Attach("s", 10.0), number=1, oldest=1)
    assert isinstance(attached, replies.Attached)
    number = attached.attachment
    assert isinstance(stranger.call(calls.Get(number, 1, 0.0), number=2), replies.Products)
    far = (7).to_bytes(4, "little")
    for call in (
        calls.Settle(number, 2, 1, "ack", far), calls.Settle(number, 3, 1, "ack"), calls.Settle(number, 2, 1, "ack", b"xyz"),
        calls.Revise(number, 2, far, bytes(8)), calls.Revise(number, 2, bytes(4), bytes(7)),
        calls.Revise(number, 2, bytes(4), (9).to_bytes(8, "little")),
    ):  # fmt: skip
        payload = b"x" if isinstance(call, calls.Revise) else b""
        assert isinstance(stranger.call(call, payload), replies.Failure), call
    assert isinstance(stranger.call(calls.Settle(number, 2, 1, "ack")), replies.Done)


# --- numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [calls.PutOne("a"), calls.Attach("s", 1.0), calls.Get(1, 1, 0.0)])
def test_what_must_not_be_done_twice_has_a_number(served: Served, stranger: Stranger, call: calls.Call) -> None:
    assert "needs a number" in str(stranger.call(call, number=0))
    assert served.queue.next == 1


def test_what_may_be_repeated_has_no_number_and_is_not_remembered(stranger: Stranger) -> None:
    """Or answers with products would be kept for whoever asks for them."""
    assert "must not have a number" in str(stranger.call(calls.ReadProducts("**", 1, 10, 10), number=1, oldest=1))


def test_only_what_has_a_payload_comes_with_one(stranger: Stranger) -> None:
    assert "must not have a payload" in str(stranger.call(calls.GetBounds(), b"x"))


def test_a_get_that_nobody_asks_for_again_keeps_no_other_answers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.remote.server.clients.CALLS_MAX", 3)
    remote = served.connect(patience=0.5)
    consumer = remote.station("s", "**").attach()
    monkeypatch.setattr(pending_calls, "_send", lambda query, say: query.drop())
    assert len(consumer.get(1, timeout=0)) == 0
    monkeypatch.setattr(pending_calls, "_send", SEND)
    assert [remote.put(b"%d" % n, feed="a") for n in range(5)] == [1, 2, 3, 4, 5]
    assert consumer.get(9).sequences.tolist() == [1, 2, 3, 4, 5]


def test_a_get_that_is_over_is_not_done_again(served: Served, stranger: Stranger) -> None:
    served.queue.station("s", "**")
    attached = stranger.call(calls.Attach("s", 10.0))
    assert isinstance(attached, replies.Attached)
    get = calls.Get(attached.attachment, 1, 0.0)
    assert isinstance(stranger.call(get, number=5), replies.Products)
    assert isinstance(stranger.call(get, number=5), replies.Products)
    assert "was repeated" in str(stranger.call(get, number=4))


def test_an_answer_that_cannot_be_given_ends_nobody(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.queue.put(b"1", feed="a")
    monkeypatch.setattr("headrace.remote.server.queue_handlers.replies.Bounds", lambda *ends: replies.NameList(["\ud800"]))
    for _ in range(9):
        assert isinstance(stranger.call(calls.GetBounds()), replies.Failure)
    assert isinstance(stranger.call(calls.GetStatistics()), replies.Details)


def test_answers_are_remembered_until_the_client_lets_go(served: Served, stranger: Stranger) -> None:
    put = calls.PutOne("a")
    assert stranger.call(put, b"1", number=1, oldest=1) == replies.Number(1)
    assert stranger.call(put, b"1", number=1, oldest=1) == replies.Number(1)
    assert stranger.call(put, b"2", number=2, oldest=2) == replies.Number(2)
    assert "was repeated" in str(stranger.call(put, b"1", number=1, oldest=1))
    assert served.queue.next == 3


def test_a_client_that_lets_go_of_nothing_is_told_to_wait(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.clients.CALLS_MAX", 3)
    told = [stranger.call(calls.PutOne("a"), b"%d" % n, number=n, oldest=1) for n in range(1, 6)]
    assert told == [replies.Number(1), replies.Number(2), replies.Number(3), "busy", "busy"]


def test_there_are_limits_of_clients_consumers_and_questions(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.queue.station("s", "**")
    place = "headrace.remote.server.clients"
    monkeypatch.setattr(f"{place}.CONSUMERS_MAX", 1)
    assert isinstance(stranger.call(calls.Attach("s", 10.0)), replies.Attached)
    told = stranger.call(calls.Attach("s", 10.0))
    assert isinstance(told, replies.Failure)
    assert "remote consumers already" in told.problem
    monkeypatch.setattr("headrace.remote.server.reads.WAITING_MAX", 0)
    told = stranger.call(calls.ReadProducts("**", "next", 1, 1, 5.0))
    assert isinstance(told, replies.Failure)
    assert "too many reads wait" in told.problem
    monkeypatch.setattr(f"{place}.CLIENTS_MAX", 1)
    stranger.client = os.urandom(16)
    assert stranger.call(calls.GetBounds()) == "busy"


def test_a_client_that_only_calls_is_forgotten_in_the_end(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no token, so nobody would tell when it ends."""
    served.queue.put(b"1", feed="a")
    served.queue.station("s", "**", start="oldest")
    attached = stranger.call(calls.Attach("s", 0.1))
    assert isinstance(attached, replies.Attached)
    stranger.call(calls.Get(attached.attachment, 1, 0.0), number=1)
    until(lambda: served.queue.station("s").statistics().restored == 1, "its lease is restored")
    monkeypatch.setattr("headrace.remote.server.clients._FORGET_S", 0.0)
    assert served.site is not None
    until(lambda: served.site.statistics().attendant.clients == 0, "it is forgotten")  # type: ignore[union-attr]


def test_reads_that_take_long_hold_up_nobody_else(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    read, may_go_on = ClientRead.read, threading.Event()
    monkeypatch.setattr(ClientRead, "read", lambda *about: (may_go_on.wait(10), read(*about))[1])
    readers = [threading.Thread(target=served.connect().read) for _ in range(8)]
    for reader in readers:
        reader.start()
    assert served.site is not None
    until(lambda: served.site.statistics().attendant.taken >= 16, "all have asked")  # type: ignore[union-attr]
    begun = time.monotonic()
    assert served.connect().put(b"1", feed="a") == 1
    may_go_on.set()
    assert time.monotonic() - begun < 5
    for reader in readers:
        reader.join()


# --- rights -----------------------------------------------------------------------------------------


def test_rights_are_those_of_the_rules() -> None:
    rules = (Rule(("ann",), receive=("a/**",)), Rule(("*",), publish=("p",)), Rule(("bob",), receive=("**",)))
    ann, bob, nobody = (ClientAccess(rules, name) for name in ("ann", "bob", None))
    ann.check_selection(Selection("a/b/*"))
    bob.check_selection(Selection())
    for rights in (ann, bob, nobody):
        rights.check_publish(["p"])
        with pytest.raises(AccessDeniedError, match="may not publish feed q"):
            rights.check_publish(["p", "q"])
    for selection in (Selection(), Selection("*/b"), Selection("b")):
        with pytest.raises(AccessDeniedError, match="ann may not receive all of"):
            ann.check_selection(selection)
    with pytest.raises(AccessDeniedError, match="a client without a name may not receive anything"):
        nobody.check_receive()
    assert not nobody.is_empty
    assert ClientAccess(rules[:1], None).is_empty
    assert not ClientAccess((), None).is_empty


def test_a_user_sees_and_puts_what_the_rules_allow(make_served: Callable[..., Served]) -> None:
    served = make_served(rules=(Rule(("*",), receive=("a/**",), publish=("a/x",)),))
    for feed in ("a/1", "b", "a/2", "b"):
        served.queue.put(feed.encode() + os.urandom(3), feed=feed)
    remote = served.connect()
    batch = remote.read()
    assert (batch.feeds, batch.next) == (["a/1", "a/2"], 5)
    assert [told.feed for told in remote.statistics().feeds] == ["a/1", "a/2"]
    assert remote.put(b"1", feed="a/x") == 5
    assert [batch.feeds for batch in remote.follow("oldest", limit=1, timeout=0)] == [["a/1"], ["a/2"], ["a/x"]]
    for use in (lambda: remote.put(b"2", feed="b"), lambda: remote.put_many([b"2"], feed="a/y"),
                lambda: remote.station("s", "**"), lambda: remote.put_batch(served.queue.read())):  # fmt: skip
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
    """Everybody may receive a/** and publish p."""
    return make_served(rules=(Rule(("*",), receive=("a/**",), publish=("p",)),))


@pytest.mark.parametrize(
    "selection", ["b", "b/**", "**", "** ident ~ secret", "** where ident = 'secret'", "b every 2"]
)
def test_nobody_learns_of_products_that_he_may_not_receive(router: Router, guarded: Served, selection: str) -> None:
    """Not even by where an answer ends, of how many it says that they were passed over, or by their size."""
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


def test_nobody_learns_of_stations_that_he_may_not_use(guarded: Served) -> None:
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


def test_nobody_moves_stations_that_he_may_not_use(guarded: Served) -> None:
    """A seek moves all stations of a line."""
    guarded.queue.station("mine", "a/**", start="oldest")
    remote = guarded.connect()
    assert remote.station("mine").seek("next") == 1
    guarded.queue.station("behind", "**", after="mine")
    with pytest.raises(AccessDeniedError):
        remote.station("mine").seek("next")


def test_who_may_not_publish_a_feed_gives_its_products_no_other_payload(guarded: Served) -> None:
    guarded.queue.station("mine", "a/**")
    guarded.queue.put(b"true", feed="a/1")
    with guarded.connect().station("mine").attach() as consumer:
        batch = consumer.get(1)
        with pytest.raises(AccessDeniedError, match="may not publish feed a/1"):
            consumer.ack(batch, payloads=[b"false"])
        consumer.ack(batch, payloads=[None])
    assert guarded.queue.station("mine").statistics().acknowledged == 1


def test_nobody_puts_products_of_another_origin(router: Router, make_served: Callable[..., Served]) -> None:
    """Unless he is a relay, or one of those whom no rule knows by name."""
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
        head = calls.encode(calls.Envelope(1, someone.client, None, number, number, call))
        return someone.send(head, b"%d" % number, name)

    assert put("ann", 1, None) == replies.Number(1)
    assert put("ann", 2, "ann") == replies.Number(2)
    told = put("ann", 3, "bob")
    assert isinstance(told, replies.Failure)
    assert "ann may not put products of origin bob" in told.problem
    assert put("relay", 4, "bob") == replies.Number(3)
    ClientAccess((Rule(("*",), publish=("p",)),), None).check_origins(["bob"])


def test_who_only_publishes_has_no_cursors(make_served: Callable[..., Served]) -> None:
    served = make_served(rules=(Rule(("*",), publish=("p",)),))
    served.queue.cursor("c")
    remote = served.connect()
    with pytest.raises(AccessDeniedError):
        remote.cursor("c")
    with pytest.raises(AccessDeniedError):
        RemoteCursor(remote, remote._connection, "c").state


def test_what_others_read_is_noted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.reads.SELECTIONS_MAX", 3)
    readers = RecentReads()
    for number in range(3):
        readers.note(f"a/{number}")
    assert readers.patterns() == {"a/0", "a/1", "a/2"}
    for number in range(100):
        readers.note(f"b/{number}")
    assert readers.patterns() == {"**"}
    assert len(readers) == 4


def test_a_stranger_gets_nothing(router: Router, make_served: Callable[..., Served]) -> None:
    served = make_served(rules=(Rule(("ann",), receive=("**",)),))
    with pytest.raises(AccessDeniedError, match="has no access rule for you"):
        served.connect()
    someone = Stranger(router[0], served)
    told = someone.call(calls.GetStatistics())
    assert isinstance(told, replies.Failure)
    head = calls.encode(calls.Envelope(1, someone.client, None, 0, 0, calls.GetStatistics()))
    assert isinstance(someone.send(head, name="ann"), replies.Details)  # Zenoh lets nobody but her use that name


# --- errors and surface -----------------------------------------------------------------------------


def test_every_error_arrives_as_it_was() -> None:
    import headrace.errors as errors

    extra = {"ProductDamagedError": (7,), "RecordsDamagedError": (9,)}
    for kind in (value for value in vars(errors).values() if isinstance(value, type)):
        sent = kind("a problem", "a hint", *extra.get(kind.__name__, ()))
        came = error_of(msgspec.convert(msgspec.to_builtins(failure_of(sent)), replies.Failure))
        assert (type(came), came.problem, came.hint, str(came)) == (kind, "a problem", "a hint", str(sent))
        assert vars(came) == vars(sent)


def test_an_error_of_a_newer_site_is_told_all_the_same() -> None:
    came = error_of(replies.Failure("NewError", "a problem", "a hint"))
    assert type(came) is FabricError
    assert "NewError at the site: a problem" in came.problem
    assert type(error_of(replies.Failure("OptionError", "p", "h", {"new": 1}))) is FabricError
    assert "the site failed: KeyError" in error_of(failure_of(KeyError("x"))).problem


def test_an_answer_that_was_altered_is_refused() -> None:
    for head in (b"", b"\xc1", calls.encode({"type": "unheard"})):
        with pytest.raises(FabricMessageError, match="is invalid"):
            replies.decode_reply(head)
