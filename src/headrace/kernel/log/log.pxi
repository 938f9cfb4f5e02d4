# The Log: what Python sees of the kernel. It has no policy; headrace.queue.queue has.

from cpython.dict cimport PyDict_GetItem
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject


class KernelError(Exception):
    """Trouble: `code` (a negative errno or one of CODES) and the segment file it was about.

    Of a buffer of records `file` is where in it the trouble is, and `fault` says what it is.
    """

    def __init__(self, code, file=0, fault=""):
        super().__init__(code, file, fault)
        self.code = code
        self.file = file
        self.fault = fault


CODES = {
    "damaged": CODE_DAMAGED,
    "batch_too_large": CODE_BATCH_TOO_LARGE,
    "names_full": CODE_NAMES_FULL,
    "unknown_feed": CODE_UNKNOWN_FEED,
    "gone": CODE_GONE,
    "payload_too_large": CODE_PAYLOAD_TOO_LARGE,
    "stations": CODE_STATIONS,
    "blocked": CODE_BLOCKED,
    "rejected": CODE_REJECTED,
    "held": CODE_HELD,
    "lease_lost": CODE_LEASE_LOST,
    "terms": CODE_TERMS,
    "look": CODE_LOOK,
    "newer": CODE_NEWER,
    "altered": CODE_ALTERED,
    "revision": CODE_REVISION,
}


