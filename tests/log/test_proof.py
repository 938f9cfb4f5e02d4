"""Signatures from elsewhere: one that is a hash is recomputed; one that a producer made up counts for its origin alone."""

import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from travelling import page, sealed

from headrace import Batch, Duplicate, Queue
from headrace.errors import InvalidError
from headrace.kernel import _kernel as kernel
from headrace.log.records import Names, read_batch, wrong_signatures
from headrace.product.options import Options

MakeQueue = Callable[..., Queue]

GIVEN = b"sixteen bytes ok"
TEXT = b"METAR KDEN 121853Z 26008KT 10SM FEW120 " * 200
RULES = [(dedup, hash_) for dedup in ("identity", "payload") for hash_ in ("blake3", "xxh3", "md5")]


def hash_of(feed: str, ident: str, payload: bytes) -> bytes:
    """What a queue computes by default."""
    head = struct.pack("<4H", len(feed), len(ident), 0, 0)
    return blake3(head + feed.encode() + ident.encode() + payload).digest()[:16]


def arriving(batch: Batch) -> Batch:
    """The products as another site gets them."""
    return read_batch(page(batch), Names())


def altered(batch: Batch, place: int, at: int = -1) -> Batch:
    """The same, with a bit of one payload changed, and a valid checksum."""
    records = [bytearray(batch.record(each)) for each in range(len(batch))]
    records[place][at] ^= 1
    records[place] = bytearray(sealed(records[place]))
    return read_batch(b"".join(bytes(record) + bytes(-len(record) % 8) for record in records), Names())


def claiming(batch: Batch, place: int, kind: int, signature: bytes) -> Batch:
    """The same, with another signature and its kind for one product."""
    records = [bytearray(batch.record(each)) for each in range(len(batch))]
    record = records[place]
    record[3] = record[3] & ~0x38 | kind << 3
    record[16:32] = signature
    records[place] = bytearray(sealed(record))
    return read_batch(b"".join(bytes(each) + bytes(-len(each) % 8) for each in records), Names())


# --- recomputed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dedup", "hash_"), RULES)
def test_signatures_of_every_rule_are_confirmed_when_they_arrive(make_queue: MakeQueue, dedup: str, hash_: str) -> None:
    there = make_queue("there", origin="there", dedup=dedup, hash=hash_)
    there.put_many([b"", b"small", b"l" * 100_000], feed="wx/a", ident="named")
    there.put_many([b"nameless", b"given"], feed="wx/b", signature=[None, GIVEN])
    came, here = arriving(there.read_batch()), make_queue("here")
    assert wrong_signatures(came) is None
    assert here.put_batch(came).stored == 5
    assert here.put_batch(arriving(there.read_batch())).stored == 0
    assert [p.signature for p in here.read_batch()] == [p.signature for p in there.read_batch()]


def test_a_nameless_product_that_was_signed_on_its_way_is_confirmed(make_queue: MakeQueue) -> None:
    """Its hash has origin, sequence and time of creation; which is zero if it was put without one."""
    there, between, here = (make_queue(name, origin=name, dedup=dedup)
                            for name, dedup in (("there", "none"), ("between", "identity"), ("here", "identity")))  # fmt: skip
    there.put(b"nameless", feed="wx")
    between.put_batch(arriving(there.read_batch()))
    between.put(b"brought by a program", feed="wx", origin="far", origin_sequence=7)
    came = arriving(between.read_batch())
    assert came.columns["kind"].tolist() == [5, 5]
    assert wrong_signatures(came) is None
    assert here.put_batch(came).stored == 2


@pytest.mark.parametrize(("dedup", "hash_"), RULES)
def test_a_product_whose_content_was_altered_is_refused(make_queue: MakeQueue, dedup: str, hash_: str) -> None:
    there, here = make_queue("there", origin="there", dedup=dedup, hash=hash_), make_queue("here")
    there.put_many([b"one", b"two", b"three"], feed="wx/a", ident="i")
    came = altered(there.read_batch(), 1)
    wrong = wrong_signatures(came)
    assert wrong is not None
    assert wrong.tolist() == [False, True, False]
    with pytest.raises(
        InvalidError, match="product 1 of the batch, 'i', has a signature that is not that of its content"
    ):
        here.put_batch(came)
    assert here.put_batch(came, keep=~wrong).stored == 2


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(RULES), st.binary(min_size=1, max_size=40_000), st.text(max_size=20), st.data())
def test_no_single_bit_of_what_a_signature_covers_can_be_changed(
    rule: tuple[str, str], payload: bytes, ident: str, data: st.DataObject
) -> None:
    terms = {"origin": "there", "dedup": rule[0], "hash": rule[1]}
    with tempfile.TemporaryDirectory() as folder, Queue.create(Path(folder) / "q", size="2MiB", **terms) as queue:
        queue.put(payload, feed="wx/a", ident=ident)
        batch = queue.read_batch()
        is_made_up = batch.columns["kind"][0] == kernel.SIGNATURE_GIVEN  # nameless: unique, and covers nothing
        assert wrong_signatures(arriving(batch)) is None
        at = data.draw(st.integers(1, len(payload)))
        assert (wrong_signatures(altered(batch, 0, -at)) is None) == is_made_up


# --- suppression --------------------------------------------------------------------------------------


