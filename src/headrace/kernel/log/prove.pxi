# Proof: whether the signatures of records from elsewhere are what they say.
#
# A signature that is a hash suppresses every other product that has it. So it is recomputed before a record from
# another site or from a remote client is stored: otherwise anybody could suppress a product that is still to come, by
# junk with its hash. A wrong one is refused. What nobody here can recompute, because the payload is in a form that is
# unknown, or would expand out of all proportion, counts for its origin alone (dedup.pxi), as signatures do that a
# producer made up.
#
# Rows of a log of this machine were proved when they were stored there.

cdef enum:
    EXPAND_RATIO = 64                # so much work a compressed record may cause for each of its bytes
    EXPAND_FREE = 65536              # and this much in any case


def prove(Rows rows not None, const uint8_t[::1] mask=None):
    """Fill `proof` of the rows that the mask names; how many are wrong. Rows of a log are not looked at."""
    cdef size_t i, wrong = 0
    cdef Joined joined
    cdef object hasher = None
    if rows.log is not None:
        return 0
    if mask is not None and <size_t>mask.shape[0] != rows.count:
        raise ValueError("mask")
    for i in range(rows.count):
        if mask is not None and not mask[i]:
            continue
        if rows.refs[i].proof == PROOF_NONE:
            if rows.refs[i].kind == SIGNATURE_NONE or rows.refs[i].kind == SIGNATURE_GIVEN:
                rows.refs[i].proof = PROOF_SOUND
            else:
                if hasher is None:
                    hasher = blake3_hasher()
                rows.refs[i].proof = prove_row(rows, i, hasher, &joined)
        wrong += rows.refs[i].proof == PROOF_WRONG
    return wrong


cdef uint8_t prove_row(Rows rows, size_t place, hasher, Joined *joined) except 0:
    """What `ref.proof` becomes, of a row whose signature is a hash."""
    cdef Ref *ref = &rows.refs[place]
    cdef Record *record = <Record *>ref.record
    cdef bytes expanded
    cdef Item item
    fill_item(&item, ref, 0, 0)
    if ref.form != FORM_PLAIN:
        if ref.form != FORM_ZSTD or ref.payload_bytes > EXPAND_FREE + EXPAND_RATIO * <uint64_t>record.payload_bytes:
            return PROOF_OPEN
        try:
            expanded = expand_row(rows, place)
        except (DictionaryError, ProductDamagedError):
            return PROOF_OPEN        # its readers get that error
        item.payload, item.payload_bytes = PyBytes_AS_STRING(expanded), PyBytes_GET_SIZE(expanded)
    if is_hash_of(&item, ref, hasher, joined):
        return PROOF_SOUND
    if ref.kind & SIGNATURE_OF_IDENTITY and ref.ident_bytes == 0:
        item.created_ns = 0          # the producer did not say, and the record has the time of the put
        if is_hash_of(&item, ref, hasher, joined):
            return PROOF_SOUND
    return PROOF_WRONG


cdef bint is_hash_of(Item *item, const Ref *ref, hasher, Joined *joined) except -1:
    """Does the signature of the row belong to this content?"""
    cdef const char *feed = <char *>ref.record + RECORD_HEADER
    joined.head_bytes = 0
    if ref.kind & SIGNATURE_OF_IDENTITY:
        joined.head_bytes = head_of(item, feed, ref.feed_bytes, feed + ref.feed_bytes, ref.origin_bytes, joined.text)
    compute(item, ref.kind, hasher, joined)
    return memcmp(item.signature, ref.signature, 16) == 0
