"""Errors travel in replies, and are raised at the client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import Queue
from headrace.errors import FabricError, FabricMessageError
from headrace.remote.protocol import replies
from headrace.remote.protocol.envelope import encode
from headrace.remote.protocol.replies import error_of, failure_of


def test_every_error_is_raised_unchanged() -> None:
    import headrace.errors as errors

    extra = {"ProductDamagedError": (7,), "ProductsLostError": (7, 9), "RecordsDamagedError": (9,)}
    kinds = (value for value in vars(errors).values() if isinstance(value, type))
    here_only = (errors.SinkError, errors.LateError)  # sinks are at nodes, and release buffers in programs
    for kind in (kind for kind in kinds if not issubclass(kind, here_only)):
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


def test_members_that_the_protocol_does_not_have_are_refused_at_any_depth(shared_memory: Path) -> None:
    with Queue.create(shared_memory / "q", size="1MiB", durability="memory") as queue:
        station = queue.station("s", "a")
        queue.put(b"1", feed="a")
        station.change(selection="b")  # keeps the old one, for this product
        sent = [
            replies.Identity("denver", bytes(16), queue.config, 1),
            replies.Details(terms=queue.station("s").terms),
            replies.Details(channel=queue.channel("c", "wx", timeout="1min").definition),
            replies.Details(consumers=[queue.station("s").attach().statistics()]),
            replies.Bounds(1, 2),
        ]
    for reply in sent:
        parts = len(list(parts_of(msgspec.to_builtins(reply, builtin_types=[bytes]))))
        for place in range(parts):
            newer = msgspec.to_builtins(reply, builtin_types=[bytes])
            list(parts_of(newer))[place]["newer"] = {"what": 1}
            with pytest.raises(FabricMessageError, match="newer"):
                replies.decode_reply(encode(newer))
    assert len(list(parts_of(msgspec.to_builtins(sent[1])))) == 3  # reply, terms, and a retired selection


def parts_of(value: Any) -> Iterator[dict[str, Any]]:
    """The maps in a message that have members; those by the names of stations are of another kind."""
    if isinstance(value, dict):
        yield value
        value = [member for name, member in value.items() if name != "stations"]
    for each in value if isinstance(value, list | tuple) else ():
        yield from parts_of(each)


def test_a_welcome_may_have_more_members_because_no_version_is_agreed_yet() -> None:
    assert replies.decode_reply(encode({"type": "welcome", "version": 13, "newer": [1]})) == replies.Welcome(13)
