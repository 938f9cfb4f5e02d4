"""Errors travel in replies, and are raised at the client."""

import msgspec
import pytest

from headrace.errors import FabricError, FabricMessageError
from headrace.remote.protocol import replies
from headrace.remote.protocol.envelope import encode
from headrace.remote.protocol.replies import error_of, failure_of


def test_every_error_is_raised_unchanged() -> None:
    import headrace.errors as errors

    extra = {"ProductDamagedError": (7,), "ProductsLostError": (7, 9), "RecordsDamagedError": (9,)}
    for kind in (value for value in vars(errors).values() if isinstance(value, type)):
        sent = kind("a problem", "a hint", *extra.get(kind.__name__, ()))
        came = error_of(msgspec.convert(msgspec.to_builtins(failure_of(sent)), replies.Failure))
        assert (type(came), came.problem, came.hint, str(came)) == (kind, "a problem", "a hint", str(sent))
        assert vars(came) == vars(sent)


def test_an_unknown_error_of_a_newer_site_becomes_a_fabric_error() -> None:
    came = error_of(replies.Failure("NewError", "a problem", "a hint"))
    assert type(came) is FabricError
    assert "NewError at the site: a problem" in came.problem
    assert type(error_of(replies.Failure("OptionError", "p", "h", {"new": 1}))) is FabricError
    assert "the site failed: KeyError" in error_of(failure_of(KeyError("x"))).problem


def test_an_altered_reply_is_refused() -> None:
    for head in (b"", b"\xc1", encode({"type": "unheard"})):
        with pytest.raises(FabricMessageError, match="is invalid"):
            replies.decode_reply(head)
