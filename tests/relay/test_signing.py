"""Signed products: what a signature covers, and what a site accepts."""

import base64
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Batch, Queue
from headrace.errors import OptionError
from headrace.kernel import _kernel as kernel
from headrace.link.rights import Feeds
from headrace.log.records import Names, read_batch, wrong_signatures
from headrace.product.options import Options
from headrace.relay.plain import Plain
from headrace.relay.signing import keyring
from headrace.relay.signing.keyring import KeyRing, OriginKey, public_of
from headrace.relay.signing.replays import MARGIN_S, Replays
from headrace.relay.signing.sign import Signer
from headrace.relay.signing.tree import LEAVES_MAX, grow, root_of
from headrace.relay.signing.verify import INVALID, REPLAYED, SOUND, UNSIGNED, Verifier, VerifyRule
from support.records import sealed, with_signature

MakeQueue = Callable[..., Queue]
KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
REQUIRE = VerifyRule(("wx/warn/**",), "require")
OFF = VerifyRule(("wx/off/**",), "off")


@pytest.fixture
def there(make_queue: MakeQueue) -> Queue:
    return make_queue("there", origin="there")


@pytest.fixture
def here(make_queue: MakeQueue) -> Queue:
    return make_queue("here", origin="here")


def verifier(here: Queue, *rules: VerifyRule, key: Ed25519PrivateKey = KEY, **terms: Any) -> Verifier:
    revoked = terms.pop("revoked", ())
    return Verifier(KeyRing([OriginKey("there", public_of(key), **terms)], revoked), rules, Replays(here))


def arriving(records: bytes) -> Batch:
    return read_batch(records, Names())


def signed(queue: Queue, key: Ed25519PrivateKey = KEY) -> bytes:
    return Signer(queue.config.origin, key).records(queue.read_batch("oldest", limit=10_000))


