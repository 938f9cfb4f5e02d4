# Maintenance: what happens to a log under its lock, or while no other process is attached.

def reset_locks(Log log):
    """While no other process is attached: new locks, no sleepers."""
    init_robust_lock(&log.store.control.lock)
    init_robust_lock(&log.store.control.sync_lock)
    store32(&log.store.control.sleepers, 0)
    store32(&log.store.control.sync_failed, 0)


def take_back(Log log):
    """Return everything to the state that `tail` commits."""
    cdef int error = roll_back(log.store)
    if error != 0:
        log.fail(error)


def apply_limits(Log log, uint64_t boot_ns):
    """Apply the limits of size and age now. Under the lock of the log."""
    cdef Control *control = log.store.control
    cdef uint64_t now = boot_ns or clock_ns(CLOCK_BOOTTIME)
    cdef int error = evict_aged(log.store, now)
    while error == 0 and control.bytes_total > control.size_bytes:
        if control.spare_file:
            drop_spare(log.store)
        elif control.segment_oldest < control.segment_newest:
            if held_back(log.store, entry_of(log.store, control.segment_oldest).end):
                break                # it is evicted once the stations have settled it
            evict_oldest(log.store)
        elif control.segment_newest < control.segment_oldest:
            break
        else:                    # the newest one alone is too large
            error = open_segment(log.store, 0, control.tail, now)
    if error == CODE_HELD:        # old products are evicted once the stations have settled them
        roll_back(log.store)
        return
    if error < 0:
        roll_back(log.store)
        log.fail(error)


def forget_spare(Log log):
    drop_spare(log.store)


def begin_segment(Log log, uint64_t first):
    """Start a segment at `first`, which becomes the next sequence. Under the lock of the log."""
    cdef Control *control = log.store.control
    cdef int error
    if control.segment_newest >= control.segment_oldest:
        entry_of(log.store, control.segment_newest).end = control.tail
    else:
        store64(&control.oldest, first)
    log.store.overdraw = True        # no consumer exists yet that could make room
    error = open_segment(log.store, 0, first, clock_ns(CLOCK_BOOTTIME))
    if error != 0:
        roll_back(log.store)
        log.fail(error)
    store64(&log.store.control.tail, first)
    store64(&log.store.control.head, first)


