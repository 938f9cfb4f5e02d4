# Signatures: the 16 bytes by which a queue recognises a product that it holds already.
#
# Two products are one if feed, ident and payload are equal: the signature is a hash of all three, with the lengths of
# the first two in front, so that no other feed, ident and payload give the same bytes. Under the rule `payload`, LDM's,
# it is a hash of the payload alone.
#
# Without an ident nothing says that two products are one: two sensors may read the same. Such a product gets bytes that
# no other product has, at a fraction of the cost of a hash. If it was put at another queue, which gave it no signature,
# it may arrive here by several ways: then origin, sequence there and creation time stand for the ident.
#
# All of this happens before any lock is taken.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

import hashlib
import os

from blake3 import blake3 as blake3_hasher

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char *, Py_ssize_t, int)
    int PyBUF_READ

cdef object md5_hasher = hashlib.md5
cdef object random_bytes = os.urandom

cdef enum:
    JOINED_BYTES_MAX = 16384         # more than any head has; up to here a copy is cheaper than a second call

cdef packed struct IdentityHead:     # what is hashed: this, [IdentityPlace], feed, ident or origin, payload
    uint16_t feed_bytes
    uint16_t ident_bytes
    uint16_t origin_bytes            # 0 with an ident
    uint16_t reserved                # zero

cdef packed struct IdentityPlace:    # without an ident: which product of its origin it is
    uint64_t origin_sequence
    uint64_t created_ns              # 0: the producer did not say


cdef struct Joined:                  # what is hashed: the head, and behind it a payload that is not too long
    uint32_t feed                    # of the item whose head it is; 0: of none
    uint16_t ident_bytes
    const char *ident
    size_t head_bytes
    char text[JOINED_BYTES_MAX]


cdef int sign(Log log, Item *items, size_t count) except -1:
    """Give items without a signature the one that their queue computes; none if the queue looks for no duplicates."""
    cdef Store *store = log.store
    cdef uint8_t kind = <uint8_t>store.control.signature_kind
    cdef Joined joined
    cdef object hasher = None
    cdef size_t i
    if kind == SIGNATURE_NONE:
        return 0
    if kind & SIGNATURE_HASH == SIGNATURE_BLAKE3:
        hasher = take_hasher(log)
    joined.feed = 0
    joined.head_bytes = 0            # under the rule `payload` there is no head
    for i in range(count):
        if items[i].kind != SIGNATURE_NONE:
            continue
        if kind & SIGNATURE_OF_IDENTITY:
            if items[i].ident_bytes == 0 and items[i].origin_sequence == 0:
                sign_uniquely(store, &items[i])
                continue
            if not has_head(&joined, &items[i]):
                set_head(store, &joined, &items[i])
        compute(&items[i], kind, hasher, &joined)
    log.hasher = hasher
    return 0


cdef int compute(Item *item, uint8_t kind, hasher, Joined *joined) except -1:
    """Give the item the hash of this kind, with the head that `joined` has."""
    item.kind = kind
    if kind & SIGNATURE_HASH == SIGNATURE_XXH3:
        sign_by_xxh3(item, joined)
    else:
        sign_by_library(item, hasher if kind & SIGNATURE_HASH == SIGNATURE_BLAKE3 else None, joined)
    return 0


cdef int take_given(Log log, Item *item, const uint8_t *given) except -1:
    """Give the item a signature that its caller chose: of the kind of the hash that it is, otherwise a given one.

    A product that is put again under its signature, from an archive for example, is the product that the queue holds.
    One that was carried here may have a signature of another queue's kind.
    """
    cdef uint8_t own = <uint8_t>log.store.control.signature_kind, kind
    cdef object hasher
    cdef Joined joined
    cdef Item trial
    if own != SIGNATURE_NONE:
        hasher = take_hasher(log)
        for kind in range(1, 8):
            if kind == SIGNATURE_GIVEN or (kind != own and item.origin_sequence == 0):
                continue
            if kind & SIGNATURE_OF_IDENTITY and item.ident_bytes == 0 and item.origin_sequence == 0:
                continue
            joined.head_bytes = identity_head(log.store, item, joined.text) if kind & SIGNATURE_OF_IDENTITY else 0
            trial = item[0]
            compute(&trial, kind, hasher, &joined)
            if memcmp(trial.signature, given, 16) == 0:
                item[0] = trial
                break
        log.hasher = hasher
    if item.kind == SIGNATURE_NONE:
        item.kind = SIGNATURE_GIVEN
        memcpy(item.signature, given, 16)
    return 0


cdef inline bint has_head(Joined *joined, Item *item) noexcept nogil:
    """Was the head made for an item with this feed and this very ident? Then it is made once for a batch."""
    return (item.ident_bytes != 0 and joined.feed == item.feed and joined.ident == item.ident
            and joined.ident_bytes == item.ident_bytes)


