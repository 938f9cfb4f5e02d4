"""Endpoints: valid ones become canonical, and invalid ones are an error with a remedy."""

import pytest

from headrace.errors import OptionError
from headrace.link.endpoint import PROTOCOLS, check_endpoint, is_loopback


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("tcp/192.0.2.7:7447", "tcp/192.0.2.7:7447"),
        ("TCP/Denver.Example.ORG.:07447", "tcp/denver.example.org:7447"),
        ("tls/host-1.example.org:1", "tls/host-1.example.org:1"),
        ("quic/[2001:DB8:0:0::7]:65535", "quic/[2001:db8::7]:65535"),
        ("udp/[::1]:7447", "udp/[::1]:7447"),
        ("ws/localhost:8080", "ws/localhost:8080"),
        ("unixsock-stream//run/headrace.sock", "unixsock-stream//run/headrace.sock"),
    ],
)
def test_endpoints_become_canonical_and_stay_so(text: str, canonical: str) -> None:
    assert check_endpoint(text) == canonical
    assert check_endpoint(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("denver", "invalid endpoint", "tcp/192.0.2.7:7447"),
        ("", "invalid endpoint", "such as"),
        (7447, "invalid endpoint", "such as"),
        ("127.0.0.1:7447", "has no protocol", "write tcp/127.0.0.1:7447"),
        ("[::1]:7447", "has no protocol", "write tcp/[::1]:7447"),
        ("tcp://denver:7447", "written as a URL", "write tcp/denver:7447"),
        ("http/denver:80", "unknown protocol 'http'", "tcp, tls, quic, udp, ws"),
        ("tcp/denver", "has no port", "tcp/denver:7447"),
        ("tcp/[::1]", "has no port", "tcp/[::1]:7447"),
        ("tcp/::1:7447", "IPv6 address without brackets", "tcp/[::1]:7447"),
        ("tcp/denver:", "invalid port ''", "1 to 65535"),
        ("tcp/denver:70000", "invalid port '70000'", "1 to 65535"),
        ("tcp/denver:-1", "invalid port '-1'", "1 to 65535"),
        ("tcp/denver:0", "has port 0", "for listening"),
        ("tcp/256.0.0.1:7447", "invalid IPv4 address", "such as"),
        ("tcp/1.2.3:7447", "invalid IPv4 address", "such as"),
        ("tcp/[::g]:7447", "invalid IPv6 address", "such as"),
        ("tcp/[fe80::1%eth0]:7447", "names an interface", "link-local"),
        ("tcp/den ver:7447", "invalid host", "such as"),
        ("tcp/:7447", "invalid host", "such as"),
        ("tcp/-denver:7447", "invalid host", "such as"),
        (f"tcp/{'a' * 64}.org:7447", "invalid host", "such as"),
        ("tcp/denver:7447#iface=eth0", "more than an address", "leave out"),
        ("tcp/denver:7447?prio=1", "more than an address", "leave out"),
        ("tcp/denver\n:7447", "more than an address", "leave out"),
        ("unixsock-stream/run/x.sock", "relative path", "unixsock-stream//run/x.sock"),
        ("unixsock-stream//run/", "not the path of a socket", "at most"),
        (f"unixsock-stream//{'x' * 120}", "not the path of a socket", "at most 100 bytes"),
    ],
)
def test_an_invalid_endpoint_is_an_error_with_a_remedy(text: str, problem: str, hint: str) -> None:
    with pytest.raises(OptionError) as told:
        check_endpoint(text)
    assert problem in told.value.problem
    assert hint in told.value.hint


@pytest.mark.parametrize("protocol", [each for each in PROTOCOLS if each != "unixsock-stream"])
def test_port_0_is_for_listening(protocol: str) -> None:
    assert check_endpoint(f"{protocol}/127.0.0.1:0", listen=True) == f"{protocol}/127.0.0.1:0"
    with pytest.raises(OptionError, match="port 0"):
        check_endpoint(f"{protocol}/127.0.0.1:0")


@pytest.mark.parametrize(
    ("endpoint", "answer"),
    [
        ("tcp/127.0.0.1:7447", True),
        ("tcp/127.9.9.9:0", True),
        ("tcp/[::1]:7447", True),
        ("tcp/[::ffff:127.0.0.1]:7447", True),
        ("ws/localhost:80", True),
        ("tls/a.localhost:80", True),
        ("unixsock-stream//run/x.sock", True),
        ("tcp/0.0.0.0:7447", False),
        ("tcp/[::]:7447", False),
        ("tcp/192.0.2.7:7447", False),
        ("tcp/localhost.example.org:7447", False),
    ],
)
def test_loopback_is_recognized(endpoint: str, answer: bool) -> None:
    assert is_loopback(endpoint) is answer
