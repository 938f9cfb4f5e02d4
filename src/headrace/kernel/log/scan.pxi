# Reading: pick rows, verify the records behind them, hand them out as columns and views.
#
# A Rows object goes through three steps: `pick` (index rows only), `keep` (whatever the caller filters
# by), `verify` (every record that is handed out has its checksum compared). It holds one pin for each
# segment that it touches; views of payloads hold the Rows. Rows that came from elsewhere (wire.pxi) have
# a buffer instead of a log and pins, and were verified when they were read.

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef packed struct Ref:              # 120 bytes: one product as the Batch sees it
    uint64_t sequence
    uint64_t inserted_ns
    uint64_t created_ns
    uint64_t expires_ns
    uint64_t origin_sequence
    uint64_t previous
    uint64_t record                  # addresses in this process
    uint64_t payload
    uint32_t payload_bytes
    uint32_t feed
    uint16_t origin
    uint16_t slice
    uint16_t ident_bytes
    uint16_t properties_bytes
    uint8_t priority
    uint8_t kind
    uint8_t feed_bytes
    uint8_t origin_bytes
    uint32_t segment                 # which of the pinned mappings
    uint8_t signature[16]
    uint32_t slot                    # of a product from a station: where its lease is
    uint16_t deliveries
    uint16_t revisions
    uint64_t ticket

cdef Ref ref_shape                   # never read: only its addresses are compared
REF_BYTES = sizeof(Ref)
REF_FIELDS = {                       # field of a Ref: (offset, bytes); product/batch.py has the same as a NumPy type
    "sequence": (<char *>&ref_shape.sequence - <char *>&ref_shape, sizeof(ref_shape.sequence)),
    "inserted_ns": (<char *>&ref_shape.inserted_ns - <char *>&ref_shape, sizeof(ref_shape.inserted_ns)),
    "created_ns": (<char *>&ref_shape.created_ns - <char *>&ref_shape, sizeof(ref_shape.created_ns)),
    "expires_ns": (<char *>&ref_shape.expires_ns - <char *>&ref_shape, sizeof(ref_shape.expires_ns)),
    "origin_sequence": (<char *>&ref_shape.origin_sequence - <char *>&ref_shape, sizeof(ref_shape.origin_sequence)),
    "previous": (<char *>&ref_shape.previous - <char *>&ref_shape, sizeof(ref_shape.previous)),
    "record": (<char *>&ref_shape.record - <char *>&ref_shape, sizeof(ref_shape.record)),
    "payload": (<char *>&ref_shape.payload - <char *>&ref_shape, sizeof(ref_shape.payload)),
    "payload_bytes": (<char *>&ref_shape.payload_bytes - <char *>&ref_shape, sizeof(ref_shape.payload_bytes)),
    "feed": (<char *>&ref_shape.feed - <char *>&ref_shape, sizeof(ref_shape.feed)),
    "origin": (<char *>&ref_shape.origin - <char *>&ref_shape, sizeof(ref_shape.origin)),
    "slice": (<char *>&ref_shape.slice - <char *>&ref_shape, sizeof(ref_shape.slice)),
    "ident_bytes": (<char *>&ref_shape.ident_bytes - <char *>&ref_shape, sizeof(ref_shape.ident_bytes)),
    "properties_bytes": (<char *>&ref_shape.properties_bytes - <char *>&ref_shape, sizeof(ref_shape.properties_bytes)),
    "priority": (<char *>&ref_shape.priority - <char *>&ref_shape, sizeof(ref_shape.priority)),
    "kind": (<char *>&ref_shape.kind - <char *>&ref_shape, sizeof(ref_shape.kind)),
    "feed_bytes": (<char *>&ref_shape.feed_bytes - <char *>&ref_shape, sizeof(ref_shape.feed_bytes)),
    "origin_bytes": (<char *>&ref_shape.origin_bytes - <char *>&ref_shape, sizeof(ref_shape.origin_bytes)),
    "segment": (<char *>&ref_shape.segment - <char *>&ref_shape, sizeof(ref_shape.segment)),
    "signature": (<char *>&ref_shape.signature - <char *>&ref_shape, sizeof(ref_shape.signature)),
    "slot": (<char *>&ref_shape.slot - <char *>&ref_shape, sizeof(ref_shape.slot)),
    "deliveries": (<char *>&ref_shape.deliveries - <char *>&ref_shape, sizeof(ref_shape.deliveries)),
    "revisions": (<char *>&ref_shape.revisions - <char *>&ref_shape, sizeof(ref_shape.revisions)),
    "ticket": (<char *>&ref_shape.ticket - <char *>&ref_shape, sizeof(ref_shape.ticket)),
}

