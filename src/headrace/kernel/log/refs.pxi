# Refs and filters: one product as a batch sees it, whether its record can be trusted, and which rows are wanted.
#
# Index rows decide by feed, origin, priority and slice. Python decides each feed and origin once and gives the answers
# as masks over their numbers. A row with a name beyond the masks is undecided: the caller learns the new names first.

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef packed struct Ref:              # 120 bytes: one product as the Batch sees it
    uint64_t sequence
    uint64_t inserted_ns
    uint64_t created_ns
    uint64_t expires_ns
    uint64_t origin_sequence
    uint64_t previous
    uint64_t record                  # addresses in this process
    uint64_t payload
    uint32_t payload_bytes
    uint32_t feed
    uint16_t origin
    uint16_t slice
    uint16_t ident_bytes
    uint16_t properties_bytes
    uint8_t priority
    uint8_t kind
    uint8_t feed_bytes
    uint8_t origin_bytes
    uint32_t segment                 # which of the pinned mappings
    uint8_t signature[16]
    uint32_t slot                    # of a product from a station: where its lease is
    uint16_t deliveries
    uint16_t revisions
    uint32_t ticket
    uint16_t options_bytes
    uint8_t form                     # of the payload: plain, or one that is expanded; expand.pxi
    uint8_t proof                    # of the signature; prove.pxi

cdef Ref ref_shape                   # never read: only its addresses are compared
REF_BYTES = sizeof(Ref)
REF_FIELDS = {                       # field of a Ref: (offset, bytes); product/batch.py has the same as a NumPy type
    "sequence": (<char *>&ref_shape.sequence - <char *>&ref_shape, sizeof(ref_shape.sequence)),
    "inserted_ns": (<char *>&ref_shape.inserted_ns - <char *>&ref_shape, sizeof(ref_shape.inserted_ns)),
    "created_ns": (<char *>&ref_shape.created_ns - <char *>&ref_shape, sizeof(ref_shape.created_ns)),
    "expires_ns": (<char *>&ref_shape.expires_ns - <char *>&ref_shape, sizeof(ref_shape.expires_ns)),
    "origin_sequence": (<char *>&ref_shape.origin_sequence - <char *>&ref_shape, sizeof(ref_shape.origin_sequence)),
    "previous": (<char *>&ref_shape.previous - <char *>&ref_shape, sizeof(ref_shape.previous)),
    "record": (<char *>&ref_shape.record - <char *>&ref_shape, sizeof(ref_shape.record)),
    "payload": (<char *>&ref_shape.payload - <char *>&ref_shape, sizeof(ref_shape.payload)),
    "payload_bytes": (<char *>&ref_shape.payload_bytes - <char *>&ref_shape, sizeof(ref_shape.payload_bytes)),
    "feed": (<char *>&ref_shape.feed - <char *>&ref_shape, sizeof(ref_shape.feed)),
    "origin": (<char *>&ref_shape.origin - <char *>&ref_shape, sizeof(ref_shape.origin)),
    "slice": (<char *>&ref_shape.slice - <char *>&ref_shape, sizeof(ref_shape.slice)),
    "ident_bytes": (<char *>&ref_shape.ident_bytes - <char *>&ref_shape, sizeof(ref_shape.ident_bytes)),
    "properties_bytes": (<char *>&ref_shape.properties_bytes - <char *>&ref_shape, sizeof(ref_shape.properties_bytes)),
    "priority": (<char *>&ref_shape.priority - <char *>&ref_shape, sizeof(ref_shape.priority)),
    "kind": (<char *>&ref_shape.kind - <char *>&ref_shape, sizeof(ref_shape.kind)),
    "feed_bytes": (<char *>&ref_shape.feed_bytes - <char *>&ref_shape, sizeof(ref_shape.feed_bytes)),
    "origin_bytes": (<char *>&ref_shape.origin_bytes - <char *>&ref_shape, sizeof(ref_shape.origin_bytes)),
    "segment": (<char *>&ref_shape.segment - <char *>&ref_shape, sizeof(ref_shape.segment)),
    "options_bytes": (<char *>&ref_shape.options_bytes - <char *>&ref_shape, sizeof(ref_shape.options_bytes)),
    "form": (<char *>&ref_shape.form - <char *>&ref_shape, sizeof(ref_shape.form)),
    "proof": (<char *>&ref_shape.proof - <char *>&ref_shape, sizeof(ref_shape.proof)),
    "signature": (<char *>&ref_shape.signature - <char *>&ref_shape, sizeof(ref_shape.signature)),
    "slot": (<char *>&ref_shape.slot - <char *>&ref_shape, sizeof(ref_shape.slot)),
    "deliveries": (<char *>&ref_shape.deliveries - <char *>&ref_shape, sizeof(ref_shape.deliveries)),
    "revisions": (<char *>&ref_shape.revisions - <char *>&ref_shape, sizeof(ref_shape.revisions)),
    "ticket": (<char *>&ref_shape.ticket - <char *>&ref_shape, sizeof(ref_shape.ticket)),
}

cdef struct Wanted:
    const uint8_t *feeds             # NULL = all
    const uint8_t *origins
    const uint8_t *slices
    uint32_t feeds_count
    uint32_t origins_count
    uint32_t priorities              # one bit each