cdef inline void set_head(Store *store, Joined *joined, Item *item) noexcept nogil:
    joined.head_bytes = identity_head(store, item, joined.text)
    joined.feed, joined.ident, joined.ident_bytes = item.feed, item.ident, item.ident_bytes


cdef object take_hasher(Log log):
    """A BLAKE3 hasher that no other thread has: it lets the interpreter run while it hashes.

    To make one takes as long as to hash a small product, so the log keeps one while none of its threads needs it.
    """
    hasher, log.hasher = log.hasher, None
    return blake3_hasher() if hasher is None else hasher


cdef size_t identity_head(Store *store, Item *item, char *head) noexcept nogil:
    """Write what is hashed before the payload; its size."""
    cdef Name *feed = name_of(store, item.feed)
    cdef Name *origin = name_of(store, item.origin)
    return head_of(item, feed.text, feed.bytes, origin.text, origin.bytes, head)


cdef size_t head_of(Item *item, const char *feed, uint16_t feed_bytes, const char *origin, uint16_t origin_bytes,
                    char *head) noexcept nogil:
    """As `identity_head`, of an item whose feed and origin have these names."""
    cdef IdentityHead *lengths = <IdentityHead *>head
    cdef IdentityPlace *place
    cdef size_t size = sizeof(IdentityHead)
    lengths.feed_bytes, lengths.ident_bytes = feed_bytes, item.ident_bytes
    lengths.origin_bytes = lengths.reserved = 0
    if item.ident_bytes:
        memcpy(head + size, feed, feed_bytes)
        memcpy(head + size + feed_bytes, item.ident, item.ident_bytes)
        return size + feed_bytes + item.ident_bytes
    place = <IdentityPlace *>(head + size)
    place.origin_sequence, place.created_ns = item.origin_sequence, item.created_ns
    size += sizeof(IdentityPlace)
    lengths.origin_bytes = origin_bytes
    memcpy(head + size, feed, feed_bytes)
    memcpy(head + size + feed_bytes, origin, origin_bytes)
    return size + feed_bytes + origin_bytes


cdef void sign_by_xxh3(Item *item, Joined *joined) noexcept nogil:
    cdef XXH3_state_t state
    cdef XXH128_hash_t sum
    if joined.head_bytes == 0:
        sum = XXH3_128bits(item.payload, item.payload_bytes)
    elif joined.head_bytes + item.payload_bytes <= JOINED_BYTES_MAX:
        memcpy(joined.text + joined.head_bytes, item.payload, item.payload_bytes)
        sum = XXH3_128bits(joined.text, joined.head_bytes + item.payload_bytes)
    else:
        XXH3_128bits_reset(&state)
        add_to_sum(&state, joined.text, joined.head_bytes)   # the state is the same for 64 and 128 bits
        add_to_sum(&state, item.payload, item.payload_bytes)
        sum = XXH3_128bits_digest(&state)
    XXH128_canonicalFromHash(<XXH128_canonical_t *>item.signature, sum)


cdef int sign_by_library(Item *item, hasher, Joined *joined) except -1:
    """BLAKE3 by this hasher, or MD5. The bytes are passed as they are, whatever type of object the payload is."""
    cdef bytes digest, begin
    cdef size_t size = joined.head_bytes + item.payload_bytes
    cdef bint whole = size <= JOINED_BYTES_MAX
    begin = PyBytes_FromStringAndSize(NULL, size if whole else joined.head_bytes)
    memcpy(PyBytes_AS_STRING(begin), joined.text, joined.head_bytes)
    if whole:
        memcpy(PyBytes_AS_STRING(begin) + joined.head_bytes, item.payload, item.payload_bytes)
    if hasher is None:
        hasher = md5_hasher(begin, usedforsecurity=False)
    else:
        hasher.reset()
        hasher.update(begin)
    if not whole:
        hasher.update(PyMemoryView_FromMemory(<char *>item.payload, item.payload_bytes, PyBUF_READ))
    digest = hasher.digest()
    memcpy(item.signature, PyBytes_AS_STRING(digest), 16)
    return 0


cdef int sign_uniquely(Store *store, Item *item) except -1:
    """Sixteen bytes that no other product has: 8 random ones of this opening, and a count that began at random.

    A child draws its own after a fork. The count is stirred, one to one, so that signatures spread over the duplicate
    table like any others.
    """
    cdef uint64_t count = draw(store)
    item.kind = SIGNATURE_GIVEN
    memcpy(item.signature, &store.unique[0], 8)
    memcpy(item.signature + 8, &count, 8)
    return 0


cdef uint64_t draw(Store *store) except? 0:
    """A number that this opening has not drawn before; for practical purposes a random one."""
    cdef bytes drawn
    cdef uint64_t count
    if not store.unique_drawn:
        drawn = random_bytes(16)
        memcpy(store.unique, PyBytes_AS_STRING(drawn), 16)
        store.unique_drawn = True
    count = add64(&store.unique[1], 1)
    count = (count ^ (count >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    count = (count ^ (count >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return count ^ (count >> 33)
