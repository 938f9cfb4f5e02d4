# One opened queue in one process: the mapped files, and pins on segments.
#
# A Store is plain C data, so that everything below runs without the interpreter.
#
# Pins. A reader of segment N adds one to the `pins` word *in the segment file*,
# then checks that N is still in the directory. A writer that evicts N first takes it out of the
# directory, then reads `pins`. Both do so in sequentially consistent order, so at least one sees the
# other: either the reader backs off, or the writer unlinks the file instead of reusing it, and the
# mapping of the reader keeps it alive. A process that dies while it holds pins leaves the count too
# high; the only effect is that the file is unlinked rather than reused. Nothing waits for a pin.
#
# A process that may not write (`read_only`) cannot count itself there. It holds a lock for reading on each segment file
# that it has mapped, which needs no right to write, and which the system releases with the process. The writer that
# evicts a segment looks for such a lock as it looks at `pins`, in the same order.

cdef struct Mapping:
    uint64_t file                    # 0 = free
    char *base
    size_t size
    Guarded *guarded
    long views                       # users in this process; it is unmapped only at zero
    int lock                         # descriptor that holds the lock of a process that may not write; -1 none

cdef struct Gate:                    # one station, or one chain, that writers must respect; see gates.pxi
    ChainHeader *chain
    Member *member                   # NULL: the chain keeps products in the queue
    const uint8_t *feeds             # which feeds its selection may want; NULL = all
    uint32_t feeds_count
    uint64_t open_until              # it stays open until `tail` gets there ...
    uint64_t surges                  # ... unless `surges` of the chain has changed by then

cdef struct Slicing:                 # a channel with slices; see slices.pxi
    char root[256]                   # of its subtree
    char first[256]                  # names of the properties that its function needs
    char second[256]
    uint32_t root_bytes              # 0: all feeds
    uint32_t first_bytes
    uint32_t second_bytes
    uint32_t slices
    uint32_t how
    uint32_t rows                    # of a grid
    uint32_t columns
    uint64_t *counters               # mapped; log.slicing_owners keeps them

cdef struct Store:
    Control *control
    char *names                      # mapped with its maximum size; the file is usually shorter
    Bucket *dedup
    uint64_t dedup_table             # its value in the control block when `dedup` was mapped
    uint64_t dedup_buckets
    Guarded *dedup_guarded
    Guarded *control_guarded
    Guarded *names_guarded
    int segments_fd                  # directory that holds the segment files
    int queue_fd
    bint read_only                   # nothing of the queue is written; all is mapped for reading
    char *place                      # path of the control file, as it was opened; NULL: not watched
    uint64_t place_device
    uint64_t place_inode
    uint64_t place_seen_ns           # when it was last found there
    pthread_mutex_t maps_lock        # `maps`, among the threads of this process
    Mapping **maps
    int maps_count
    int maps_room
    Mapping *current                 # of the newest segment, under the log's lock
    Store *following                 # all stores of this process, for fork
    uint64_t failed_file             # which segment file the last error was about; 0 none
    Gate *gates                      # changed under the log's lock
    uint32_t gates_count
    bint overdraw                    # this append may exceed the size limit instead of waiting for a station
    uint64_t stations_seen           # its value in the control block when `gates` was made
    Slicing *slicings                # with the GIL, as the four below
    uint32_t slicings_count
    uint32_t sliced_feeds_count
    uint16_t *sliced_feeds           # by number of the feed: which slicing
    uint64_t slicings_seen           # its value in the control block when `slicings` was made
    uint64_t unique[2]               # for signatures that no other product has: a random number, and a count
    bint unique_drawn                # false in a child after a fork

cdef Store *all_stores = NULL
cdef pthread_mutex_t all_stores_lock             # all zero is an unlocked mutex

cdef inline Entry *entry_of(Store *store, uint64_t number) noexcept nogil:
    return &store.control.directory[number % SEGMENTS_MAX]


cdef inline Name *name_of(Store *store, uint32_t ident) noexcept nogil:
    return <Name *>(store.names + <size_t>ident * NAME_BYTES)


cdef inline Row *row_of(Mapping *mapping, uint64_t place) noexcept nogil:
    return <Row *>(mapping.base + mapping.size - (place + 1) * ROW_BYTES)


