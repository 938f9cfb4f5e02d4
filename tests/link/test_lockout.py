"""Which networks are locked out, for how long; the filter of the kernel; and the door that uses both."""

import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from headrace.guard import FAILURES
from headrace.link.answer import question
from headrace.link.connections import Remote, connections, plain_address, remote_of
from headrace.link.door import Door
from headrace.link.endpoint import parse_endpoint
from headrace.link.lockout import FORGET_S, FREE, QUESTIONS, Lockout
from headrace.link.session import locators
from headrace.link.syn_filter import LOOPBACK, apply_filter, listening_sockets, network_of, text_of
from headrace.site.door_problems import door_problems
from support.links import Open
from support.waiting import until

AWAY = ipaddress.ip_network("192.0.2.7/32")


# --- for how long ---------------------------------------------------------------------------------


def test_the_lock_doubles_with_every_failure_up_to_a_quarter_of_an_hour() -> None:
    lockout = Lockout()
    assert lockout.fail(AWAY, FREE, 0).until == 0
    assert [lockout.fail(AWAY, 1, 100).until - 100 for _ in range(12)] == [*(2**n for n in range(10)), 900, 900]
    assert list(lockout.locked(900)) == [AWAY]
    assert lockout.locked(1000) == {}


def test_loopback_is_locked_for_a_second_at_a_time_only() -> None:
    lockout = Lockout()
    for network in (LOOPBACK, network_of(ipaddress.ip_address("::1"))):
        assert lockout.fail(network, 1000, 0).until == 1


def test_a_login_that_succeeds_takes_back_no_failure() -> None:
    lockout = Lockout()
    lockout.fail(AWAY, FREE, 0)
    lockout.link(AWAY)
    assert lockout.fail(AWAY, 1, 0).until == 1


def test_what_has_not_failed_for_an_hour_is_forgotten() -> None:
    lockout = Lockout()
    lockout.fail(AWAY, 2 * FREE, 0)
    assert lockout.fail(AWAY, 1, FORGET_S + 1).failures == 1
    assert lockout.failures == 2 * FREE + 1


def test_questions_count_less_and_links_take_them_back() -> None:
    lockout = Lockout()
    for _ in range(100):  # a client that asks whether the site is there, and then connects
        assert lockout.question(AWAY, 0) is None
        lockout.link(AWAY)
    told = [lockout.question(AWAY, 0) for _ in range(3 * QUESTIONS)]
    assert [each.failures for each in told if each is not None] == [3, 3, 3]  # the same record


def test_only_so_many_networks_are_remembered() -> None:
    lockout = Lockout()
    for number in range(10_000):
        lockout.fail(ipaddress.ip_network(number << 8), 1, 0)
    assert len(lockout._records) <= 4097


def test_what_one_user_commonly_has_is_locked_together() -> None:
    told = ("192.0.2.7", "127.0.0.1", "127.8.9.10", "2001:db8:0:1::7", "::ffff:192.0.2.7")
    found = [text_of(network_of(plain_address(text))) for text in told]
    assert found == ["192.0.2.7", "127.0.0.0/8", "127.0.0.0/8", "2001:db8:0:1::/64", "192.0.2.7"]


# --- the kernel -----------------------------------------------------------------------------------


