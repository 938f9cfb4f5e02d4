# The wire: records on their way between queues.
#
# Out: `gather_records` lays records one after the other, each padded with zeros to a multiple of 8. For a remote
# client, `gather_placed` adds what only this queue knows of each product: its sequence here, when it arrived, and for
# products from a station how often they were delivered and revised. The client gives that back to its rows with
# `place_rows`. Into a queue: `put_rows` assigns names, slices and signatures, and append copies the records and
# compares their checksums once more. What was verified is what is stored, but for slice and signature. A signature that
# came with a record is recomputed before (prove.pxi).

cdef packed struct Placed:           # 24 bytes
    uint64_t sequence
    uint64_t inserted_ns
    uint16_t deliveries
    uint16_t revisions
    uint32_t reserved                # zero

cdef struct Putting:                 # rows that become items
    const uint8_t *mask              # NULL = all
    const uint16_t *slices           # instead of those of the records; NULL = none
    bint passed_on                   # by another site
    uint32_t *ids                    # by number in the rows' names: 1 + number in the log; 0 not looked up yet
    size_t ids_count
    Item *items
    size_t count                     # of the items
    size_t place                     # of the row that is next
    size_t unsigned_count


# --- out ------------------------------------------------------------------------------------------

cdef inline uint64_t ref_bytes(Ref *ref) noexcept nogil:
    """Bytes of the record behind a verified row."""
    return record_bytes(<Record *>ref.record)


cdef inline bint is_revision(Rows rows, Ref *ref) noexcept nogil:
    """Does its payload differ from that at its origin? Rows of a remote queue say so in `revisions`."""
    return (<Record *>ref.record).flags & RECORD_REVISION != 0 or (rows.log is None and ref.revisions != 0)


cdef bytes gather_records(Rows rows, const uint32_t *places, size_t count):
    cdef uint64_t total = 0, size
    cdef size_t i, place = 0
    cdef int code = 0
    cdef Ref *ref
    cdef char *where
    with nogil:
        for i in range(count):
            place = places[i] if places != NULL else i
            if place >= rows.count:
                code = CODE_GONE
                break
            total += rounded(ref_bytes(&rows.refs[place]), 8)
    if code != 0:
        raise IndexError(place)
    data = PyBytes_FromStringAndSize(NULL, total)
    where = PyBytes_AS_STRING(data)
    with nogil:
        for i in range(count):
            place = places[i] if places != NULL else i
            ref = &rows.refs[place]
            if is_revision(rows, ref):
                code = CODE_REVISION
                break
            size = ref_bytes(ref)
            memcpy(where, <void *>ref.record, size)
            memset(where + size, 0, rounded(size, 8) - size)
            where += rounded(size, 8)
    if code != 0:
        raise KernelError(code, place)
    return data


cdef void copy_plain(char *where, Ref *ref) noexcept nogil:
    """Copy a record, padded with zeros; a revision is copied as if it were an original."""
    cdef uint64_t size = ref_bytes(ref)
    cdef Record *record = <Record *>where
    memcpy(where, <void *>ref.record, size)
    memset(where + size, 0, rounded(size, 8) - size)
    if record.flags & RECORD_REVISION:
        record.flags &= ~RECORD_REVISION
        record.checksum ^= <uint32_t>RECORD_REVISION << 24   # it covers bytes 0-3 by XOR; the flags are byte 3


def gather_placed(Rows rows not None, size_t count):
    """(places, records) of the first `count` rows, which must be verified."""
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
    """Give rows from `read_records` their places; ValueError unless there is one for each row."""
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


# --- into a queue ---------------------------------------------------------------------------------

cdef void fill_item(Item *item, Ref *ref, uint32_t feed, uint16_t origin) noexcept nogil:
    memset(item, 0, sizeof(Item))
    item.record = <char *>ref.record
    item.payload = item.record + body_offset(<Record *>ref.record)
    item.payload_bytes = (<Record *>ref.record).payload_bytes
    item.feed, item.origin = feed, origin
    item.created_ns, item.expires_ns = ref.created_ns, ref.expires_ns
    item.origin_sequence, item.previous = ref.origin_sequence, ref.previous
    item.priority, item.slice, item.kind = ref.priority, ref.slice, ref.kind
    item.ident, item.ident_bytes = item.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes, ref.ident_bytes
    item.properties, item.properties_bytes = item.ident + ref.ident_bytes, ref.properties_bytes
    item.options, item.options_bytes = options_of(ref), ref.options_bytes
    item.carried = 1
    item.unproven = ref.proof == PROOF_OPEN
    memcpy(item.signature, ref.signature, 16)


