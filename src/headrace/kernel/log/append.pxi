# Appending: records, rows, signatures, then one store that commits them all.
#
# `tail` is the commit point. What is written before `tail` moves is invisible, and the next writer overwrites it if
# this one dies. So a batch is stored as a whole or not at all.

cdef struct Item:                    # one product on its way into the log
    const char *record               # a whole record, which ends with the payload; NULL: in parts
    const char *payload
    const char *ident
    const char *properties
    const char *options              # entries, without a length in front
    uint64_t payload_bytes
    uint64_t created_ns
    uint64_t expires_ns              # 0 = never
    uint64_t origin_sequence         # 0 = ours, assigned by the log
    uint64_t previous                # with origin_sequence: that of the previous product of the feed; 0 unknown
    uint64_t outcome                 # its sequence, or that of the first copy
    uint64_t stride                  # bytes of its record in a segment; under the lock
    uint64_t slicings                # of the first item: for which `control.slicings` slices were assigned
    uint32_t feed
    uint16_t origin
    uint16_t slice
    uint16_t ident_bytes
    uint16_t properties_bytes
    uint16_t options_bytes
    uint32_t bound_us                # of the time stamp that the log gives it; 0 unknown
    uint8_t priority
    uint8_t kind
    uint8_t duplicate
    uint8_t continues                # not the last of its batch
    uint8_t revision                 # another payload of an earlier product; passes all gates
    uint8_t carried                  # its slice was given where it was first put, not by this caller
    uint8_t spread                   # it lacks what the function that assigns slices needs
    uint8_t passed_on                # by another site: its hops fall by one
    uint8_t unproven                 # its signature counts for its origin alone
    uint8_t signature[16]

cdef enum:
    TOUCH_AHEAD = 20
    COPY_CHUNK = 32768               # large payloads are copied and hashed in pieces that fit the cache
    WIDE_FROM = 241                  # XXH3 hashes shorter inputs without vectors

cdef bint wide = is_wide()


cdef inline uint64_t record_bytes(const Record *record) noexcept nogil:
    return body_offset(record) + record.payload_bytes


cdef inline uint64_t sum_of(const char *bytes, uint64_t size) noexcept nogil:
    """XXH3 of these bytes."""
    return wide_sum(bytes, size) if wide and size >= WIDE_FROM else XXH3_64bits(bytes, size)


cdef inline uint32_t record_checksum(const char *record, uint64_t size) noexcept nogil:
    return <uint32_t>sum_of(record + 8, size - 8) ^ (<uint32_t *>record)[0]


cdef inline void add_to_sum(XXH3_state_t *state, const char *bytes, uint64_t size) noexcept nogil:
    if wide:
        wide_update(state, bytes, size)
    else:
        XXH3_64bits_update(state, bytes, size)


cdef uint32_t copy_and_sum(char *record, const char *payload, uint64_t body, uint64_t size) noexcept nogil:
    """Copy a large payload to its place and return the record's checksum."""
    cdef XXH3_state_t state
    cdef uint64_t done = 0, piece
    XXH3_64bits_reset(&state)
    add_to_sum(&state, record + 8, body - 8)
    while done < size:
        piece = min(size - done, <uint64_t>COPY_CHUNK)
        memcpy(record + body + done, payload + done, piece)
        add_to_sum(&state, record + body + done, piece)
        done += piece
    return <uint32_t>XXH3_64bits_digest(&state) ^ (<uint32_t *>record)[0]


cdef inline uint64_t section_bytes(Item *item) noexcept nogil:
    """Bytes of the options of an item, with the length in front; 0 without options."""
    cdef uint64_t size = item.options_bytes + (BOUND_ENTRY if item.bound_us else 0)
    return size + OPTIONS_HEAD if size else 0


