"""Versions of the protocol: a client and a site of any age agree on one, or learn why they cannot."""

import os
import random

import pytest

from headrace.errors import FabricMessageError
from headrace.remote.protocol import calls, hello, replies
from headrace.remote.protocol.envelope import encode
from headrace.remote.protocol.hello import OLDEST_VERSION, VERSION, spoken
from support.serving import Served, Stranger

SEED = int(os.environ.get("HEADRACE_SEED", "20261118"))


@pytest.mark.parametrize(("below", "above"), [(0, 0), (1, 1), (3, 0), (0, 99)])
def test_a_site_chooses_the_highest_version_that_both_speak(stranger: Stranger, below: int, above: int) -> None:
    assert stranger.send(encode([0, VERSION - below, VERSION + above])) == replies.Welcome(VERSION)


def test_a_site_that_speaks_older_versions_accepts_their_calls(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hello, "OLDEST_VERSION", VERSION - 2)
    assert stranger.send(encode([0, 1, VERSION - 1])) == replies.Welcome(VERSION - 1)
    bounds = [VERSION - 1, bytes(16), None, 0, 0, {"type": "ends"}]
    assert stranger.send(encode(bounds)) == replies.Bounds(1, 1)
    told = stranger.send(encode([VERSION - 3, *bounds[1:]]))
    assert f"the site speaks versions {VERSION - 2} to {VERSION}" in str(told)


@pytest.mark.parametrize(
    ("lowest", "highest", "offered"),
    [(5, 6, "versions 5 to 6"), (VERSION + 1, VERSION + 2, f"versions {VERSION + 1} to {VERSION + 2}"), (99, 99, "version 99")],
)  # fmt: skip
def test_a_client_that_speaks_no_version_of_the_site_is_refused_and_reads_both_ranges(
    served: Served, stranger: Stranger, lowest: int, highest: int, offered: str
) -> None:
    told = stranger.send(encode([0, lowest, highest]))
    assert told == (f"the client speaks {offered} of the protocol, the site {spoken()}; update the older of the two")
    assert served.site is not None
    assert served.site.statistics().remote.refused == 1


def test_a_hello_that_is_invalid_is_refused_with_an_explanation(stranger: Stranger) -> None:
    invalid = [[0], [0, 1], [0, "1", 9], [0, -1, 9], [0, 0, 9], [0, 9, 1 << 31], [0, 9, 8], [0, None, None]]
    for message in invalid:
        assert str(stranger.send(encode(message))).startswith("the hello is invalid: "), message


def test_garbage_instead_of_a_hello_is_refused_with_an_explanation(served: Served, stranger: Stranger) -> None:
    chance = random.Random(SEED)
    garbage = [None, b"", b"\x00", b"\xc1", b"\x93", encode({"hello": 0}), encode("hello"), chance.randbytes(40)]
    for head in garbage:
        assert str(stranger.send(head)).startswith("the call is invalid: "), head
    assert isinstance(stranger.call(calls.GetBounds()), replies.Bounds)


def test_elements_behind_a_hello_are_ignored(stranger: Stranger) -> None:
    """A later version of the protocol may say more in its hello, and an older site still understands it."""
    assert stranger.send(encode([0, VERSION, VERSION, {"language": "C++"}])) == replies.Welcome(VERSION)


def test_a_program_of_another_version_is_refused_when_it_connects(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OLDEST_VERSION", "VERSION"):
        monkeypatch.setattr(f"headrace.remote.client.connection.{name}", OLDEST_VERSION - 1)
    both = f"the client speaks version {OLDEST_VERSION - 1} of the protocol, the site {spoken()}"
    with pytest.raises(FabricMessageError, match=both):
        served.connect()


def test_a_program_of_a_version_that_the_site_still_speaks_connects(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OLDEST_VERSION", "VERSION"):
        monkeypatch.setattr(f"headrace.remote.client.connection.{name}", VERSION - 1)
    monkeypatch.setattr(hello, "OLDEST_VERSION", VERSION - 1)
    assert served.connect().put(b"1", feed="a") == 1


def test_a_program_that_is_newer_than_its_site_connects_and_says_so(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.remote.client.connection.VERSION", VERSION + 1)
    remote = served.connect()
    assert f"speaks version {VERSION} of the protocol, this program version {VERSION + 1}" in caplog.text
    assert remote.put(b"1", feed="a") == 1
