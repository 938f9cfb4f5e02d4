"""The kernel exports the constants of the format, and the modules that may not import it have the same values."""

import reader
import station_reader

from headrace.kernel import _kernel as kernel
from headrace.log.config import DURABILITIES, HASHES, SIGNATURE_KINDS
from headrace.product import batch, feed, product, properties


def test_the_rows_of_a_batch_have_the_layout_that_the_kernel_fills() -> None:
    assert batch.ROW.fields is not None
    fields = {name: (offset, dtype.itemsize) for name, (dtype, offset, *_) in batch.ROW.fields.items()}
    assert fields == kernel.REF_FIELDS
    assert batch.ROW.itemsize == kernel.REF_BYTES


def test_the_limits_of_a_product_are_those_of_the_kernel() -> None:
    assert product.NO_SLICE == kernel.NO_SLICE == product.SLICE_MAX + 1
    assert kernel.SLICES == kernel.NO_SLICE + 1
    assert product.IDENT_BYTES_MAX == kernel.IDENT_BYTES_MAX
    assert product.PRIORITY_MAX == kernel.PRIORITIES - 1
    assert feed.FEED_BYTES_MAX == kernel.FEED_BYTES_MAX
    for value, kind in (
        (1, kernel.PROPERTY_INT), (1.5, kernel.PROPERTY_FLOAT), ("a", kernel.PROPERTY_STR), (True, kernel.PROPERTY_BOOL),
    ):  # fmt: skip
        assert properties.encode_properties({"name": value})[0] == kind


def test_the_options_of_a_queue_are_those_that_the_kernel_knows() -> None:
    assert tuple(kernel.DURABILITIES) == DURABILITIES
    assert tuple(kernel.HASHES) == HASHES


def test_the_kernel_has_the_numbers_of_the_page() -> None:
    hashed = {f"payload {name}": number for name, number in kernel.HASHES.items()}
    hashed |= {f"identity {name}": number | kernel.SIGNATURE_OF_IDENTITY for name, number in kernel.HASHES.items()}
    computed = {kernel.SIGNATURE_NONE: "none"} | {number: name for name, number in hashed.items()}
    assert computed | {kernel.SIGNATURE_GIVEN: "given"} == reader.SIGNATURE_KINDS
    assert set(computed) == SIGNATURE_KINDS
    assert (kernel.NAME_BYTES, kernel.ORIGINS_MAX, kernel.NAMES_STEP) == (
        reader.NAME_BYTES, reader.FEEDS_BEGIN, reader.NAMES_STEP,
    )  # fmt: skip
    assert (kernel.NAME_FEED, kernel.NAME_ORIGIN) == (reader.FEED, reader.ORIGIN)
    assert (kernel.MEMBERS_MAX, kernel.CONSUMERS_MAX) == (station_reader.MEMBERS, station_reader.CONSUMERS)
    assert (kernel.SLOTS_STEP, kernel.SLOTS_MAX) == (station_reader.SLOTS_STEP, station_reader.SLOTS_MAX)
    assert kernel.CONSUMER_LOCKS_AT == station_reader.CONSUMER_LOCKS_AT
    assert kernel.PRIORITIES == station_reader.PRIORITIES
    states = (kernel.SLOT_FREE, kernel.SLOT_WAITING, kernel.SLOT_LEASED, kernel.SLOT_PARKED)
    assert dict(zip(states, ("free", "waiting", "leased", "parked"), strict=True)) == station_reader.STATES
    assert kernel.ORDERS == station_reader.ORDERS
    assert kernel.DISCARDS == station_reader.DISCARDS
    assert kernel.RESTORES == station_reader.RESTORES
    assert kernel.DISTRIBUTIONS == station_reader.DISTRIBUTIONS


def test_an_index_row_has_the_layout_of_the_page() -> None:
    assert {name: offset for name, (offset, _) in kernel.ROW_FIELDS.items()} == {
        name: offset for name, (offset, _) in reader.ROW.items()
    }
    assert kernel.ROW_BYTES == reader.ROW_BYTES
