# Slices: the part of its stream that a product belongs to, computed where the product enters the log.
#
# Each process has a table of the channels with slices, which Python makes again whenever `control.slicings` changes.
# Slices are assigned before the lock of the log is taken. The first item of an append carries the number for which the
# table was made; `append_locked` compares it with the control file and refuses items of an older table, so no product
# enters with the slice of terms that are no longer in force, or without one. docs/channels.md defines the functions.
#
# The table is read and replaced only by threads that hold the GIL, so it needs no lock of its own.
#
# Two words of a channel are shared among processes, in its file `channels/N.slices`: the counter of the round robin,
# and how many products were spread because they lack what the function needs. Both are changed by atomic addition.

cpdef enum:                          # slicing.how
    ASSIGN_GIVEN = 1
    ASSIGN_IDENT = 2
    ASSIGN_PROPERTY = 3
    ASSIGN_MODULO = 4
    ASSIGN_GRID = 5
    ASSIGN_FUNCTION = 6              # of a user: Python calls it before the append
    ASSIGN_ROUND_ROBIN = 7
    ASSIGN_RANDOM = 8

cdef enum:
    FEED_UNKNOWN = 0                 # of store.sliced_feeds; otherwise 1, or 2 + the place of a slicing
    FEED_UNSLICED = 1
    COUNTER_NEXT = 2                 # words of channels/N.slices
    COUNTER_SPREAD = 3
    COUNTER_WORDS = 8


# --- which channel --------------------------------------------------------------------------------

cdef bint is_within(Slicing *slicing, Name *feed) noexcept nogil:
    """Is the feed the root of the subtree, or below it?"""
    cdef uint32_t size = slicing.root_bytes
    if size == 0:
        return True
    if feed.bytes < size or memcmp(feed.text, slicing.root, size) != 0:
        return False
    return feed.bytes == size or feed.text[size] == b"/"


cdef bint know_feeds(Store *store, uint32_t end) noexcept nogil:
    """Make room for the feeds below `end`; False if memory is short."""
    cdef uint32_t count = <uint32_t>rounded(end, 1024)
    cdef uint16_t *wider
    if end <= store.sliced_feeds_count:
        return True
    wider = <uint16_t *>reallocate(store.sliced_feeds, count * sizeof(uint16_t))
    if wider == NULL:
        return False
    memset(wider + store.sliced_feeds_count, 0, (count - store.sliced_feeds_count) * sizeof(uint16_t))
    store.sliced_feeds, store.sliced_feeds_count = wider, count
    return True


cdef Slicing *slicing_of(Store *store, uint32_t feed) noexcept nogil:
    """The slices of the channel that contains the feed; NULL if no channel with slices does."""
    cdef uint32_t i
    cdef uint16_t known = FEED_UNKNOWN
    if feed < store.sliced_feeds_count:
        known = store.sliced_feeds[feed]
    if known == FEED_UNKNOWN:
        known = FEED_UNSLICED
        for i in range(store.slicings_count):
            if is_within(&store.slicings[i], name_of(store, feed)):
                known = <uint16_t>(2 + i)
                break
        if know_feeds(store, feed + 1):
            store.sliced_feeds[feed] = known
    return NULL if known == FEED_UNSLICED else &store.slicings[known - 2]


# --- which slice ----------------------------------------------------------------------------------

cdef inline uint16_t part_of(uint64_t hash, uint32_t slices) noexcept nogil:
    """The slice of a hash: each has an equal range of all hashes."""
    return <uint16_t>wide_multiply(hash, slices)


cdef const uint8_t *find_property(Item *item, const char *name, uint32_t name_bytes, uint8_t *kind,
                                  size_t *size) noexcept nogil:
    """The value of a property in the item's block, with its kind and size; NULL if there is none."""
    cdef const uint8_t *entry = <const uint8_t *>item.properties
    cdef size_t left = item.properties_bytes, entry_bytes
    while left >= 4:
        size[0] = entry[2] | <size_t>entry[3] << 8
        entry_bytes = 4 + entry[1] + size[0]
        if entry_bytes > left:
            return NULL
        if entry[1] == name_bytes and memcmp(entry + 4, name, name_bytes) == 0:
            kind[0] = entry[0]
            return entry + 4 + name_bytes
        entry += entry_bytes
        left -= entry_bytes
    return NULL


