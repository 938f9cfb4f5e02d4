"""No bytes from elsewhere raise anything but the error of their decoder, however deep they are."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from messages import Message, deep, messages
from msgspec import inspect

import headrace
from headrace.decoding import Decoder
from headrace.errors import FabricMessageError, HeadraceError
from headrace.payload.fragments.manifest import Manifest
from headrace.payload.fragments.receipt import Receipt
from headrace.relay.messages import query
from headrace.relay.messages.beat import Beat
from headrace.relay.messages.page import PageHead
from headrace.remote.protocol import calls, envelope, hello, replies

SOURCE = Path(headrace.__file__).parent
OTHERS = {  # what Spark and Zenoh of the same process say, and our own reports
    "pipeline/actions", "pipeline/run/checkpoint.py", "pipeline/run/status.py", "pipeline/source/backlog.py",
    "link/session.py", "cli/completion.py", "demo", "bench", "testing",
}  # fmt: skip
ALL = messages()


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.name)
def test_a_message_with_3000_levels_anywhere_is_refused(message: Message) -> None:
    assert message.decode(message.sample) is not None
    for data in deep(message):
        with pytest.raises(FabricMessageError):
            message.decode(data)


@pytest.mark.parametrize("message", [each for each in ALL if not each.is_open], ids=lambda message: message.name)
def test_a_member_that_nobody_knows_is_refused(message: Message) -> None:
    coding = msgspec.json if message.is_json else msgspec.msgpack
    plain: Any = coding.decode(message.sample)
    more = {**plain, "further": 1} if isinstance(plain, dict) else [*plain, 1]
    if isinstance(plain, list) and message.name in ("page", "beat"):
        kind: Any = {"page": PageHead, "beat": Beat}[message.name]
        more = [*msgspec.to_builtins(msgspec.convert(plain, kind), builtin_types=[bytes]), 1]
    with pytest.raises(HeadraceError):
        message.decode(coding.encode(more))


@pytest.mark.parametrize("data", [b"\x81\xa1x" + b"\x91" * 3000, b"\xdd\xff\xff\xff\xff", b"\xa1\xff", b"x" * 101])
def test_a_decoder_has_one_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Decoder[dict[str, Any]](dict[str, Any], bytes_max=100 if len(data) == 101 else 1 << 20).decode(data)


def test_structs_of_messages_refuse_unknown_members_and_have_no_member_of_any_type() -> None:
    found: dict[type, str] = {}
    kinds = [replies.Reply, envelope.Envelope, calls.Columns, query.Query, Beat, PageHead, Manifest, Receipt]
    for kind in [*kinds, *query.REPLIES]:
        _walk(inspect.type_info(kind), "", found)
    assert len(found) > 100
    lenient = {kind for kind in found if not kind.__struct_config__.forbid_unknown_fields}  # type: ignore[attr-defined]
    assert lenient == {replies.Welcome}
    assert not hello.Hello.__struct_config__.forbid_unknown_fields


def _walk(kind: inspect.Type, path: str, found: dict[type, str]) -> None:
    assert not isinstance(kind, inspect.DataclassType | inspect.RawType | inspect.CustomType), path
    assert not isinstance(kind, inspect.AnyType) or path == "Columns.facts", path  # decode_columns looks at its values
    if isinstance(kind, inspect.StructType) and kind.cls not in found:
        found[kind.cls] = path
        for field in kind.fields:
            _walk(field.type, f"{kind.cls.__name__}.{field.name}", found)
    parts = [getattr(kind, name, None) for name in ("type", "item_type", "key_type", "value_type")]
    for part in (*parts, *getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        if isinstance(part, inspect.Type):
            _walk(part, path, found)


def test_every_decoder_of_the_source_is_bounded() -> None:
    """By its text: MessagePack, JSON and pickles are decoded in one file, and configuration by its reader."""
    other = re.compile(r"msgspec\.(?:json|msgpack)\.(?:Decoder|decode)\b|\bjson\.loads?\(|\bmarshal\.")
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if other.search(path.read_text()) and path.name != "decoding.py"
    }
    assert {each for each in found if not any(each.startswith(other) for other in OTHERS)} == set()