cdef inline uint64_t item_stride(Store *store, Item *item) noexcept nogil:
    """Bytes that the item's record takes in a segment."""
    if item.record != NULL:
        return rounded(item.payload - item.record + item.payload_bytes, 8)
    return rounded(rounded(<uint64_t>RECORD_HEADER + name_of(store, item.feed).bytes
                           + name_of(store, item.origin).bytes + item.ident_bytes
                           + item.properties_bytes + (8 if item.expires_ns else 0) + section_bytes(item), 8)
                   + item.payload_bytes, 8)


cdef char *write_options(char *text, Item *item) noexcept nogil:
    """Write the options of an item that has some; where they end."""
    cdef uint16_t size = <uint16_t>(section_bytes(item) - OPTIONS_HEAD)
    memcpy(text, &size, OPTIONS_HEAD)
    text += OPTIONS_HEAD
    if item.bound_us:
        text[0], text[1] = OPTION_BOUND, 4
        memcpy(text + OPTION_HEAD, &item.bound_us, 4)
        text += BOUND_ENTRY
    if item.options_bytes:
        memcpy(text, item.options, item.options_bytes)
    return text + item.options_bytes


cdef void write_record(Store *store, char *where, Item *item, uint64_t sequence) noexcept nogil:
    cdef Record *record = <Record *>where
    cdef Name *feed = name_of(store, item.feed)
    cdef Name *origin = name_of(store, item.origin)
    cdef uint64_t previous = item.previous
    cdef char *text = where + RECORD_HEADER
    cdef uint64_t body
    record.magic = RECORD_MAGIC
    record.version = RECORD_WITH_OPTIONS if item.options_bytes or item.bound_us else RECORD_PLAIN
    record.flags = (item.priority | (item.kind << 3) | (RECORD_EXPIRES if item.expires_ns else 0)
                    | (RECORD_REVISION if item.revision else 0))
    record.payload_bytes = <uint32_t>item.payload_bytes
    record.ident_bytes = item.ident_bytes
    record.feed_bytes = feed.bytes
    record.origin_bytes = origin.bytes
    memcpy(record.signature, item.signature, 16)
    record.created_ns = item.created_ns
    record.origin_sequence = item.origin_sequence
    if item.origin_sequence == 0:
        record.origin_sequence = sequence
        previous = feed.last
    record.previous_delta = 0
    if previous != 0 and record.origin_sequence - previous < <uint64_t>0xFFFFFFFF:
        record.previous_delta = <uint32_t>(record.origin_sequence - previous)
    record.properties_bytes = item.properties_bytes
    record.slice = item.slice
    memcpy(text, feed.text, feed.bytes)
    text += feed.bytes
    memcpy(text, origin.text, origin.bytes)
    text += origin.bytes
    memcpy(text, item.ident, item.ident_bytes)
    text += item.ident_bytes
    if item.properties_bytes:
        memcpy(text, item.properties, item.properties_bytes)
        text += item.properties_bytes
    if item.expires_ns:
        memcpy(text, &item.expires_ns, 8)
        text += 8
    if record.version == RECORD_WITH_OPTIONS:
        text = write_options(text, item)
    body = rounded(text - where, 8)
    memset(text, 0, body - (text - where))
    if item.payload_bytes > 4 * COPY_CHUNK:
        record.checksum = copy_and_sum(where, item.payload, body, item.payload_bytes)
    else:
        memcpy(where + body, item.payload, item.payload_bytes)
        record.checksum = record_checksum(where, body + item.payload_bytes)


cdef bint take_hop(Record *record) noexcept nogil:
    """Reduce by one how often the record may be passed on; False if it does not say."""
    cdef uint8_t *block = <uint8_t *>record + options_offset(record) + OPTIONS_HEAD
    cdef uint8_t *hops
    if record.version != RECORD_WITH_OPTIONS:
        return False
    hops = <uint8_t *>find_option(block, options_bytes(record), OPTION_HOPS)
    if hops == NULL or hops[0] == 0:
        return False
    hops[0] -= 1
    return True


