# Validation: records from a buffer that may come from anybody.
#
# `read_records` makes Rows of the records. For each record it checks that its lengths fit into the buffer, then the
# checksum, then that every field is one that Headrace writes. One bad record refuses the whole buffer. Python is asked
# once for each new name, never for each record.

cdef enum:
    WRONG_SHORT = 1
    WRONG_MAGIC = 2
    WRONG_VERSION = 3
    WRONG_CHECKSUM = 4
    WRONG_FLAGS = 5
    WRONG_LENGTH = 6
    WRONG_SIGNATURE = 7
    WRONG_SEQUENCE = 8
    WRONG_TIME = 9
    WRONG_IDENT = 10
    WRONG_PROPERTIES = 11
    WRONG_PADDING = 12
    WRONG_NAME = 13
    WRONG_NAMES = 14
    WRONG_OPTIONS = 15
    WRONG_COMPRESSION = 16
    NEW_FEED = 21                    # not an error: a name that is new in this buffer
    NEW_ORIGIN = 22
    SEEN_MAX = 8192
    SEEN_STEPS = 16                  # a bound that hostile names cannot exceed

WRONG = {
    WRONG_SHORT: "it is cut short",
    WRONG_MAGIC: "it is not a record",
    WRONG_VERSION: "its version is unknown",
    WRONG_CHECKSUM: "its checksum is wrong",
    WRONG_FLAGS: "its flags are invalid",
    WRONG_LENGTH: "the length of its feed, origin or ident is invalid",
    WRONG_SIGNATURE: "it has a signature but no kind of signature",
    WRONG_SEQUENCE: "its sequence, or that of the previous product, is invalid",
    WRONG_TIME: "one of its times is invalid",
    WRONG_IDENT: "its ident is not UTF-8",
    WRONG_PROPERTIES: "its properties are malformed",
    WRONG_PADDING: "its padding is not zero",
    WRONG_NAME: "its feed or origin is not a valid name",
    WRONG_NAMES: "there are too many feeds or origins",
    WRONG_OPTIONS: "its options are malformed",
    WRONG_COMPRESSION: "its payload does not expand to the size that it says, or to too large a one",
}

cdef const uint64_t SIGN_BITS = 0x8080808080808080
cdef const uint64_t NUMBER_MAX = 0x7FFFFFFFFFFFFFFF

cdef struct Seen:                    # a name in the buffer
    const char *text
    uint32_t bytes                   # 0 = free place
    uint32_t number

cdef struct Reading:                 # a buffer that is being read
    const char *base
    uint64_t size
    uint64_t offset
    Seen *seen[2]                    # feeds and origins
    Seen last[2]
    uint32_t mask                    # of the places in `seen`


cdef bint is_utf8(const uint8_t *text, size_t size) noexcept nogil:
    """As Python decodes it: no surrogates, no overlong forms, nothing above U+10FFFF."""
    cdef size_t i = 0, more
    cdef uint64_t word
    cdef uint8_t lead, low, high
    while i < size:
        if size - i >= 8:
            memcpy(&word, text + i, 8)
            if word & SIGN_BITS == 0:
                i += 8
                continue
        lead = text[i]
        i += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        while more:
            if i == size or text[i] < low or text[i] > high:
                return False
            low, high = 0x80, 0xBF
            i += 1
            more -= 1
    return True


cdef bint is_property_block(const uint8_t *block, size_t size) noexcept nogil:
    """Do entries of known kinds fill the block, with their names in order and unique?"""
    cdef const uint8_t *before = NULL
    cdef const uint8_t *name
    cdef size_t place = 0, before_bytes = 0, name_bytes, value_bytes
    cdef uint8_t kind
    cdef int order
    while place < size:
        if size - place < 4:
            return False
        kind = block[place]
        name_bytes = block[place + 1]
        value_bytes = block[place + 2] | <size_t>block[place + 3] << 8
        name = block + place + 4
        if name_bytes == 0 or 4 + name_bytes + value_bytes > size - place or not is_utf8(name, name_bytes):
            return False
        if before != NULL:
            order = memcmp(before, name, min(before_bytes, name_bytes))
            if order > 0 or (order == 0 and before_bytes >= name_bytes):
                return False
        if kind == PROPERTY_STR:
            if not is_utf8(name + name_bytes, value_bytes):
                return False
        elif not ((kind == PROPERTY_INT or kind == PROPERTY_FLOAT) and value_bytes == 8) and not (
                kind == PROPERTY_BOOL and value_bytes == 1):
            return False
        before, before_bytes = name, name_bytes
        place += 4 + name_bytes + value_bytes
    return True