def test_junk_that_claims_the_hash_of_a_coming_product_is_refused_under_each_kind(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there"), make_queue("here")
    coming = hash_of("wx/warn", "tornado", b"take shelter")
    there.put(b"junk", feed="wx/text", ident="junk")
    for kind in (1, 2, 3, 5, 6, 7):
        came = claiming(there.read_batch(), 0, kind, coming)
        with pytest.raises(InvalidError, match="not that of its content"):
            here.put_batch(came)
    assert here.put_batch(claiming(there.read_batch(), 0, kernel.SIGNATURE_GIVEN, coming)).stored == 1
    assert here.put(b"take shelter", feed="wx/warn", ident="tornado") == 2
    assert here.read_batch()[1].signature == coming


def test_a_signature_that_a_local_producer_made_up_suppresses_nothing_but_its_like(make_queue: MakeQueue) -> None:
    queue = make_queue()
    coming = hash_of("wx/warn", "tornado", b"take shelter")
    assert queue.put(b"junk", feed="wx/text", signature=coming) == 1
    assert queue.put(b"more junk", feed="wx/text", signature=coming) == Duplicate(1)
    assert queue.put_many([b"take shelter"], feed="wx/warn", ident="tornado").first == 2


def test_given_signatures_count_for_each_origin(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for number, origin in enumerate(("a", "b", "c"), 1):
        assert queue.put(b"%d" % number, feed="wx", signature=GIVEN, origin=origin, origin_sequence=1) == number
    assert queue.put(b"9", feed="wx", signature=GIVEN, origin="b", origin_sequence=9) == Duplicate(2)
    assert queue.put(b"0", feed="wx", signature=GIVEN) == 4


def test_very_many_origins_may_give_the_same_signature(make_queue: MakeQueue) -> None:
    """Each has its own place in the duplicate table: nobody can fill two buckets of it."""
    queue = make_queue()
    for number in range(200):
        queue.put(b"x", feed="wx", signature=GIVEN, origin=f"o{number}", origin_sequence=1)
    assert queue.next == 201
    assert [queue.put(b"y", feed="wx", signature=GIVEN, origin=f"o{number}", origin_sequence=2)
            for number in range(200)] == [Duplicate(1 + number) for number in range(200)]  # fmt: skip
    assert queue._log.kernel.state["dedup_table"] & 0xFFFFFFFF == 512  # it never had to grow


def test_a_product_that_is_put_again_under_its_own_signature_is_recognised(make_queue: MakeQueue) -> None:
    """As a replay from an archive puts it, with what a reader has seen of it."""
    there, here = make_queue("there", origin="there", hash="xxh3"), make_queue("here")
    there.put(b"archived", feed="wx", ident="i", created=5)
    here.put(b"local", feed="wx", ident="i")
    here.put_batch(arriving(there.read_batch()))
    local, archived = here.read_batch()
    assert here.put(b"local", feed="wx", ident="i", signature=local.signature) == Duplicate(1)
    facts = {"origin": "there", "origin_sequence": archived.origin_sequence, "created": archived.created_ns}
    assert here.put(b"archived", feed="wx", ident="i", signature=archived.signature, **facts) == Duplicate(2)


# --- compressed ---------------------------------------------------------------------------------------


def compressing(make_queue: MakeQueue, name: str) -> Queue:
    queue = make_queue(name, origin=name)
    queue.channel("text", "wx/**", compress="zstd")
    return queue


def test_the_signature_of_a_compressed_product_is_that_of_its_content(make_queue: MakeQueue) -> None:
    there, here = compressing(make_queue, "there"), make_queue("here")
    there.put(TEXT, feed="wx/a", ident="i")
    came = arriving(there.read_batch())
    assert wrong_signatures(came) is None
    assert (here.put_batch(came).stored, came.columns["proof"][0]) == (1, kernel.PROOF_SOUND)
    assert here.put(TEXT, feed="wx/a", ident="i") == Duplicate(1)
    there.put(TEXT[::-1], feed="wx/a", ident="j")
    claims = claiming(there.read_batch(), 1, 5, hash_of("wx/warn", "w", b"w"))
    assert wrong_signatures(claims) is not None


def test_what_expands_out_of_proportion_counts_for_its_origin_alone(make_queue: MakeQueue) -> None:
    there, here = compressing(make_queue, "there"), make_queue("here", size="64MiB")
    bomb = bytes(400_000)
    there.put(bomb, feed="wx/a", ident="i")
    came = arriving(there.read_batch())
    assert wrong_signatures(came) is None
    assert came.columns["proof"].tolist() == [kernel.PROOF_OPEN]
    assert here.put_batch(came).stored == 1
    assert here.put_batch(arriving(there.read_batch())).stored == 0  # the same product by another path
    assert here.put(bomb, feed="wx/a", ident="i") == 2  # it is known by its content, the first one is not
    assert here.check() == []
    path = here.path
    here.close()
    with Queue.open(path) as again:
        assert again.put_batch(arriving(there.read_batch())).stored == 0
        assert again.read_batch().columns["proof"].tolist() == [kernel.PROOF_OPEN, kernel.PROOF_NONE]


def test_a_payload_in_an_unknown_form_suppresses_nothing(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there"), make_queue("here")
    coming = hash_of("wx/a", "i", b"take shelter")
    there.put(b"x", feed="wx/a", ident="i", options=Options(unknown=((200, b"?"),)))
    claims = claiming(there.read_batch(), 0, 5, coming)
    assert wrong_signatures(claims) is None
    assert here.put_batch(claims).stored == 1
    assert here.put(b"take shelter", feed="wx/a", ident="i") == 2
    assert np.count_nonzero(here.read_batch().columns["proof"] == kernel.PROOF_OPEN) == 1
