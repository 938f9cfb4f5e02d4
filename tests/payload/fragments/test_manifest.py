"""Manifests, receipts and journals: what is written is read again, and nothing invalid is believed."""

import contextlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.payload.fragments.journal import (
    RECORD_BYTES,
    Journal,
    decode_journal,
    encode_entries,
    encode_head,
    held_of,
)
from headrace.payload.fragments.manifest import (
    FRAGMENTS_MAX,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from headrace.payload.fragments.ranges import numbers_of, ranges_of
from headrace.payload.fragments.receipt import decode_receipt

NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
COUNTS = st.integers(0, 50)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    count, fragment = draw(COUNTS), draw(st.integers(1, 1 << 20))
    size = max(0, count * fragment - draw(st.integers(0, fragment - 1)))
    count = -(-size // fragment)
    numbers = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    return Manifest(
        transfer=draw(st.binary(min_size=16, max_size=16)).hex(), name=draw(NAMES), size=size, fragment_bytes=fragment,
        mode=draw(st.integers(0, 0o777)), mtime_ns=draw(st.integers(0, 1 << 62)), holes=ranges_of(numbers),
        hashes=draw(st.sampled_from([b"", bytes(32 * count)])), asks=draw(st.booleans()),
    )  # fmt: skip


@given(manifests())
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert sum(manifest.length_of(number) for number in range(manifest.count)) == manifest.size


@given(st.binary(max_size=300), manifests(), st.integers(0, 1 << 16), st.integers(0, 255))
def test_bytes_that_are_no_message_raise_errors_of_headrace(
    content: bytes, manifest: Manifest, place: int, value: int
) -> None:
    spoilt = bytearray(encode_manifest(manifest))
    spoilt[place % len(spoilt)] = value
    for decode in (decode_manifest, decode_receipt):
        for each in (content, bytes(spoilt)):
            with contextlib.suppress(HeadraceError):
                decode(each)
    decode_journal(content)
    decode_journal(encode_head(manifest, "here") + content)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2}, {"size": -1}, {"size": 1 << 62}, {"fragment_bytes": 0}, {"transfer": "00"}, {"kind": "device"},
        {"mode": 0o4755}, {"holes": [[3, 2]]}, {"holes": [[0, 99]]}, {"hashes": "AAAA"}, {"name": "../a"}, {"more": 1},
        {"kind": "directory"}, {"fragment_bytes": 1, "size": FRAGMENTS_MAX + 1}, {"mtime_ns": -(1 << 63) - 1},
    ],
)  # fmt: skip
def test_a_manifest_with_one_invalid_field_is_refused(change: dict[str, object]) -> None:
    good = msgspec.to_builtins(Manifest(transfer="0" * 32, name="a", size=300, fragment_bytes=100))
    decode_manifest(msgspec.json.encode(good))
    with pytest.raises(HeadraceError):
        decode_manifest(msgspec.json.encode({**good, **change}))


@given(st.lists(st.booleans(), max_size=80))
def test_ranges_name_the_same_numbers(chosen: list[bool]) -> None:
    numbers = np.array(chosen, np.bool_)
    assert (numbers_of(ranges_of(numbers), len(numbers)) == numbers).all()


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(min_size=32, max_size=32)), max_size=30), st.data())
def test_a_journal_that_was_cut_anywhere_keeps_what_is_before_the_cut(
    entries: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    manifest = Manifest(transfer="a" * 32, name="a", size=1000, fragment_bytes=100)
    head, records = encode_head(manifest, "here"), encode_entries(entries)
    cut = data.draw(st.integers(0, len(records)))
    journaled = decode_journal(head + records[:cut])
    assert journaled is not None
    assert journaled.is_of_this_boot
    assert journaled.manifest == manifest
    assert journaled.entries == entries[: cut // RECORD_BYTES]
    assert journaled.valid_bytes == len(head) + cut // RECORD_BYTES * RECORD_BYTES


def test_a_journal_continues_behind_a_record_that_was_cut_off(tmp_path: Path) -> None:
    manifest, path = Manifest(transfer="a" * 32, name="a", size=1000, fragment_bytes=100), tmp_path / "journal"
    first = Journal(path, manifest, "here")
    first.append([(1, b"1" * 32), (2, b"2" * 32)])
    first.close()
    path.write_bytes(path.read_bytes()[:-7])
    journaled = decode_journal(path.read_bytes())
    assert journaled is not None
    assert journaled.entries == [(1, b"1" * 32)]
    second = Journal(path, manifest, "here", journaled.valid_bytes)
    second.append([(3, b"3" * 32)])
    second.close()
    again = decode_journal(path.read_bytes())
    assert again is not None
    assert np.flatnonzero(held_of(again)[0]).tolist() == [1, 3]