def rebuild_dedup(Log log):
    """Rebuild the duplicate table from the log. Under the lock of the log."""
    cdef uint64_t buckets = max(<uint64_t>DEDUP_FIRST, log.store.control.held_products // 4)
    cdef int error = dedup_grow(log.store, buckets, log.store.control.tail)
    if error != 0:
        log.fail(error)


def find_signatures(Log log not None, const uint8_t[::1] signatures not None, const uint8_t[::1] kinds not None,
                    const uint16_t[::1] origins not None):
    """For each signature of 16 bytes: the sequence of the held product that it identifies, or 0. Under the lock.

    `origins` are numbers of this log; any other number is that of an origin that it does not know.
    """
    cdef Store *store = log.store
    cdef size_t i, count = <size_t>signatures.shape[0] // 16
    cdef uint64_t *slot
    cdef uint64_t tag = 0
    cdef Imprint imprint
    cdef int error
    found = PyBytes_FromStringAndSize(NULL, count * sizeof(uint64_t))
    cdef uint64_t *sequences = <uint64_t *>PyBytes_AS_STRING(found)
    memset(sequences, 0, count * sizeof(uint64_t))
    if <size_t>kinds.shape[0] != count or <size_t>origins.shape[0] != count:
        raise ValueError("kinds, origins")
    if store.control.signature_kind == SIGNATURE_NONE or count == 0:
        return found
    error = dedup_attach(store)
    if error != 0:
        log.fail(error)
    with nogil:
        for i in range(count):
            slot = NULL
            imprint.signature, imprint.kind = &signatures[16 * i], kinds[i]
            imprint.origin, imprint.is_open = origins[i], False
            sequences[i] = dedup_find(store, &imprint, store.control.tail, &slot, &tag)
            if sequences[i] == 0 and imprint.kind != SIGNATURE_GIVEN:
                slot, imprint.is_open = NULL, True
                sequences[i] = dedup_find(store, &imprint, store.control.tail, &slot, &tag)
    return found


def mark_rows(Log log, const uint64_t[::1] sequences, uint8_t flag):
    """Set a flag on rows; how many were visible before. Under the lock of the log."""
    cdef size_t i, marked = 0
    cdef uint64_t number
    cdef Entry *entry
    cdef Mapping *mapping = NULL
    cdef Row *row
    cdef int error
    for i in range(<size_t>sequences.shape[0]):
        if sequences[i] < log.store.control.oldest or sequences[i] >= log.store.control.tail:
            continue
        number = segment_with(log.store, sequences[i])
        entry = entry_of(log.store, number)
        if (sequences[i] < entry.first or (entry.end and sequences[i] >= entry.end)
                or sequences[i] - entry.first >= rows_room(entry.size)):
            continue
        error = map_segment(log.store, entry.file, entry.size, &mapping, False)
        if error != 0:
            log.fail(error)
        row = row_of(mapping, sequences[i] - entry.first)
        if not row.flags & ROW_HIDDEN:
            entry.deleted_products += 1
            entry.deleted_bytes += row.payload_bytes
            marked += 1
        store_marks(row, row.flags | flag)
    return marked


def recount_names(Log log, size_t file_bytes):
    """Count the names in the names file instead of trusting the control block. While no other process is attached.

    An intact name behind a damaged one is an error, because rows use its number.
    """
    cdef uint32_t places = <uint32_t>(min(file_bytes, <size_t>NAMES_MAX * NAME_BYTES) // NAME_BYTES)
    store64(&log.store.control.origins_end, count_names(log, 0, min(places, <uint32_t>ORIGINS_MAX), NAME_ORIGIN))
    store64(&log.store.control.feeds_end, max(<uint32_t>ORIGINS_MAX, count_names(log, ORIGINS_MAX, places, NAME_FEED)))


cdef uint32_t count_names(Log log, uint32_t begin, uint32_t end, uint8_t kind) except? 0:
    """One past the last intact name in [begin, end)."""
    cdef uint32_t place, last = begin, whole = 0
    for place in range(begin, end):
        if whole_name(name_of(log.store, place), kind):
            last = place + 1
            whole += 1
    if whole != last - begin:
        raise KernelError(CODE_DAMAGED)
    return last


def recount_last(Log log):
    """Determine the last sequence of every feed from the rows. Under the lock, or while alone."""
    recount_feeds(log.store)


def format_control(int fd, uint32_t state, bytes uuid, bytes boot, uint64_t size_bytes, uint64_t age_ns,
                   uint64_t segment_bytes, uint32_t durability, uint32_t signature_kind, bytes secret,
                   uint64_t first_sequence):
    """Write the control block of an empty queue over whatever is in the file."""
    cdef int error = posix_fallocate(fd, 0, sizeof(Control))
    cdef void *where
    cdef Control *control
    if error != 0:
        raise KernelError(-error)
    where = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    if where == MAP_FAILED:
        raise KernelError(-errno)
    control = <Control *>where
    memset(control, 0, sizeof(Control))
    memcpy(control.magic, b"HRCONTRL", 8)
    control.version = FORMAT_VERSION
    control.state = state
    memcpy(control.uuid, <char *>uuid, 16)
    memcpy(control.boot, <char *>boot, 16)
    control.size_bytes = size_bytes
    control.age_ns = age_ns
    control.segment_bytes = segment_bytes
    memcpy(control.secret, <char *>secret, 16)
    control.durability = durability
    control.signature_kind = signature_kind
    control.clean = 1
    control.head = control.tail = control.oldest = control.synced = first_sequence
    control.segment_oldest = 1
    control.segment_newest = 0
    control.next_file = 1
    control.feeds_end = ORIGINS_MAX
    init_robust_lock(&control.lock)
    init_robust_lock(&control.sync_lock)
    munmap(where, sizeof(Control))


def checksum(const uint8_t[::1] data):
    """XXH3, 64 bits."""
    return XXH3_64bits(&data[0] if data.shape[0] else NULL, data.shape[0])


def read_control_start(bytes start):
    """(magic, version, uuid) of a control file, from its first bytes."""
    return start[:8], int.from_bytes(start[8:12], "little"), start[16:32]
