# Segments are added and evicted, under the lock of the log.
#
# The directory is a ring of entries; [segment_oldest, segment_newest] are the live ones. Nothing here
# commits anything: a segment that begins at or after `tail` is an intention, and `roll_back` removes
# it if its writer died or failed. `pending_file` names the one file that a death could leave behind.

cdef void unlink_segment(Store *store, uint64_t file) noexcept nogil:
    cdef char name[32]
    segment_name(file, name)
    unlinkat(store.segments_fd, name, 0)


cdef bint is_read_elsewhere(Store *store, uint64_t file) noexcept nogil:
    """Has a process that may not write mapped the segment file? Or can that not be told?"""
    cdef char name[32]
    cdef int fd
    cdef bint locked = True
    segment_name(file, name)
    fd = open_regular(store.segments_fd, name, O_RDWR)
    if fd >= 0:
        locked = is_locked(fd)
        c_close(fd)
    return locked


cdef void evict_oldest(Store *store) noexcept nogil:
    """Drop the oldest segment. Its file becomes the spare file if it has the plain size, and is unlinked otherwise."""
    cdef Control *control = store.control
    cdef Entry *entry = entry_of(store, control.segment_oldest)
    cdef Mapping *mapping = NULL
    cdef uint64_t file = entry.file
    cdef bint reusable = entry.size == control.segment_bytes and control.spare_file == 0
    control.pending_file = file
    control.evicted_products += entry.end - entry.first - entry.deleted_products
    control.held_products -= min(entry.end - entry.first, control.held_products)
    control.evicted_bytes += entry.payload_bytes - entry.deleted_bytes
    if control.segment_oldest < control.segment_newest:
        store64(&control.oldest, entry_of(store, control.segment_oldest + 1).first)
    else:
        store64(&control.oldest, entry.end)
    store64(&control.segment_oldest, control.segment_oldest + 1)
    failpoint(FAIL_EVICT_OLDEST)
    fence()                          # the other half of pin_segment
    if map_segment(store, file, entry.size, &mapping, False) != 0:
        reusable = False
    elif load32(&header_of(mapping).pins) != 0 or (reusable and is_read_elsewhere(store, file)):
        control.unlinked_pinned += 1
        reusable = False
    if reusable and not holed(mapping):
        control.spare_file = file
    else:
        failpoint(FAIL_EVICT_UNLINK)
        control.bytes_total -= entry.size
        unlink_segment(store, file)
    control.pending_file = 0
    failpoint(FAIL_EVICTED)


cdef void drop_spare(Store *store) noexcept nogil:
    """Unlink the spare file. It is forgotten first, so that nobody uses it if this process dies in between."""
    cdef Control *control = store.control
    cdef uint64_t file = control.spare_file
    if file != 0:
        control.pending_file = file
        control.spare_file = 0
        control.bytes_total -= control.segment_bytes
        unlink_segment(store, file)
        control.pending_file = 0


cdef int make_room(Store *store, uint64_t size) noexcept nogil:
    """Evict until a segment file of `size` fits the limit, or a spare file is available."""
    cdef Control *control = store.control
    if size != control.segment_bytes:
        drop_spare(store)
    while (control.bytes_total + size > control.size_bytes
           or control.segment_newest + 2 > control.segment_oldest + SEGMENTS_MAX):
        if (control.segment_newest + 2 <= control.segment_oldest + SEGMENTS_MAX and control.spare_file != 0
                and size == control.segment_bytes):
            break
        if control.segment_oldest > control.segment_newest:
            return CODE_BATCH_TOO_LARGE
        if entry_of(store, control.segment_oldest).end > control.tail:
            return CODE_BATCH_TOO_LARGE       # the batch would evict its own beginning
        if held_back(store, entry_of(store, control.segment_oldest).end):
            if (store.overdraw and control.bytes_total + size <= control.size_bytes * 2
                    and control.segment_newest + 2 <= control.segment_oldest + SEGMENTS_MAX):
                break
            return CODE_HELD
        evict_oldest(store)
        if size != control.segment_bytes:
            drop_spare(store)
    return 0


