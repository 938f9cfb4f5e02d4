"""Pages: those that follow each other are taken as one, and nothing that does not fit is."""

from pathlib import Path

import msgspec
import pytest

from headrace import Queue
from headrace.errors import FabricMessageError
from headrace.fabric.page import VERSION, PageHead, decode, join, queue_id, records_of, sequence_bytes
from headrace.queue.records import Names

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
            records = b"".join(records_of(queue.read(number, limit=1)) for number in chosen)
            pages.append((
                PageHead(VERSION, "a", queue_id(queue), "0" * 16, after, chosen[-1], 11, len(chosen), 7,
                         sequences=sequence_bytes(chosen)), records,
            ))  # fmt: skip
            after = chosen[-1]
        return pages


def test_pages_that_follow_each_other_are_one(sent: Sent) -> None:
    joined = join(sent)
    assert joined is not None
    page = decode(*joined, Names())
    assert (page.head.after, page.head.upto, page.head.count) == (0, 10, 5)
    assert page.sequences.tolist() == [2, 4, 5, 9, 10]
    assert [bytes(page.batch.payload(place)) for place in range(5)] == [b"2", b"4", b"5", b"9", b"10"]


def test_pages_with_a_gap_between_them_or_of_another_queue_are_not(sent: Sent) -> None:
    assert join([sent[0], sent[2]]) is None
    assert join([sent[1], sent[0]]) is None
    other = msgspec.structs.replace(sent[1][0], queue=b"x" * 16)
    assert join([sent[0], (other, sent[1][1])]) is None


def test_a_page_that_lies_among_others_is_found(sent: Sent) -> None:
    head, records = sent[1]
    for lie in (
        msgspec.structs.replace(head, count=2),
        msgspec.structs.replace(head, sequences=sequence_bytes([3])),
        msgspec.structs.replace(head, sequences=b""),
    ):
        joined = join([sent[0], (lie, records), sent[2]])
        assert joined is not None
        with pytest.raises(FabricMessageError):
            decode(*joined, Names())
