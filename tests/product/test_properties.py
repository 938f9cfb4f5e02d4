"""Properties and their block in a record."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PropertyError
from headrace.product.properties import decode_properties, encode_properties

values = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=50), st.booleans())


@given(st.dictionaries(st.text(min_size=1, max_size=40), values, max_size=8))
def test_a_block_decodes_to_the_same_values_and_types(properties: dict[str, object]) -> None:
    found = decode_properties(encode_properties(properties))  # type: ignore[arg-type]
    assert dict(found) == properties
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in properties.items()}


def test_nan_is_preserved() -> None:
    value = decode_properties(encode_properties({"x": math.nan}))["x"]
    assert isinstance(value, float)
    assert math.isnan(value)


def test_the_order_of_properties_does_not_change_their_block() -> None:
    assert encode_properties({"a": 1, "b": 2}) == encode_properties({"b": 2, "a": 1})


def test_properties_are_read_only() -> None:
    with pytest.raises(TypeError):
        decode_properties(encode_properties({"a": 1}))["a"] = 2  # type: ignore[index]


@given(st.binary(min_size=1, max_size=60))
def test_random_bytes_decode_to_a_mapping_or_raise_a_property_error(block: bytes) -> None:
    try:
        decode_properties(block)
    except PropertyError as error:
        assert error.hint
