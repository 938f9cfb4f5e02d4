# Survey: walk a segment file that is not trusted, for check, repair and recovery.

cdef enum:
    FAULT_SEQUENCE = 1               # the row is not of this sequence
    FAULT_OFFSET = 2                 # it points outside, or not right behind the record before it
    FAULT_RECORD = 3                 # the record is damaged
    FAULT_ROW = 5                    # the check of the row is wrong
    FAULT_FEED = 4                   # row and record name different feeds or origins

FAULTS = {
    FAULT_SEQUENCE: "its index row belongs to another sequence",
    FAULT_ROW: "the check of its index row is wrong",
    FAULT_OFFSET: "its index row points to a wrong place",
    FAULT_RECORD: "the checksum of its record is wrong",
    FAULT_FEED: "its index row and its record name different feeds or origins",
}


@cython.final
cdef class Mapped:
    """A whole file, mapped, and writable unless it is `read_only`.

    If it is truncated, reads return zeros instead of ending the process.
    """
    cdef char *base
    cdef Py_ssize_t size
    cdef Guarded *guarded
    cdef bint read_only

    def __cinit__(self, int fd, Py_ssize_t size, bint read_only=False):
        cdef void *where = mmap(NULL, size, PROT_READ if read_only else PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        self.read_only = read_only
        install_sigbus()
        if where == MAP_FAILED:
            raise KernelError(-errno)
        self.base = <char *>where
        self.size = size
        self.guarded = guard(where, size)

    def __dealloc__(self):
        if self.base != NULL:
            unguard(self.guarded)
            munmap(self.base, self.size)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.base, self.size, self.read_only, flags)

    @property
    def holed(self):
        """Was the file found to be shorter than its mapping?"""
        return is_holed(self.guarded)

    cdef uint32_t *word(self, Py_ssize_t offset) except NULL:
        if offset < 0 or offset % 4 != 0 or offset + 4 > self.size:
            raise IndexError(f"there is no word at {offset} of {self.size} bytes")
        return <uint32_t *>(self.base + offset)

    def wait(self, Py_ssize_t offset, uint32_t seen, double timeout_s):
        """Sleep until the word at `offset` is not `seen`, or `timeout_s` or a second has passed; the word.

        One second at most, because a process that was killed between its change and its `wake` never makes that call.
        """
        cdef uint32_t *word = self.word(offset)
        cdef uint64_t wake_at = clock_ns(CLOCK_MONOTONIC)
        cdef timespec until
        wake_at += <uint64_t>(timeout_s * 1e9) if 0 <= timeout_s < 1 else 1000000000
        until.tv_sec = wake_at // 1000000000
        until.tv_nsec = wake_at % 1000000000
        with nogil:
            futex(word, FUTEX_WAIT_BITSET, seen, &until)
        PyErr_CheckSignals()
        return load32(word)

    def wake(self, Py_ssize_t offset):
        """Add one to the word at `offset`, and wake every process that waits for it."""
        cdef uint32_t *word = self.word(offset)
        if self.read_only:
            raise KernelError(-EROFS)
        add32(word, 1)
        futex(word, FUTEX_WAKE, 0x7FFFFFFF, NULL)


def read_segment_header(const uint8_t[::1] data not None):
    """Fields of a segment header as a dict, or None if it is not one; `sound`: is its checksum correct?"""
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
    if row.sequence != <uint32_t>sequence:
        return FAULT_SEQUENCE
    if row.check != row_check(row):
        return FAULT_ROW
    if <uint64_t>row.offset * 8 != expected and expected != 0:
        return FAULT_OFFSET
    if not sound_record(mapping, row):
        return FAULT_RECORD
    record = <Record *>(mapping.base + <uint64_t>row.offset * 8)
    if store != NULL and not same_names(store, row, record):
        return FAULT_FEED
    return 0


