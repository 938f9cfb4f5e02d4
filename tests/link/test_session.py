"""Sessions: every transport carries products, connections come back, and errors say what went wrong."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zenoh

from headrace.errors import FabricError, OptionError
from headrace.link.certificates import make_authority, make_certificate
from headrace.link.credentials import TlsTerms, UserTerms
from headrace.link.session import SessionTerms, locators, open_session
from headrace.link.settings import settings_of
from support.links import Listener, Open, eventually, make_certs, sessions, tls

PAYLOAD = bytes(range(256)) * 1000  # several batches, so that it travels in fragments


@pytest.fixture
def opened() -> Iterator[Open]:
    with sessions() as opened:
        yield opened


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certs(tmp_path_factory.mktemp("certs") / "certs", "denver", "alice")


def deliver(sender: zenoh.Session, receiver: zenoh.Session, *, lossy: bool = False) -> None:
    """Check that a payload arrives unchanged; on a lossy link, after some attempts."""
    publisher = sender.declare_publisher("headrace/live/a/own/wx", congestion_control=zenoh.CongestionControl.BLOCK)
    with Listener(receiver, "headrace/live/**") as heard:
        eventually(lambda: publisher.matching_status.matching, "the subscription is known")
        publisher.put(PAYLOAD)
        eventually(lambda: heard.payloads or (lossy and publisher.put(PAYLOAD)), "the payload")
        assert heard.payloads[0] == PAYLOAD
        assert lossy or len(heard.payloads) == 1
    eventually(lambda: not publisher.matching_status.matching, "the end of the subscription")


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


def test_large_messages_go_through_shared_memory(opened: Open) -> None:
    first = opened("router", listen=("tcp/127.0.0.1:0",), shared_memory=True)
    second = opened("router", connect=tuple(locators(first)), shared_memory=True)
    plain = opened("client", connect=tuple(locators(first)))
    got: list[tuple[int, bool]] = []
    subscribers = [
        session.declare_subscriber("large", lambda sample: got.append((len(sample.payload), is_shared(sample))))
        for session in (second, plain)
    ]
    eventually(lambda: first.put("large", bytes(1 << 20)) or len({shared for _, shared in got}) == 2, "both ways")
    assert {size for size, _ in got} == {1 << 20}
    for subscriber in subscribers:
        subscriber.undeclare()


def is_shared(sample: zenoh.Sample) -> bool:
    return sample.payload.as_shm() is not None


def test_shared_memory_without_enough_space_is_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.link.session.SHARED_BYTES", 1 << 60)
    with pytest.raises(FabricError, match=r"/dev/shm has .* free, and shared_memory requires .*enlarge /dev/shm"):
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
    eventually(lambda: lax.info.routers_zid(), "the strict one")
    assert [link.auth_identifier for link in strict.info.links()] == ["alice"]
    opened("client", connect=tuple(locators(lax)), tls=tls(certs))


# --- coming back ----------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_site_opens_without_its_neighbour_and_connects_later(opened: Open) -> None:
    there = f"tcp/127.0.0.1:{free_port()}"
    began = time.monotonic()
    early = opened("router", connect=(there,))
    print(f"open after {time.monotonic() - began:.2f} s")
    assert early.info.routers_zid() == []
    opened("router", listen=(there,))
    eventually(lambda: early.info.routers_zid(), "the neighbour")


def test_sites_and_clients_reconnect_with_their_subscriptions(opened: Open) -> None:
    there = f"tcp/127.0.0.1:{free_port()}"
    first = open_session(SessionTerms("router", listen=(there,)))
    site, user = opened("router", connect=(there,)), opened("client", connect=(there,))
    heard = [Listener(site, "x/**"), Listener(user, "x/**")]
    first.close()
    eventually(lambda: not site.info.routers_zid() and not user.info.routers_zid(), "the loss")
    again = opened("router", listen=(there,))
    publisher = again.declare_publisher("x/1")

    def both_hear() -> bool:
        publisher.put(b"again")
        return all(each.payloads for each in heard)

    eventually(both_hear, "both to hear again")


def test_routers_of_a_mesh_connect_by_gossip_and_work_without_the_one_between(opened: Open) -> None:
    between = open_session(SessionTerms("router", listen=("tcp/127.0.0.1:0",), mesh=True))
    near = tuple(locators(between))
    left, right = (opened("router", listen=("tcp/127.0.0.1:0",), connect=near, mesh=True) for _ in range(2))
    eventually(lambda: len(left.info.routers_zid()) == 2 == len(right.info.routers_zid()), "the mesh")
    between.close()
    eventually(lambda: len(left.info.routers_zid()) == 1 == len(right.info.routers_zid()), "both know that it has left")
    deliver(left, right, lossy=True)  # Zenoh may drop what is sent while it changes its routes


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


def test_scouting_and_gossip_settings_apply_to_routers() -> None:
    quiet = settings_of(SessionTerms("router", gossip=False))
    assert quiet["scouting/multicast/enabled"] is False
    assert quiet["scouting/gossip/enabled"] is False
    loud = settings_of(SessionTerms("router", scouting=True, mesh=True))
    assert loud["scouting/multicast/enabled"] is True
    assert loud["scouting/multicast/autoconnect"]["router"] == ["router"]
    assert loud["scouting/gossip/autoconnect"]["router"] == ["router"]


# --- errors -----------------------------------------------------------------------------------------------


def refusal(mode: str, **terms: object) -> FabricError:
    with pytest.raises(FabricError) as told:
        open_session(SessionTerms(mode, **{"timeout_s": 0.3, **terms})).close()  # type: ignore[arg-type]
    assert ".rs" not in str(told.value)
    assert told.value.hint
    return told.value


@pytest.mark.parametrize("protocol", ["tcp", "tls", "ws"])
def test_a_port_in_use_is_an_error(certs: Path, protocol: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"{protocol}/127.0.0.1:{taken.getsockname()[1]}"
        error = refusal("router", listen=("tcp/127.0.0.1:0", endpoint), tls=tls(certs, "denver"))
    assert error.problem == f"cannot listen on {endpoint}: address already in use"
    assert "choose another port" in error.hint


@pytest.mark.parametrize("protocol", ["udp", "quic"])
def test_a_datagram_port_in_use_is_an_error(certs: Path, protocol: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"{protocol}/127.0.0.1:{taken.getsockname()[1]}"
        error = refusal("router", listen=(endpoint,), tls=tls(certs, "denver"))
    assert error.problem == f"cannot listen on {endpoint}: address already in use"


@pytest.mark.parametrize("endpoint", ["tcp/192.0.2.99:0", "ws/192.0.2.99:0", "udp/[2001:db8::99]:0"])
def test_an_address_of_another_machine_is_an_error(endpoint: str) -> None:
    error = refusal("router", listen=(endpoint,))
    assert "cannot assign requested address" in error.problem
    assert "this machine does not have this address" in error.hint


def test_a_socket_in_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    error = refusal("router", listen=(f"unixsock-stream/{tmp_path}/none/s",))
    assert "/none/s" in error.problem


def test_a_socket_in_use_is_an_error(opened: Open, tmp_path: Path) -> None:
    endpoint = f"unixsock-stream/{tmp_path}/s"
    opened("router", listen=(endpoint,))
    assert "another program listens there" in refusal("router", listen=(endpoint,)).hint


def test_a_client_without_a_site_retries_until_the_timeout() -> None:
    there = f"tcp/127.0.0.1:{free_port()}"
    began = time.monotonic()
    error = refusal("client", connect=(there,), timeout_s=0.5)
    took_s = time.monotonic() - began
    print(f"gave up after {took_s:.2f} s")
    assert took_s > 0.4
    assert error.problem == f"cannot connect to {there}: connection refused"
    assert "check that a site listens there" in error.hint


def test_the_error_of_a_client_names_every_endpoint(tmp_path: Path) -> None:
    error = refusal("client", connect=(f"unixsock-stream/{tmp_path}/s", f"udp/127.0.0.1:{free_port()}"))
    assert "no such socket; cannot connect to udp/" in error.problem


def test_an_unknown_host_is_an_error() -> None:
    error = refusal("client", connect=("tcp/nobody.invalid:7447",))
    assert "host nobody.invalid is unknown" in error.problem


def test_a_client_uses_the_second_endpoint_if_the_first_is_dead(opened: Open) -> None:
    site = opened("router", listen=("tcp/127.0.0.1:0",))
    opened("client", connect=(f"tcp/127.0.0.1:{free_port()}", *locators(site)))


def test_a_server_of_another_authority_is_not_trusted(opened: Open, certs: Path, tmp_path: Path) -> None:
    make_authority(tmp_path)
    (where,) = locators(opened("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "denver")))
    error = refusal("client", connect=(where,), tls=TlsTerms(tmp_path / "authority.crt"))
    assert "its certificate is not from our authority" in error.problem


def test_a_server_whose_certificate_is_for_another_host_is_not_trusted(opened: Open, tmp_path: Path) -> None:
    make_certs(tmp_path)
    make_certificate(tmp_path, "denver", ["elsewhere.example.org"])
    (where,) = locators(opened("router", listen=("tls/127.0.0.1:0",), tls=tls(tmp_path, "denver", mutual=False)))
    error = refusal("client", connect=(where,), tls=tls(tmp_path))
    assert "its certificate is not for 127.0.0.1" in error.problem
    assert "--host 127.0.0.1" in error.hint


def test_a_client_without_a_certificate_is_refused_at_the_link(opened: Open, certs: Path) -> None:
    site = opened("router", listen=("tls/127.0.0.1:0", "quic/127.0.0.1:0"), tls=tls(certs, "denver"))
    quic, secure = locators(site)
    error = refusal("client", connect=(secure,), tls=tls(certs))
    assert "it requires a certificate" in error.problem
    assert "headrace certs site" in error.hint
    refusal("client", connect=(quic,), tls=tls(certs))
    assert site.info.links() == []


def test_a_client_with_a_certificate_of_another_authority_is_refused_at_the_link(
    opened: Open, certs: Path, tmp_path: Path
) -> None:
    make_certs(tmp_path, "alice")
    mixed = TlsTerms(tmp_path / "both.crt", tmp_path / "alice.crt", tmp_path / "alice.key")
    mixed.authority.write_bytes((certs / "authority.crt").read_bytes() + (tmp_path / "authority.crt").read_bytes())
    site = opened("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "denver"))
    error = refusal("client", connect=tuple(locators(site)), tls=mixed)
    assert "refuses the certificate" in error.problem
    assert site.info.links() == []


def test_tls_on_one_side_only_is_refused(opened: Open, certs: Path) -> None:
    site = opened("router", listen=("tcp/127.0.0.1:0", "tls/127.0.0.1:0"), tls=tls(certs, "denver"))
    plain, secure = locators(site)
    error = refusal("client", connect=(secure.replace("tls/", "tcp/"),))
    assert "it refused the connection" in error.problem
    assert "TLS" in error.hint
    refusal("client", connect=(plain.replace("tcp/", "tls/"),), tls=tls(certs))


def test_a_link_ends_when_the_certificate_of_the_other_side_expires(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    from headrace.link import certificates as library

    make_certs(tmp_path, "denver")
    monkeypatch.setattr(library, "timedelta", lambda days: timedelta(seconds=2))
    make_certificate(tmp_path, "alice", ["localhost"])
    site = opened("router", listen=("tls/127.0.0.1:0",), tls=tls(tmp_path, "denver"))
    opened("client", connect=tuple(locators(site)), tls=tls(tmp_path, "alice"))
    assert len(site.info.links()) == 1
    eventually(lambda: not site.info.links(), "the end of the link")


# --- files ------------------------------------------------------------------------------------------------


def test_an_invalid_file_is_named(certs: Path, tmp_path: Path) -> None:
    make_certs(tmp_path / "other", "denver")
    (tmp_path / "nonsense").write_text("nonsense")
    authority, certificate, key = certs / "authority.crt", certs / "denver.crt", certs / "denver.key"
    cases = [
        (TlsTerms(tmp_path / "none.crt"), "the certificate of the authority does not exist", "none.crt"),
        (TlsTerms(tmp_path / "nonsense"), "is not a certificate", "nonsense"),
        (TlsTerms(authority, tmp_path / "none.crt", key), "the certificate does not exist", "none.crt"),
        (TlsTerms(authority, certificate, tmp_path), "is not readable", str(tmp_path)),
        (TlsTerms(authority, certificate, certificate), "is not a private key; it is a certificate", "denver.crt"),
        (TlsTerms(authority, key, key), "is not a certificate; it is a key", "denver.key"),
        (TlsTerms(authority, certificate, certs / "alice.key"), "does not match the certificate", "alice.key"),
        (TlsTerms(tmp_path / "other" / "authority.crt", certificate, key), "was not issued by", "denver.crt"),
    ]
    for terms, problem, file in cases:
        error = refusal("router", listen=("tls/127.0.0.1:0",) if terms.certificate else (), tls=terms)
        assert problem in str(error)
        assert file in error.problem


def test_an_expired_certificate_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from headrace.link import certificates as library

    make_certs(tmp_path)
    monkeypatch.setattr(library, "timedelta", lambda days: timedelta(minutes=-1))
    make_certificate(tmp_path, "denver")
    error = refusal("router", listen=("tls/127.0.0.1:0",), tls=tls(tmp_path, "denver"))
    assert "denver.crt expired on 20" in error.problem
    assert "headrace certs site" in error.hint


# --- users ------------------------------------------------------------------------------------------------


def test_users_connect_by_name_and_password_only(opened: Open, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice:secret\n\nbob: with blanks : and colons \n")
    site = opened("router", listen=("tcp/127.0.0.1:0",), users_file=users)
    where = tuple(locators(site))
    opened("client", connect=where, user=UserTerms("alice", "secret"))
    opened("client", connect=where, user=UserTerms("bob", "with blanks : and colons"))
    assert len(site.info.links()) == 2
    assert "it refused the connection" in refusal("client", connect=where).problem
    assert "it refused user alice" in refusal("client", connect=where, user=UserTerms("alice", "secre")).problem
    assert "it refused user carol" in refusal("client", connect=where, user=UserTerms("carol", "secret")).problem
    assert len(site.info.links()) == 2


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(SessionTerms("client", connect=("tcp/a:1",), user=UserTerms("alice", "secret")))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no users"),
        ("\n\n", "has no users"),
        ("alice\n", "line 1: not a name and a password"),
        ("alice:a\n:b\n", "line 2: not a name and a password"),
        ("alice:\n", "line 1: not a name and a password"),
        ("alice:a\nalice:b\n", "line 2: user alice is listed twice"),
    ],
)
def test_an_invalid_users_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "users").write_text(text)
    assert problem in refusal("router", users_file=tmp_path / "users").problem


# --- terms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"mode": "broker"}, "mode 'broker' is unknown"),
        ({"mode": "client"}, "a client requires an endpoint"),
        ({"mode": "client", "connect": ("tcp/a:1",), "listen": ("tcp/a:1",)}, "a client does not listen"),
        ({"mode": "router", "listen": ("tcp/a",)}, "has no port"),
        ({"mode": "router", "connect": ("tcp/a:0",)}, "port 0"),
        ({"mode": "router", "listen": ("tls/a:1",)}, "require certificates"),
        ({"mode": "router", "connect": ("quic/a:1",)}, "require certificates"),
        ({"mode": "router", "listen": ("tls/a:1",), "tls": TlsTerms(Path("a"))}, "requires a certificate"),
        ({"mode": "router", "listen": ("tcp/a:1",), "user": UserTerms("a", "b")}, "requires a users file"),
        ({"mode": "router", "timeout_s": 0}, "out of range"),
        ({"mode": "router", "lease_s": 0.1}, "out of range"),
        ({"mode": "router", "message_bytes_max": 1}, "out of range"),
    ],
)
def test_terms_that_contradict_each_other_are_refused(terms: dict[str, object], problem: str) -> None:
    with pytest.raises(OptionError, match=problem) as told:
        SessionTerms(**terms)  # type: ignore[arg-type]
    assert told.value.hint


def test_invalid_credentials_are_refused() -> None:
    for name, password in (("", "x"), ("a:b", "x"), ("a", ""), (" a", "x"), ("a", "x "), ("a", "x\ny")):
        with pytest.raises(OptionError):
            UserTerms(name, password)
    with pytest.raises(OptionError, match="are required together"):
        TlsTerms(Path("a"), certificate=Path("b"))


def test_endpoints_of_terms_are_canonical() -> None:
    terms = SessionTerms("router", listen=("TCP/Denver:07447", "tcp/denver:7447"), connect=("tcp/[::0001]:1",))
    assert (terms.listen, terms.connect) == (("tcp/denver:7447",), ("tcp/[::1]:1",))