cdef bint copy_record(char *where, Item *item) noexcept nogil:
    """Copy an item that is a record; False if its checksum is wrong. Signature and slice may be those of this queue."""
    cdef Record *record = <Record *>where
    cdef uint64_t body = item.payload - item.record
    cdef uint8_t flags
    cdef bint changed
    cdef uint32_t checksum
    if item.payload_bytes > 4 * COPY_CHUNK:
        memcpy(where, item.record, body)
        checksum = copy_and_sum(where, item.payload, body, item.payload_bytes)
    else:
        memcpy(where, item.record, body + item.payload_bytes)
        checksum = record_checksum(where, body + item.payload_bytes)
    if checksum != record.checksum:
        return False
    flags = (record.flags & ~RECORD_KIND) | (item.kind << 3)
    changed = item.passed_on and take_hop(record)
    if changed or flags != record.flags or record.slice != item.slice:
        record.flags, record.slice = flags, item.slice
        memcpy(record.signature, item.signature, 16)
        record.checksum = record_checksum(where, body + item.payload_bytes)
    return True


cdef inline void write_row(Row *row, Item *item, uint64_t offset, uint64_t sequence,
                           uint64_t now_ns) noexcept nogil:
    """The fields of layout.pxi, composed in four words."""
    cdef uint64_t *words = <uint64_t *>row
    cdef uint64_t flags = ((ROW_EXPIRES if item.expires_ns else 0) | (ROW_SIGNED if item.kind else 0)
                           | (ROW_CONTINUES if item.continues else 0) | (ROW_REVISION if item.revision else 0)
                           | (ROW_OPTIONS if item.options_bytes or item.bound_us else 0)
                           | (ROW_UNPROVEN if item.unproven else 0))
    cdef uint64_t place = offset // 8 | item.payload_bytes << 32
    cdef uint64_t name = item.feed | sequence << 32
    cdef uint64_t marks = item.origin | <uint64_t>item.slice << 16 | <uint64_t>item.priority << 32 | flags << 40
    words[0], words[1], words[2] = now_ns, place, name
    words[3] = marks | sum_of_30(now_ns, place, name, marks) << 48


cdef inline Imprint imprint_of_item(Item *item) noexcept nogil:
    cdef Imprint imprint
    imprint.signature, imprint.origin = item.signature, item.origin
    imprint.kind, imprint.is_open = item.kind, item.unproven != 0
    return imprint