# --- the tree -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(1, LEAVES_MAX), st.data())
def test_every_leaf_leads_to_the_root_and_no_other_place_does(count: int, data: st.DataObject) -> None:
    leaves = [bytes([n]) * 32 for n in range(count)]
    root, paths = grow(leaves)
    place = data.draw(st.integers(0, count - 1))
    assert root_of(leaves[place], place, paths[place]) == root
    other = (
        data.draw(st.integers(0, (1 << len(paths[place]) // 32) - 1).filter(lambda n: n != place)) if count > 1 else 0
    )
    assert count == 1 or root_of(leaves[place], other, paths[place]) != root
    assert root_of(b"x" * 32, place, paths[place]) != root


# --- sound --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 127, 128, 129, 400])
def test_products_of_a_site_leave_it_with_its_signature(there: Queue, here: Queue, count: int) -> None:
    there.put_many([b"%d" % n for n in range(count)], feed="wx/a", ident=[f"i{n}" for n in range(count)])
    signer = Signer("there", KEY)
    came = arriving(signer.records(there.read_batch("oldest", limit=1000)))
    assert wrong_signatures(came) is None
    assert verifier(here).verdicts(came).tolist() == [SOUND] * count
    assert signer.signatures == -(-count // LEAVES_MAX)
    assert here.put_batch(came).stored == count
    assert here.put_batch(arriving(signed(there))).stored == 0
    assert [bytes(p.payload) for p in here.read_batch(limit=1000)] == [b"%d" % n for n in range(count)]


def test_a_product_that_leaves_twice_is_signed_once(there: Queue) -> None:
    there.put_many([b"1", b"2", b"3"], feed="wx/a")
    signer, batch = Signer("there", KEY), there.read_batch()
    assert signer.records(batch, np.array([1], np.uint32)) in signer.records(batch)
    assert (signer.signatures, signer.products) == (1, 3)


def test_products_of_others_pass_unsigned(there: Queue, here: Queue) -> None:
    there.put(b"own", feed="wx/a")
    there.put(b"of another", feed="wx/a", origin="far", origin_sequence=1)
    assert verifier(here).verdicts(arriving(signed(there))).tolist() == [SOUND, UNSIGNED]


def test_a_relay_may_reduce_hops_assign_slices_and_compress(there: Queue, here: Queue, make_queue: MakeQueue) -> None:
    text = b"METAR KDEN 121853Z 26008KT 10SM FEW120 " * 100
    there.put(text, feed="wx/a", ident="i", options=Options(hops=3))
    there.put(text, feed="wx/a", options=Options(hops=3, unknown=((77, b"?"),)))
    between = make_queue("between", origin="between", dedup="payload", hash="xxh3")
    between.channel("text", "wx/**", compress="zstd", slices=4)
    from headrace.log.append import put_batch

    assert put_batch(between._log, arriving(signed(there)), passed_on=True).stored == 2
    batch = between.read_batch()
    assert batch.columns["form"].tolist() == [1, 1]
    assert [product.options.hops for product in batch] == [2, 2]
    came = arriving(Signer("between", OTHER).records(batch))
    assert verifier(here).verdicts(came).tolist() == [SOUND, SOUND]


def test_a_product_that_is_sent_expanded_keeps_its_signature(there: Queue, here: Queue) -> None:
    """As it is sent to those who may not have the dictionary of its channel."""
    there.channel("text", "wx/**", compress="zstd")
    there.put(b"METAR KDEN 121853Z 26008KT 10SM FEW120 " * 100, feed="wx/a", ident="i", options=Options(hops=3))
    plain = Plain(there, Feeds(["**"]), Signer("there", KEY).records)
    plain._withheld[0] = True
    came = arriving(plain._record(there.read_batch(), 0))
    assert came.columns["form"].tolist() == [0]
    assert verifier(here).verdicts(came).tolist() == [SOUND]


def test_a_queue_without_signatures_may_sign_and_others_add_theirs(make_queue: MakeQueue, here: Queue) -> None:
    there, between = make_queue("there", origin="there", dedup="none"), make_queue("between", origin="between")
    there.put_many([b"named", b"other"], feed="wx/a", ident="i")
    between.put_batch(arriving(signed(there)))
    came = arriving(Signer("between", OTHER).records(between.read_batch()))
    assert came.columns["kind"].tolist() == [5, 5]
    assert verifier(here).verdicts(came).tolist() == [SOUND, SOUND]


# --- forged -------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_bit_of_a_signed_record_can_be_changed(data: st.DataObject) -> None:
    """But for its slice, and what makes it another origin's or unsigned: then it is nobody's word."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Queue.create(Path(folder) / "q", size="2MiB", origin="there") as queue,
    ):
        facts = {"properties": {"a": 1}, "expiry": 1 << 62, "priority": 3, "options": Options(unknown=((70, b"x"),))}
        queue.put(b"payload", feed="wx/a", ident="ident", **facts)
        queue.put(b"other", feed="wx/b", signature=b"sixteen bytes ok")
        batch = arriving(signed(queue))
        judge = verifier(queue)
        place = data.draw(st.integers(0, 1))
        record = bytearray(batch.record(place))
        bit = data.draw(st.integers(16, 8 * len(record) - 1))
        record[bit // 8] ^= 1 << bit % 8
        try:
            came = arriving(sealed(record) + bytes(-len(record) % 8))
        except (ValueError, OptionError):
            return
        if bit // 8 in (4, 5, 6, 7):  # the checksum, which is made anew
            return
        verdict = int(judge.verdicts(came)[0])
        if bit // 8 in (54, 55):  # the slice
            assert verdict == SOUND
        elif came[0].origin != "there":
            assert verdict == UNSIGNED
        else:
            assert verdict in (INVALID, UNSIGNED) or wrong_signatures(came) is not None
            assert verdict != SOUND


def test_a_signature_does_not_move_to_another_product(there: Queue, here: Queue) -> None:
    from headrace.relay.signing.covered import PROOF, SIGNED, parts_of, with_options

    there.put_many([b"harmless", b"other"], feed="wx/a", ident=["1", "2"])
    batch = arriving(signed(there))
    options = [entry for entry in parts_of(batch.record(0)).options if entry[0] in (SIGNED, PROOF)]
    moved = with_options(parts_of(batch.record(1)), options)
    assert verifier(here).verdicts(arriving(moved + bytes(-len(moved) % 8))).tolist() == [INVALID]


def test_an_origin_cannot_sign_for_another_one(make_queue: MakeQueue, here: Queue) -> None:
    evil = make_queue("evil", origin="there")
    evil.put(b"forged", feed="wx/a")
    assert verifier(here).verdicts(arriving(signed(evil, OTHER))).tolist() == [UNSIGNED]  # a key that nobody knows
    both = Verifier(
        KeyRing([OriginKey("there", public_of(KEY)), OriginKey("evil", public_of(OTHER))]), (), Replays(here)
    )
    assert both.verdicts(arriving(signed(evil, OTHER))).tolist() == [UNSIGNED]


# --- rules and keys -----------------------------------------------------------------------------------


def test_require_accept_and_off_decide_by_feed(there: Queue, here: Queue) -> None:
    for feed in ("wx/warn/a", "wx/text/a", "wx/off/a"):
        there.put(b"x", feed=feed)
    judge = verifier(here, REQUIRE, OFF)
    unsigned = arriving(b"".join(each.record(0) + bytes(-len(each.record(0)) % 8)
                                 for each in (there.read_batch(n, limit=1) for n in (1, 2, 3))))  # fmt: skip
    refused = judge.refused(unsigned)
    assert refused is not None
    assert refused.tolist() == [UNSIGNED, 0, 0]
    assert judge.refused(arriving(signed(there))) is None
    forged = verifier(here, REQUIRE, OFF, revoked=[OriginKey("", public_of(KEY)).id]).refused(arriving(signed(there)))
    assert forged is not None
    assert forged.tolist() == [INVALID, INVALID, 0]


def test_a_key_counts_for_products_that_were_put_while_it_was_in_force(there: Queue, here: Queue) -> None:
    there.put(b"x", feed="wx/a")
    now = int(there.read_batch().columns["inserted_ns"][0])
    came = signed(there)

    def verdict(**terms: Any) -> int:
        return int(verifier(here, **terms).verdicts(arriving(came))[0])

    assert verdict(from_ns=now, until_ns=now + 1) == SOUND
    assert verdict(until_ns=now) == INVALID
    assert verdict(from_ns=now + 1) == INVALID


def test_keys_overlap_while_one_replaces_the_other(there: Queue, here: Queue) -> None:
    there.put(b"x", feed="wx/a")
    ring = KeyRing([OriginKey("there", public_of(KEY)), OriginKey("there", public_of(OTHER))])
    judge = Verifier(ring, (), Replays(here))
    assert [int(judge.verdicts(arriving(signed(there, key)))[0]) for key in (KEY, OTHER)] == [SOUND, SOUND]


def test_files_of_keys_are_read_back_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    file, public = keyring.make_key(tmp_path, "denver")
    assert file.stat().st_mode & 0o777 == 0o600
    assert public_of(keyring.read_private(file)) == public == keyring.parse_public(keyring.public_text(public))
    assert keyring.read_public(file)[0] == public
    with pytest.raises(OptionError, match="exists"):
        keyring.make_key(tmp_path, "denver")
    for text in ("", "x", base64.b64encode(b"short").decode()):
        with pytest.raises(OptionError, match="not a public key"):
            keyring.parse_public(text)
    revoked = tmp_path / "revoked"
    number = keyring.key_id(public)
    revoked.write_text(f"# nobody\n\n{keyring.id_text(number)} denver, stolen\n")
    assert keyring.read_revoked(revoked) == {number}
    revoked.write_text("denver\n")
    with pytest.raises(OptionError, match=r"line 1: 'denver' is not the id of a key"):
        keyring.read_revoked(revoked)


def test_a_relay_makes_up_no_duplicate_signature_for_a_signed_product(make_queue: MakeQueue, here: Queue) -> None:
    """Otherwise an old product could keep out the one to come that has that signature."""
    there = make_queue("unsigned", origin="there", dedup="none")
    there.put(b"a", feed="wx/warn/a")
    came = with_signature(bytes(arriving(signed(there)).record(0)), kernel.SIGNATURE_GIVEN, b"of another, 16 b")
    assert verifier(here).verdicts(arriving(came + bytes(-len(came) % 8))).tolist() == [INVALID]


# --- replays of products that no queue would recognise ------------------------------------------------


@pytest.mark.parametrize(("dedup_there", "dedup_here"), [("none", "identity"), ("identity", "none"), ("none", "none")])
def test_a_copy_that_no_duplicate_signature_shows_is_a_replay(
    make_queue: MakeQueue, dedup_there: str, dedup_here: str
) -> None:
    there = make_queue("unsigned", origin="there", dedup=dedup_there)
    judge = verifier(make_queue("other", origin="here", dedup=dedup_here))
    for number in range(3):
        there.put(b"%d" % number, feed="wx/warn/a")
    whole = arriving(signed(there))
    assert judge.verdicts(whole).tolist() == [SOUND] * 3
    judge.note(whole, None)
    assert judge.verdicts(arriving(signed(there))).tolist() == [REPLAYED] * 3
    there.put(b"3", feed="wx/warn/a")
    assert judge.verdicts(arriving(signed(there))).tolist() == [REPLAYED] * 3 + [SOUND]


def test_a_copy_in_the_same_page_is_a_replay(there: Queue, here: Queue) -> None:
    there.put(b"a", feed="wx/warn/a")
    record = signed(there)
    assert verifier(here).verdicts(arriving(record + record)).tolist() == [SOUND, REPLAYED]


# --- replays ------------------------------------------------------------------------------------------


def evict(queue: Queue) -> None:
    """Put until nothing of what the queue held is left."""
    last = queue.next
    while queue.oldest < last:
        queue.put(bytes(300_000), feed="fill")


def test_an_old_product_is_not_taken_for_a_new_one_after_the_queue_has_forgotten_it(there: Queue, here: Queue) -> None:
    there.put(b"take shelter", feed="wx/warn", ident="tornado")
    old, judge = signed(there), verifier(here)
    came = arriving(old)
    here.put_batch(came)
    judge.note(came, None)
    assert judge.verdicts(arriving(old)).tolist() == [SOUND]  # the queue holds it: a duplicate
    evict(here)
    assert judge.verdicts(arriving(old)).tolist() == [REPLAYED]
    judge.replays.save()
    assert verifier(here).verdicts(arriving(old)).tolist() == [REPLAYED]  # after a restart, too
    there.put(b"all clear", feed="wx/warn", ident="end")
    assert verifier(here).verdicts(arriving(signed(there))).tolist() == [REPLAYED, SOUND]


def test_a_backlog_that_is_longer_than_the_queue_arrives_in_its_order(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there", size="8MiB"), make_queue("here", size="1MiB")
    judge, signer = verifier(here), Signer("there", KEY)
    for number in range(12):
        there.put(bytes(200_000), feed="wx/a", ident=f"{number}")
        there.put(b"of another feed", feed="wx/b", ident=f"{number}")
    for sequence in range(1, 25):
        came = arriving(signer.records(there.read_batch(sequence, limit=1)))
        assert judge.verdicts(came).tolist() == [SOUND]
        assert here.put_batch(came).stored == 1
        judge.note(came, None)
    assert here.oldest > 1


def test_a_gap_is_repaired_although_newer_products_have_arrived(there: Queue, here: Queue) -> None:
    there.put_many([b"1", b"2"], feed="wx/a", ident=["1", "2"])
    batch, signer, judge = there.read_batch(), Signer("there", KEY), verifier(here)
    newer = arriving(signer.records(batch, np.array([1], np.uint32)))
    here.put_batch(newer)
    judge.note(newer, None)
    assert judge.verdicts(arriving(signer.records(batch, np.array([0], np.uint32)))).tolist() == [SOUND]


def test_forgotten_feeds_leave_the_newest_time_of_their_origin(here: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.relay.signing.replays.FEEDS_MAX", 2)
    replays = Replays(here)
    for number in range(1, 5):
        replays.note("there", f"feed/{number}", 1000 + number, number)
    evict(here)
    here.put(b"x", feed="fill")
    evict(here)
    assert not replays.is_new("there", "feed/1", 1002, 9, is_recognised=True)
    assert replays.is_new("there", "feed/1", 1003, 9, is_recognised=True)
    assert replays.is_new("there", "feed/4", 1004, 5, is_recognised=True)
    assert replays.is_new("elsewhere", "feed/1", 1, 1, is_recognised=True)
    assert MARGIN_S > 0