cdef struct Picked:                  # what a scan passed over, by cause
    uint64_t scanned
    uint64_t filtered
    uint64_t deleted
    uint64_t damaged
    uint64_t expired


cdef bint sound_record(Mapping *mapping, Row *row) noexcept nogil:
    """Is the record behind the row whole and the one that the row speaks of?"""
    cdef uint64_t offset = <uint64_t>row.offset * 8
    cdef Record *record = <Record *>(mapping.base + offset)
    cdef uint64_t size
    if offset < SEGMENT_HEADER or offset + RECORD_HEADER > mapping.size:
        return False
    if (record.magic != RECORD_MAGIC or record.version != FORMAT_VERSION
            or record.payload_bytes != row.payload_bytes
            or (record.flags & 7) != row.priority or record.slice != row.slice):
        return False
    size = record_bytes(record)
    if offset + size > mapping.size:
        return False
    return record_checksum(<char *>record, size) == record.checksum


cdef bint same_names(Store *store, Row *row, Record *record) noexcept nogil:
    """Do row and record speak of the same feed and origin?"""
    cdef char *text = <char *>record + RECORD_HEADER
    if not is_feed(store.control, row.feed) or row.origin >= store.control.origins_end:
        return False
    return (is_name(name_of(store, row.feed), text, record.feed_bytes)
            and is_name(name_of(store, row.origin), text + record.feed_bytes, record.origin_bytes))


cdef inline bint is_name(Name *name, const char *text, uint8_t size) noexcept nogil:
    """Compares the text and the zero behind it only: the line with its size is the one that writers count in."""
    return memcmp(name.text, text, size) == 0 and name.text[size] == 0


cdef void fill_ref(Ref *ref, Record *record, uint16_t origin) noexcept nogil:
    ref.created_ns = record.created_ns
    ref.origin_sequence = record.origin_sequence
    ref.previous = record.origin_sequence - record.previous_delta if record.previous_delta else 0
    ref.record = <uint64_t>record
    ref.payload = <uint64_t>record + body_offset(record)
    ref.payload_bytes = record.payload_bytes
    ref.origin = origin
    ref.slice = record.slice
    ref.ident_bytes = record.ident_bytes
    ref.properties_bytes = record.properties_bytes
    ref.priority = record.flags & 7
    ref.kind = (record.flags >> 3) & 7
    ref.feed_bytes = record.feed_bytes
    ref.origin_bytes = record.origin_bytes
    ref.expires_ns = 0
    if record.flags & RECORD_EXPIRES:
        memcpy(&ref.expires_ns, <char *>record + RECORD_HEADER + record.feed_bytes
               + record.origin_bytes + record.ident_bytes + record.properties_bytes, 8)
    memcpy(ref.signature, record.signature, 16)


@cython.no_gc
@cython.final
cdef class View:
    """The bytes of one payload, read-only and without a copy, for as long as anybody holds them."""
    cdef Rows rows
    cdef char *base
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.base, self.size, 1, flags)


