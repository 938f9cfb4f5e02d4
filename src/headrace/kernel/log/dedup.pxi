# The duplicate table: shared, from signature to sequence.
#
# A bucket is one cache line with eight slots of 64 bits: a 16-bit tag and the low 48 bits of a
# sequence. A signature is in one of two buckets, never elsewhere, so a look-up reads two cache
# lines. A slot counts only if the record that it points to has the same imprint. That tolerates stale slots:
#  - eviction does not touch it: a slot whose sequence is no longer held is free;
#  - a writer that dies between storing a signature and its commit leaves a slot that fails this test.
# If both buckets of a signature are full, one of their signatures moves to its own other bucket. The
# table grows by half when it is seven tenths full, or when no signature can move.
#
# Two products have the same imprint if signature and kind are equal. A signature that nobody has recomputed, because
# its producer made it up or its content is not at hand, counts for products of its origin alone: whatever a site makes
# up, it never suppresses a product of another one, nor one that is known by its content.

cdef struct Imprint:                 # by what a product is recognised
    const uint8_t *signature
    uint16_t origin                  # its number in this queue
    uint8_t kind
    bint is_open                     # not recomputed

cdef enum:
    DEDUP_FIRST = 512                # buckets of the first table

cdef const uint64_t LOW_48 = 0xFFFFFFFFFFFF


cdef inline Imprint imprint_of(const Record *record, const Row *row) noexcept nogil:
    cdef Imprint imprint
    imprint.signature, imprint.origin = record.signature, row.origin
    imprint.kind = (record.flags & RECORD_KIND) >> 3
    imprint.is_open = row.flags & ROW_UNPROVEN != 0
    return imprint


cdef inline uint64_t scope_of(const Imprint *imprint) noexcept nogil:
    """Among which products a signature counts: 0 all that have a hash; otherwise those of its origin and kind."""
    if likely(imprint.kind != SIGNATURE_GIVEN and not imprint.is_open):
        return 0
    return <uint64_t>imprint.origin << 8 | (128 if imprint.is_open else 0) | imprint.kind


cdef inline bint same_imprint(const Imprint *one, const Imprint *other) noexcept nogil:
    return (memcmp(one.signature, other.signature, 16) == 0 and one.kind == other.kind
            and scope_of(one) == scope_of(other))