cdef int fill_items(Store *store, Putting *putting, Rows rows) noexcept nogil:
    """Fill an item for each row that is put: 0. Before the end: a negative code, or the kind of name to look up."""
    cdef Ref *ref
    while putting.place < rows.count:
        if putting.mask == NULL or putting.mask[putting.place]:
            ref = &rows.refs[putting.place]
            if ref.feed >= putting.ids_count or ref.origin >= putting.ids_count:
                return CODE_UNKNOWN_FEED
            if is_revision(rows, ref):
                return CODE_REVISION
            if ref.proof == PROOF_WRONG:
                return CODE_SIGNATURE
            if ref.payload_bytes > payload_bytes_max(store):
                return CODE_PAYLOAD_TOO_LARGE
            if putting.ids[ref.feed] == 0:
                return NEW_FEED
            if putting.ids[ref.origin] == 0:
                return NEW_ORIGIN
            fill_item(&putting.items[putting.count], ref, putting.ids[ref.feed] - 1,
                      <uint16_t>(putting.ids[ref.origin] - 1))
            putting.items[putting.count].passed_on = putting.passed_on
            if putting.slices != NULL:
                putting.items[putting.count].slice = putting.slices[putting.place]
            putting.unsigned_count += ref.kind == SIGNATURE_NONE
            putting.count += 1
        putting.place += 1
    return 0


cdef int pack_items(Putting *putting, dict packed) except -1:
    """Store some rows with another form of their payload, and the options that say so; both live in `packed`.

    The signature is that of the payload as it came.
    """
    cdef bytes payload, options
    cdef size_t row, i = 0
    cdef Item *item
    for row in range(putting.place):
        if putting.mask != NULL and not putting.mask[row]:
            continue
        if row in packed:
            payload, options = packed[row]
            item = &putting.items[i]
            item.record = NULL                   # written again, from its parts
            item.payload, item.payload_bytes = PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
            item.options, item.options_bytes = PyBytes_AS_STRING(options), <uint16_t>PyBytes_GET_SIZE(options)
        i += 1
    return 0


cdef put_rows(Log log, Rows rows, const uint8_t[::1] mask, uint64_t now_ns, uint64_t boot_ns,
              const uint16_t[::1] slices, uint64_t assigned, bint passed_on, dict packed):
    """What `Log.put_records` says."""
    cdef Store *store = log.store
    cdef list names = rows.names
    cdef Putting putting
    cdef size_t number
    cdef int outcome, spread
    if mask is not None and <size_t>mask.shape[0] != rows.count:
        raise ValueError("mask")
    if slices is not None and <size_t>slices.shape[0] != rows.count:
        raise ValueError("slices")
    prove(rows, mask)
    memset(&putting, 0, sizeof(putting))
    putting.mask = &mask[0] if mask is not None and rows.count else NULL
    putting.slices = &slices[0] if slices is not None and rows.count else NULL
    putting.passed_on = passed_on
    putting.ids_count = len(names)
    putting.ids = <uint32_t *>allocate_zeroed(putting.ids_count, sizeof(uint32_t))
    putting.items = <Item *>allocate(rows.count * sizeof(Item))
    try:
        if putting.ids == NULL or putting.items == NULL:
            raise MemoryError
        while True:
            with nogil:
                outcome = fill_items(store, &putting, rows)
            if outcome == NEW_FEED:
                number = rows.refs[putting.place].feed
                putting.ids[number] = 1 + log.id_of(NAME_FEED, names[number])
            elif outcome == NEW_ORIGIN:
                number = rows.refs[putting.place].origin
                putting.ids[number] = 1 + log.id_of(NAME_ORIGIN, names[number])
            else:
                break
        if outcome != 0:
            raise KernelError(outcome, putting.place)
        spread = assign_slices(log, putting.items, putting.count, assigned)
        if putting.unsigned_count:
            sign(log, putting.items, putting.count)
        if packed is not None:
            pack_items(&putting, packed)
        return append_many(log, putting.items, putting.count, now_ns, boot_ns, spread)
    finally:
        free(putting.ids)
        free(putting.items)