cdef int find_duplicate(Store *store, Item *item, uint64_t sequence, uint64_t **slot,
                        uint64_t *tag) noexcept nogil:
    """1 and the outcome if the queue holds the item already; otherwise 0 and a slot for its signature."""
    cdef Imprint imprint = imprint_of_item(item)
    cdef uint64_t twin
    cdef int error
    while True:
        twin = dedup_find(store, &imprint, sequence, slot, tag)
        if twin != 0:
            item.outcome = twin
            item.duplicate = 1
            return 1
        if slot[0] != NULL:
            return 0
        error = dedup_grow(store, store.dedup_buckets + store.dedup_buckets // 2, sequence)
        if error != 0:
            return error


cdef int append_item(Store *store, Item *item, uint64_t sequence, uint64_t now_ns,
                     uint64_t boot_ns) noexcept nogil:
    """Write one item as `sequence`; 1 if it was a duplicate, 0 if it was written, or a negative code."""
    cdef Control *control = store.control
    cdef uint64_t stride = item.stride
    cdef uint64_t *slot = NULL
    cdef uint64_t tag = 0, place
    cdef Entry *entry
    cdef bint whole = True
    cdef int outcome
    if item.kind and control.signature_kind != SIGNATURE_NONE:
        outcome = find_duplicate(store, item, sequence, &slot, &tag)
        if outcome != 0:
            return outcome
    entry = entry_of(store, control.segment_newest)
    place = sequence - entry.first
    if (control.segment_newest < control.segment_oldest
            or control.data_end + stride + (place + 1) * ROW_BYTES > entry.size):
        outcome = open_segment(store, stride, sequence, boot_ns)
        if outcome != 0:
            return outcome
        entry = entry_of(store, control.segment_newest)
        place = 0
    if item.record != NULL:
        whole = copy_record(store.current.base + control.data_end, item)
    else:
        write_record(store, store.current.base + control.data_end, item, sequence)
    failpoint(FAIL_RECORD)
    write_row(row_of(store.current, place), item, control.data_end, sequence, now_ns)
    failpoint(FAIL_ROW)
    if holed(store.current):
        store.failed_file = entry.file
        return CODE_DAMAGED
    if not whole:
        return CODE_ALTERED
    if slot != NULL:
        slot[0] = tag | (sequence & LOW_48)
        failpoint(FAIL_DEDUP)
    control.data_end += stride
    entry.payload_bytes += item.payload_bytes
    if item.revision:                # stored, but not counted as a product
        entry.deleted_products += 1
        entry.deleted_bytes += item.payload_bytes
    entry.newest_boot_ns = boot_ns
    if now_ns > entry.newest_ns:
        entry.newest_ns = now_ns
    if item.origin_sequence == 0:
        name_of(store, item.feed).last = sequence
    item.outcome = sequence
    return 0


cdef void take_sample(Control *control, uint64_t boot_ns) noexcept nogil:
    """Once a second, store the totals, from which rates are computed."""
    cdef uint64_t boot_s = boot_ns // 1000000000
    cdef Sample *sample = &control.samples[boot_s % SAMPLES]
    if sample.boot_ns // 1000000000 != boot_s:
        sample.products = control.inserted_products
        sample.bytes = control.inserted_bytes
        sample.duplicates = control.duplicates
        sample.boot_ns = boot_ns


cdef int ready_to_append(Store *store, uint64_t boot_ns) noexcept nogil:
    """Once per batch: the age limit, the size of the duplicate table, the mapping of the newest segment."""
    cdef Control *control = store.control
    cdef Entry *entry
    cdef int error = CODE_DAMAGED if state_holed(store) else evict_aged(store, boot_ns)
    if error == 0 and control.signature_kind != SIGNATURE_NONE:
        error = dedup_attach(store)
        if error == 0 and store.dedup_guarded != NULL and load32(&store.dedup_guarded.holed):
            error = CODE_DAMAGED
        if error == 0 and control.held_products * 10 > store.dedup_buckets * 56:
            error = dedup_grow(store, store.dedup_buckets + store.dedup_buckets // 2, control.tail)
    if error == 0 and control.segment_newest >= control.segment_oldest:
        entry = entry_of(store, control.segment_newest)
        if store.current == NULL or store.current.file != entry.file:
            error = map_segment(store, entry.file, entry.size, &store.current, False)
    return error


cdef bint fits_at_all(Store *store, Item *items, size_t count) noexcept nogil:
    """Does the batch fit without evicting its own beginning? Tested before anything is evicted."""
    cdef Control *control = store.control
    cdef uint64_t plain = control.segment_bytes - SEGMENT_HEADER
    cdef uint64_t needed = 0, room = 0, stride
    cdef Entry *entry
    cdef size_t i
    if control.segment_newest >= control.segment_oldest:
        entry = entry_of(store, control.segment_newest)
        room = entry.size - min(entry.size, control.data_end + (control.tail - entry.first) * ROW_BYTES)
    for i in range(count):
        stride = items[i].stride + ROW_BYTES
        if stride <= room:
            if needed == 0 and i == 0:
                needed = entry.size                  # the newest segment must remain as well
            room -= stride
            continue
        if stride > plain:
            needed += rounded(SEGMENT_HEADER + stride, 4096)
            room = 0
        else:
            needed += control.segment_bytes
            room = plain - stride
    return needed <= control.size_bytes


cdef void end_batch(Store *store, uint64_t sequence) noexcept nogil:
    cdef Row *row = row_of(store.current, sequence - entry_of(store, store.control.segment_newest).first)
    store_marks(row, row.flags & ~ROW_CONTINUES)


cdef void note_batch(Store *store, Item *items, size_t count) noexcept nogil:
    """After the commit: add the batch to the totals of its feeds."""
    cdef size_t i
    cdef Name *feed
    for i in range(count):
        if not items[i].duplicate and not items[i].revision:
            feed = name_of(store, items[i].feed)
            feed.products += 1
            feed.payload_bytes += items[i].payload_bytes


cdef void touch_buckets(Store *store, Item *items, size_t count) noexcept nogil:
    """Read a word of every bucket that these items need, so that the cache misses overlap."""
    cdef uint64_t first = 0, second = 0, tag = 0, sum = 0
    cdef Imprint imprint
    cdef size_t i
    for i in range(count):
        if items[i].kind:
            imprint = imprint_of_item(&items[i])
            stir(store, &imprint, &first, &second, &tag)
            sum += store.dedup[first].slots[0] ^ store.dedup[second].slots[0]
    keep_value(sum)


cdef int append_locked(Store *store, Item *items, size_t count, uint64_t now_ns,
                       uint64_t boot_ns) noexcept nogil:
    """Append all items or none. Under the lock of the log."""
    cdef Control *control = store.control
    cdef uint64_t sequence = control.tail, stored_bytes = 0, duplicates = 0
    cdef size_t i
    cdef bint by_clock = now_ns != 0             # given by the caller, and may stand still
    cdef uint32_t bound_us = 0
    cdef int outcome
    if not by_clock:
        boot_ns = clock_ns(CLOCK_BOOTTIME)
        now_ns = site_ns(control, boot_ns, &bound_us)
    outcome = check_place(store, boot_ns, by_clock)
    if outcome != 0:
        return outcome
    take_sample(control, boot_ns)
    store.overdraw = count != 0 and items[0].revision
    if count != 0 and not store.overdraw and items[0].slicings != control.slicings:
        return CODE_SLICES
    if store.overdraw:
        outcome = CODE_STATIONS if control.stations != store.stations_seen else 0
    else:
        outcome = pass_gates(store, items, count)
    if outcome != 0:
        return outcome
    outcome = ready_to_append(store, boot_ns)
    if bound_us:
        for i in range(count):
            if items[i].created_ns == 0:
                items[i].bound_us = bound_us
    for i in range(count):
        items[i].stride = item_stride(store, &items[i])
    if outcome == 0 and count > 1 and not fits_at_all(store, items, count):
        return CODE_BATCH_TOO_LARGE
    for i in range(count):
        if outcome < 0:
            break
        if items[i].created_ns == 0:
            items[i].created_ns = now_ns
        items[i].continues = i + 1 < count
        if i % TOUCH_AHEAD == 0 and count > 1 and store.dedup != NULL:
            touch_buckets(store, items + i, min(count - i, <size_t>TOUCH_AHEAD))
        outcome = append_item(store, &items[i], sequence, now_ns, boot_ns)
        if outcome == 0:
            sequence += 1
            stored_bytes += items[i].payload_bytes
        elif outcome == 1:
            duplicates += 1
    if outcome < 0:
        roll_back(store)
        return outcome
    control.duplicates += duplicates
    if sequence == control.tail:
        return 0
    if items[count - 1].duplicate:   # the last stored row ends the batch
        end_batch(store, sequence - 1)
    failpoint(FAIL_COMMIT)
    if not items[0].revision:
        control.inserted_products += sequence - control.tail
        control.inserted_bytes += stored_bytes
    control.held_products += sequence - control.tail
    store64(&control.tail, sequence)
    if control.durability != DURABLE_DISK:
        publish(store)
    note_batch(store, items, count)
    return 0


cdef int append(Store *store, Item *items, size_t count, uint64_t now_ns, uint64_t boot_ns) noexcept nogil:
    cdef int outcome = lock_log(store)
    if outcome != 0:
        return outcome
    outcome = append_locked(store, items, count, now_ns, boot_ns)
    unlock_log(store)
    wake_sleepers(store)
    return outcome
