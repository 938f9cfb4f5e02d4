"""Pages: those that follow each other are decoded as one batch, and pages that do not fit are refused."""

from pathlib import Path

import msgspec
import pytest

from headrace import Queue
from headrace.errors import FabricMessageError
from headrace.log.records import Names
from headrace.relay.messages.beat import Beat, decode_beat, encode_beat
from headrace.relay.messages.description import Description
from headrace.relay.messages.page import (
    VERSION,
    PageHead,
    decode_all,
    decode_head,
    encode_head,
    queue_id,
    records_of,
    sequence_bytes,
)
from headrace.relay.messages.query import decode_reply

Sent = list[tuple[PageHead, bytes]]


@pytest.fixture
def sent(tmp_path: Path) -> Sent:
    """Three live pages of a stream that was filtered: 2 and 4, then 5, then 9 and 10."""
    with Queue.create(tmp_path / "q", size="8MiB", origin="a") as queue:
        for number in range(1, 11):
            queue.put(b"%d" % number, feed="wx/text")
        pages: Sent = []
        after = 0
        for chosen in ([2, 4], [5], [9, 10]):
            records = b"".join(records_of(queue.read_batch(number, limit=1)) for number in chosen)
            pages.append((
                PageHead(VERSION, "a", queue_id(queue), "0" * 16, after, chosen[-1], 11, len(chosen), 7,
                         sequences=sequence_bytes(chosen)), records,
            ))  # fmt: skip
            after = chosen[-1]
        return pages


def test_pages_that_follow_each_other_share_one_batch(sent: Sent) -> None:
    pages = decode_all(sent, Names())
    assert [page.sequences.tolist() for page in pages] == [[2, 4], [5], [9, 10]]
    assert [len(page) for page in pages] == [2, 1, 2]
    batch = pages[0].batch
    assert all(page.batch is batch for page in pages)
    assert [bytes(batch.payload(place)) for place in range(5)] == [b"2", b"4", b"5", b"9", b"10"]


def test_a_false_page_among_others_is_refused(sent: Sent) -> None:
    head, records = sent[1]
    for lie in (
        msgspec.structs.replace(head, count=2),
        msgspec.structs.replace(head, sequences=sequence_bytes([3])),
        msgspec.structs.replace(head, sequences=sequence_bytes([5, 6])),
    ):
        with pytest.raises(FabricMessageError):
            decode_all([sent[0], (lie, records), sent[2]], Names())


def test_counts_that_are_wrong_in_two_pages_are_refused(sent: Sent) -> None:
    """One page claims a product of the other."""
    (first, one), (second, two), _ = sent
    lies = msgspec.structs.replace(first, count=3), msgspec.structs.replace(second, count=0)
    with pytest.raises(FabricMessageError):
        decode_all([(lies[0], one), (lies[1], two)], Names())


# --- versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["a member of a later version"]])
def test_a_page_or_beat_of_another_version_is_refused_by_its_version(sent: Sent, more: list[str]) -> None:
    """Even if it has members that this version does not know."""
    other = VERSION + 1
    page = msgspec.msgpack.decode(encode_head(msgspec.structs.replace(sent[0][0], version=other)))
    beat = msgspec.msgpack.decode(encode_beat(Beat(other, "a", bytes(16), "own", 0, 0, None, 7, 0, 500)))
    for decode, message in ((decode_head, page), (decode_beat, beat)):
        with pytest.raises(FabricMessageError, match=f"has version {other}; this Headrace has version {VERSION}"):
            decode(msgspec.msgpack.encode([*message, *more]))


def test_a_page_that_is_no_page_of_any_version_is_invalid() -> None:
    for message in (b"", b"\xc1", msgspec.msgpack.encode(["one"]), msgspec.msgpack.encode([VERSION])):
        with pytest.raises(FabricMessageError, match="invalid head of a page"):
            decode_head(message)


def test_a_description_of_an_older_site_is_refused_with_what_to_do() -> None:
    """Descriptions have no version: a member that is missing shows it."""
    with pytest.raises(FabricMessageError, match=r"reply of site old: .*; run the same Headrace version"):
        decode_reply(msgspec.msgpack.encode({"site": "old"}), Description, "old")