cdef int take_file(Store *store, uint64_t size, uint64_t *file, Mapping **mapping) noexcept nogil:
    cdef Control *control = store.control
    cdef char name[32]
    cdef char *base = NULL
    cdef int error
    if control.spare_file != 0 and size == control.segment_bytes:
        file[0] = control.spare_file
        control.pending_file = file[0]
        if map_segment(store, file[0], size, mapping, False) == 0:
            return 0
        drop_spare(store)            # the file was damaged: create a new one
    file[0] = control.next_file
    control.pending_file = file[0]
    control.next_file += 1
    segment_name(file[0], name)
    error = make_file(store.segments_fd, name, size, &base)
    if error != 0:
        return error
    failpoint(FAIL_SEGMENT_FILE)
    pthread_mutex_lock(&store.maps_lock)
    if too_many_maps(store):
        sweep_mappings(store)
    mapping[0] = add_mapping(store, file[0], base, size, -1)
    pthread_mutex_unlock(&store.maps_lock)
    if mapping[0] == NULL:
        munmap(base, size)
        unlink_segment(store, file[0])
        return -ENOMEM
    control.bytes_total += size
    return 0


cdef void write_segment_header(Store *store, Mapping *mapping, uint64_t file, uint64_t number,
                               uint64_t first) noexcept nogil:
    cdef SegmentHeader *header = header_of(mapping)
    memcpy(header.magic, b"HRSEGMNT", 8)
    header.version = SEGMENT_VERSION
    header.reserved = 0
    memcpy(header.uuid, store.control.uuid, 16)
    header.file = file
    header.size = mapping.size
    header.number = number
    header.first = first
    header.checksum = XXH3_64bits(header, 64)


cdef int open_segment(Store *store, uint64_t stride, uint64_t first, uint64_t boot_ns) noexcept nogil:
    """Seal the newest segment and start one with room for `stride` bytes; `first` is its first sequence."""
    cdef Control *control = store.control
    cdef uint64_t size = control.segment_bytes
    cdef uint64_t number = control.segment_newest + 1
    cdef uint64_t file = 0
    cdef Mapping *mapping = NULL
    cdef Entry *entry
    cdef int error
    if SEGMENT_HEADER + stride + ROW_BYTES > size:
        size = rounded(SEGMENT_HEADER + stride + ROW_BYTES, 4096)
    if control.segment_newest >= control.segment_oldest:
        entry = entry_of(store, control.segment_newest)
        if entry.end == 0:
            store64(&entry.end, first)
    failpoint(FAIL_SEGMENT_SEALED)
    error = make_room(store, size)
    if error == 0:
        error = take_file(store, size, &file, &mapping)
    if error != 0:
        return error
    write_segment_header(store, mapping, file, number, first)
    failpoint(FAIL_SEGMENT_HEADER)
    entry = entry_of(store, number)
    store64(&entry.number, 0)
    fence()
    memset(<char *>entry + sizeof(uint64_t), 0, sizeof(Entry) - sizeof(uint64_t))
    entry.first = first
    entry.file = file
    entry.size = size
    entry.newest_boot_ns = boot_ns
    store64(&entry.number, number)
    failpoint(FAIL_SEGMENT_ENTRY)
    store64(&control.segment_newest, number)
    failpoint(FAIL_SEGMENT_ADDED)
    if control.spare_file == file:
        control.spare_file = 0
    control.pending_file = 0
    control.data_end = SEGMENT_HEADER
    control.opened_boot_ns = boot_ns
    store.current = mapping
    return 0


cdef int evict_aged(Store *store, uint64_t boot_ns) noexcept nogil:
    """Drop segments whose newest product is older than the age limit.

    The newest segment is closed after a fraction of that age, so that products stay at most the limit plus that
    fraction.
    """
    cdef Control *control = store.control
    cdef Entry *entry
    cdef uint64_t share
    cdef int error
    if control.age_ns == 0 or control.segment_newest < control.segment_oldest:
        return 0
    drop_aged(store, boot_ns)
    share = control.age_ns // max(control.size_bytes // control.segment_bytes // 4, 1)
    entry = entry_of(store, control.segment_newest)
    if control.tail > entry.first and control.opened_boot_ns + share < boot_ns:
        error = open_segment(store, 0, control.tail, boot_ns)
        if error != 0:
            return error
        drop_aged(store, boot_ns)
    return 0