cdef bint coordinate_of(Item *item, const char *name, uint32_t name_bytes, double *number) noexcept nogil:
    """Does the item have this property as an int or a float?"""
    cdef uint8_t kind = 0
    cdef size_t size = 0
    cdef int64_t whole
    cdef const uint8_t *value = find_property(item, name, name_bytes, &kind, &size)
    if value == NULL or size != 8:
        return False
    if kind == PROPERTY_INT:
        memcpy(&whole, value, 8)
        number[0] = <double>whole
        return True
    memcpy(number, value, 8)
    return kind == PROPERTY_FLOAT


cdef bint by_property(Slicing *slicing, Item *item) noexcept nogil:
    cdef uint8_t kind = 0
    cdef size_t size = 0
    cdef int64_t whole
    cdef const uint8_t *value = find_property(item, slicing.first, slicing.first_bytes, &kind, &size)
    if value == NULL:
        return False
    if slicing.how == ASSIGN_PROPERTY:
        item.slice = part_of(sum_of(<const char *>value, size), slicing.slices)
        return True
    if kind != PROPERTY_INT or size != 8:
        return False
    memcpy(&whole, value, 8)
    whole %= <int64_t>slicing.slices             # in C: of the sign of the dividend
    item.slice = <uint16_t>(whole + slicing.slices if whole < 0 else whole)
    return True


cdef bint by_grid(Slicing *slicing, Item *item) noexcept nogil:
    cdef double latitude = 0, longitude = 0
    cdef uint64_t row, column
    if not coordinate_of(item, slicing.first, slicing.first_bytes, &latitude):
        return False
    if not coordinate_of(item, slicing.second, slicing.second_bytes, &longitude):
        return False
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 360):     # false for NaN too
        return False
    longitude += 180
    if longitude >= 360:
        longitude -= 360
    row = <uint64_t>((latitude + 90) * slicing.rows / 180)
    column = <uint64_t>(longitude * slicing.columns / 360)
    row, column = min(row, <uint64_t>slicing.rows - 1), min(column, <uint64_t>slicing.columns - 1)
    item.slice = <uint16_t>((row * slicing.columns + column) % slicing.slices)
    return True


cdef inline uint16_t next_in_turn(Slicing *slicing) noexcept nogil:
    return <uint16_t>((add64(&slicing.counters[COUNTER_NEXT], 1) - 1) % slicing.slices)


cdef int assign_slice(Store *store, Slicing *slicing, Item *item, uint64_t assigned) except? -1:
    """0; 1 if the item was spread; or a negative code. Unless `assigned` is 0, users' functions have been called."""
    cdef bint done = False
    if slicing.how == ASSIGN_FUNCTION and assigned != 0:
        done = item.slice < slicing.slices
    elif item.slice != NO_SLICE and not item.carried and slicing.how != ASSIGN_GIVEN:
        return CODE_SLICE_GIVEN
    elif slicing.how == ASSIGN_IDENT:
        done = item.ident_bytes != 0
        if done:
            item.slice = part_of(sum_of(item.ident, item.ident_bytes), slicing.slices)
    elif slicing.how == ASSIGN_PROPERTY or slicing.how == ASSIGN_MODULO:
        done = by_property(slicing, item)
    elif slicing.how == ASSIGN_GRID:
        done = by_grid(slicing, item)
    elif slicing.how == ASSIGN_FUNCTION:
        return CODE_FUNCTION
    elif item.slice < slicing.slices:            # it came with the product
        return 0
    elif slicing.how == ASSIGN_RANDOM:
        item.slice = part_of(draw(store), slicing.slices)
        return 0
    elif slicing.how == ASSIGN_ROUND_ROBIN:
        item.slice = next_in_turn(slicing)
        return 0
    elif not item.carried:
        return CODE_SLICE_MISSING
    if not done:
        if item.slice >= slicing.slices:         # otherwise it keeps the one that it came with
            item.slice = next_in_turn(slicing)
        item.spread = 1
    return not done


