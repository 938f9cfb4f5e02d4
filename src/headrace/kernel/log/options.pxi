# Options: what few products carry, between the fixed parts of a record and its payload.
#
# A record of version 2 has a length and then entries, each a type, a length and a value, in the order of their types.
# Options of unknown types are kept as they are. headrace/product/options.py makes and reads the values.

cdef enum:
    OPTIONS_HEAD = 2                 # the length in front of the entries
    OPTION_HEAD = 2                  # type and length of an entry
    BOUND_ENTRY = 6                  # bytes of an entry with the bound of the time stamp
    OUT_OF_ROOM = 0x7FFFFFFFFFFFFFF8


cdef inline uint64_t options_offset(const Record *record) noexcept nogil:
    """Where the length of the options is in a record of version 2."""
    return (<uint64_t>RECORD_HEADER + record.feed_bytes + record.origin_bytes + record.ident_bytes
            + record.properties_bytes + (8 if record.flags & RECORD_EXPIRES else 0))


cdef inline uint16_t options_bytes(const Record *record) noexcept nogil:
    """Bytes of the entries in a record that is known to be whole."""
    cdef uint16_t size = 0
    if record.version == RECORD_WITH_OPTIONS:
        memcpy(&size, <const char *>record + options_offset(record), 2)
    return size


cdef inline uint64_t body_within(const Record *record, uint64_t room) noexcept nogil:
    """Where the payload begins in a record that may be anything; too large a number if its length is out of `room`."""
    cdef uint64_t place = options_offset(record)
    cdef uint16_t size
    if record.version == RECORD_WITH_OPTIONS:
        if place + OPTIONS_HEAD > room:
            return OUT_OF_ROOM
        memcpy(&size, <const char *>record + place, 2)
        place += OPTIONS_HEAD + size
    return rounded(place, 8)


cdef inline uint64_t body_offset(const Record *record) noexcept nogil:
    """Where the payload begins in a record that is known to be whole."""
    return body_within(record, OUT_OF_ROOM)


cdef inline bint is_version(const Record *record) noexcept nogil:
    return record.version == RECORD_PLAIN or record.version == RECORD_WITH_OPTIONS


cdef bint is_option(uint8_t kind, const uint8_t *value, uint8_t size) noexcept nogil:
    """Is the value one that this type of option can have? Unknown types may have any."""
    cdef uint32_t number, count
    if kind == 0:
        return False
    if kind == OPTION_BOUND:
        return size == 4
    if kind == OPTION_REPLAY:
        return size == 16
    if kind == OPTION_HOPS:
        return size == 1
    if kind == OPTION_SIGNED:
        return size == 72
    if kind == OPTION_COMPRESSION:
        return size == 9
    if kind == OPTION_FRAGMENT:
        if size != 24:
            return False
        memcpy(&number, value + 16, 4)
        memcpy(&count, value + 20, 4)
        return number < count
    return True


cdef bint is_option_block(const uint8_t *block, size_t size) noexcept nogil:
    """Do entries fill the block, each with a possible value, in the order of their types?"""
    cdef size_t place = 0
    cdef uint8_t before = 0
    if size > OPTIONS_BYTES_MAX:
        return False
    while place < size:
        if size - place < OPTION_HEAD or size - place - OPTION_HEAD < block[place + 1] or block[place] <= before:
            return False
        if not is_option(block[place], block + place + OPTION_HEAD, block[place + 1]):
            return False
        before = block[place]
        place += OPTION_HEAD + block[place + 1]
    return True


cdef const uint8_t *find_option(const uint8_t *block, size_t size, uint8_t kind) noexcept nogil:
    """The value of an option in a block that is well formed; NULL if it is not there."""
    cdef size_t place = 0
    while place < size and block[place] <= kind:
        if block[place] == kind:
            return block + place + OPTION_HEAD
        place += OPTION_HEAD + block[place + 1]
    return NULL


cdef size_t options_before(const uint8_t *block, size_t size, uint8_t kind) noexcept nogil:
    """Bytes of the entries whose type is below `kind`."""
    cdef size_t place = 0
    while place < size and block[place] < kind:
        place += OPTION_HEAD + block[place + 1]
    return place


def check_options(bytes block not None):
    """ValueError if this is not a block of options."""
    if not is_option_block(<const uint8_t *>PyBytes_AS_STRING(block), len(block)):
        raise ValueError("options")