@cython.no_gc
cdef class Log:
    """An opened queue directory: append, pick, wait, and the shared state behind them."""
    cdef Store *store
    cdef readonly dict feeds         # feed -> id, as far as this process knows
    cdef readonly dict origins
    cdef readonly list names         # id -> text; places below ORIGINS_MAX are origins
    cdef object gate_owners          # what the gates point into

    def __cinit__(self):
        self.store = <Store *>calloc(1, sizeof(Store))
        self.store.segments_fd = self.store.queue_fd = -1
        self.feeds = {}
        self.origins = {}
        self.names = []
        enlist_store(self.store)

    def __init__(self, int queue_fd, int segments_fd):
        """Map the control block and the names. Takes over both directory descriptors."""
        cdef char *base = NULL
        cdef void *where
        cdef int fd, error
        install_sigbus()
        self.store.queue_fd = queue_fd
        self.store.segments_fd = segments_fd
        error = map_file(queue_fd, b"control", sizeof(Control), &base)
        if error != 0:
            raise KernelError(error)
        self.store.control = <Control *>base
        self.store.control_guarded = guard(base, sizeof(Control))
        fd = openat(queue_fd, b"names", O_RDWR | O_CLOEXEC)
        if fd < 0:
            raise KernelError(-errno)
        where = mmap(NULL, <size_t>NAMES_MAX * NAME_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        c_close(fd)
        if where == MAP_FAILED:
            raise KernelError(-errno)
        self.store.names = <char *>where
        self.store.names_guarded = guard(where, <size_t>NAMES_MAX * NAME_BYTES)

    def __dealloc__(self):
        cdef Store *store = self.store
        cdef int i
        delist_store(store)
        if store.control != NULL:
            unguard(store.control_guarded)
            munmap(store.control, sizeof(Control))
        if store.names != NULL:
            unguard(store.names_guarded)
            munmap(store.names, <size_t>NAMES_MAX * NAME_BYTES)
        dedup_detach(store)
        for i in range(store.maps_count - 1, -1, -1):
            drop_mapping(store, i)
        free(store.maps)
        free(store.gates)
        if store.segments_fd >= 0:
            c_close(store.segments_fd)
        if store.queue_fd >= 0:
            c_close(store.queue_fd)
        free(store)

    cdef fail(self, int code):
        raise KernelError(code, self.store.failed_file)

    cdef refuse(self, int code, Item *items):
        """An append that was refused: by a gate, which the first item tells, or by something else."""
        if code == CODE_BLOCKED or code == CODE_REJECTED:
            raise KernelError(code, items.outcome)
        self.fail(code)

    # --- names ------------------------------------------------------------------------------------

    def learn_names(self):
        """Take up the names that others have added; one past the last feed."""
        cdef uint32_t feeds_end = <uint32_t>load64(&self.store.control.feeds_end)
        cdef uint32_t origins_end = <uint32_t>load64(&self.store.control.origins_end)
        while len(self.origins) < origins_end:
            self.learn_name(<uint32_t>len(self.origins), self.origins)
        while ORIGINS_MAX + len(self.feeds) < feeds_end:
            self.learn_name(<uint32_t>(ORIGINS_MAX + len(self.feeds)), self.feeds)
        return feeds_end

    cdef learn_name(self, uint32_t place, dict known):
        cdef Name *name = name_of(self.store, place)
        if not whole_name(name, NAME_ORIGIN if place < ORIGINS_MAX else NAME_FEED):
            raise KernelError(CODE_DAMAGED)
        text = name.text[:name.bytes].decode("utf-8", "replace")
        if text in known:
            raise KernelError(CODE_DAMAGED)
        while len(self.names) <= place:
            self.names.append("")
        self.names[place] = text
        known[text] = place

    def add_name(self, int kind, str text):
        """The id of a name of the kind NAME_FEED or NAME_ORIGIN, noted for all if it is new. Takes the log's lock."""
        with self.held():
            return self.add_name_locked(kind, text)

    def add_name_locked(self, int kind, str text):
        cdef bytes encoded = text.encode()
        cdef dict known = self.feeds if kind == NAME_FEED else self.origins
        cdef Control *control = self.store.control
        cdef uint64_t *end = &control.feeds_end if kind == NAME_FEED else &control.origins_end
        cdef Name *name
        self.learn_names()
        if text not in known:
            if state_holed(self.store):
                self.fail(CODE_DAMAGED)
            if end[0] == (NAMES_MAX if kind == NAME_FEED else ORIGINS_MAX):
                self.fail(CODE_NAMES_FULL)
            if end[0] % NAMES_STEP == 0:
                self.grow_names(end[0] + NAMES_STEP)
            name = name_of(self.store, <uint32_t>end[0])
            memset(name, 0, sizeof(Name))
            name.kind = kind
            name.bytes = <uint8_t>len(encoded)
            memcpy(name.text, PyBytes_AS_STRING(encoded), len(encoded))
            name.checksum = <uint32_t>XXH3_64bits(name.text, name.bytes) ^ name.kind
            failpoint(FAIL_NAME)
            store64(end, end[0] + 1)
            self.learn_names()
        return known[text]

    cdef grow_names(self, size_t count):
        cdef int fd = openat(self.store.queue_fd, b"names", O_RDWR | O_CLOEXEC)
        cdef int error
        if fd < 0:
            self.fail(-errno)
        error = posix_fallocate(fd, 0, <long>(count * NAME_BYTES))
        c_close(fd)
        if error != 0:
            self.fail(-error)

    cdef uint32_t id_of(self, int kind, str text) except? 0xFFFFFFFF:
        """The id of a valid name, noted if it is new."""
        known = (self.feeds if kind == NAME_FEED else self.origins).get(text)
        if known is None and not text:
            raise KernelError(CODE_UNKNOWN_FEED)
        return self.add_name(kind, text) if known is None else known

    cdef uint32_t feed_id(self, str feed) except? 0xFFFFFFFF:
        cdef PyObject *known = PyDict_GetItem(self.feeds, feed)
        if known == NULL:
            raise KeyError(feed)
        return <uint32_t>(<object>known)

    # --- append -----------------------------------------------------------------------------------

    cpdef put(self, payload, str feed, str ident, uint64_t created_ns, uint8_t priority,
              uint64_t expires_ns, bytes properties, uint16_t slice, bytes signature,
              object origin, uint64_t origin_sequence, uint64_t previous, uint64_t now_ns, uint64_t boot_ns):
        """Append one product; its sequence, or minus the sequence of the copy that is held.

        KeyError for a feed or origin without an id yet, ValueError for an ident that is too long.
        """
        cdef Item item
        cdef Py_buffer buffer
        cdef Store *store = self.store
        cdef int outcome
        memset(&item, 0, sizeof(item))
        memset(&buffer, 0, sizeof(buffer))
        item.feed = self.feed_id(feed)
        set_ident(&item, ident)
        item.created_ns = created_ns
        item.expires_ns = expires_ns
        item.priority = priority
        item.slice = slice
        item.origin = <uint16_t>store.control.origin
        if origin is not None:
            item.origin = <uint16_t>self.origins[origin]
        item.origin_sequence = origin_sequence
        item.previous = previous
        if properties is not None:
            item.properties = PyBytes_AS_STRING(properties)
            item.properties_bytes = <uint16_t>PyBytes_GET_SIZE(properties)
        if PyBytes_CheckExact(payload):
            item.payload = PyBytes_AS_STRING(payload)
            item.payload_bytes = PyBytes_GET_SIZE(payload)
        else:
            PyObject_GetBuffer(payload, &buffer, PyBUF_SIMPLE)
            item.payload = <char *>buffer.buf
            item.payload_bytes = buffer.len
        try:
            if item.payload_bytes > payload_bytes_max(store):
                self.fail(CODE_DAMAGED if state_holed(store) else CODE_PAYLOAD_TOO_LARGE)
            if signature is not None:
                item.kind = SIGNATURE_GIVEN
                memcpy(item.signature, PyBytes_AS_STRING(signature), 16)
            else:
                sign(&item, <uint8_t>store.control.signature_kind, payload)
            outcome = EBUSY
            if item.payload_bytes <= 65536:
                outcome = pthread_mutex_trylock(&store.control.lock)
            if outcome == EBUSY:
                with nogil:
                    outcome = append(store, &item, 1, now_ns, boot_ns)
            else:
                outcome = settle_lock(store, outcome)
                if outcome == 0:
                    outcome = append_locked(store, &item, 1, now_ns, boot_ns)
                    unlock_log(store)
                    wake_sleepers(store)
        finally:
            PyBuffer_Release(&buffer)
        if outcome < 0:
            self.refuse(outcome, &item)
        return -<int64_t>item.outcome if item.duplicate else <int64_t>item.outcome

    def put_many(self, payloads, feeds, idents, const uint64_t[::1] created_ns,
                 const uint8_t[::1] priorities, const uint64_t[::1] expires_ns, properties,
                 const uint16_t[::1] slices, signatures, origins,
                 const uint64_t[::1] origin_sequences, const uint64_t[::1] previous,
                 uint64_t now_ns, uint64_t boot_ns):
        """Append all or none. (first sequence, how many stored, outcomes if there were duplicates).

        `feeds`, `idents`, `properties` and `origins` are one value for all or a list; number columns have one
        value for all or one each, or are None.
        """
        cdef Payloads held = Payloads(payloads)
        cdef size_t count = len(held.objects), i
        cdef Item *items = <Item *>calloc(max(count, 1), sizeof(Item))
        cdef Item *item
        cdef bint each_feed = isinstance(feeds, list), each_ident = isinstance(idents, list)
        cdef bint each_block = isinstance(properties, list), each_origin = isinstance(origins, list)
        cdef uint32_t feed = 0 if each_feed else self.feed_id(feeds)
        cdef uint8_t kind = <uint8_t>self.store.control.signature_kind
        cdef bytes block
        cdef Item same
        memset(&same, 0, sizeof(same))
        if items == NULL:
            raise MemoryError
        try:
            if not each_ident:
                set_ident(&same, idents)
            same.origin = <uint16_t>self.store.control.origin
            if origins is not None and not each_origin:
                same.origin = <uint16_t>self.origins[origins]
            for i in range(count):
                item = &items[i]
                item.feed = self.feed_id(<str>feeds[i]) if each_feed else feed
                item.ident = same.ident
                item.ident_bytes = same.ident_bytes
                if each_ident:
                    set_ident(item, <str>idents[i])
                item.origin = <uint16_t>self.origins[origins[i]] if each_origin else same.origin
                held.take(i, item)
                if item.payload_bytes > payload_bytes_max(self.store):
                    self.fail(CODE_PAYLOAD_TOO_LARGE)
                item.slice = NO_SLICE
                if signatures is not None and signatures[i] is not None:
                    block = signatures[i]
                    item.kind = SIGNATURE_GIVEN
                    memcpy(item.signature, PyBytes_AS_STRING(block), 16)
                elif kind:
                    sign(item, kind, held.objects[i])
                if properties is not None:
                    block = properties[i] if each_block else properties
                    item.properties = PyBytes_AS_STRING(block)
                    item.properties_bytes = <uint16_t>PyBytes_GET_SIZE(block)
                item.priority = priorities[i if priorities.shape[0] > 1 else 0]
            if created_ns is not None:
                for i in range(count):
                    items[i].created_ns = created_ns[i if created_ns.shape[0] > 1 else 0]
            if expires_ns is not None:
                for i in range(count):
                    items[i].expires_ns = expires_ns[i if expires_ns.shape[0] > 1 else 0]
            if slices is not None:
                for i in range(count):
                    items[i].slice = slices[i if slices.shape[0] > 1 else 0]
            if origin_sequences is not None:
                for i in range(count):
                    items[i].origin_sequence = origin_sequences[i]
                    items[i].previous = previous[i] if previous is not None else 0
            return self.append_many(items, count, now_ns, boot_ns)
        finally:
            free(items)

    def put_many_plain(self, payloads, str feed not None, str ident not None, uint8_t priority):
        """`put_many` of products that have nothing but these; by the machine's clock."""
        cdef Payloads held = Payloads(payloads)
        cdef size_t count = len(held.objects), i
        cdef Item *items
        cdef Item same
        cdef uint8_t kind = <uint8_t>self.store.control.signature_kind
        memset(&same, 0, sizeof(same))
        same.feed = self.feed_id(feed)
        set_ident(&same, ident)
        same.origin = <uint16_t>self.store.control.origin
        same.slice = NO_SLICE
        same.priority = priority
        items = <Item *>malloc(max(count, 1) * sizeof(Item))
        if items == NULL:
            raise MemoryError
        try:
            for i in range(count):
                items[i] = same
                held.take(i, &items[i])
                if items[i].payload_bytes > payload_bytes_max(self.store):
                    self.fail(CODE_PAYLOAD_TOO_LARGE)
                if kind:
                    sign(&items[i], kind, held.objects[i])
            return self.append_many(items, count, 0, 0)
        finally:
            free(items)

    def put_records(self, Rows rows not None, const uint8_t[::1] mask, uint64_t now_ns, uint64_t boot_ns):
        """Append the records of these rows as they are, all or none; what `put_many` returns.

        Rows whose byte in `mask` is zero are left out and not spoken of. Feeds and origins that the log does not know
        are noted. A record without a signature gets this queue's.
        """
        return put_rows(self, rows, mask, now_ns, boot_ns)

    cdef append_many(self, Item *items, size_t count, uint64_t now_ns, uint64_t boot_ns):
        """What `put_many` returns."""
        cdef size_t i, stored = 0
        cdef uint64_t first = 0
        cdef int outcome
        with nogil:
            outcome = append(self.store, items, count, now_ns, boot_ns)
        if outcome < 0:
            self.refuse(outcome, items)
        for i in range(count):
            if not items[i].duplicate:
                if stored == 0:
                    first = items[i].outcome
                stored += 1
        outcomes = None
        if stored < count:
            outcomes = [-<int64_t>items[i].outcome if items[i].duplicate
                        else <int64_t>items[i].outcome for i in range(count)]
        return first, stored, outcomes

    # --- read -------------------------------------------------------------------------------------

    def rows(self):
        """An empty Rows to pick into."""
        return Rows(self)

    def take(self, uint64_t start, size_t limit, uint64_t bytes_limit, uint64_t stop,
             RowFilter row_filter, uint64_t now_ns):
        """(outcome, Rows): pick and verify in one step, for selections that index rows decide alone."""
        cdef Rows rows = Rows(self)
        cdef int outcome = rows.pick(start, limit, bytes_limit, stop, row_filter)
        rows.verify(0, now_ns)
        if ORIGINS_MAX + len(self.feeds) != self.store.control.feeds_end or (
                len(self.origins) != self.store.control.origins_end):
            self.learn_names()
        return outcome, rows

    def put_plain(self, payload, str feed not None, str ident not None, uint8_t priority):
        """`put` of a product that has nothing but these; by the machine's clock."""
        return self.put(payload, feed, ident, 0, priority, 0, None, NO_SLICE, None, None, 0, 0, 0, 0)

    def first_from(self, uint64_t sequence):
        """The smallest sequence >= `sequence` that is held or will be given next."""
        return held_from(self.store, sequence)

    def count_between(self, uint64_t start, uint64_t end):
        """How many rows there are from `start` up to `end`; sequences that were never given do not count."""
        cdef Store *store = self.store
        cdef uint64_t number, first, last, count = 0
        cdef Entry *entry
        for number in range(load64(&store.control.segment_oldest), load64(&store.control.segment_newest) + 1):
            entry = entry_of(store, number)
            first = max(entry.first, start)
            last = min(entry.end if entry.end else end, end)
            count += last - first if last > first else 0
        return count

    def first_since(self, uint64_t time_ns):
        """The smallest sequence whose insertion time is at or after `time_ns`; head if there is none."""
        cdef Store *store = self.store
        cdef uint64_t number, place, end, head = load64(&store.control.head)
        cdef Entry entry
        cdef Mapping *mapping = NULL
        cdef uint64_t found = 0
        for number in range(load64(&store.control.segment_oldest),
                            load64(&store.control.segment_newest) + 1):
            if entry_of(store, number).newest_ns < time_ns:
                continue
            if pin_segment(store, number, &entry, &mapping) != 0:
                continue
            end = min(entry.end if 0 < entry.end < head else head, entry.first + rows_room(entry.size))
            for place in range(end - entry.first if end > entry.first else 0):
                if row_of(mapping, place).inserted_ns >= time_ns:
                    found = entry.first + place
                    break
            release_view(store, mapping)
            if found:
                return found
        return head

    def wait_once(self, uint64_t sequence, double timeout_s):
        """Sleep until `sequence` may be read, somebody calls wake_all, or `timeout_s` or a second has passed.

        A second at most: a writer that was killed between its commit and its wake-up call has left nobody
        to make that call.
        """
        cdef Control *control = self.store.control
        cdef timespec until
        cdef uint64_t wake_at = clock_ns(CLOCK_MONOTONIC) + 1000000000
        cdef uint32_t seen
        if 0 <= timeout_s < 1:
            wake_at += <uint64_t>(timeout_s * 1e9) - 1000000000
        until.tv_sec = wake_at // 1000000000
        until.tv_nsec = wake_at % 1000000000
        with nogil:
            store32(&control.sleepers, 1)
            fence()
            seen = load32(&control.wake)
            if load64(&control.head) <= sequence:
                futex(&control.wake, FUTEX_WAIT_BITSET, seen, &until)
        PyErr_CheckSignals()

    @property
    def gates_number(self):
        """The number `stations` that this process's gates were made by."""
        return self.store.stations_seen

    @property
    def wake_number(self):
        """Changes whenever something is put, or comes back to a station."""
        return load32(&self.store.control.wake)

    def wake_all(self):
        """Make every sleeper look again."""
        add32(&self.store.control.wake, 1)
        futex(&self.store.control.wake, FUTEX_WAKE, 0x7FFFFFFF, NULL)

    def sweep(self):
        """Unmap files that have left the queue, unless the log is busy."""
        cdef int error = pthread_mutex_trylock(&self.store.control.lock)
        if error == EBUSY:
            return
        if settle_lock(self.store, error) == 0:
            pthread_mutex_lock(&self.store.maps_lock)
            sweep_mappings(self.store)
            pthread_mutex_unlock(&self.store.maps_lock)
            unlock_log(self.store)

    # --- locks for callers in Python --------------------------------------------------------------

    def held(self):
        """A context in which the log's lock is held: nobody appends meanwhile."""
        cdef Held held = Held.__new__(Held)
        held.log = self
        return held

    def held_for_sync(self, bint patient=True):
        """A context in which nobody else flushes, whoever died in the last flush."""
        cdef Held held = Held.__new__(Held)
        held.log = self
        held.sync = True
        held.patient = patient
        return held

    # --- the shared state, field by field ---------------------------------------------------------

    def segment_end(self, uint64_t sequence):
        """First sequence after the segment that holds `sequence`."""
        cdef Entry *entry = entry_of(self.store, segment_with(self.store, sequence))
        return entry.end if entry.end else self.store.control.tail

    @property
    def failed_file(self):
        """The segment file that the last trouble was about; 0 none."""
        return self.store.failed_file

    @property
    def head(self):
        return load64(&self.store.control.head)

    @property
    def tail(self):
        return load64(&self.store.control.tail)

    @property
    def oldest(self):
        return load64(&self.store.control.oldest)

    @property
    def state(self):
        """The shared numbers as a dict."""
        cdef Control *c = self.store.control
        return {
            "version": c.version, "state": c.state, "uuid": c.uuid[:16], "boot": c.boot[:16],
            "size_bytes": c.size_bytes, "age_ns": c.age_ns, "segment_bytes": c.segment_bytes,
            "durability": c.durability, "signature_kind": c.signature_kind, "clean": c.clean,
            "origin": c.origin, "head": c.head, "tail": c.tail, "oldest": c.oldest,
            "segment_oldest": c.segment_oldest, "segment_newest": c.segment_newest,
            "next_file": c.next_file, "spare_file": c.spare_file, "bytes_total": c.bytes_total,
            "data_end": c.data_end, "pending_file": c.pending_file,
            "dedup_table": c.dedup_table, "dedup_bytes": buckets_of(c.dedup_table) * sizeof(Bucket),
            "feeds_end": c.feeds_end, "origins_end": c.origins_end,
            "synced_names": c.synced_names, "synced": c.synced, "synced_file": c.synced_file,
            "inserted_products": c.inserted_products, "inserted_bytes": c.inserted_bytes,
            "duplicates": c.duplicates, "evicted_products": c.evicted_products,
            "evicted_bytes": c.evicted_bytes, "deleted_products": c.deleted_products,
            "held_products": c.held_products, "sync_failed": c.sync_failed,
            "unlinked_pinned": c.unlinked_pinned, "recoveries": c.recoveries, "stations": c.stations,
        }

    def set_state(self, **fields):
        """Change shared numbers. Under the log's lock, or while nobody else is attached."""
        cdef Control *c = self.store.control
        for field, value in fields.items():
            if field == "size_bytes": c.size_bytes = value
            elif field == "age_ns": c.age_ns = value
            elif field == "segment_bytes": c.segment_bytes = value
            elif field == "state": store32(&c.state, value)
            elif field == "clean": store32(&c.clean, value)
            elif field == "boot": memcpy(c.boot, <char *>(<bytes>value), 16)
            elif field == "tail": store64(&c.tail, value)
            elif field == "head": store64(&c.head, value)
            elif field == "oldest": store64(&c.oldest, value)
            elif field == "segment_oldest": store64(&c.segment_oldest, value)
            elif field == "segment_newest": store64(&c.segment_newest, value)
            elif field == "next_file": c.next_file = value
            elif field == "spare_file": c.spare_file = value
            elif field == "synced": store64(&c.synced, value)
            elif field == "synced_file": c.synced_file = value
            elif field == "sync_failed": store32(&c.sync_failed, value)
            elif field == "synced_names": c.synced_names = value
            elif field == "pending_file": c.pending_file = value
            elif field == "origin": c.origin = value
            elif field == "feeds_end": store64(&c.feeds_end, value)
            elif field == "origins_end": store64(&c.origins_end, value)
            elif field == "deleted_products": c.deleted_products = value
            elif field == "stations": store64(&c.stations, value)
            else: raise KeyError(field)

    def publish(self, uint64_t tail):
        """Let readers see everything below `tail`, which has reached the disk. Under the lock for flushes.

        Elsewhere than under durability `disk` they see it from the commit on.
        """
        if self.store.control.durability == DURABLE_DISK and tail > self.store.control.head:
            store64(&self.store.control.head, tail)
            add32(&self.store.control.wake, 1)
            wake_sleepers(self.store)

    def entry(self, uint64_t number):
        """One segment of the directory as a dict."""
        cdef Entry *e = entry_of(self.store, number)
        return {"number": e.number, "first": e.first, "end": e.end, "file": e.file, "size": e.size,
                "payload_bytes": e.payload_bytes, "newest_ns": e.newest_ns,
                "newest_boot_ns": e.newest_boot_ns, "deleted_products": e.deleted_products,
                "deleted_bytes": e.deleted_bytes}

    def set_entry(self, uint64_t number, uint64_t first, uint64_t end, uint64_t file, uint64_t size,
                  uint64_t payload_bytes, uint64_t newest_ns, uint64_t newest_boot_ns,
                  uint64_t deleted_products, uint64_t deleted_bytes):
        cdef Entry *e = entry_of(self.store, number)
        store64(&e.number, 0)
        e.first, e.end, e.file, e.size = first, end, file, size
        e.payload_bytes, e.newest_ns, e.newest_boot_ns = payload_bytes, newest_ns, newest_boot_ns
        e.deleted_products, e.deleted_bytes = deleted_products, deleted_bytes
        store64(&e.number, number)

    def samples(self):
        """(ns since boot, products, bytes, duplicates) at the first put of each second."""
        cdef Control *c = self.store.control
        cdef int i
        return [(c.samples[i].boot_ns, c.samples[i].products, c.samples[i].bytes,
                 c.samples[i].duplicates) for i in range(SAMPLES) if c.samples[i].boot_ns]

    def attachments(self):
        """(place, pid, started, roles, attached_ns) of each place taken."""
        cdef Control *c = self.store.control
        cdef int i
        return [(i, c.attachments[i].pid, c.attachments[i].started, c.attachments[i].roles,
                 c.attachments[i].attached_ns) for i in range(ATTACHMENTS_MAX) if c.attachments[i].pid]

    def set_attachment(self, int place, uint64_t pid, uint64_t started, uint64_t roles, uint64_t attached_ns):
        cdef Attachment *a = &self.store.control.attachments[place]
        a.started, a.roles, a.attached_ns = started, roles, attached_ns
        store64(&a.pid, pid)

    def feed_totals(self):
        """(feed, last sequence, products, payload bytes) of every feed ever put here."""
        cdef uint32_t i
        self.learn_names()
        return [(self.names[i], name_of(self.store, i).last, name_of(self.store, i).products,
                 name_of(self.store, i).payload_bytes)
                for i in range(ORIGINS_MAX, ORIGINS_MAX + <uint32_t>len(self.feeds))]
