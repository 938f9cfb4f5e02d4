"""The signature of an origin: what the page says about it is what a site writes."""

from collections.abc import Callable

import pytest
import reader
import signature_reader
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headrace import Queue
from headrace.product.options import Options
from headrace.relay.signing.keyring import public_of
from headrace.relay.signing.sign import Signer

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@pytest.mark.parametrize("count", [1, 2, 5, 128, 130])
def test_the_reader_verifies_what_a_site_has_signed(make_queue: Callable[..., Queue], count: int) -> None:
    queue = make_queue()
    for number in range(count):
        facts = {"properties": {"n": number}, "expiry": 1 << 62, "options": Options(hops=3)} if number % 2 else {}
        queue.put(b"payload %d" % number, feed=f"wx/{number % 3}", ident=f"{number}" * (number % 5), **facts)
    data, at = Signer("here", KEY).records(queue.read_batch(limit=1000)), 0
    for number in range(count):
        product = reader.read_record(data, at)
        at += reader.round8(len(product["record"]))
        assert product["payload"] == b"payload %d" % number
        assert signature_reader.is_signed(product, public_of(KEY))
        assert not signature_reader.is_signed(product | {"payload": b"altered"}, public_of(KEY))
    assert at == len(data)
