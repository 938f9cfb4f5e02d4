# Reading: pick rows, verify the records behind them, hand them out.
#
# A Rows object goes through three steps: `pick` (index rows only), `keep` (any other filter of the caller) and `verify`
# (the checksum of every record that is handed out). It holds one pin for each segment that it touches, and views of
# payloads hold the Rows. Rows that came from elsewhere (validate.pxi) hold a buffer instead of a log and pins, and were
# verified when they were read.

cdef struct Picked:                  # what a scan passed over, by cause
    uint64_t scanned
    uint64_t filtered
    uint64_t deleted
    uint64_t damaged
    uint64_t expired


@cython.no_gc
@cython.final
cdef class View:
    """The bytes of one payload, read-only and without a copy, valid as long as the view exists."""
    cdef Rows rows
    cdef char *base
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.base, self.size, 1, flags)


@cython.no_gc                        # no cycle can pass through it, and its deallocation needs the Log
@cython.final
cdef class Rows:
    """Rows picked from the log, with pins on their segments; or rows of a buffer, which they hold."""
    cdef Log log                     # None: the records lie in `buffer`
    cdef list texts                  # names, without a log
    cdef Rows whole                  # rows of which these are some: it has the pins, or the buffer
    cdef tuple parts                 # rows that these were joined from: they have the pins, or the buffers
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
    cdef uint64_t bytes_limit        # of the pick
    cdef object lent                 # without a log: where its dictionaries are (product/expansion.py); or None
    cdef bytes expanded              # the payload that was expanded last, and the place of its row
    cdef size_t expanded_place

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
        """The text of each feed and origin, by number."""
        return self.texts if self.log is None else self.log.names

    @property
    def passed_over(self):
        """(scanned, filtered, deleted, damaged, expired) rows so far."""
        return (self.picked.scanned, self.picked.filtered, self.picked.deleted,
                self.picked.damaged, self.picked.expired)

    @property
    def dictionaries(self):
        """Where the dictionaries of compressed rows are (product/expansion.py); None if that is not known."""
        return self.lent if self.log is None else self.log.dictionaries

    def lend(self, dictionaries):
        """Rows without a log: say where their dictionaries are."""
        self.lent = dictionaries

    cdef uint64_t now(self) noexcept:
        """The time by which rows expire: that of the site, or of the system if the records lie in a buffer."""
        return clock_ns(CLOCK_REALTIME) if self.log is None else site_now(self.log.store.control)

    cdef int pin(self, uint64_t number, Entry *entry, Mapping **mapping) noexcept nogil:
        """Pin a segment for this object, unless it has it pinned already."""
        cdef int error
        if self.pinned_count:
            mapping[0] = self.pinned[self.pinned_count - 1]
            memcpy(entry, entry_of(self.log.store, number), ENTRY_KNOWN)
            if (entry.file == mapping[0].file and entry.number == number
                    and entry.first == self.pinned_first[self.pinned_count - 1]
                    and number >= load64(&self.log.store.control.segment_oldest)):
                return 0
        error = self.reserve_pin()   # before the pin is taken: a pin that is not listed is never released
        if error == 0:
            error = pin_segment(self.log.store, number, entry, mapping)
        if error == 0:
            self.pinned[self.pinned_count] = mapping[0]
            self.pinned_first[self.pinned_count] = entry.first
            self.pinned_count += 1
        return error

    cdef int reserve_pin(self) noexcept nogil:
        """Room for one more pin: 0 or -ENOMEM."""
        cdef Mapping **pinned = <Mapping **>reallocate(self.pinned, (self.pinned_count + 1) * sizeof(Mapping *))
        cdef uint64_t *first
        if pinned == NULL:
            return -ENOMEM
        self.pinned = pinned
        first = <uint64_t *>reallocate(self.pinned_first, (self.pinned_count + 1) * sizeof(uint64_t))
        if first == NULL:
            return -ENOMEM
        self.pinned_first = first
        return 0

    cdef int hold(self, data) except -1:
        """Hold a buffer of records; a copy of it if it is writable or not aligned to 8 bytes."""
        PyObject_GetBuffer(data, &self.buffer, PyBUF_SIMPLE)
        if not self.buffer.readonly or <uintptr_t>self.buffer.buf % 8:
            copy = PyBytes_FromStringAndSize(<char *>self.buffer.buf, self.buffer.len)
            PyBuffer_Release(&self.buffer)
            PyObject_GetBuffer(copy, &self.buffer, PyBUF_SIMPLE)
        return 0

    cdef void reserve(self, size_t room) noexcept nogil:
        """For rows whose number is known: room for so many. If it fails, `add` tries again."""
        self.refs = <Ref *>allocate(room * sizeof(Ref))
        self.room = room if self.refs != NULL else 0

    cdef Ref *add(self) noexcept nogil:
        cdef Ref *moved
        if self.count == self.room:
            moved = <Ref *>reallocate(self.refs, (self.room * 2 + 256) * sizeof(Ref))
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
            if row.flags & ROW_DAMAGED:          # its feed is unknown: it counts for every selection
                self.picked.damaged += 1
                sequence += 1
                continue
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
                if row.flags & ROW_DELETED:
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
        """Add one product below `head`, verified and filled; 0, or the code why it is not available."""
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
            if self.pinned_count:    # usually the next product is in the same segment
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
        if row.flags & ROW_UNPROVEN:
            ref.proof = PROOF_OPEN
        self.bytes += ref.payload_bytes
        return 0

    def pick(self, uint64_t start, size_t limit, uint64_t bytes_limit, uint64_t stop,
             RowFilter row_filter):
        """Add rows from `start` on, up to `limit` rows and about `bytes_limit` payload bytes in all.

        Returns 0 or a negative code; `next` is where it stopped.
        """
        cdef const Wanted *wanted = &row_filter.wanted if row_filter is not None else NULL
        cdef int outcome
        if self.log is None:
            raise ValueError("rows without a log")
        self.next = start
        self.bytes_limit = bytes_limit
        with nogil:
            outcome = self.pick_all(limit, bytes_limit, stop, wanted)
        if too_many_maps(self.log.store):
            self.log.sweep()
        return outcome

    def keep(self, const uint8_t[::1] mask, size_t begin):
        """Drop the rows from place `begin` on whose byte in `mask` is 0."""
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
        """Verify and fill the rows from place `begin` on, and drop expired ones. Rows of a buffer are verified already.

        A record with a wrong checksum ends the rows; `damage` names it. Compressed rows now count with the size of
        their payload, so the rows also end where that exceeds the limit of the pick.
        """
        cdef size_t i, kept = begin
        cdef uint64_t total = 0
        cdef bint grown = False, full = False
        cdef Ref *ref
        cdef Mapping *mapping
        cdef Row row
        cdef bint sound = True, from_log = self.log is not None
        if now_ns == 0:
            now_ns = self.now()
        for i in range(begin):
            total += self.refs[i].payload_bytes
        with nogil:
            for i in range(begin, self.count):
                if i + 8 < self.count:
                    prefetch(<void *>self.refs[i + 8].record)
                ref = &self.refs[i]
                full = grown and total >= self.bytes_limit
                if full:
                    break
                if from_log:
                    mapping = self.pinned[ref.segment]
                    load_row(mapping, ref.sequence - self.pinned_first[ref.segment], &row)
                    sound = sound_record(mapping, &row) and same_names(self.log.store, &row, <Record *>ref.record)
                    if not sound:
                        break
                    fill_ref(ref, <Record *>ref.record, row.origin)
                    if row.flags & ROW_UNPROVEN:
                        ref.proof = PROOF_OPEN
                    if ref.form != FORM_PLAIN:
                        self.bytes += ref.payload_bytes
                        self.bytes -= row.payload_bytes
                        grown = True
                if ref.expires_ns != 0 and ref.expires_ns <= now_ns:
                    self.picked.expired += 1
                    self.bytes -= ref.payload_bytes
                    continue
                total += ref.payload_bytes
                if kept != i:
                    self.refs[kept] = ref[0]
                kept += 1
        if full:
            self.next = self.refs[i].sequence
        if grown:
            self.bytes = total
        if not sound:
            self.next = self.refs[i].sequence
            self.damage = (self.next, self.pinned[self.refs[i].segment].file)
        self.count = kept

    def fill(self, size_t begin):
        """Fill the rows from place `begin` on from the headers of their records, without comparing checksums.

        For lists of what is held. A row whose record has no valid header gets neither signature nor origin sequence.
        """
        cdef size_t i
        cdef Ref *ref
        cdef Mapping *mapping
        cdef Row row
        if self.log is None:
            return
        with nogil:
            for i in range(begin, self.count):
                if i + 8 < self.count:
                    prefetch(<void *>self.refs[i + 8].record)
                ref = &self.refs[i]
                mapping = self.pinned[ref.segment]
                load_row(mapping, ref.sequence - self.pinned_first[ref.segment], &row)
                if sound_header(mapping, &row):
                    fill_ref(ref, <Record *>ref.record, row.origin)
                    if row.flags & ROW_UNPROVEN:
                        ref.proof = PROOF_OPEN
                else:
                    ref.origin, ref.kind = row.origin, SIGNATURE_NONE
                    ref.origin_sequence = ref.created_ns = ref.previous = ref.expires_ns = 0
                    memset(ref.signature, 0, 16)

    def expire(self, size_t begin, uint64_t now_ns):
        """Drop expired rows from place `begin` on; they must be verified, with a time at which none had expired."""
        cdef size_t i, kept = begin
        if now_ns == 0:
            now_ns = self.now()
        for i in range(begin, self.count):
            if self.refs[i].expires_ns != 0 and self.refs[i].expires_ns <= now_ns:
                self.picked.expired += 1
                self.bytes -= self.refs[i].payload_bytes
                continue
            if kept != i:
                self.refs[kept] = self.refs[i]
            kept += 1
        self.count = kept

    def some(self, const uint32_t[::1] places not None):
        """The rows at these places, in this order, as rows of their own. They are valid as long as they exist."""
        cdef Rows chosen = Rows(self.log)
        cdef size_t i, count = places.shape[0]
        cdef Ref *ref
        chosen.whole, chosen.texts, chosen.next, chosen.leased_by = self, self.texts, self.next, self.leased_by
        chosen.lent = self.lent
        chosen.reserve(count)
        for i in range(count):
            if places[i] >= self.count:
                raise IndexError(f"there is no row {places[i]}")
            ref = chosen.add()
            if ref == NULL:
                raise MemoryError
            ref[0] = self.refs[places[i]]
            chosen.bytes += ref.payload_bytes
        return chosen

    def view(self, size_t place):
        cdef View view
        if self.refs[place].form != FORM_PLAIN:
            return view_expanded(self, place)
        view = View.__new__(View)
        view.rows = self
        view.base = <char *>self.refs[place].payload
        view.size = self.refs[place].payload_bytes
        return memoryview(view)

    def product(self, size_t place, object names):
        return row_product(self, names, <uint32_t>place)

    def products(self, object names):
        """An iterator over all of them."""
        cdef RowProducts products = RowProducts.__new__(RowProducts)
        products.rows, products.names = self, names
        return products

    def ident(self, size_t place):
        cdef Ref *ref = &self.refs[place]
        return text_at(ref.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes, ref.ident_bytes)

    def properties(self, size_t place):
        """The property block of one row."""
        cdef Ref *ref = &self.refs[place]
        return PyBytes_FromStringAndSize(
            <char *>ref.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes + ref.ident_bytes,
            ref.properties_bytes)

    def options(self, size_t place):
        """The options of one row, as entries without the length in front; empty if it has none."""
        cdef Ref *ref = &self.refs[place]
        return PyBytes_FromStringAndSize(<char *>options_of(ref), ref.options_bytes)

    def staying(self):
        """A byte for each row: 1 if no other site may get the product. None if there is no such row."""
        cdef const uint8_t *hops
        cdef uint8_t *mask = NULL
        cdef Ref *ref
        cdef size_t i
        found = None
        for i in range(self.count):
            ref = &self.refs[i]
            if ref.options_bytes == 0:
                continue
            hops = find_option(<const uint8_t *>options_of(ref), ref.options_bytes, OPTION_HOPS)
            if hops == NULL or hops[0] != 0:
                continue
            if found is None:
                found = bytearray(self.count)
                mask = <uint8_t *>PyByteArray_AS_STRING(found)
            mask[i] = 1
        return found

    def record(self, size_t place):
        """The record of one row, as it is in the log."""
        return PyBytes_FromStringAndSize(
            <char *>self.refs[place].record, record_bytes(<Record *>self.refs[place].record))

    def record_sizes(self):
        """The bytes of each record, as unsigned 64-bit numbers."""
        cdef size_t i
        sizes = PyBytes_FromStringAndSize(NULL, self.count * 8)
        for i in range(self.count):
            (<uint64_t *>PyBytes_AS_STRING(sizes))[i] = record_bytes(<Record *>self.refs[i].record)
        return sizes

    def gather_records(self, const uint32_t[::1] places=None):
        """The records at these places, or all, one after the other, each padded with zeros to a multiple of 8."""
        if places is None:
            return gather_records(self, NULL, self.count)
        return gather_records(self, &places[0] if places.shape[0] else NULL, places.shape[0])

    def gather_idents(self, size_t begin=0):
        """(offsets, bytes) of the idents from place `begin` on, as Arrow lays out strings."""
        return gather_idents(self, begin)

    def gather_payloads(self, bint wide):
        """(offsets, bytes) of all payloads, as Arrow lays out binary; `wide` for 64-bit offsets."""
        return gather_payloads(self, wide)

    def gather_texts(self, const uint8_t[::1] wanted not None):
        """Of feeds, origins, idents and payloads: (offsets, bytes) as Arrow lays out strings, None if not wanted."""
        return gather_texts(self, wanted)

    def gather_numbers(self):
        """The numbers of all rows as buffers of Arrow arrays, by the name of the column; times in microseconds."""
        return gather_numbers(self)

    def gather_properties(self):
        """The properties of all rows, as the buffers of an Arrow map from name to text."""
        return gather_properties(self)


cdef bint is_deleted(Store *store, uint64_t sequence) noexcept nogil:
    """Was a product that the queue still holds deleted?"""
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


cdef bint too_many_maps(Store *store) noexcept nogil:
    return <uint64_t>store.maps_count > 2 * (store.control.segment_newest - store.control.segment_oldest) + 32


cdef text_at(uint64_t address, Py_ssize_t size):
    return (<char *>address)[:size].decode("utf-8", "replace")