cdef bint is_zero(const char *bytes, uint64_t size) noexcept nogil:
    cdef uint64_t i
    cdef char any = 0
    for i in range(size):
        any |= bytes[i]
    return any == 0


cdef int wrong_field(Record *record, uint64_t body) noexcept nogil:
    """What Headrace would never write in a record with a correct checksum; 0 nothing."""
    cdef const char *text = <char *>record + RECORD_HEADER
    cdef uint8_t kind = (record.flags & RECORD_KIND) >> 3
    cdef uint64_t expires_ns = 1
    if record.flags & RECORD_REVISION:
        return WRONG_FLAGS
    if (record.feed_bytes == 0 or not 1 <= record.origin_bytes <= ORIGIN_BYTES_MAX
            or record.ident_bytes > IDENT_BYTES_MAX):
        return WRONG_LENGTH
    if kind == SIGNATURE_NONE and not is_zero(<char *>record.signature, 16):
        return WRONG_SIGNATURE
    if not 1 <= record.origin_sequence <= NUMBER_MAX or record.previous_delta >= record.origin_sequence:
        return WRONG_SEQUENCE
    text += record.feed_bytes + record.origin_bytes
    if not is_utf8(<const uint8_t *>text, record.ident_bytes):
        return WRONG_IDENT
    text += record.ident_bytes
    if record.properties_bytes and not is_property_block(<const uint8_t *>text, record.properties_bytes):
        return WRONG_PROPERTIES
    text += record.properties_bytes
    if record.flags & RECORD_EXPIRES:
        memcpy(&expires_ns, text, 8)
        text += 8
    if record.version == RECORD_WITH_OPTIONS:
        text += OPTIONS_HEAD
        if options_bytes(record) == 0 or not is_option_block(<const uint8_t *>text, options_bytes(record)):
            return WRONG_OPTIONS
        text += options_bytes(record)
    if record.created_ns > NUMBER_MAX or not 1 <= expires_ns <= NUMBER_MAX:
        return WRONG_TIME
    if not is_zero(text, <char *>record + body - text):
        return WRONG_PADDING
    return 0


cdef int wrong_record(const char *where, uint64_t left) noexcept nogil:
    """What is wrong with the record in the next `left` bytes, apart from its names; 0 nothing."""
    cdef Record *record = <Record *>where
    cdef uint64_t body, size
    cdef int wrong
    if left < RECORD_HEADER:
        return WRONG_SHORT
    if record.magic != RECORD_MAGIC:
        return WRONG_MAGIC
    if not is_version(record):
        return WRONG_VERSION
    body = body_within(record, left)
    size = body + record.payload_bytes
    if rounded(size, 8) > left:
        return WRONG_SHORT
    if record_checksum(where, size) != record.checksum:
        return WRONG_CHECKSUM
    if not is_zero(where + size, rounded(size, 8) - size):
        return WRONG_PADDING
    wrong = wrong_field(record, body)
    return WRONG_COMPRESSION if wrong == 0 and wrong_compression(record, body) else wrong


cdef inline bint same_text(Seen *seen, const char *text, uint32_t size) noexcept nogil:
    return seen.bytes == size and memcmp(seen.text, text, size) == 0


cdef Seen *seen_place(Reading *reading, int kind, const char *text, uint32_t size) noexcept nogil:
    """The place of a name, in use or free; NULL if there is no room for it."""
    cdef uint64_t hash = XXH3_64bits(text, size)
    cdef Seen *seen
    cdef int step
    for step in range(SEEN_STEPS):
        seen = &reading.seen[kind][(hash + step) & reading.mask]
        if seen.bytes == 0 or same_text(seen, text, size):
            return seen
    return NULL


cdef inline bint find_name(Reading *reading, int kind, const char *text, uint32_t size) noexcept nogil:
    """Is the name known? If so, `last` is it."""
    cdef Seen *seen
    if same_text(&reading.last[kind], text, size):
        return True
    seen = seen_place(reading, kind, text, size)
    if seen == NULL or seen.bytes == 0:
        return False
    reading.last[kind] = seen[0]
    return True


