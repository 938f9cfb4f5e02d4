"""Sessions: every transport carries payloads, and connections are restored."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zenoh

from headrace.errors import FabricError, OptionError
from headrace.link.presence import close_in_turn
from headrace.link.scouting import usable
from headrace.link.session import SessionTerms, locators, may_share_memory, open_session
from headrace.link.settings import settings_of
from support.fleet import free_port
from support.links import Listener, Open, make_certs, tls
from support.waiting import until

PAYLOAD = bytes(range(256)) * 1000  # several batches, so that it travels in fragments


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certs(tmp_path_factory.mktemp("certs") / "certs", "denver", "alice")


def wait_for_route(sender: zenoh.Session, receiver: zenoh.Session) -> None:
    """Wait until a query of the sender is answered by the receiver: routes are in place in both directions."""
    with receiver.declare_queryable("route", lambda query: query.reply(query.key_expr, b"here")):
        until(lambda: [reply.ok for reply in sender.get("route", timeout=60) if reply.ok], "the route")


def deliver(sender: zenoh.Session, receiver: zenoh.Session, *, lossy: bool = False) -> None:
    """Check that a payload arrives unchanged and once; on a lossy link, after some attempts."""
    publisher = sender.declare_publisher("headrace/live/a/own/wx", congestion_control=zenoh.CongestionControl.BLOCK)
    with Listener(receiver, "headrace/live/**") as heard:
        until(lambda: publisher.matching_status.matching, "the subscription is known")
        publisher.put(PAYLOAD)
        until(lambda: heard.payloads or (lossy and publisher.put(PAYLOAD)), "the payload")
        assert heard.payloads[0] == PAYLOAD
        assert lossy or len(heard.payloads) == 1
    until(lambda: not publisher.matching_status.matching, "the end of the subscription")


# --- transports ---------------------------------------------------------------------------------------

PLAIN = [
    "tcp/127.0.0.1:0",
    "tcp/[::1]:0",
    "tcp/localhost:0",
    "udp/127.0.0.1:0",
    "udp/[::1]:0",
    "ws/127.0.0.1:0",
    "ws/[::1]:0",
]
SECURE = ["tls/127.0.0.1:0", "tls/[::1]:0", "tls/localhost:0", "quic/127.0.0.1:0", "quic/[::1]:0", "quic/localhost:0"]


@pytest.mark.parametrize("endpoint", PLAIN)
def test_plain_transports_carry_payloads_both_ways(opened: Open, endpoint: str) -> None:
    site = opened("router", listen=(endpoint,))
    (where,) = locators(site)
    assert where.partition("/")[0] == endpoint.partition("/")[0]
    user = opened("client", connect=(where,))
    lossy = where.startswith("udp/")
    deliver(user, site, lossy=lossy)
    deliver(site, user, lossy=lossy)


def test_unix_sockets_carry_payloads_both_ways(opened: Open, tmp_path: Path) -> None:
    endpoint = f"unixsock-stream/{tmp_path}/s"
    site = opened("router", listen=(endpoint,))
    assert locators(site) == [endpoint]
    user = opened("client", connect=(endpoint,))
    deliver(user, site)
    deliver(site, user)


@pytest.mark.parametrize("endpoint", SECURE)
@pytest.mark.parametrize("mutual", [False, True], ids=["one-way", "mutual"])
def test_secure_transports_carry_payloads_both_ways(opened: Open, certs: Path, endpoint: str, mutual: bool) -> None:
    site = opened("router", listen=(endpoint,), tls=tls(certs, "denver", mutual=mutual))
    (where,) = locators(site)
    user = opened("client", connect=(where,), tls=tls(certs, "alice" if mutual else None))
    deliver(user, site)
    deliver(site, user)
    assert [link.auth_identifier for link in site.info.links()] == ["alice" if mutual else None]
    assert [link.auth_identifier for link in user.info.links()] == ["denver"]


@pytest.mark.parametrize("mode", ["router", "peer"])
def test_compressed_links_carry_payloads_both_ways(opened: Open, mode: str) -> None:
    first = opened("router", listen=("tcp/127.0.0.1:0",), compression=True)
    second = opened(mode, connect=tuple(locators(first)), compression=True)
    deliver(first, second)
    deliver(second, first)


@pytest.mark.skipif(not may_share_memory(), reason="needs the right to lock 129 MiB of memory")
def test_large_messages_go_through_shared_memory(opened: Open) -> None:
    first = opened("router", listen=("tcp/127.0.0.1:0",), shared_memory=True)
    second = opened("router", connect=tuple(locators(first)), shared_memory=True)
    plain = opened("client", connect=tuple(locators(first)))
    got: list[tuple[int, bool]] = []
    subscribers = [
        session.declare_subscriber("large", lambda sample: got.append((len(sample.payload), is_shared(sample))))
        for session in (second, plain)
    ]
    until(lambda: first.put("large", bytes(1 << 20)) or len({shared for _, shared in got}) == 2, "both ways")
    assert {size for size, _ in got} == {1 << 20}
    for subscriber in subscribers:
        subscriber.undeclare()


def is_shared(sample: zenoh.Sample) -> bool:
    return sample.payload.as_shm() is not None


def test_shared_memory_without_enough_space_is_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.link.session.SHARED_BYTES", 1 << 60)
    with pytest.raises(FabricError, match=r"/dev/shm has .* free, and shared_memory requires .*enlarge /dev/shm"):
        opened("router", listen=("tcp/127.0.0.1:0",), shared_memory=True)


def test_shared_memory_that_may_not_be_locked_is_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.link.session._lockable_bytes", lambda: 8 << 20)
    with pytest.raises(FabricError, match=r"may lock 8.0 MiB of memory, .* requires 129.0 MiB; raise the limit"):
        opened("router", listen=("tcp/127.0.0.1:0",), shared_memory=True)


def test_a_site_may_listen_on_many_endpoints(opened: Open, certs: Path, tmp_path: Path) -> None:
    endpoints = ("tcp/127.0.0.1:0", "tcp/[::1]:0", "tls/127.0.0.1:0", "ws/127.0.0.1:0", f"unixsock-stream/{tmp_path}/s")
    site = opened("router", listen=endpoints, tls=tls(certs, "denver"))
    found = locators(site)
    assert sorted(each.partition("/")[0] for each in found) == ["tcp", "tcp", "tls", "unixsock-stream", "ws"]
    assert not any(each.endswith(":0") for each in found)
    for where in found:
        opened("client", connect=(where,), tls=tls(certs, "alice"))
    assert len(site.info.links()) == len(endpoints)


def test_a_client_does_not_listen(opened: Open) -> None:
    site = opened("router", listen=("tcp/127.0.0.1:0",))
    assert locators(opened("client", connect=tuple(locators(site)))) == []


def test_a_site_that_admits_all_presents_its_certificate_to_sites_that_require_one(opened: Open, certs: Path) -> None:
    strict = opened("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "denver"))
    lax = opened(
        "router", listen=("tls/127.0.0.1:0",), connect=tuple(locators(strict)), tls=tls(certs, "alice", mutual=False)
    )
    until(lambda: lax.info.routers_zid(), "the strict one")
    assert [link.auth_identifier for link in strict.info.links()] == ["alice"]
    opened("client", connect=tuple(locators(lax)), tls=tls(certs))


# --- reconnecting --------------------------------------------------------------------------------------


def test_a_site_opens_without_its_neighbour_and_connects_later(opened: Open) -> None:
    there = f"tcp/127.0.0.1:{free_port()}"
    began = time.monotonic()
    early = opened("router", connect=(there,))
    print(f"open after {time.monotonic() - began:.2f} s")
    assert early.info.routers_zid() == []
    opened("router", listen=(there,))
    until(lambda: early.info.routers_zid(), "the neighbour")


def test_sites_and_clients_reconnect_with_their_subscriptions(opened: Open) -> None:
    there = f"tcp/127.0.0.1:{free_port()}"
    first = open_session(SessionTerms("router", listen=(there,)))
    site, user = opened("router", connect=(there,)), opened("client", connect=(there,))
    heard = [Listener(site, "x/**"), Listener(user, "x/**")]
    first.close()
    until(lambda: not site.info.routers_zid() and not user.info.routers_zid(), "the loss")
    again = opened("router", listen=(there,))
    publisher = again.declare_publisher("x/1")

    def both_hear() -> bool:
        publisher.put(b"again")
        return all(each.payloads for each in heard)

    until(both_hear, "both to hear again")


def test_routers_of_a_mesh_connect_by_gossip_and_work_without_the_one_between(opened: Open) -> None:
    between = open_session(SessionTerms("router", listen=("tcp/127.0.0.1:0",), mesh=True))
    near = tuple(locators(between))
    left, right = (opened("router", listen=("tcp/127.0.0.1:0",), connect=near, mesh=True) for _ in range(2))
    until(lambda: len(left.info.routers_zid()) == 2 == len(right.info.routers_zid()), "the mesh")
    between.close()
    until(lambda: len(left.info.routers_zid()) == 1 == len(right.info.routers_zid()), "both know that it has left")
    wait_for_route(left, right)  # Zenoh drops what is sent while it changes its routes
    deliver(left, right)


def test_routers_without_mesh_connect_only_to_their_endpoints(opened: Open) -> None:
    between = opened("router", listen=("tcp/127.0.0.1:0",))
    near = tuple(locators(between))
    left, right = (opened("router", listen=("tcp/127.0.0.1:0",), connect=near) for _ in range(2))
    deliver(left, right)
    assert (len(left.info.routers_zid()), len(right.info.routers_zid())) == (1, 1)


def test_a_site_accepts_many_sessions(opened: Open) -> None:
    site = opened("router", listen=("tcp/127.0.0.1:0",))
    where = tuple(locators(site))
    users = [opened("client", connect=where) for _ in range(50)]
    assert len(site.info.links()) == len(users)


def test_a_router_allows_two_thousand_sessions() -> None:
    settings = settings_of(SessionTerms("router"))
    assert settings["transport/unicast/max_sessions"] >= 2000
    assert settings["transport/unicast/accept_pending"] >= 1000
    assert settings["transport/shared_memory/enabled"] is False


def test_scouting_and_gossip_settings_apply_to_routers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_SCOUTING")
    quiet = settings_of(SessionTerms("router", gossip=False))
    assert quiet["scouting/multicast/enabled"] is False
    assert quiet["scouting/gossip/enabled"] is False
    loud = settings_of(SessionTerms("router", scouting="link", mesh=True))
    assert loud["scouting/multicast/enabled"] is True
    assert loud["scouting/multicast/autoconnect"]["router"] == ["router"]
    assert loud["scouting/gossip/autoconnect"]["router"] == ["router"]


@pytest.mark.parametrize(
    ("listen", "interface"),
    [(("tcp/127.0.0.1:0", "unixsock-stream//run/x"), "lo"), (("tcp/127.0.0.1:0", "tcp/0.0.0.0:0"), "auto")],
)
def test_a_site_that_answers_links_to_nobody_and_stays_on_loopback_if_it_listens_there(
    monkeypatch: pytest.MonkeyPatch, listen: tuple[str, ...], interface: str
) -> None:
    monkeypatch.delenv("HEADRACE_SCOUTING")
    settings = settings_of(SessionTerms("router", listen=listen, scouting="answer"))
    assert settings["scouting/multicast/address"] == "224.0.0.224:7450"
    assert settings["scouting/multicast/interface"] == interface
    assert settings["scouting/multicast/autoconnect"]["router"] == []
    assert not settings_of(SessionTerms("router", scouting="answer"))["scouting/multicast/enabled"]


def test_the_environment_turns_scouting_off_or_names_another_group(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = SessionTerms("router", listen=("tcp/127.0.0.1:0",), scouting="answer")
    monkeypatch.setenv("HEADRACE_SCOUTING", "off")
    assert settings_of(terms)["scouting/multicast/enabled"] is False
    monkeypatch.setenv("HEADRACE_SCOUTING", "239.1.2.3:7000")
    assert settings_of(terms)["scouting/multicast/address"] == "239.1.2.3:7000"
    for text in ("on", "10.0.0.1:7000", "239.1.2.3", "239.1.2.3:0", "239.1.2.3:70000", "[ff02::1]:7000"):
        monkeypatch.setenv("HEADRACE_SCOUTING", text)
        with pytest.raises(OptionError, match="is not a multicast group"):
            settings_of(terms)


def test_a_client_with_certificates_uses_only_answers_that_can_prove_who_they_are() -> None:
    told = (
        "tcp/10.0.0.1:1",
        "tls/10.0.0.1:2",
        "tls/10.0.0.1:2",
        "quic/10.0.0.1:3",
        "tcp/[fe80::1%eth0]:1",
        "serial/x",
        "",
    )
    assert usable(told, has_tls=False) == ("tcp/10.0.0.1:1",)
    assert usable(told, has_tls=True) == ("tls/10.0.0.1:2", "quic/10.0.0.1:3")


def test_of_two_sites_that_stop_together_one_waits_for_the_other(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A router that closes while it handles the end of a link may panic."""
    monkeypatch.setattr("headrace.link.presence._TURN_S", 60.0)
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    both = [opened("router", listen=(endpoint,)), opened("router", connect=(endpoint,))]
    until(lambda: all(list(session.info.routers_zid()) for session in both), "they are linked")
    lower, higher = sorted(both, key=lambda session: str(session.zid()))
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(close_in_turn, higher)
        time.sleep(0.2)
        assert not higher.is_closed()
        close_in_turn(lower)
        closing.result(50)
    assert higher.is_closed()