@pytest.fixture(params=["127.0.0.1", "::1", "::"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A listening socket for IPv4, for IPv6, and for both."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family, dualstack_ipv6=request.param == "::") as listener:
        yield listener


def reaches(listener: socket.socket, source: str) -> bool:
    """Whether a connection from this address is made; a SYN that was dropped has no answer."""
    address, port = listener.getsockname()[:2]
    there = {"::": source if ":" in source else "127.0.0.1"}.get(address, address)
    try:
        socket.create_connection((there, port), timeout=0.2, source_address=(source, 0)).close()
    except TimeoutError:
        return False
    return True


def test_the_filter_drops_the_attempts_of_a_network_and_of_no_other(listener: socket.socket) -> None:
    (found,) = listening_sockets({listener.getsockname()[1]})
    sources = {"127.0.0.1": ("127.0.0.1", "127.0.0.2"), "::1": ("::1",), "::": ("::1", "127.0.0.1", "127.0.0.2")}
    able = sources[listener.getsockname()[0]]
    with found:
        for locked in able:
            others = [
                network for number in range(300) for network in (f"198.51.{number % 250}.{number // 250}", "2001:db8::")
            ]
            networks = [ipaddress.ip_network(text) for text in (*others, locked)]
            networks = [each if each.version == 4 else each.supernet(new_prefix=64) for each in networks]
            apply_filter([found], networks[-400:])
            assert [source for source in able if not reaches(listener, source)] == [locked]
        apply_filter([found], [])
        assert all(reaches(listener, source) for source in able)
        apply_filter([found], [])


def test_the_kernel_shows_open_connections_and_those_that_we_have_closed(listener: socket.socket) -> None:
    address, port = listener.getsockname()[:2]
    there = {"::": "127.0.0.1"}.get(address, address)
    with socket.create_connection((there, port)) as open_one, socket.create_connection((there, port)) as other:
        ends = [Remote(plain_address(there), each.getsockname()[1]) for each in (open_one, other)]
        accepted = {each.getpeername()[1]: each for each in (listener.accept()[0], listener.accept()[0])}
        accepted.pop(ends[1].port).close()
        with closing(accepted.pop(ends[0].port)):
            assert connections(port) == {ends[0]: False, ends[1]: True}


def test_the_remote_end_of_a_link_is_read_from_its_endpoint() -> None:
    assert remote_of("tls/[::ffff:192.0.2.7]:5") == remote_of("tcp/192.0.2.7:5") == (plain_address("192.0.2.7"), 5)
    assert remote_of("unixsock-stream//run/s") is None


# --- the door -------------------------------------------------------------------------------------


def junk(source: str, port: int) -> None:
    """Connect from an address, and send what no client sends; TimeoutError: the attempt is dropped."""
    with socket.create_connection(("127.0.0.1", port), timeout=0.2, source_address=(source, 0)) as stranger:
        stranger.sendall(b"\xff" * 64)
        with suppress(ConnectionResetError):
            while stranger.recv(1024):
                pass


def test_an_address_that_fails_is_locked_out_and_others_go_on(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of loopback stand for those of other machines."""
    monkeypatch.setattr("headrace.link.door.network_of", lambda address: ipaddress.ip_network(address))
    monkeypatch.setattr("headrace.link.lockout.LOCKED_S", 100.0)  # the attempt fails before it is over
    monkeypatch.setattr("headrace.link.lockout._is_shared", lambda network: False)
    session = opened("router", listen=("tcp/127.0.0.1:0",))
    (endpoint,) = locators(session)
    port, told = int(endpoint.rpartition(":")[2]), list[str]()
    with closing(Door(session, [endpoint], lambda network, why: told.append(network))) as door:
        while not door._locked:
            with suppress(TimeoutError):
                junk("127.0.0.2", port)
        assert [each.network for each in door.guessers()] == ["127.0.0.2"]
        with pytest.raises(TimeoutError):
            junk("127.0.0.2", port)
        for _ in range(3):
            assert opened("client", connect=(endpoint,)).info.routers_zid()
        assert set(told) == {"127.0.0.2"}
        assert door.failures > FREE


def test_the_door_says_why_it_notices_nothing_and_its_thread_goes_on(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened("router", listen=("tcp/127.0.0.1:0",))
    faults = [RecursionError("nobody expected this")]

    def fail(port: int) -> dict[Remote, bool]:
        if faults:
            raise faults.pop()
        raise OSError(93, "no such family")

    with closing(Door(session, locators(session))) as door:
        with monkeypatch.context() as broken:
            broken.setattr("headrace.link.door.connections", fail)
            until(lambda: "no such family" in door.failure, "the reason is known")
        assert any(each.where == "headrace-door" and each.cause == "RecursionError" for each in FAILURES.all())
        (problem,) = door_problems(door)
        assert "nobody is locked out" in problem.text
        until(lambda: not door.failure, "it works again")


def test_a_guesser_who_resets_connections_is_noticed_while_they_are_open(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The side that resets leaves nothing in the kernel."""
    monkeypatch.setattr("headrace.link.door._LOOK_S", 0.01)
    monkeypatch.setattr("headrace.link.door._COST_MAX", 1.0)
    session = opened("router", listen=("tcp/127.0.0.1:0",))
    (endpoint,) = locators(session)
    with closing(Door(session, [endpoint])) as door:
        while not door.guessers():
            with suppress(OSError), socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2]))) as link:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                link.sendall(question(parse_endpoint(endpoint)))
                link.recv(1)