cdef int read_on(Rows rows, Reading *reading) noexcept nogil:
    """Read records up to the end: 0. Before the end: what is wrong, or which kind of name is new."""
    cdef Record *record
    cdef const char *text
    cdef Ref *ref
    cdef int wrong
    while reading.offset < reading.size:
        record = <Record *>(reading.base + reading.offset)
        wrong = wrong_record(<char *>record, reading.size - reading.offset)
        if wrong != 0:
            return wrong
        text = <char *>record + RECORD_HEADER
        if not find_name(reading, 0, text, record.feed_bytes):
            return NEW_FEED
        if not find_name(reading, 1, text + record.feed_bytes, record.origin_bytes):
            return NEW_ORIGIN
        ref = rows.add()
        if ref == NULL:
            return -ENOMEM
        memset(ref, 0, sizeof(Ref))
        fill_ref(ref, record, <uint16_t>reading.last[1].number)
        ref.sequence = record.origin_sequence
        ref.feed = reading.last[0].number
        rows.bytes += ref.payload_bytes
        reading.offset += rounded(ref_bytes(ref), 8)
    return 0


cdef int64_t number_of(str name, dict known, list names, uint32_t first, uint32_t end, check) except -1:
    """The number of a name, the next one if it is new; ValueError from `check`, OverflowError if none is left."""
    cdef size_t number
    if name not in known:
        check(name)
    if name not in known:            # again: another thread may have added it
        number = first + <size_t>len(known)
        if number >= end:
            raise OverflowError
        while <size_t>len(names) <= number:
            names.append("")
        names[number] = name
        known[name] = number
    return known[name]


cdef learn_name_at(Reading *reading, int kind, dict known, list names, check):
    """Assign a number to the name at which reading stopped."""
    cdef Record *record = <Record *>(reading.base + reading.offset)
    cdef const char *text = <char *>record + RECORD_HEADER + (record.feed_bytes if kind else 0)
    cdef uint32_t size = record.origin_bytes if kind else record.feed_bytes
    cdef Seen *seen
    try:
        number = number_of(text[:size].decode(), known, names, 0 if kind else ORIGINS_MAX,
                           ORIGINS_MAX if kind else NAMES_MAX, check)
    except ValueError:
        raise KernelError(CODE_DAMAGED, reading.offset, WRONG[WRONG_NAME]) from None
    except OverflowError:
        raise KernelError(CODE_DAMAGED, reading.offset, WRONG[WRONG_NAMES]) from None
    reading.last[kind].text, reading.last[kind].bytes, reading.last[kind].number = text, size, number
    seen = seen_place(reading, kind, text, size)
    if seen != NULL:
        seen[0] = reading.last[kind]


def read_records(data, dict feeds not None, dict origins not None, list names not None, check_feed, check_origin):
    """Rows over the records in `data`, which they hold; KernelError says which record is invalid, and why.

    `feeds`, `origins` and `names` give numbers to names as a Log does, and grow; a new name must pass its check,
    which raises ValueError. Data that is writable or not aligned to 8 bytes is copied.
    """
    cdef Rows rows = Rows.__new__(Rows, None)
    cdef Reading reading
    cdef uint32_t room = 64
    cdef int outcome
    rows.texts = names
    rows.hold(data)
    memset(&reading, 0, sizeof(reading))
    reading.base, reading.size = <char *>rows.buffer.buf, rows.buffer.len
    while room < SEEN_MAX and room < reading.size // 32:
        room *= 2
    reading.mask = room - 1
    reading.seen[0] = <Seen *>allocate_zeroed(2 * room, sizeof(Seen))
    if reading.seen[0] == NULL:
        raise MemoryError
    reading.seen[1] = reading.seen[0] + room
    try:
        while True:
            with nogil:
                outcome = read_on(rows, &reading)
            if outcome == NEW_FEED:
                learn_name_at(&reading, 0, feeds, names, check_feed)
            elif outcome == NEW_ORIGIN:
                learn_name_at(&reading, 1, origins, names, check_origin)
            elif outcome > 0:
                raise KernelError(CODE_DAMAGED, reading.offset, WRONG[outcome])
            elif outcome < 0:
                raise MemoryError
            else:
                return rows
    finally:
        free(reading.seen[0])
