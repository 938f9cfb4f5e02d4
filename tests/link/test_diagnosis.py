"""Which endpoint of a site to try first."""

import socket

from headrace.link.diagnosis import soonest_first


def test_the_endpoint_that_accepts_a_connection_comes_first() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = f"tcp/127.0.0.1:{server.getsockname()[1]}"
        others = ("quic/127.0.0.1:9", "tcp/[2001:db8::1]:9", "tcp/127.0.0.1:9", "unixsock-stream//nowhere")
        assert soonest_first((*others, here)) == (here, *others)
    assert soonest_first(("tcp/127.0.0.1:9", "udp/127.0.0.1:9")) == ("tcp/127.0.0.1:9", "udp/127.0.0.1:9")
