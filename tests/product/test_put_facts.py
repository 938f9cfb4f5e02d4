"""The optional facts of a product: the same everywhere, checked once."""

import msgspec
import pytest

from headrace.errors import InvalidError, OptionError, PropertyError
from headrace.log.columns import Columns, PutColumns, columns_of, packed, unpacked
from headrace.product.product import NO_SLICE
from headrace.product.properties import encode_properties
from headrace.product.put import _CHECKS, PLAIN, Put, PutFacts, checked, put_of


def test_a_fact_has_the_same_name_for_callers_in_columns_and_in_the_struct() -> None:
    assert set(PutFacts.__annotations__) == set(Put.__struct_fields__)  # the slice is apart, for `Queue.put`
    assert list(PutColumns.__annotations__) == list(Put.__struct_fields__)
    assert list(_CHECKS) == list(Put.__struct_fields__)


def test_a_put_without_facts_is_plain() -> None:
    assert put_of({}) == PLAIN
    assert put_of({}) is PLAIN
    assert put_of({"created": None, "origin": None, "slice": None}) == PLAIN
    assert put_of({"priority": 7}) == Put(priority=7)


@pytest.mark.parametrize("facts", [
    {"created": 1}, {"expiry": "10min"}, {"properties": {"a": 1}}, {"slice": 0}, {"signature": bytes(16)},
    {"origin": "denver"}, {"origin_sequence": 1}, {"previous": 1},
])  # fmt: skip
def test_a_put_with_any_other_fact_is_not_plain(facts: PutFacts) -> None:
    assert put_of(facts) != PLAIN


def test_an_unknown_fact_is_a_type_error_as_for_any_function() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        put_of({"colour": "red"})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        columns_of(1, "a", "", {"colour": "red"})  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize("facts", [
    {"created": "yesterday"}, {"priority": 8}, {"priority": True}, {"expiry": "soon"}, {"properties": {"": 1}},
    {"slice": 65535}, {"signature": b"short"}, {"origin": "a b"}, {"origin_sequence": -1}, {"previous": 1 << 63},
])  # fmt: skip
def test_an_invalid_fact_is_refused(facts: PutFacts) -> None:
    with pytest.raises(InvalidError):
        put_of(facts)


def test_an_age_counts_from_the_moment_of_storing() -> None:
    put = put_of({"expiry": "10min"})
    assert put.expires_ns(5) == 600 * 10**9 + 5
    assert put_of({"expiry": 77}).expires_ns(5) == 77
    assert PLAIN.expires_ns(5) == 0


def test_a_put_is_encoded_and_decoded_unchanged() -> None:
    put = put_of({"created": 5, "properties": {"b": 1, "a": "x"}, "origin": "denver", "origin_sequence": 9})
    assert put.properties == encode_properties({"a": "x", "b": 1})
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(put), type=Put)
    assert checked(again) == put
    assert msgspec.msgpack.encode(PLAIN) == msgspec.msgpack.encode({})


@pytest.mark.parametrize("sent", [
    {"created": -1}, {"priority": 8}, {"slice": 65536}, {"signature": bytes(15)}, {"origin": "x" * 64},
    {"previous": 1 << 63}, {"properties": bytes(65536)}, {"colour": 1},
])  # fmt: skip
def test_a_message_beyond_the_limits_is_not_decoded(sent: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Put)


@pytest.mark.parametrize("put", [
    Put(origin="a b"), Put(expiry="soon"), Put(properties=b"\x01"),
    Put(properties=encode_properties({"b": 1}) + encode_properties({"a": 1})),
    Put(properties=encode_properties({"a": 1}) * 2),
])  # fmt: skip
def test_facts_from_a_peer_are_checked(put: Put) -> None:
    with pytest.raises(InvalidError):
        checked(put)


# --- columns ----------------------------------------------------------------------------------------


def test_columns_are_packed_and_unpacked_unchanged() -> None:
    columns = columns_of(2, ["a", "b"], "i", {
        "created": [0, 7], "priority": 6, "expiry": [None, 9], "properties": [{"a": 1}, None], "slice": [None, 3],
        "signature": [None, bytes(16)], "origin": "denver", "origin_sequence": [1, 2], "previous": [0, 1],
    })  # fmt: skip
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(packed(columns.facts)))
    there = unpacked(2, columns.feed, columns.ident, sent)
    for here, received in zip(columns.arguments(1, 2), there.arguments(1, 2), strict=True):
        assert [*here] == [*received] if hasattr(here, "__len__") else here == received
    assert there.facts["created"].tolist() == [1, 7]
    assert there.facts["slice"].tolist() == [NO_SLICE, 3]


@pytest.mark.parametrize("facts", [
    {"colour": b""}, {"created": b"\0" * 7}, {"created": b"\0" * 24}, {"priority": b"\x08"}, {"priority": "4"},
    {"origin_sequence": bytes(8)}, {"signature": [bytes(15), None]}, {"properties": [b"\x01", b""]},
    {"properties": [b""]}, {"signature": 5}, {"origin": 5}, {"origin": [1, 2]}, {"created": {}}, {"origin": ["a", "b c"]}, {"expiry": "soon"}, {"created": b"\xff" * 8},
])  # fmt: skip
def test_columns_from_a_peer_are_checked(facts: dict[str, object]) -> None:
    with pytest.raises(InvalidError):
        unpacked(2, "a", "", facts)


def test_columns_without_facts_have_the_default_priority() -> None:
    arguments = Columns("a", "", {}).arguments(0, 0)
    assert arguments[3].tolist() == [4]
    assert arguments[2] is None


def test_one_origin_sequence_for_a_whole_batch_is_refused() -> None:
    with pytest.raises(OptionError, match="origin_sequence is one number for all"):
        columns_of(2, "a", "", {"origin_sequence": 3})


def test_a_block_with_an_empty_name_is_refused() -> None:
    with pytest.raises(PropertyError):
        checked(Put(properties=b"\x04\x00\x01\x00\x01"))