cdef inline int row_wanted(const Wanted *wanted, Row *row) noexcept nogil:
    """1, 0, or CODE_UNKNOWN_FEED if the masks do not cover the row."""
    if wanted.feeds != NULL:
        if row.feed >= wanted.feeds_count:
            return CODE_UNKNOWN_FEED
        if not wanted.feeds[row.feed]:
            return 0
    if not (wanted.priorities >> (row.priority & 7)) & 1:
        return 0
    if wanted.slices != NULL and not wanted.slices[row.slice]:
        return 0
    if wanted.origins != NULL:
        if row.origin >= wanted.origins_count:
            return CODE_UNKNOWN_FEED
        return wanted.origins[row.origin] != 0
    return 1


@cython.final
cdef class RowFilter:
    """What a selection requires of index rows; None for a mask that accepts everything."""
    cdef Wanted wanted
    cdef const uint8_t[::1] feeds, origins, slices

    def __cinit__(self, const uint8_t[::1] feeds=None, const uint8_t[::1] origins=None,
                  uint32_t priorities=255, const uint8_t[::1] slices=None):
        self.feeds, self.origins, self.slices = feeds, origins, slices
        self.wanted.priorities = priorities
        if feeds is not None:
            self.wanted.feeds_count = <uint32_t>feeds.shape[0]
            self.wanted.feeds = &feeds[0] if feeds.shape[0] else <const uint8_t *>b""
        if origins is not None:
            self.wanted.origins_count = <uint32_t>origins.shape[0]
            self.wanted.origins = &origins[0] if origins.shape[0] else <const uint8_t *>b""
        if slices is not None:
            if slices.shape[0] != SLICES:
                raise ValueError("one byte for each of the 65536 slices")
            self.wanted.slices = &slices[0]


cdef bint sound_record(Mapping *mapping, Row *row) noexcept nogil:
    """Is the record intact, and the one that the row describes?"""
    cdef uint64_t offset = <uint64_t>row.offset * 8
    cdef Record *record = <Record *>(mapping.base + offset)
    cdef uint64_t size
    if offset < SEGMENT_HEADER or offset + RECORD_HEADER > mapping.size:
        return False
    if (record.magic != RECORD_MAGIC or not is_version(record)
            or record.payload_bytes != row.payload_bytes
            or (record.flags & 7) != row.priority or record.slice != row.slice):
        return False
    size = body_within(record, mapping.size - offset) + record.payload_bytes
    if offset + size > mapping.size:
        return False
    return record_checksum(<char *>record, size) == record.checksum


cdef bint sound_header(Mapping *mapping, Row *row) noexcept nogil:
    """Does a record begin here, and do its header and texts lie within the segment?"""
    cdef uint64_t offset = <uint64_t>row.offset * 8
    cdef Record *record = <Record *>(mapping.base + offset)
    if offset < SEGMENT_HEADER or offset + RECORD_HEADER > mapping.size:
        return False
    if record.magic != RECORD_MAGIC or not is_version(record):
        return False
    return offset + body_within(record, mapping.size - offset) <= mapping.size


cdef bint same_names(Store *store, Row *row, Record *record) noexcept nogil:
    """Do row and record name the same feed and origin?"""
    cdef char *text = <char *>record + RECORD_HEADER
    if not is_feed(store.control, row.feed) or row.origin >= store.control.origins_end:
        return False
    return (is_name(name_of(store, row.feed), text, record.feed_bytes)
            and is_name(name_of(store, row.origin), text + record.feed_bytes, record.origin_bytes))


cdef inline bint is_name(Name *name, const char *text, uint8_t size) noexcept nogil:
    """Compare the text and the zero after it only: writers keep changing the cache line that has its size."""
    return memcmp(name.text, text, size) == 0 and name.text[size] == 0


cdef void fill_ref(Ref *ref, Record *record, uint16_t origin) noexcept nogil:
    ref.created_ns = record.created_ns
    ref.origin_sequence = record.origin_sequence
    ref.previous = record.origin_sequence - record.previous_delta if record.previous_delta else 0
    ref.record = <uint64_t>record
    ref.payload = <uint64_t>record + body_offset(record)
    ref.payload_bytes = record.payload_bytes
    ref.origin = origin
    ref.slice = record.slice
    ref.ident_bytes = record.ident_bytes
    ref.properties_bytes = record.properties_bytes
    ref.priority = record.flags & 7
    ref.kind = (record.flags >> 3) & 7
    ref.feed_bytes = record.feed_bytes
    ref.origin_bytes = record.origin_bytes
    ref.options_bytes = options_bytes(record)
    ref.form, ref.proof = FORM_PLAIN, PROOF_NONE
    if ref.options_bytes:
        fill_form(ref)
    ref.expires_ns = 0
    if record.flags & RECORD_EXPIRES:
        memcpy(&ref.expires_ns, <char *>record + RECORD_HEADER + record.feed_bytes
               + record.origin_bytes + record.ident_bytes + record.properties_bytes, 8)
    memcpy(ref.signature, record.signature, 16)


cdef inline const char *options_of(const Ref *ref) noexcept nogil:
    """The options of a verified row, which may have none."""
    return <const char *>ref.record + options_offset(<Record *>ref.record) + OPTIONS_HEAD