@cython.no_gc                        # no cycle can pass through it, and its end needs the Log
@cython.final
cdef class Rows:
    """Rows picked from the log, with pins on their segments; or rows of a buffer that they hold."""
    cdef Log log                     # None: the records lie in `buffer`
    cdef list texts                  # names, without a log
    cdef Py_buffer buffer
    cdef Ref *refs
    cdef size_t count, room
    cdef Mapping **pinned
    cdef uint64_t *pinned_first
    cdef uint32_t pinned_count
    cdef Picked picked
    cdef uint64_t leased_by          # number of the chain that handed them out; 0 none
    cdef readonly uint64_t next      # where the next scan begins
    cdef readonly uint64_t bytes     # payload bytes of the rows
    cdef readonly object damage      # (sequence, segment file) that ended the scan, or None

    def __cinit__(self, Log log):
        self.log = log
        self.damage = None

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.pinned_count):
            release_view(self.log.store, self.pinned[i])
        PyBuffer_Release(&self.buffer)           # does nothing for one that was never taken
        free(self.pinned)
        free(self.pinned_first)
        free(self.refs)

    def __len__(self):
        return self.count

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.refs, self.count * sizeof(Ref), 1, flags)

    @property
    def names(self):
        """The texts of the numbers of feeds and origins."""
        return self.texts if self.log is None else self.log.names

    @property
    def passed_over(self):
        """(scanned, filtered, deleted, damaged, expired) rows so far."""
        return (self.picked.scanned, self.picked.filtered, self.picked.deleted,
                self.picked.damaged, self.picked.expired)

    cdef int pin(self, uint64_t number, Entry *entry, Mapping **mapping) noexcept nogil:
        """Pin a segment for this object, or find that it has it already."""
        cdef int error
        if self.pinned_count:
            mapping[0] = self.pinned[self.pinned_count - 1]
            memcpy(entry, entry_of(self.log.store, number), ENTRY_KNOWN)
            if (entry.file == mapping[0].file and entry.number == number
                    and entry.first == self.pinned_first[self.pinned_count - 1]
                    and number >= load64(&self.log.store.control.segment_oldest)):
                return 0
        error = pin_segment(self.log.store, number, entry, mapping)
        if error == 0:
            self.pinned = <Mapping **>realloc(self.pinned, (self.pinned_count + 1) * sizeof(Mapping *))
            self.pinned_first = <uint64_t *>realloc(
                self.pinned_first, (self.pinned_count + 1) * sizeof(uint64_t))
            self.pinned[self.pinned_count] = mapping[0]
            self.pinned_first[self.pinned_count] = entry.first
            self.pinned_count += 1
        return error

    cdef int hold(self, data) except -1:
        """Hold a buffer for records; a copy of it if it could be altered, or does not begin at a multiple of 8."""
        PyObject_GetBuffer(data, &self.buffer, PyBUF_SIMPLE)
        if not self.buffer.readonly or <uintptr_t>self.buffer.buf % 8:
            copy = PyBytes_FromStringAndSize(<char *>self.buffer.buf, self.buffer.len)
            PyBuffer_Release(&self.buffer)
            PyObject_GetBuffer(copy, &self.buffer, PyBUF_SIMPLE)
        return 0

    cdef void reserve(self, size_t room) noexcept nogil:
        """For rows whose number is known: room for so many."""
        self.refs = <Ref *>malloc(room * sizeof(Ref))
        self.room = room if self.refs != NULL else 0

    cdef Ref *add(self) noexcept nogil:
        cdef Ref *moved
        if self.count == self.room:
            moved = <Ref *>realloc(self.refs, (self.room * 2 + 256) * sizeof(Ref))
            if moved == NULL:
                return NULL
            self.refs = moved
            self.room = self.room * 2 + 256
        self.count += 1
        return &self.refs[self.count - 1]

    cdef int pick_segment(self, Mapping *mapping, Entry *entry, uint64_t head, size_t limit,
                          uint64_t bytes_limit, const Wanted *wanted) noexcept nogil:
        cdef uint64_t end = min(entry.end if 0 < entry.end < head else head,
                                entry.first + rows_room(mapping.size))
        cdef uint64_t sequence = self.next
        cdef int outcome = CODE_DAMAGED if sequence >= end else 0
        cdef int found
        cdef Row row
        cdef Ref *ref
        while sequence < end and self.count < limit and self.bytes < bytes_limit:
            load_row(mapping, sequence - entry.first, &row)
            if not fits(&row, sequence):
                outcome = CODE_DAMAGED
                break
            if wanted != NULL:
                found = row_wanted(wanted, &row)
                if found < 0:
                    outcome = found
                    break
                if found == 0:
                    self.picked.filtered += 1
                    sequence += 1
                    continue
            if row.flags & ROW_HIDDEN:
                if row.flags & ROW_DAMAGED:
                    self.picked.damaged += 1
                elif row.flags & ROW_DELETED:
                    self.picked.deleted += 1
                else:
                    self.picked.filtered += 1
                sequence += 1
                continue
            ref = self.add()
            if ref == NULL:
                outcome = -ENOMEM
                break
            ref.sequence = sequence
            ref.inserted_ns = row.inserted_ns
            ref.record = <uint64_t>mapping.base + <uint64_t>row.offset * 8
            ref.payload_bytes = row.payload_bytes
            ref.feed = row.feed
            ref.slice = row.slice
            ref.segment = self.pinned_count - 1
            self.bytes += row.payload_bytes
            sequence += 1
        self.picked.scanned += sequence - self.next
        self.next = sequence
        return outcome

    cdef int pick_all(self, size_t limit, uint64_t bytes_limit, uint64_t stop,
                      const Wanted *wanted) noexcept nogil:
        cdef Store *store = self.log.store
        cdef uint64_t head = min(load64(&store.control.head), stop)
        cdef Entry entry
        cdef Mapping *mapping = NULL
        cdef uint64_t number
        cdef int error
        if state_holed(store):
            return CODE_DAMAGED
        while self.next < head and self.count < limit and self.bytes < bytes_limit:
            number = segment_with(store, self.next)
            if number == 0:
                return CODE_GONE
            error = self.pin(number, &entry, &mapping)
            if error == CODE_GONE:
                if self.next < load64(&store.control.oldest):
                    return CODE_GONE
                continue
            if error != 0:
                return error
            if self.next < entry.first or (entry.end != 0 and self.next >= entry.end):
                return CODE_GONE              # a gap between two segments
            error = self.pick_segment(mapping, &entry, head, limit, bytes_limit, wanted)
            if error != 0:
                if error == CODE_DAMAGED:
                    store.failed_file = entry.file
                return error
        return 0

    cdef int pick_one(self, uint64_t sequence, uint64_t head) noexcept nogil:
        """Add one product below `head`, verified and filled; 0 or why it cannot be had."""
        cdef Store *store = self.log.store
        cdef uint64_t number, first
        cdef Entry entry
        cdef Mapping *mapping = NULL
        cdef Ref *ref
        cdef Row row
        cdef int error
        if sequence >= head:
            return CODE_GONE
        while True:
            if self.pinned_count:    # the next product is mostly where the last one was
                mapping = self.pinned[self.pinned_count - 1]
                first = self.pinned_first[self.pinned_count - 1]
                if first <= sequence < first + rows_room(mapping.size):
                    load_row(mapping, sequence - first, &row)
                    if fits(&row, sequence):
                        break
            number = segment_with(store, sequence)
            if number == 0 or sequence < load64(&store.control.oldest):
                return CODE_GONE
            error = self.pin(number, &entry, &mapping)
            if error == CODE_GONE:
                continue
            if error != 0:
                return error
            if sequence < entry.first or (entry.end != 0 and sequence >= entry.end):
                return CODE_GONE
            if sequence - entry.first >= rows_room(mapping.size):
                return CODE_DAMAGED
            load_row(mapping, sequence - entry.first, &row)
            if not fits(&row, sequence):
                return CODE_DAMAGED
            break
        if row.flags & (ROW_DELETED | ROW_DAMAGED):
            return CODE_GONE
        if not sound_record(mapping, &row) or not same_names(
                store, &row, <Record *>(mapping.base + <uint64_t>row.offset * 8)):
            return CODE_DAMAGED
        ref = self.add()
        if ref == NULL:
            return -ENOMEM
        ref.sequence = sequence
        ref.inserted_ns = row.inserted_ns
        ref.feed = row.feed
        ref.segment = self.pinned_count - 1
        fill_ref(ref, <Record *>(mapping.base + <uint64_t>row.offset * 8), row.origin)
        self.bytes += row.payload_bytes
        return 0

    def pick(self, uint64_t start, size_t limit, uint64_t bytes_limit, uint64_t stop,
             RowFilter row_filter):
        """Add rows from `start` on, up to `limit` rows and about `bytes_limit` payload bytes in all.

        Returns 0, or one of the TROUBLE_ values; `next` tells where it stopped.
        """
        cdef const Wanted *wanted = &row_filter.wanted if row_filter is not None else NULL
        cdef int outcome
        if self.log is None:
            raise ValueError("rows without a log")
        self.next = start
        with nogil:
            outcome = self.pick_all(limit, bytes_limit, stop, wanted)
        if too_many_maps(self.log.store):
            self.log.sweep()
        return outcome

    def keep(self, const uint8_t[::1] mask, size_t begin):
        """Drop the rows from place `begin` on whose byte in `mask` is zero."""
        cdef size_t i, kept = begin
        for i in range(begin, self.count):
            if mask[i - begin]:
                self.refs[kept] = self.refs[i]
                kept += 1
            else:
                self.bytes -= self.refs[i].payload_bytes
                self.picked.filtered += 1
        self.count = kept

    def cut(self, size_t limit):
        """Keep the first `limit` rows; the next scan begins at the first one dropped."""
        if self.count > limit:
            self.next = self.refs[limit].sequence
            self.count = limit

    def verify(self, size_t begin, uint64_t now_ns):
        """Check and fill the rows from place `begin` on, unless they came that way; drop what has expired.

        A record that does not fit its checksum ends the rows there and is named by `damage`.
        """
        cdef size_t i, kept = begin
        cdef Ref *ref
        cdef Mapping *mapping
        cdef Row row
        cdef bint sound = True, from_log = self.log is not None
        if now_ns == 0:
            now_ns = clock_ns(CLOCK_REALTIME)
        with nogil:
            for i in range(begin, self.count):
                if i + 8 < self.count:
                    prefetch(<void *>self.refs[i + 8].record)
                ref = &self.refs[i]
                if from_log:
                    mapping = self.pinned[ref.segment]
                    load_row(mapping, ref.sequence - self.pinned_first[ref.segment], &row)
                    sound = sound_record(mapping, &row) and same_names(self.log.store, &row, <Record *>ref.record)
                    if not sound:
                        break
                    fill_ref(ref, <Record *>ref.record, row.origin)
                if ref.expires_ns != 0 and ref.expires_ns <= now_ns:
                    self.picked.expired += 1
                    self.bytes -= ref.payload_bytes
                    continue
                if kept != i:
                    self.refs[kept] = ref[0]
                kept += 1
        if not sound:
            self.next = self.refs[i].sequence
            self.damage = (self.next, self.pinned[self.refs[i].segment].file)
        self.count = kept

    def view(self, size_t place):
        cdef View view = View.__new__(View)
        view.rows = self
        view.base = <char *>self.refs[place].payload
        view.size = self.refs[place].payload_bytes
        return memoryview(view)

    def ident(self, size_t place):
        cdef Ref *ref = &self.refs[place]
        return text_at(ref.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes, ref.ident_bytes)

    def properties(self, size_t place):
        """The property block of one row."""
        cdef Ref *ref = &self.refs[place]
        return PyBytes_FromStringAndSize(
            <char *>ref.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes + ref.ident_bytes,
            ref.properties_bytes)

    def record(self, size_t place):
        """The record of one row, as it stands in the log."""
        return PyBytes_FromStringAndSize(
            <char *>self.refs[place].record, record_bytes(<Record *>self.refs[place].record))

    def gather_records(self, const uint32_t[::1] places=None):
        """The records at these places, or all, one after the other, each padded with zeros to a multiple of 8."""
        if places is None:
            return gather_records(self, NULL, self.count)
        return gather_records(self, &places[0] if places.shape[0] else NULL, places.shape[0])

    def gather_idents(self, size_t begin=0):
        """(offsets, bytes) of the idents from place `begin` on, as Arrow lays out strings."""
        cdef size_t i, count = self.count - begin
        cdef uint64_t total = 0
        cdef Record *record
        cdef Ref *ref
        cdef char *data
        cdef uint32_t *offsets
        offsets_bytes = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
        offsets = <uint32_t *>PyBytes_AS_STRING(offsets_bytes)
        for i in range(count):
            if i + 8 < count:
                prefetch(<void *>self.refs[begin + i + 8].record)
            ref = &self.refs[begin + i]
            if self.log is not None:
                ref.ident_bytes = ident_room(self.pinned[ref.segment], ref)
            offsets[i] = <uint32_t>total
            total += ref.ident_bytes
        offsets[count] = <uint32_t>total
        data_bytes = PyBytes_FromStringAndSize(NULL, total)
        data = PyBytes_AS_STRING(data_bytes)
        with nogil:
            for i in range(count):
                ref = &self.refs[begin + i]
                record = <Record *>ref.record
                memcpy(data + offsets[i], <char *>record + RECORD_HEADER + record.feed_bytes
                       + record.origin_bytes, ref.ident_bytes)
        return offsets_bytes, data_bytes

    def gather_payloads(self, bint wide):
        """(offsets, bytes) of all payloads, as Arrow lays out binary; `wide` for 64-bit offsets."""
        cdef size_t i
        cdef uint64_t total = 0
        cdef char *data
        cdef uint32_t *narrow_offsets = NULL
        cdef uint64_t *wide_offsets = NULL
        offsets_bytes = PyBytes_FromStringAndSize(NULL, (self.count + 1) * (8 if wide else 4))
        if wide:
            wide_offsets = <uint64_t *>PyBytes_AS_STRING(offsets_bytes)
        else:
            narrow_offsets = <uint32_t *>PyBytes_AS_STRING(offsets_bytes)
        for i in range(self.count):
            if wide:
                wide_offsets[i] = total
            else:
                narrow_offsets[i] = <uint32_t>total
            total += self.refs[i].payload_bytes
        if wide:
            wide_offsets[self.count] = total
        else:
            narrow_offsets[self.count] = <uint32_t>total
        data_bytes = PyBytes_FromStringAndSize(NULL, total)
        data = PyBytes_AS_STRING(data_bytes)
        with nogil:
            for i in range(self.count):
                memcpy(data, <void *>self.refs[i].payload, self.refs[i].payload_bytes)
                data += self.refs[i].payload_bytes
        return offsets_bytes, data_bytes

    def gather_properties(self):
        """The properties of all rows as the buffers of an Arrow map from name to text."""
        cdef PropertyColumns columns = PropertyColumns()
        cdef Ref *ref
        cdef size_t i
        for i in range(self.count):
            ref = &self.refs[i]
            columns.add(<char *>ref.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes
                        + ref.ident_bytes, ref.properties_bytes)
        return columns.finish()


