"""Sessions that fail to open: errors name the endpoint or the file, the cause and the remedy."""

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zenoh

from headrace.errors import FabricError, OptionError, SiteUnreachableError
from headrace.link.certificates import make_authority, make_certificate
from headrace.link.credentials import TlsTerms, UserTerms
from headrace.link.diagnosis import all_refuse
from headrace.link.session import SessionTerms, locators, open_session
from support.fleet import free_port
from support.links import Open, make_certs, tls
from support.waiting import until


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certs(tmp_path_factory.mktemp("certs") / "certs", "denver", "alice")


# --- endpoints and certificates------------------------------------------------------------------------------


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


def test_no_attempt_of_a_client_lasts_longer_than_what_is_left_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    began, limits = time.monotonic(), []

    def fail(config: zenoh.Config) -> None:
        limit_s = int(config.get_json("transport/unicast/open_timeout")) / 1000
        limits.append((time.monotonic() - began, limit_s))
        time.sleep(0.3)
        raise zenoh.ZError("Unable to connect")

    monkeypatch.setattr("headrace.link.session.zenoh.open", fail)
    refusal("client", connect=("tcp/127.0.0.1:1", "tcp/127.0.0.1:2"), timeout_s=2.5)
    assert len(limits) > 2
    assert all(limit_s <= max((2.5 - since_s) / 2 + 0.3, 0.5) for since_s, limit_s in limits)
    assert limits[0][1] == 1.25


def test_a_client_with_credentials_reports_silence_as_silence_and_not_as_a_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        endpoint = f"tcp/127.0.0.1:{frozen.getsockname()[1]}"
        error = refusal("client", connect=(endpoint,), user=UserTerms("ada", "secret"), timeout_s=0.5)
    assert isinstance(error, SiteUnreachableError)
    assert "did not answer" in error.problem


def test_a_tunnel_without_a_site_is_not_a_refusal_of_credentials() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tunnel:

        def close_all() -> None:
            with suppress(OSError):
                while True:
                    tunnel.accept()[0].close()

        threading.Thread(target=close_all, daemon=True).start()
        endpoint = f"tcp/127.0.0.1:{tunnel.getsockname()[1]}"
        error = refusal("client", connect=(endpoint,), user=UserTerms("ada", "secret"), timeout_s=1)
        tunnel.shutdown(socket.SHUT_RDWR)
    assert isinstance(error, SiteUnreachableError)
    assert "it accepted the connection and closed it" in error.problem


def test_a_client_that_is_refused_at_once_need_not_wait_for_its_timeout() -> None:
    error = refusal("client", connect=(f"tcp/127.0.0.1:{free_port()}",), timeout_s=3600, refused_s=0.1)
    assert "connection refused" in error.problem


def test_a_client_that_waits_says_for_whom_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    refusal("client", connect=(endpoint,), timeout_s=3600, refused_s=1.5)
    (record,) = [each for each in caplog.records if each.name == "headrace.link"]
    assert record.getMessage() == (
        f"waiting for {endpoint} (nothing listens there: the connection was refused), for up to 1.5 s"
    )


def test_endpoints_refuse_only_if_none_of_them_listens_or_may_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listens, closed = f"tcp/127.0.0.1:{silent.getsockname()[1]}", f"tcp/127.0.0.1:{free_port()}"
        assert all_refuse([closed, "unixsock-stream//no/such.sock"])
        assert not all_refuse([closed, listens])
        assert not all_refuse([closed, "udp/127.0.0.1:7447"])
    assert not all_refuse([])


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
    monkeypatch.setattr(library, "timedelta", lambda days: timedelta(seconds=5))
    make_certificate(tmp_path, "alice", ["localhost"])
    site = opened("router", listen=("tls/127.0.0.1:0",), tls=tls(tmp_path, "denver"))
    opened("client", connect=tuple(locators(site)), tls=tls(tmp_path, "alice"))
    assert len(site.info.links()) == 1
    until(lambda: not site.info.links(), "the end of the link")


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
    for user, told in (
        (None, "it refused the connection"),
        (UserTerms("alice", "secre"), "it refused user alice"),
        (UserTerms("carol", "secret"), "it refused user carol"),
    ):
        error = refusal("client", connect=where, user=user, timeout_s=3600)  # it does not wait: that is final
        assert told in error.problem
        assert not isinstance(error, SiteUnreachableError)
    assert len(site.info.links()) == 2


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(SessionTerms("client", connect=("tcp/a:1",), user=UserTerms("alice", "secret")))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no users"),
        ("\n\n", "has no users"),
        ("alice\n", "line 1: not a name and a secret"),
        ("alice:a\n:b\n", "line 2: not a name and a secret"),
        ("alice:\n", "line 1: not a name and a secret"),
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