cdef int assign_slices(Log log, Item *items, size_t count, uint64_t assigned=0) except -1:
    """Give a slice to each item that a channel with slices contains; how many had to be spread.

    KernelError with the place and the feed of an item whose slice may not be given, or is missing; or if users'
    functions are to be called, or were called for another table.
    """
    cdef Store *store = log.store
    cdef Slicing *slicing = NULL
    cdef uint32_t feed = 0                       # no feed has this number
    cdef size_t i
    cdef int outcome, spread = 0
    cdef bint calls = False
    if count == 0:
        return 0
    if assigned != 0 and assigned != store.slicings_seen:
        raise KernelError(CODE_SLICES)           # and not: they were given by the caller
    items[0].slicings = store.slicings_seen
    if store.slicings_count == 0:
        return 0
    for i in range(count):
        if items[i].feed != feed:
            feed = items[i].feed
            slicing = slicing_of(store, feed)
        if slicing != NULL:
            outcome = assign_slice(store, slicing, &items[i], assigned)
            if outcome == CODE_FUNCTION:         # once no other item is refused
                calls = True
            elif outcome < 0:
                raise KernelError(outcome, i, log.names[feed])
            else:
                spread += outcome
    if calls:
        raise KernelError(CODE_FUNCTION)
    return spread


cdef void count_spread(Store *store, Item *items, size_t count) noexcept nogil:
    """After the commit, with the GIL: count the items that were spread. Their channel may be gone by now."""
    cdef Slicing *slicing
    cdef size_t i
    for i in range(count):
        if items[i].spread and not items[i].duplicate:
            slicing = slicing_of(store, items[i].feed)
            if slicing != NULL:
                add64(&slicing.counters[COUNTER_SPREAD], 1)


# --- the table ------------------------------------------------------------------------------------

cdef uint32_t set_text(char *where, bytes text) except? 0xFFFFFFFF:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    if size > FEED_BYTES_MAX:
        raise ValueError("name")
    memcpy(where, PyBytes_AS_STRING(text), size)
    return <uint32_t>size


cdef int fill_slicing(Slicing *slicing, tuple said) except -1:
    cdef uint64_t[::1] counters
    root, slices, how, names, rows, columns, counters = said
    if not 1 <= slices <= NO_SLICE or counters.shape[0] < COUNTER_WORDS or (how == ASSIGN_GRID and not rows * columns):
        raise ValueError("slicing")
    slicing.root_bytes = set_text(slicing.root, root)
    slicing.slices, slicing.how, slicing.rows, slicing.columns = slices, how, rows, columns
    if len(names) > 0:
        slicing.first_bytes = set_text(slicing.first, names[0])
    if len(names) > 1:
        slicing.second_bytes = set_text(slicing.second, names[1])
    slicing.counters = &counters[0]
    return 0


def set_slicings(Log log not None, uint64_t seen, list slicings not None):
    """The channels with slices: (root, slices, how, names, rows, columns, counters) each; texts are bytes.

    `seen` is the number `slicings` of the control file, read before the channels were.
    """
    cdef Store *store = log.store
    cdef Slicing *made = <Slicing *>allocate_zeroed(max(<size_t>len(slicings), <size_t>1), sizeof(Slicing))
    cdef uint32_t i
    if made == NULL:
        raise MemoryError
    try:
        for i in range(<uint32_t>len(slicings)):
            fill_slicing(&made[i], slicings[i])
        made, store.slicings = store.slicings, made
        store.slicings_count = <uint32_t>len(slicings)
        store.slicings_seen = seen
        free(store.sliced_feeds)
        store.sliced_feeds, store.sliced_feeds_count = NULL, 0
        log.slicing_owners = slicings
    finally:
        free(made)                   # the old ones, or after an error the new ones