cdef inline SegmentHeader *header_of(Mapping *mapping) noexcept nogil:
    return <SegmentHeader *>mapping.base


cdef inline uint64_t rounded(uint64_t value, uint64_t step) noexcept nogil:
    return (value + step - 1) // step * step


cdef inline bint holed(Mapping *mapping) noexcept nogil:
    return is_holed(mapping.guarded)


cdef inline bint state_holed(Store *store) noexcept nogil:
    """Were the files truncated on which everything else depends?"""
    return is_holed(store.control_guarded) or is_holed(store.names_guarded)


cdef inline uint64_t rows_room(uint64_t size) noexcept nogil:
    """The most rows that a segment of `size` bytes can have."""
    return (size - SEGMENT_HEADER) // (ROW_BYTES + RECORD_HEADER)


cdef inline uint16_t row_check(Row *row) noexcept nogil:
    """XXH3 of 30 bytes, from whole words: smaller loads would stall on the stores that have just written the row."""
    cdef uint64_t *words = <uint64_t *>row
    return <uint16_t>sum_of_30(words[0], words[1], words[2], words[3])


cdef inline void load_row(Mapping *mapping, uint64_t place, Row *row) noexcept nogil:
    """Copy a row; its last 8 bytes, which deletion changes, in one load."""
    cdef Row *shared = row_of(mapping, place)
    memcpy(row, shared, 24)
    (<uint64_t *>row)[3] = load64(&(<uint64_t *>shared)[3])


cdef inline void store_marks(Row *shared, uint8_t flags) noexcept nogil:
    """Change the flags of a row in place, with its check, in one store."""
    cdef Row row = shared[0]
    row.flags = flags
    row.check = row_check(&row)
    store64(&(<uint64_t *>shared)[3], (<uint64_t *>&row)[3])


cdef inline bint fits(Row *row, uint64_t sequence) noexcept nogil:
    """Is this the row of that sequence, and intact?"""
    return row.sequence == <uint32_t>sequence and row.check == row_check(row)


cdef void segment_name(uint64_t file, char *text) noexcept nogil:
    snprintf(text, 32, b"%016llx.segment", <unsigned long long>file)


cdef void dedup_name(uint64_t table, char *text) noexcept nogil:
    snprintf(text, 32, b"signatures-%016llx", <unsigned long long>table)


cdef uint64_t held_from(Store *store, uint64_t sequence) noexcept nogil:
    """The smallest sequence >= `sequence` that the queue holds or will assign next."""
    cdef uint64_t oldest = load64(&store.control.oldest)
    cdef uint64_t number
    cdef Entry *entry
    if sequence < oldest:
        return oldest
    number = segment_with(store, sequence)
    if number == 0:
        return sequence
    entry = entry_of(store, number)
    if sequence < entry.first:
        return entry.first
    if entry.end != 0 and sequence >= entry.end and number < load64(&store.control.segment_newest):
        return entry_of(store, number + 1).first
    return sequence


# --- mapped segment files -------------------------------------------------------------------------

