"""A site with secret products and a site with others in their place look the same to a reader that may receive neither.

The two sites differ in nothing but the feeds, idents, contents and number of origins of what the reader may not
receive, and what others have there: cursors, stations and attached processes. It asks everything, makes every call,
listens to everything, and compares. Sequences are those of the whole log: so both logs
have equally many products (docs/security.md says what a reader learns from them).
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zenoh
from zenoh.handlers import Callback

from headrace.link.access import principal_key
from headrace.link.keys import call_key, log_key
from headrace.relay.messages.beat import decode_beat
from headrace.relay.messages.page import decode_head
from headrace.relay.messages.query import (
    Describe,
    GetDictionary,
    Identify,
    Inventory,
    Listen,
    Locate,
    Measure,
    Read,
    Resolve,
    Trace,
    encode,
)
from headrace.remote.protocol import calls, channel_calls, member_calls, replies, share_calls
from headrace.remote.protocol import envelope as calling
from headrace.remote.protocol.hello import VERSION
from support.links import Listener
from support.realm import Allow, Realm, SecureSite
from support.realm import realm as make_realm
from support.waiting import until

CREATED_NS = 1_700_000_000_000_000_000
SECRET_SIGNATURE = bytes(range(16))
SELECTIONS = (
    "**", "wx/public/**", "wx/secret/**", "wx/secret/a", "absent/**", '** ident ~ "^secret"', "** where bytes > 0",
    "** where temperature > 3", "** origin spy", "** age < 1h", "wx/secret/a|wx/public/a",
)  # fmt: skip
VARYING = {"pages", "zid", "queue", "started_ns", "sent_ns", "links", "clock", "saved_boot_ns"}
TIMED = {"uuid", "list_id", "instance", "places", "saved_ns", "now_ns", "zid"}  # of any two sites, and times
LISTENED = ("**", "wx/secret/**", '** ident ~ "^secret"', "** where temperature > 3", "wx/public/**")


def put_all(hub: SecureSite, feeds: tuple[str, ...], ident: str, origins: tuple[str, ...]) -> None:
    """Public products, each behind one that the reader may not receive."""
    for number in range(12):
        hub.queue.put(
            f"{ident} {number}".encode() * (1 + len(feeds)), feed=feeds[number % len(feeds)], ident=f"{ident}{number}",
            properties={"temperature": len(feeds) + number}, origin=origins[number % len(origins)],
            origin_sequence=number + 1, signature=SECRET_SIGNATURE if number == 3 and len(feeds) > 1 else None,
            created=CREATED_NS, expiry=1 if number % 5 == 4 else None,
        )  # fmt: skip
        hub.queue.put(b"open %d" % number, feed="wx/public/a", ident=f"p{number}", created=CREATED_NS)


def have_others(hub: SecureSite, count: int) -> list[subprocess.Popen[bytes]]:
    """Cursors and a station of the site, and processes that have its queue open."""
    queue = hub.queue
    queue.station("public", "wx/public/**")
    queue.station("hidden", "wx/secret/**", capacity=count)
    for number in range(count):
        queue.cursor(f"cursor {count} {number}", number + 2)
        queue.put(b"again", feed="other/x", ident="again", created=CREATED_NS)  # all but the first are duplicates
    code = "import headrace, sys; queue = headrace.connect(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    others = [
        subprocess.Popen([sys.executable, "-c", code, str(queue.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    for each in others:
        assert each.stdout is not None
        assert each.stdout.readline()
    return others


def asked(session: zenoh.Session, payload: bytes, parameters: str = "") -> list[Any]:
    """What a query brings: replies, or errors, without what differs between any two sites."""
    replies = session.get(
        principal_key(log_key("hub"), "reader") + parameters, payload=payload, timeout=240,
        consolidation=zenoh.ConsolidationMode.NONE,
    )  # fmt: skip
    return [_reply(reply) for reply in replies]


def _reply(reply: zenoh.Reply) -> Any:
    if reply.ok is None:
        return "error", reply.err.payload.to_bytes()  # type: ignore[union-attr]
    if reply.ok.attachment is not None:
        return _stable(msgspec.to_builtins(decode_head(reply.ok.attachment.to_bytes()))), reply.ok.payload.to_bytes()
    return _stable(msgspec.msgpack.decode(reply.ok.payload.to_bytes()))


def _stable(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _stable(value) for key, value in found.items() if key not in VARYING}
    if isinstance(found, list):  # a head
        return [value for place, value in enumerate(found) if place not in (2, 8)]
    return found


def remote_calls() -> Iterator[calls.Call]:
    """Every call that asks for something, of what is his, of what others have, and of what does not exist."""
    yield from (calls.Identify(), calls.GetBounds(), calls.GetStatistics(), calls.ListStations(), calls.Resolve("next"))
    yield from (calls.ListNames("cursors"), calls.ListNames("origins"), channel_calls.ListChannels())
    yield from (share_calls.ListShares(), member_calls.WatchMembers(), calls.GetDictionary(40_000))
    yield from (calls.WantedBy("wx/public/a"), calls.WantedBy("wx/secret/a"), calls.WantedBy("absent"))
    yield from (calls.OpenCursor("mine", "oldest"), calls.LoadCursor("mine"), calls.LoadCursor("absent"))
    yield from (calls.ListNames("cursors"), calls.GetStatistics(), calls.RemoveCursor("mine"))
    for text in SELECTIONS:
        yield from (calls.ReadProducts(text, 1, 100, 1 << 20), calls.Weigh(text, 1, 24, 0))
    for what in ("terms", "statistics", "consumers", "parked"):
        yield calls.DescribeStation("public", what)
        yield calls.DescribeStation("absent", what)
    for name in ("absent", "radar"):
        yield from (channel_calls.DescribeChannel(name, what) for what in ("definition", "statistics", "stations"))
        yield from (share_calls.DescribeShare(name, "main", what) for what in ("state", "history", "parked"))


def called(session: zenoh.Session) -> list[Any]:
    """What each of them is replied, without the times and ids that differ between any two sites."""
    client, found = bytes(16), []
    for number, call in enumerate(remote_calls(), 1):
        given = number if isinstance(call, calls.Numbered) else 0
        head = calling.encode(calling.Envelope(VERSION, client, None, given, 0, call))
        key = principal_key(call_key("hub"), "reader")
        for reply in session.get(key, attachment=head, timeout=240):
            assert reply.ok is not None, reply
            told = replies.decode_reply(reply.ok.attachment.to_bytes())  # type: ignore[union-attr]
            found.append((str(call), _untimed(msgspec.to_builtins(told)), reply.ok.payload.to_bytes()))
    return found


def _untimed(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _untimed(value) for key, value in found.items() if key not in VARYING | TIMED}
    return [_untimed(each) for each in found] if isinstance(found, list) else found


def queries() -> Iterator[Any]:
    yield from (Identify(), Describe(), Measure("absent", 1), Trace(1, 20), GetDictionary(40_000))
    yield from (Resolve(start) for start in ("oldest", "next", "nonsense"))
    for text in SELECTIONS:
        yield from (Read(text, 0, 8, 5, 1 << 20), Read(text, 9, 1, 100, 10), Inventory(text, 0, 100))
        yield Locate(text, 8 * SECRET_SIGNATURE, bytes(range(8)), ("spy",), bytes(16))  # whatever kind it is of


@contextmanager
def observed(folder: Path, feeds: tuple[str, ...], ident: str, origins: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """All that a reader sees of a site that has such products."""
    folder.mkdir()
    with make_realm(folder) as realm:
        yield observe(realm, feeds, ident, origins)


def observe(realm: Realm, feeds: tuple[str, ...], ident: str, origins: tuple[str, ...]) -> dict[str, Any]:
    hub = realm.site(
        "hub", Allow("reader", receive=["wx/public/**"]), Allow("hub", receive=["**"]),
        requests=[f'name = "{feed}"\nselect = "{feed}"' for feed in feeds],
    )  # fmt: skip
    session, tokens = realm.session("reader", hub), list[str]()
    see = Callback(lambda sample: tokens.append(str(sample.key_expr)), indirect=False)
    kept = [
        session.liveliness().declare_subscriber(f"headrace/{key}/**", see, history=True) for key in ("site", "client")
    ]
    streams = [asked(session, encode(Listen(text)))[0]["stream"] for text in LISTENED]
    heard = [Listener(session, f"headrace/live/hub/{stream}/**") for stream in streams]
    beats = [Listener(session, f"headrace/beat/hub/{stream}") for stream in streams]
    wide = [Listener(session, key) for key in ("headrace/**", "headrace/live/**", "headrace/beat/**", "@/**")]
    until(lambda: all(beat.keys for beat in beats), "the streams are heard")
    put_all(hub, feeds, ident, origins)
    others = have_others(hub, len(feeds))
    last = hub.queue.next - 1
    until(lambda: all(decode_beat(beat.payloads[-1]).examined == last for beat in beats), "all has been sent")
    answers = {str(query): asked(session, encode(query)) for query in queries()}
    answers |= {f"junk {junk!r}": asked(session, junk) for junk in (b"", b"junk", encode({"type": "listen"}))}
    found = {
        "streams": streams,
        "answers": answers,
        "calls": called(session),
        "records": [b"".join(each.payloads) for each in heard],  # however they were divided into pages
        "recent": [sorted({f for raw in each.payloads for f in decode_beat(raw).recent or {}}) for each in beats],
        "left out": {decode_beat(raw).left_out for each in beats for raw in each.payloads},
        "keys": sorted({key for each in (*heard, *beats, *wide) for key in each.keys}),
        "tokens": sorted({"/".join(token.split("/")[:3]) + "/…" * (token.count("/") - 2) for token in tokens}),
    }
    for process in others:
        process.communicate(b"")
    for each in kept:
        each.undeclare()  # type: ignore[no-untyped-call]
    return found


def test_a_reader_sees_no_difference_between_a_site_with_secrets_and_one_without(tmp_path: Path) -> None:
    with (
        observed(tmp_path / "with", ("wx/secret/a", "wx/secret/b", "tel/c"), "secret", ("spy", "mole", "hub2")) as one,
        observed(tmp_path / "without", ("other/x",), "dull", ("elsewhere",)) as other,
    ):
        assert one.keys() == other.keys()
        for mine, theirs in zip(one["calls"], other["calls"], strict=True):
            assert mine == theirs
        for part in one:
            assert one[part] == other[part], part
        assert one["recent"] == [["wx/public/a"], [], [], [], ["wx/public/a"]]
        assert one["records"][0].count(b"open ") == 12
        assert one["left out"] == {0}
        assert b"secret" not in repr([one["keys"], one["tokens"], one["records"]]).encode()