cdef void drop_aged(Store *store, uint64_t boot_ns) noexcept nogil:
    cdef Control *control = store.control
    while (control.segment_oldest < control.segment_newest
           and entry_of(store, control.segment_oldest).newest_boot_ns + control.age_ns < boot_ns
           and not held_back(store, entry_of(store, control.segment_oldest).end)):
        evict_oldest(store)


# --- after the death of a writer, or after an append that failed -------------------------------

cdef uint64_t record_end(Mapping *mapping, Row *row) noexcept nogil:
    """Where the next record may begin; 0 if the row is invalid."""
    cdef uint64_t offset = <uint64_t>row.offset * 8, end
    cdef Record *record
    if offset < SEGMENT_HEADER or offset + RECORD_HEADER > mapping.size:
        return 0
    record = <Record *>(mapping.base + offset)
    end = offset + rounded(body_within(record, mapping.size - offset) + record.payload_bytes, 8)
    return end if end <= mapping.size else 0


cdef int recover_newest(Store *store) noexcept nogil:
    """Derive the numbers of the newest segment in the control block from its committed rows."""
    cdef Control *control = store.control
    cdef Entry *entry = entry_of(store, control.segment_newest)
    cdef Mapping *mapping = NULL
    cdef uint64_t count = control.tail - entry.first
    cdef uint64_t place, end
    cdef Row *row
    cdef int error
    store64(&entry.end, 0)
    error = map_segment(store, entry.file, entry.size, &mapping, False)
    if error != 0:
        return error
    if count > rows_room(entry.size):
        store.failed_file = entry.file
        return CODE_DAMAGED
    entry.payload_bytes = entry.deleted_products = entry.deleted_bytes = 0
    for place in range(count):
        row = row_of(mapping, place)
        entry.payload_bytes += row.payload_bytes
        if row.flags & ROW_HIDDEN:
            entry.deleted_products += 1
            entry.deleted_bytes += row.payload_bytes
    control.data_end = SEGMENT_HEADER
    if count:                        # an invalid last row says nothing: append nothing more here
        row = row_of(mapping, count - 1)
        end = record_end(mapping, row) if fits(row, control.tail - 1) else 0
        control.data_end = end if end else mapping.size
    place = count                    # rows of an uncommitted batch must not become valid later
    while place < rows_room(entry.size) and row_of(mapping, place).sequence == <uint32_t>(entry.first + place):
        row_of(mapping, place).sequence = ~row_of(mapping, place).sequence
        place += 1
    store.current = mapping
    return 0


cdef const uint64_t UNKNOWN_LAST = 0x8000000000000000


cdef void recover_feeds(Store *store) noexcept nogil:
    """Feeds whose last sequence was never committed get the committed one before it."""
    cdef Control *control = store.control
    cdef uint32_t feed
    cdef uint64_t number, place, missing = 0
    cdef Entry *entry
    cdef Mapping *mapping = NULL
    cdef Row *row
    cdef Name *name
    for feed in range(ORIGINS_MAX, <uint32_t>control.feeds_end):
        name = name_of(store, feed)
        if name.last >= control.tail:
            name.last = UNKNOWN_LAST
            missing += 1
    number = control.segment_newest
    while missing and number >= control.segment_oldest:
        entry = entry_of(store, number)
        if map_segment(store, entry.file, entry.size, &mapping, False) == 0:
            for place in range(rows_in(store, entry), 0, -1):
                row = row_of(mapping, place - 1)
                if not is_feed(control, row.feed) or name_of(store, row.feed).last != UNKNOWN_LAST:
                    continue
                if made_here(control, mapping, row, entry.first + place - 1):
                    name_of(store, row.feed).last = entry.first + place - 1
                    missing -= 1
                    if missing == 0:
                        break
        number -= 1
    if missing:
        for feed in range(ORIGINS_MAX, <uint32_t>control.feeds_end):
            if name_of(store, feed).last == UNKNOWN_LAST:
                name_of(store, feed).last = 0