cdef bint is_deleted(Store *store, uint64_t sequence) noexcept nogil:
    """Has a product that is still held been deleted?"""
    cdef uint64_t number = segment_with(store, sequence)
    cdef Entry entry
    cdef Mapping *mapping = NULL
    cdef Row row
    if number == 0 or sequence < load64(&store.control.oldest) or pin_segment(store, number, &entry, &mapping) != 0:
        return False
    memset(&row, 0, sizeof(row))
    if entry.first <= sequence < entry.first + rows_room(mapping.size):
        load_row(mapping, sequence - entry.first, &row)
    release_view(store, mapping)
    return fits(&row, sequence) and row.flags & ROW_DELETED != 0


cdef uint16_t ident_room(Mapping *mapping, Ref *ref) noexcept nogil:
    """Bytes of the ident; 0 if it would lie outside its segment, of which verify() will speak."""
    cdef uint64_t offset = ref.record - <uint64_t>mapping.base
    cdef Record *record = <Record *>ref.record
    if (offset + RECORD_HEADER > mapping.size or offset + RECORD_HEADER + record.feed_bytes
            + record.origin_bytes + record.ident_bytes > mapping.size):
        return 0
    return record.ident_bytes


cdef bint too_many_maps(Store *store) noexcept nogil:
    return <uint64_t>store.maps_count > 2 * (store.control.segment_newest - store.control.segment_oldest) + 32


cdef text_at(uint64_t address, Py_ssize_t size):
    return (<char *>address)[:size].decode("utf-8", "replace")