cdef inline void stir(Store *store, const Imprint *imprint, uint64_t *first, uint64_t *second,
                      uint64_t *tag) noexcept nogil:
    cdef const uint64_t *words = <const uint64_t *>imprint.signature
    cdef uint64_t a = words[0] ^ store.control.secret[0] ^ scope_of(imprint) * <uint64_t>0x9E3779B97F4A7C15
    cdef uint64_t b = words[1] ^ store.control.secret[1]
    cdef uint64_t mixed = (a * b) ^ wide_multiply(a, b)
    cdef uint64_t again = (mixed ^ (mixed >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    first[0] = wide_multiply(mixed, store.dedup_buckets)
    second[0] = wide_multiply(again, store.dedup_buckets)
    tag[0] = (mixed & 0xFFFF) << 48


cdef bint imprint_at(Store *store, uint64_t sequence, Imprint *imprint) noexcept nogil:
    """The imprint of a held product; False if there is none. Under the lock of the log."""
    cdef Entry *entry = entry_of(store, segment_with(store, sequence))
    cdef Mapping *mapping = store.current
    cdef Row row
    cdef uint64_t offset
    if (sequence < entry.first or (entry.end != 0 and sequence >= entry.end)
            or sequence - entry.first >= rows_room(entry.size)):
        return False
    if mapping == NULL or mapping.file != entry.file:
        if map_segment(store, entry.file, entry.size, &mapping, False) != 0:
            return False
    load_row(mapping, sequence - entry.first, &row)
    if not fits(&row, sequence) or row.flags & (ROW_DELETED | ROW_DAMAGED):
        return False
    offset = <uint64_t>row.offset * 8
    if offset + RECORD_HEADER > mapping.size:
        return False
    imprint[0] = imprint_of(<Record *>(mapping.base + offset), &row)
    return True


cdef inline uint32_t look_at(Bucket *bucket, uint64_t tag, uint64_t end, uint64_t window,
                             uint32_t *vacant) noexcept nogil:
    """Which of the eight slots carry the tag and are live, as bits; `vacant` gets those that are not live.

    Without branches: the processor cannot predict whether a slot is live.
    """
    cdef uint32_t same = 0, dead = 0
    cdef uint64_t slot
    cdef int i
    for i in range(7, -1, -1):
        slot = bucket.slots[i]
        dead = 2 * dead + (((end - slot) & LOW_48) - 1 >= window)
        same = 2 * same + ((slot ^ tag) <= LOW_48)
    vacant[0] = dead
    return same & ~dead


cdef uint64_t dedup_find(Store *store, const Imprint *imprint, uint64_t end,
                         uint64_t **free_slot, uint64_t *tag_out) noexcept nogil:
    """The sequence in [oldest, end) with this imprint, or 0 and a free slot for it (NULL: none)."""
    cdef uint64_t places[2]
    cdef uint32_t vacant[2]
    cdef uint64_t tag = 0, sequence, window = end - store.control.oldest
    cdef uint32_t hits
    cdef Bucket *bucket
    cdef Imprint held
    cdef int side, i
    stir(store, imprint, &places[0], &places[1], &tag)
    keep_value(store.dedup[places[0]].slots[0] ^ store.dedup[places[1]].slots[0])    # both cache misses at once
    for side in range(2):
        bucket = &store.dedup[places[side]]
        hits = look_at(bucket, tag, end, window, &vacant[side])
        while hits:
            i = lowest_bit(hits)
            hits &= hits - 1
            sequence = end - ((end - bucket.slots[i]) & LOW_48)
            if imprint_at(store, sequence, &held) and same_imprint(&held, imprint):
                return sequence
    side = 1 if bits_set(vacant[1]) > bits_set(vacant[0]) else 0
    if vacant[side]:
        free_slot[0] = &store.dedup[places[side]].slots[lowest_bit(vacant[side])]
    else:
        free_slot[0] = make_vacant(store, places, end, window)
    tag_out[0] = tag
    return 0


cdef uint64_t *make_vacant(Store *store, uint64_t *places, uint64_t end, uint64_t window) noexcept nogil:
    """Move one signature out of two full buckets; its slot, or NULL if none can move.

    It is stored in its new place before the old one is reused: a death in between leaves it in both.
    """
    cdef uint64_t first = 0, second = 0, tag = 0, other
    cdef uint64_t *slot
    cdef uint32_t vacant = 0
    cdef Imprint held
    cdef int side, i
    for side in range(2):
        for i in range(8):
            slot = &store.dedup[places[side]].slots[i]
            if not imprint_at(store, end - ((end - slot[0]) & LOW_48), &held):
                return slot          # stale: the slot is free
            stir(store, &held, &first, &second, &tag)
            other = second if first == places[side] else first
            look_at(&store.dedup[other], tag, end, window, &vacant)
            if vacant:
                store.dedup[other].slots[lowest_bit(vacant)] = slot[0]
                return slot
    return NULL


cdef inline uint64_t buckets_of(uint64_t table) noexcept nogil:
    return table & ((<uint64_t>1 << 40) - 1)


cdef void dedup_use(Store *store, uint64_t table, char *base) noexcept nogil:
    dedup_detach(store)
    store.dedup = <Bucket *>base
    store.dedup_table = table
    store.dedup_buckets = buckets_of(table)
    store.dedup_guarded = guard(base, store.dedup_buckets * sizeof(Bucket))


cdef int dedup_attach(Store *store) noexcept nogil:
    """Map the table that the control block names, unless this process has it mapped already."""
    cdef char name[32]
    cdef char *base = NULL
    cdef uint64_t table = load64(&store.control.dedup_table)
    cdef int error
    if likely(store.dedup != NULL and store.dedup_table == table):
        return 0
    dedup_name(table, name)
    error = map_file(store, store.queue_fd, name, buckets_of(table) * sizeof(Bucket), &base, NULL)
    if error == 0:
        dedup_use(store, table, base)
    return error


cdef void dedup_detach(Store *store) noexcept nogil:
    if store.dedup != NULL:
        unguard(store.dedup_guarded)
        munmap(store.dedup, store.dedup_buckets * sizeof(Bucket))
        store.dedup = NULL


cdef int dedup_fill(Store *store, uint64_t end) noexcept nogil:
    """Store every signature in [oldest, end) in the empty table; 1 if there was no room for one."""
    cdef uint64_t number, place, count, ignored = 0
    cdef uint64_t *slot
    cdef Entry *entry
    cdef Mapping *mapping = NULL
    cdef Row *row
    cdef Imprint imprint
    for number in range(store.control.segment_oldest, store.control.segment_newest + 1):
        entry = entry_of(store, number)
        if map_segment(store, entry.file, entry.size, &mapping, False) != 0:
            continue                 # check() and repair() report it
        count = min((entry.end if entry.end else end) - entry.first, rows_room(entry.size))
        for place in range(count):
            row = row_of(mapping, place)
            if place + 16 < count:
                prefetch(mapping.base + (<uint64_t>row_of(mapping, place + 16).offset * 8) % mapping.size)
            if not row.flags & ROW_SIGNED or row.flags & (ROW_DELETED | ROW_DAMAGED):
                continue
            if <uint64_t>row.offset * 8 + RECORD_HEADER > mapping.size:
                continue
            imprint = imprint_of(<Record *>(mapping.base + <uint64_t>row.offset * 8), row)
            slot = NULL
            if dedup_find(store, &imprint, end, &slot, &ignored) == 0:
                if slot == NULL:
                    return 1
                slot[0] = ignored | ((entry.first + place) & LOW_48)
    return 0


cdef int dedup_grow(Store *store, uint64_t buckets, uint64_t end) noexcept nogil:
    """Replace the table by one of at least `buckets`, filled from the log. Under the lock of the log."""
    cdef char name[32]
    cdef char *base = NULL
    cdef uint64_t old = store.control.dedup_table
    cdef uint64_t table = ((old >> 40) + 1) << 40
    cdef int error
    while True:
        dedup_name(table | buckets, name)
        unlinkat(store.queue_fd, name, 0)        # left by a process that died here
        error = make_file(store.queue_fd, name, buckets * sizeof(Bucket), &base)
        if error != 0:
            return error
        dedup_use(store, table | buckets, base)
        if dedup_fill(store, end) == 0:
            break
        unlinkat(store.queue_fd, name, 0)
        buckets += buckets // 2
    failpoint(FAIL_DEDUP_GROWN)
    store64(&store.control.dedup_table, table | buckets)
    dedup_name(old, name)
    unlinkat(store.queue_fd, name, 0)
    return 0