def survey_rows(Log log, uint8_t[::1] data, uint64_t first, uint64_t count, bint verify):
    """Walk `count` rows of a segment held in `data`.

    Returns (rows walked, [(sequence, fault)], payload bytes, newest insertion time, marked rows, their
    bytes). Without `verify` it only counts. `log` may be None: then names are not compared.
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
    count = min(count, rows_room(mapping.size))
    while place < count:
        row = row_of(&mapping, place)
        fault = 0
        if verify:
            with nogil:
                fault = row_fault(store, &mapping, row, first + place, expected)
        if row.flags & ROW_DAMAGED and fault not in (FAULT_SEQUENCE, FAULT_ROW):
            fault = 0                # marked already: not a new fault
        if fault:
            faults.append((first + place, fault))
        expected = 0
        if fault in (0, FAULT_FEED) and not row.flags & ROW_DAMAGED:
            expected = record_end(&mapping, row)
        payload_bytes += row.payload_bytes
        newest_ns = max(newest_ns, row.inserted_ns)
        if row.flags & ROW_HIDDEN:
            marked += 1
            marked_bytes += row.payload_bytes
        place += 1
    return place, faults, payload_bytes, newest_ns, marked, marked_bytes


def count_records(Log log, uint8_t[::1] data, uint64_t first):
    """How many intact records follow each other from the start; those from before the file was reused do not count."""
    cdef Mapping mapping
    cdef uint64_t offset = SEGMENT_HEADER, count = 0
    cdef Record *record
    cdef Row row
    memset(&mapping, 0, sizeof(mapping))
    mapping.base = <char *>&data[0]
    mapping.size = data.shape[0]
    ours = log.names[log.store.control.origin] if log.names else None
    while offset + RECORD_HEADER <= mapping.size:
        record = <Record *>(mapping.base + offset)
        describe_record(record, offset, &row)
        if not sound_record(&mapping, &row):
            break
        origin = (<char *>record + RECORD_HEADER + record.feed_bytes)[:record.origin_bytes].decode()
        if origin == ours and record.origin_sequence != first + count and not record.flags & RECORD_REVISION:
            break                    # left over from before the file was reused
        offset += rounded(record_bytes(record), 8)
        count += 1
    return count


cdef void describe_record(Record *record, uint64_t offset, Row *row) noexcept nogil:
    """The parts of a row that its record determines."""
    memset(row, 0, sizeof(Row))
    row.offset = <uint32_t>(offset // 8)
    row.payload_bytes = record.payload_bytes
    row.priority = record.flags & 7
    row.slice = record.slice


def forgotten_rows(Log log, uint8_t[::1] data, uint64_t first, uint64_t count):
    """Sequences whose signature is missing in the duplicate table. Under the lock of the log."""
    cdef Mapping mapping
    cdef uint64_t place, tag = 0, sequence
    cdef uint64_t *slot = NULL
    cdef Row *row
    cdef Imprint imprint
    cdef int error = dedup_attach(log.store)
    if error != 0:
        raise KernelError(error)
    memset(&mapping, 0, sizeof(mapping))
    mapping.base = <char *>&data[0]
    mapping.size = data.shape[0]
    forgotten = []
    for place in range(min(count, rows_room(mapping.size))):
        row = row_of(&mapping, place)
        sequence = first + place
        if sequence < log.store.control.oldest:
            break
        if (not row.flags & ROW_SIGNED or row.flags & (ROW_DELETED | ROW_DAMAGED)
                or <uint64_t>row.offset * 8 + RECORD_HEADER > mapping.size):
            continue
        imprint = imprint_of(<Record *>(mapping.base + <uint64_t>row.offset * 8), row)
        if dedup_find(log.store, &imprint, log.store.control.tail, &slot, &tag) == 0:
            forgotten.append(sequence)
    return forgotten


cdef bint sound_at(Mapping *mapping, uint64_t offset, uint64_t limit, Row *row) noexcept nogil:
    """Is there an intact record at `offset`? Describes it in `row`."""
    if offset < SEGMENT_HEADER or offset + RECORD_HEADER > limit or offset % 8:
        return False
    describe_record(<Record *>(mapping.base + offset), offset, row)
    return sound_record(mapping, row)


cdef uint64_t next_sound(Mapping *mapping, uint64_t offset, uint64_t limit) noexcept nogil:
    """Where the next intact record begins; 0 if there is none."""
    cdef Row row
    while offset + RECORD_HEADER <= limit:
        if (<Record *>(mapping.base + offset)).magic == RECORD_MAGIC and sound_at(mapping, offset, limit, &row):
            return offset
        offset += 8
    return 0


def rebuild_rows(Log log, uint8_t[::1] data, uint64_t first, uint64_t count):
    """Rebuild the index rows of a segment from its records; (rebuilt, lost) as counts.

    A row that points to an intact record is trusted, with what only the row has: the insertion time and the mark of
    deletion. For an invalid row, the record right behind the previous one is used. After a damaged record, the next
    intact one has its own sequence if it was created here; one from elsewhere counts as the direct successor.
    """
    cdef Mapping mapping
    cdef uint64_t place, offset = SEGMENT_HEADER, rebuilt = 0, skip_to = 0, limit
    cdef Record *record
    cdef Row *row
    cdef Row found
    cdef uint8_t marks
    cdef bint trusted, sound
    memset(&mapping, 0, sizeof(mapping))
    mapping.base = <char *>&data[0]
    mapping.size = data.shape[0]
    limit = mapping.size - count * ROW_BYTES
    ours = log.names[log.store.control.origin]
    for place in range(count):
        row = row_of(&mapping, place)
        trusted = fits(row, first + place)
        sound = trusted and sound_at(&mapping, <uint64_t>row.offset * 8, limit, &found)
        if sound:
            skip_to = 0
        elif place >= skip_to:
            trusted = False
            sound = offset != 0 and sound_at(&mapping, offset, limit, &found)
            if sound:
                record = <Record *>(mapping.base + offset)
                text = (<char *>record + RECORD_HEADER + record.feed_bytes)[:record.origin_bytes].decode()
                sound = (text != ours or record.origin_sequence == first + place
                         or record.flags & RECORD_REVISION != 0)
        if not sound:
            if place >= skip_to and offset != 0:
                offset = next_sound(&mapping, offset + 8, limit)
                skip_to = place + 1
                if offset:
                    record = <Record *>(mapping.base + offset)
                    text = (<char *>record + RECORD_HEADER + record.feed_bytes)[:record.origin_bytes].decode()
                    if (text == ours and record.origin_sequence > first + place
                            and not record.flags & RECORD_REVISION):
                        skip_to = record.origin_sequence - first
            memset(row, 0, sizeof(Row))
            row.sequence = <uint32_t>(first + place)
            row.flags = ROW_DAMAGED
            row.check = row_check(row)
            continue
        record = <Record *>(mapping.base + <uint64_t>found.offset * 8)
        text = (<char *>record + RECORD_HEADER)[:record.feed_bytes].decode()
        found.feed = log.feeds[text] if text in log.feeds else log.add_name_locked(NAME_FEED, text)
        text = (<char *>record + RECORD_HEADER + record.feed_bytes)[:record.origin_bytes].decode()
        found.origin = <uint16_t>(log.origins[text] if text in log.origins else log.add_name_locked(NAME_ORIGIN, text))
        found.inserted_ns = row.inserted_ns if trusted else record.created_ns
        found.sequence = <uint32_t>(first + place)
        marks = row.flags & (ROW_DELETED | ROW_CONTINUES | ROW_UNPROVEN) if trusted else 0
        if not trusted and text != ours and record.version == RECORD_WITH_OPTIONS and record.flags & RECORD_KIND:
            marks = ROW_UNPROVEN     # perhaps it was; then a product may be stored twice, and none is suppressed
        found.flags = (marks | (ROW_EXPIRES if record.flags & RECORD_EXPIRES else 0)
                       | (ROW_SIGNED if record.flags & 0x38 else 0)
                       | (ROW_REVISION if record.flags & RECORD_REVISION else 0)
                       | (ROW_OPTIONS if record.version == RECORD_WITH_OPTIONS else 0))
        found.check = row_check(&found)
        row[0] = found
        offset = <uint64_t>found.offset * 8 + rounded(record_bytes(record), 8)
        rebuilt += 1
    return rebuilt, count - rebuilt


def segment_header(Log log, uint64_t file, uint64_t size, uint64_t number, uint64_t first):
    """The header of a segment file."""
    cdef Mapping mapping
    cdef char start[SEGMENT_HEADER]
    memset(start, 0, SEGMENT_HEADER)
    memset(&mapping, 0, sizeof(mapping))
    mapping.base = start
    mapping.size = size
    write_segment_header(log.store, &mapping, file, number, first)
    return start[:SEGMENT_HEADER]


def write_header(Log log, uint64_t file, uint64_t size, uint64_t number, uint64_t first):
    """Write the header of a segment file. While no other process is attached."""
    cdef Mapping *mapping = NULL
    cdef int error = map_segment(log.store, file, size, &mapping, False)
    if error != 0:
        raise KernelError(error, file)
    write_segment_header(log.store, mapping, file, number, first)
