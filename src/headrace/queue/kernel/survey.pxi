# Surveying: walk a segment file that nobody need trust, for check, repair and recovery.

cdef enum:
    FAULT_SEQUENCE = 1               # the row is not of this sequence
    FAULT_OFFSET = 2                 # it points outside, or not right behind its forerunner
    FAULT_RECORD = 3                 # the record is not whole
    FAULT_FEED = 4                   # row and record name different feeds or origins

FAULTS = {
    FAULT_SEQUENCE: "its index row belongs to another sequence",
    FAULT_OFFSET: "its index row points to a wrong place",
    FAULT_RECORD: "its record does not fit its checksum",
    FAULT_FEED: "its index row and its record name different feeds or origins",
}


def read_segment_header(const uint8_t[::1] data):
    """Fields of a segment header as a dict, or None if it is not one; `sound` tells of its checksum."""
    cdef SegmentHeader *header
    if data.shape[0] < SEGMENT_HEADER:
        return None
    header = <SegmentHeader *>&data[0]
    if memcmp(header.magic, b"HRSEGMNT", 8) != 0:
        return None
    return {"version": header.version, "uuid": header.uuid[:16], "file": header.file,
            "size": header.size, "number": header.number, "first": header.first,
            "sound": header.checksum == XXH3_64bits(header, 64)}


cdef int row_fault(Store *store, Mapping *mapping, Row *row, uint64_t sequence, uint64_t expected) noexcept nogil:
    """What is wrong with one row; `expected` is where its record should begin, 0 if unknown."""
    cdef Record *record
    cdef Name *name
    cdef Ref unused
    if row.sequence != <uint32_t>sequence:
        return FAULT_SEQUENCE
    if <uint64_t>row.offset * 8 != expected and expected != 0:
        return FAULT_OFFSET
    if not sound_record(mapping, &unused, row):
        return FAULT_RECORD
    record = <Record *>(mapping.base + <uint64_t>row.offset * 8)
    if store != NULL:
        if row.feed >= store.control.names_count or row.origin >= store.control.names_count:
            return FAULT_FEED
        name = name_of(store, row.feed)
        if name.bytes != record.feed_bytes or memcmp(
                name.text, <char *>record + RECORD_HEADER, record.feed_bytes) != 0:
            return FAULT_FEED
        name = name_of(store, row.origin)
        if name.bytes != record.origin_bytes or memcmp(
                name.text, <char *>record + RECORD_HEADER + record.feed_bytes, record.origin_bytes) != 0:
            return FAULT_FEED
    return 0


def survey_rows(Log log, uint8_t[::1] data, uint64_t first, uint64_t count, bint stop_at_fault):
    """Walk `count` rows of a segment held in `data`.

    Returns (rows walked, [(sequence, fault)], payload bytes, newest insertion time, marked rows, their
    bytes). `log` may be None: then names are not compared.
    """
    cdef Mapping mapping
    cdef Store *store = log.store if log is not None else NULL
    cdef uint64_t place = 0, expected = SEGMENT_HEADER, payload_bytes = 0, newest_ns = 0
    cdef uint64_t marked = 0, marked_bytes = 0
    cdef Row *row
    cdef int fault
    faults = []
    memset(&mapping, 0, sizeof(mapping))
    mapping.base = <char *>&data[0]
    mapping.size = data.shape[0]
    count = min(count, (mapping.size - SEGMENT_HEADER) // (ROW_BYTES + RECORD_HEADER))
    while place < count:
        row = row_of(&mapping, place)
        with nogil:
            fault = row_fault(store, &mapping, row, first + place, expected)
        if fault and stop_at_fault:
            break
        if row.flags & ROW_DAMAGED and fault != FAULT_SEQUENCE:
            fault = 0                # known and marked: nothing new
        if fault:
            faults.append((first + place, fault))
        expected = record_end(&mapping, row) if fault in (0, FAULT_FEED) else 0
        payload_bytes += row.payload_bytes
        newest_ns = max(newest_ns, row.inserted_ns)
        if row.flags & (ROW_DELETED | ROW_DAMAGED):
            marked += 1
            marked_bytes += row.payload_bytes
        place += 1
    return place, faults, payload_bytes, newest_ns, marked, marked_bytes


def rebuild_rows(Log log, uint8_t[::1] data, uint64_t first, uint64_t count):
    """Write the index rows of a segment anew from its records; (rebuilt, lost) sequences as counts.

    Rows whose record cannot be found are marked damaged. The insertion time, which only the row knew, becomes the
    creation time.
    """
    cdef Mapping mapping
    cdef uint64_t place, offset = SEGMENT_HEADER, size, rebuilt = 0
    cdef uint64_t limit
    cdef Record *record
    cdef Row *row
    cdef Row candidate
    cdef Ref unused
    memset(&mapping, 0, sizeof(mapping))
    mapping.base = <char *>&data[0]
    mapping.size = data.shape[0]
    limit = mapping.size - count * ROW_BYTES
    for place in range(count):
        memset(&candidate, 0, sizeof(candidate))
        candidate.sequence = <uint32_t>(first + place)
        candidate.flags = ROW_DAMAGED
        candidate.offset = <uint32_t>(offset // 8)
        while offset + RECORD_HEADER <= limit:
            record = <Record *>(mapping.base + offset)
            candidate.offset = <uint32_t>(offset // 8)
            candidate.payload_bytes = record.payload_bytes
            candidate.ident_bytes = record.ident_bytes
            candidate.priority = record.flags & 7
            candidate.slice = record.slice
            if sound_record(&mapping, &unused, &candidate):
                break
            offset += 8
        if offset + RECORD_HEADER <= limit:
            record = <Record *>(mapping.base + offset)
            text = (<char *>record + RECORD_HEADER)[:record.feed_bytes].decode()
            candidate.feed = log.feeds[text] if text in log.feeds else log.add_name(1, text)
            text = (<char *>record + RECORD_HEADER + record.feed_bytes)[:record.origin_bytes].decode()
            candidate.origin = log.origins[text] if text in log.origins else log.add_name(2, text)
            candidate.inserted_ns = record.created_ns
            candidate.flags = (ROW_EXPIRES if record.flags & RECORD_EXPIRES else 0) | (
                ROW_SIGNED if record.flags & 0x38 else 0)
            offset += rounded(record_bytes(record), 8)
            rebuilt += 1
        else:
            candidate.payload_bytes = 0
            candidate.ident_bytes = 0
        row = row_of(&mapping, place)
        row[0] = candidate
    return rebuilt, count - rebuilt