cdef int map_file(Store *store, int directory, const char *name, size_t size, char **base, int *lock) noexcept nogil:
    """Map a whole file that must be a regular one of exactly `size` bytes.

    With `lock`, a process that may not write locks it first; the descriptor that holds the lock is left there, or -1.
    """
    cdef int fd = open_regular(directory, name, O_RDONLY if store.read_only else O_RDWR)
    cdef struct_stat status
    cdef void *where
    cdef int error
    if fd < 0:
        return CODE_DAMAGED if errno == EINVAL else -errno
    if fstat(fd, &status) != 0 or <size_t>status.st_size != size:
        c_close(fd)
        return CODE_DAMAGED
    if lock != NULL and store.read_only and lock_to_read(fd) != 0:
        error = errno
        c_close(fd)
        return -error
    where = mmap(NULL, size, PROT_READ if store.read_only else PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    error = errno
    if lock != NULL and store.read_only and where != MAP_FAILED:
        lock[0] = fd
    else:
        c_close(fd)
    if where == MAP_FAILED:
        return -error
    base[0] = <char *>where
    return 0


cdef int make_file(int directory, const char *name, size_t size, char **base) noexcept nogil:
    """Create a file, allocate its blocks, and map it: a full disk is detected here and never by a store to memory."""
    cdef int fd = openat(directory, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0o660)
    cdef int error
    cdef void *where
    if fd < 0:
        return -errno
    give_rights(directory, fd)
    error = posix_fallocate(fd, 0, <long>size)
    if error != 0:
        c_close(fd)
        unlinkat(directory, name, 0)
        return -error
    where = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    c_close(fd)
    if where == MAP_FAILED:
        error = errno
        unlinkat(directory, name, 0)
        return -error
    base[0] = <char *>where
    return 0


cdef Mapping *add_mapping(Store *store, uint64_t file, char *base, size_t size, int lock) noexcept nogil:
    """Register a file that the caller has mapped, and its lock; NULL if memory is short. Under maps_lock."""
    cdef Mapping **moved
    cdef Mapping *mapping
    if store.maps_count == store.maps_room:
        moved = <Mapping **>reallocate(store.maps, (store.maps_room * 2 + 64) * sizeof(Mapping *))
        if moved == NULL:
            return NULL
        store.maps = moved
        store.maps_room = store.maps_room * 2 + 64
    mapping = <Mapping *>allocate_zeroed(1, sizeof(Mapping))
    if mapping == NULL:
        return NULL
    mapping.file = file
    mapping.base = base
    mapping.size = size
    mapping.lock = lock
    mapping.guarded = guard(base, size)
    store.maps[store.maps_count] = mapping
    store.maps_count += 1
    return mapping


cdef Mapping *find_mapping(Store *store, uint64_t file) noexcept nogil:
    cdef int i
    for i in range(store.maps_count - 1, -1, -1):
        if store.maps[i].file == file:
            return store.maps[i]
    return NULL


cdef void drop_mapping(Store *store, int place) noexcept nogil:
    cdef Mapping *mapping = store.maps[place]
    if store.current == mapping:
        store.current = NULL
    unguard(mapping.guarded)
    munmap(mapping.base, mapping.size)
    if mapping.lock >= 0:
        c_close(mapping.lock)
    free(mapping)
    store.maps_count -= 1
    store.maps[place] = store.maps[store.maps_count]


cdef bint is_live(Store *store, uint64_t file) noexcept nogil:
    cdef uint64_t number
    if file == store.control.spare_file:
        return True
    for number in range(load64(&store.control.segment_oldest),
                        load64(&store.control.segment_newest) + 1):
        if entry_of(store, number).file == file:
            return True
    return False


cdef void sweep_mappings(Store *store) noexcept nogil:
    """Unmap files that left the queue and that nothing here uses. Under maps_lock and the lock of the log."""
    cdef int i
    for i in range(store.maps_count - 1, -1, -1):
        if store.maps[i].views == 0 and not is_live(store, store.maps[i].file):
            drop_mapping(store, i)


cdef bint is_segment(Store *store, char *base, uint64_t file) noexcept nogil:
    """Is this the segment file of that number, of this queue?"""
    cdef SegmentHeader *header = <SegmentHeader *>base
    return (memcmp(header.magic, b"HRSEGMNT", 8) == 0 and header.version == SEGMENT_VERSION
            and memcmp(header.uuid, store.control.uuid, 16) == 0 and header.file == file)


cdef int map_segment(Store *store, uint64_t file, uint64_t size, Mapping **found, bint view) noexcept nogil:
    """The mapping of a segment file, made if this process has none yet. `view` adds a holder."""
    cdef char name[32]
    cdef char *base = NULL
    cdef Mapping *mapping
    cdef int error = 0, lock = -1
    pthread_mutex_lock(&store.maps_lock)
    mapping = find_mapping(store, file)
    if mapping == NULL:
        segment_name(file, name)
        error = map_file(store, store.segments_fd, name, size, &base, &lock)
        if error == 0 and not is_segment(store, base, file):
            munmap(base, size)
            error = CODE_DAMAGED
        if error == 0:
            mapping = add_mapping(store, file, base, size, lock)
            if mapping == NULL:
                munmap(base, size)
                error = -ENOMEM
        if error != 0 and lock >= 0:
            c_close(lock)
    if mapping != NULL and view:
        mapping.views += 1
    pthread_mutex_unlock(&store.maps_lock)
    if error != 0:
        store.failed_file = file
    found[0] = mapping
    return error


cdef void release_view(Store *store, Mapping *mapping) noexcept nogil:
    if not store.read_only:
        add32(&header_of(mapping).pins, -1)
    pthread_mutex_lock(&store.maps_lock)
    mapping.views -= 1
    pthread_mutex_unlock(&store.maps_lock)


cdef int pin_segment(Store *store, uint64_t number, Entry *copy, Mapping **found) noexcept nogil:
    """Pin segment `number` for reading and copy the constant part of its entry; CODE_GONE if it has been evicted."""
    cdef Entry *entry = entry_of(store, number)
    cdef Mapping *mapping = NULL
    cdef int error
    if load64(&entry.number) != number:
        return CODE_GONE
    memcpy(copy, entry, ENTRY_KNOWN)
    fence()
    if load64(&entry.number) != number or number < load64(&store.control.segment_oldest):
        return CODE_GONE
    error = map_segment(store, copy.file, copy.size, &mapping, True)
    if error != 0:
        return CODE_GONE if number < load64(&store.control.segment_oldest) else error
    if not store.read_only:
        add32(&header_of(mapping).pins, 1)
    fence()
    if number < load64(&store.control.segment_oldest):
        release_view(store, mapping)
        return CODE_GONE
    copy.end = load64(&entry.end)
    found[0] = mapping
    return 0


cdef uint64_t segment_with(Store *store, uint64_t sequence) noexcept nogil:
    """Number of the segment that holds `sequence`, or the first one after it; 0 if none does.

    Safe without the lock: the caller pins the result and starts again if it was evicted meanwhile.
    """
    cdef uint64_t low = load64(&store.control.segment_oldest)
    cdef uint64_t high = load64(&store.control.segment_newest)
    cdef uint64_t middle
    if high < low:
        return 0
    while low < high:                # the last segment whose first is <= sequence
        middle = low + (high - low + 1) // 2
        if entry_of(store, middle).first <= sequence:
            low = middle
        else:
            high = middle - 1
    return low


# --- fork -----------------------------------------------------------------------------------------
#
# The child has every mapping and every view of its parent, so each pin is taken once more for it. The
# locks between threads are held during the fork, so that the child does not inherit them, or what they
# guard, in the middle of a change. These functions run inside fork() itself, without Python in between.

cdef void before_fork() noexcept nogil:
    cdef Store *store
    cdef int i
    pthread_mutex_lock(&all_stores_lock)
    store = all_stores
    while store != NULL:
        pthread_mutex_lock(&store.maps_lock)
        for i in range(store.maps_count):
            if store.maps[i].views and not store.read_only:
                add32(&header_of(store.maps[i]).pins, <int>store.maps[i].views)
        store = store.following
    pthread_mutex_lock(&guarded_lock)


cdef void after_fork_in_parent() noexcept nogil:
    cdef Store *store = all_stores
    pthread_mutex_unlock(&guarded_lock)
    while store != NULL:
        pthread_mutex_unlock(&store.maps_lock)
        store = store.following
    pthread_mutex_unlock(&all_stores_lock)


cdef void after_fork_in_child() noexcept nogil:
    cdef Store *store = all_stores
    memset(&guarded_lock, 0, sizeof(pthread_mutex_t))
    while store != NULL:
        memset(&store.maps_lock, 0, sizeof(pthread_mutex_t))
        store.unique_drawn = False
        store = store.following
    memset(&all_stores_lock, 0, sizeof(pthread_mutex_t))


cdef void enlist_store(Store *store) noexcept nogil:
    global all_stores
    pthread_mutex_lock(&all_stores_lock)
    store.following = all_stores
    all_stores = store
    pthread_mutex_unlock(&all_stores_lock)


cdef void delist_store(Store *store) noexcept nogil:
    global all_stores
    cdef Store *other
    pthread_mutex_lock(&all_stores_lock)
    if all_stores == store:
        all_stores = store.following
    else:
        other = all_stores
        while other != NULL and other.following != store:
            other = other.following
        if other != NULL:
            other.following = store.following
    pthread_mutex_unlock(&all_stores_lock)


pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child)
