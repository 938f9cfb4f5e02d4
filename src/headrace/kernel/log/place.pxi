# Places: what a queue knows of products beside their records, on its way to a remote user and back into rows.
#
# Records say what products are, wherever they lie. Places say where they lie in one queue: their sequence there, when
# they came, and for those from a station how often they were handed out and changed.

cdef packed struct Placed:           # 24 bytes
    uint64_t sequence
    uint64_t inserted_ns
    uint16_t deliveries
    uint16_t revisions
    uint32_t reserved                # zero


cdef void copy_plain(char *where, Ref *ref) noexcept nogil:
    """A record, padded with zeros; a revision as if it were an original."""
    cdef uint64_t size = ref_bytes(ref)
    cdef Record *record = <Record *>where
    memcpy(where, <void *>ref.record, size)
    memset(where + size, 0, rounded(size, 8) - size)
    if record.flags & RECORD_REVISION:
        record.flags &= ~RECORD_REVISION
        record.checksum ^= <uint32_t>RECORD_REVISION << 24       # it has the flags as its highest byte


def gather_placed(Rows rows not None, size_t count):
    """(places, records) of the first `count` rows, which are verified."""
    cdef uint64_t total = 0
    cdef size_t i
    cdef Placed *placed
    cdef char *where
    cdef Ref *ref
    count = min(count, rows.count)
    for i in range(count):
        total += rounded(ref_bytes(&rows.refs[i]), 8)
    places = PyBytes_FromStringAndSize(NULL, count * sizeof(Placed))
    records = PyBytes_FromStringAndSize(NULL, total)
    placed = <Placed *>PyBytes_AS_STRING(places)
    where = PyBytes_AS_STRING(records)
    with nogil:
        for i in range(count):
            ref = &rows.refs[i]
            placed[i].sequence, placed[i].inserted_ns = ref.sequence, ref.inserted_ns
            placed[i].deliveries = ref.deliveries if rows.leased_by else 0
            placed[i].revisions = ref.revisions if rows.leased_by else 0
            placed[i].reserved = 0
            copy_plain(where, ref)
            where += rounded(ref_bytes(ref), 8)
    return places, records


def place_rows(Rows rows not None, bytes places not None, uint64_t next_sequence, tuple passed_over not None):
    """Give rows from `read_records` their places; ValueError if there is not one for each."""
    cdef Placed *placed = <Placed *>PyBytes_AS_STRING(places)
    cdef size_t i
    if rows.log is not None or <size_t>len(places) != rows.count * sizeof(Placed):
        raise ValueError("places")
    for i in range(rows.count):
        rows.refs[i].sequence, rows.refs[i].inserted_ns = placed[i].sequence, placed[i].inserted_ns
        rows.refs[i].deliveries, rows.refs[i].revisions = placed[i].deliveries, placed[i].revisions
    rows.next = next_sequence
    (rows.picked.scanned, rows.picked.filtered, rows.picked.deleted, rows.picked.damaged,
     rows.picked.expired) = passed_over