cdef inline uint64_t rows_in(Store *store, Entry *entry) noexcept nogil:
    """Committed rows of a segment, and never more than it has room for."""
    cdef uint64_t end = entry.end if entry.end else store.control.tail
    return min(end - entry.first, rows_room(entry.size)) if end > entry.first else 0


cdef inline bint is_feed(Control *control, uint32_t feed) noexcept nogil:
    return ORIGINS_MAX <= feed < control.feeds_end


cdef bint made_here(Control *control, Mapping *mapping, Row *row, uint64_t sequence) noexcept nogil:
    """Was the origin sequence of this product assigned by this log?"""
    cdef uint64_t offset = <uint64_t>row.offset * 8
    return (row.origin == control.origin and offset + RECORD_HEADER <= mapping.size
            and (<Record *>(mapping.base + offset)).origin_sequence == sequence)


cdef void recount_feeds(Store *store) noexcept nogil:
    """Determine the last sequence of every feed from the rows. Under the lock of the log."""
    cdef Control *control = store.control
    cdef uint64_t number, place
    cdef uint32_t feed
    cdef Entry *entry
    cdef Mapping *mapping = NULL
    cdef Row *row
    for feed in range(ORIGINS_MAX, <uint32_t>control.feeds_end):
        name_of(store, feed).last = 0
    for number in range(control.segment_oldest, control.segment_newest + 1):
        entry = entry_of(store, number)
        if map_segment(store, entry.file, entry.size, &mapping, False) != 0:
            continue
        for place in range(rows_in(store, entry)):
            row = row_of(mapping, place)
            if is_feed(control, row.feed) and made_here(control, mapping, row, entry.first + place):
                name_of(store, row.feed).last = entry.first + place


cdef int roll_back(Store *store) noexcept nogil:
    """Return everything to the state that `tail` commits. Under the lock of the log; may be killed and repeated."""
    cdef Control *control = store.control
    cdef uint64_t number, bytes_total = 0, held_products = 0
    cdef Entry *entry
    cdef int error = 0
    while (control.segment_newest >= control.segment_oldest
           and entry_of(store, control.segment_newest).first > control.tail):
        entry = entry_of(store, control.segment_newest)
        if entry.file != control.spare_file:
            unlink_segment(store, entry.file)
        store64(&control.segment_newest, control.segment_newest - 1)
    if control.segment_newest >= control.segment_oldest:
        store64(&control.oldest, entry_of(store, control.segment_oldest).first)
        error = recover_newest(store)
    for number in range(control.segment_oldest, control.segment_newest + 1):
        entry = entry_of(store, number)
        if entry.file == control.spare_file:
            control.spare_file = 0
        bytes_total += entry.size
        held_products += rows_in(store, entry)
    if control.spare_file != 0:
        bytes_total += control.segment_bytes
    if control.pending_file != 0 and not is_live(store, control.pending_file):
        unlink_segment(store, control.pending_file)
    control.pending_file = 0
    control.bytes_total = bytes_total
    control.held_products = held_products
    recover_feeds(store)
    if control.durability != DURABLE_DISK:
        publish(store)
        wake_sleepers(store)
    return error


cdef void publish(Store *store) noexcept nogil:
    """Let readers see everything up to `tail`. The caller wakes the sleepers after it has released the lock."""
    cdef Control *control = store.control
    store64(&control.head, control.tail)
    add32(&control.wake, 1)
    failpoint(FAIL_WAKE)


cdef void wake_sleepers(Store *store) noexcept nogil:
    cdef Control *control = store.control
    if load32(&control.sleepers) != 0 and swap32(&control.sleepers, 0) != 0:
        futex(&control.wake, FUTEX_WAKE, 0x7FFFFFFF, NULL)


cdef int lock_log(Store *store) noexcept nogil:
    if store.read_only:
        return -EROFS
    return recover_lock(store, lock_robust(&store.control.lock))


cdef int recover_lock(Store *store, int error) noexcept nogil:
    """Handle the result of pthread_mutex_(try)lock: roll back what a dead holder left unfinished."""
    if error == EOWNERDEAD:
        roll_back(store)
        store.control.recoveries += 1
        pthread_mutex_consistent(&store.control.lock)
        return 0
    return -error


cdef void unlock_log(Store *store) noexcept nogil:
    pthread_mutex_unlock(&store.control.lock)
