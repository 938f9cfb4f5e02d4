# The Log: what Python sees of an opened queue directory. It holds no policy; headrace.log does.

from cpython.dict cimport PyDict_GetItem
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject


cdef enum:
    READ_ONLY_NS = 20000000          # the longest sleep of a process that may not write


@cython.no_gc
@cython.final
cdef class Log:
    """An opened queue directory: append, read, wait, and the shared state behind them."""
    cdef Store *store
    cdef readonly dict feeds         # feed -> number, as far as this process knows
    cdef readonly dict origins
    cdef readonly list names         # number -> text; numbers below ORIGINS_MAX are origins
    cdef object gate_owners          # what the gates point into
    cdef object slicing_owners       # the counters that the slicings point into
    cdef object hasher               # of signatures, while no thread has it
    cdef public object dictionaries  # of compressed products (product/expansion.py)

    def __cinit__(self):
        self.store = <Store *>allocate_zeroed(1, sizeof(Store))
        if self.store == NULL:
            raise MemoryError
        self.store.segments_fd = self.store.queue_fd = -1
        self.feeds = {}
        self.origins = {}
        self.names = []
        enlist_store(self.store)

    def __init__(self, int queue_fd, int segments_fd, bint read_only=False):
        """Map the control block and the names. Takes over both directory descriptors.

        A log that is `read_only` needs no right to write: whatever would change the queue fails with EROFS.
        """
        cdef char *base = NULL
        cdef void *where
        cdef int fd, error
        install_sigbus()
        self.store.queue_fd = queue_fd
        self.store.segments_fd = segments_fd
        self.store.read_only = read_only
        error = map_file(self.store, queue_fd, b"control", sizeof(Control), &base, NULL)
        if error != 0:
            raise KernelError(error)
        self.store.control = <Control *>base
        self.store.control_guarded = guard(base, sizeof(Control))
        fd = open_regular(queue_fd, b"names", O_RDONLY if read_only else O_RDWR)
        if fd < 0:
            raise KernelError(CODE_DAMAGED if errno == EINVAL else -errno)
        where = mmap(NULL, <size_t>NAMES_MAX * NAME_BYTES, PROT_READ if read_only else PROT_READ | PROT_WRITE,
                     MAP_SHARED, fd, 0)
        c_close(fd)
        if where == MAP_FAILED:
            raise KernelError(-errno)
        self.store.names = <char *>where
        self.store.names_guarded = guard(where, <size_t>NAMES_MAX * NAME_BYTES)

    def __dealloc__(self):
        cdef Store *store = self.store
        cdef int i
        if store == NULL:
            return
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
        free(store.slicings)
        free(store.sliced_feeds)
        free(store.place)
        if store.segments_fd >= 0:
            c_close(store.segments_fd)
        if store.queue_fd >= 0:
            c_close(store.queue_fd)
        free(store)

    def watch_place(self, bytes path not None):
        """From now on, refuse to work unless `path` leads to the control file that is mapped."""
        cdef struct_stat status
        cdef int fd = open_regular(self.store.queue_fd, b"control", O_RDONLY)
        cdef int error = -errno
        if fd >= 0:
            error = -errno if fstat(fd, &status) != 0 else 0
            c_close(fd)
        if error != 0:
            raise KernelError(error)
        cdef char *place = strdup(path)
        if place == NULL:
            raise MemoryError
        free(self.store.place)
        self.store.place = place
        self.store.place_device, self.store.place_inode = status.st_dev, status.st_ino

    def look_for_place(self, bint always=True):
        """0 if the queue is where it was opened, or a negative code. Not `always`: at most every 10 ms."""
        return check_place(self.store, 0 if always else clock_ns(CLOCK_MONOTONIC), always)

    @property
    def payload_bytes_max(self):
        """The largest payload that the queue takes."""
        return payload_bytes_max(self.store)

    @property
    def queue_fd(self):
        """The directory, wherever it is now."""
        return self.store.queue_fd

    @property
    def read_only(self):
        """Whether nothing of the queue may be changed here."""
        return self.store.read_only

    cdef int check_writable(self) except -1:
        if self.store.read_only:
            raise KernelError(-EROFS)
        return 0

    cdef fail(self, int code):
        raise KernelError(code, self.store.failed_file)

    cdef refuse(self, int code, Item *items):
        """An append was refused: by a gate, whose number the first item has, or for another reason."""
        if code == CODE_BLOCKED or code == CODE_REJECTED:
            raise KernelError(code, items.outcome)
        self.fail(code)

    # --- names ------------------------------------------------------------------------------------

    def learn_names(self):
        """Read the names that other processes have added; one past the last feed."""
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
        """The number of a name of the kind NAME_FEED or NAME_ORIGIN, added if it is new. Takes the lock of the log."""
        with self.held():
            return self.add_name_locked(kind, text)

    def add_name_locked(self, int kind, str text):
        cdef bytes encoded = text.encode()
        cdef dict known = self.feeds if kind == NAME_FEED else self.origins
        cdef Control *control = self.store.control
        cdef uint64_t *end = &control.feeds_end if kind == NAME_FEED else &control.origins_end
        cdef Name *name
        if not 0 < len(encoded) <= FEED_BYTES_MAX:
            raise ValueError("name")
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
        """The number of a valid name, added if it is new."""
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
              object origin, uint64_t origin_sequence, uint64_t previous, bytes options, uint64_t now_ns,
              uint64_t boot_ns, uint64_t assigned=0, content=None):
        """Append one product; its sequence, or minus the sequence of the copy that the queue holds.

        KeyError for a feed or origin without a number yet, ValueError for an ident that is too long. `assigned` is the
        number of the slicings for which a user's function has computed `slice`. `options` are entries that have been
        checked; `content` is signed instead of the payload, which is another form of it.
        """
        return put_one(self, payload, feed, ident, created_ns, priority, expires_ns, properties, slice, signature,
                       origin, origin_sequence, previous, options, now_ns, boot_ns, assigned, content)

    def put_many(self, payloads, feeds, idents, const uint64_t[::1] created_ns,
                 const uint8_t[::1] priorities, const uint64_t[::1] expires_ns, properties,
                 const uint16_t[::1] slices, signatures, origins,
                 const uint64_t[::1] origin_sequences, const uint64_t[::1] previous, options,
                 uint64_t now_ns, uint64_t boot_ns, uint64_t assigned=0, contents=None):
        """Append all or none. (first sequence, how many were stored, outcomes if there were duplicates).

        `feeds`, `idents`, `properties`, `origins` and `options` are one value for all or a list; number columns have
        one value for all or one each, or are None. `assigned` is as for `put`, `contents` has one for each payload.
        """
        return put_many(self, payloads, feeds, idents, created_ns, priorities, expires_ns, properties, slices,
                        signatures, origins, origin_sequences, previous, options, now_ns, boot_ns, assigned, contents)

    def put_many_plain(self, payloads, str feed not None, str ident not None, uint8_t priority,
                       slices=None):
        """`put_many` of products that have only these facts; by the clock of the machine.

        `slices` is one for all, a list or an array of 16-bit numbers; ValueError for an invalid one.
        """
        return put_many_plain(self, payloads, feed, ident, priority, slices)

    def put_records(self, Rows rows not None, const uint8_t[::1] mask, uint64_t now_ns, uint64_t boot_ns,
                    const uint16_t[::1] slices=None, uint64_t assigned=0, bint passed_on=False,
                    dict packed=None):
        """Append the records of these rows as they are, all or none; what `put_many` returns.

        Rows whose byte in `mask` is 0 are left out, also from the result. New feeds and origins are added. A record
        without a signature gets one of the kind of this queue, and one in a channel with slices gets a slice of this
        queue. `slices`, one for each row, and `assigned` are as for `put`. `passed_on`: by another site, so that the
        number of hops in their options falls by one. `packed` has, by its place, a row's payload in another form, and
        all options of that row.
        """
        return put_rows(self, rows, mask, now_ns, boot_ns, slices, assigned, passed_on, packed)

    # --- time -------------------------------------------------------------------------------------

    def now_ns(self):
        """The time of the site in nanoseconds since 1970, UTC: what products are stamped with."""
        return site_now(self.store.control)

    def clock(self):
        """The words of the clock that counts, by name; None if none has been set."""
        cdef Clock clock
        return clock_words(&clock) if load_clock(self.store.control, &clock) else None

    def now_and_bound(self):
        """(time, how far it may be from the truth), both in nanoseconds; the bound is 0 if it is not known."""
        cdef Clock clock
        cdef uint64_t boot_ns = clock_ns(CLOCK_BOOTTIME)
        if not load_clock(self.store.control, &clock):
            return clock_ns(CLOCK_REALTIME), 0
        return clock_at(&clock, boot_ns), bound_at(&clock, boot_ns)

    def set_clock(self, uint64_t boot_ns, uint64_t utc_ns, int32_t rate_ppb, int32_t then_ppb, uint64_t until_boot_ns,
                  uint64_t bound_ns, uint32_t drift_ppb, uint32_t source, int64_t offset_ns, bint back=False):
        """Set the clock of the site; layout.pxi says what the words mean.

        ValueError for words that would put the clock back, now or later; `back` allows the first.
        """
        cdef Clock clock
        cdef bint accepted
        memset(&clock, 0, sizeof(clock))
        clock.boot_ns, clock.utc_ns, clock.rate_ppb, clock.then_ppb = boot_ns, utc_ns, rate_ppb, then_ppb
        clock.until_boot_ns, clock.bound_ns, clock.drift_ppb = until_boot_ns, bound_ns, drift_ppb
        clock.source, clock.offset_ns = source, offset_ns
        if min(rate_ppb, then_ppb) <= -1000000000 or utc_ns > NUMBER_MAX or source > CLOCK_NTP:
            raise ValueError("clock")
        with self.held():
            accepted = set_clock(self.store.control, &clock, back)
        if not accepted:
            raise ValueError("back")

    def clear_clock(self):
        """From now on, the clock of the system counts. While no other process is attached."""
        self.check_writable()
        store64(&self.store.control.clock_turn, 0)

    # --- read -------------------------------------------------------------------------------------

    def rows(self):
        """An empty Rows to pick into."""
        return Rows(self)

    def take(self, uint64_t start, size_t limit, uint64_t bytes_limit, uint64_t stop,
             RowFilter row_filter, uint64_t now_ns):
        """(outcome, Rows): pick and verify in one step, for selections that index rows alone decide."""
        cdef Rows rows = Rows(self)
        cdef int outcome = rows.pick(start, limit, bytes_limit, stop, row_filter)
        rows.verify(0, now_ns)
        if ORIGINS_MAX + len(self.feeds) != self.store.control.feeds_end or (
                len(self.origins) != self.store.control.origins_end):
            self.learn_names()
        return outcome, rows

    def put_plain(self, payload, str feed not None, str ident not None, dict facts not None, slice=None):
        """`put` of a product whose facts are at most a slice and a priority; by the clock of the machine.

        0, and nothing is stored, if it has others; ValueError for an invalid one.
        """
        cdef PyObject *priority = NULL
        if facts:
            priority = PyDict_GetItem(facts, "priority")
            if priority == NULL or len(facts) != 1:
                return 0
        return put_one(self, payload, feed, ident, 0, priority_in(priority), 0, None, slice_in(<PyObject *>slice), None,
                       None, 0, 0, None, 0, 0, 0, None)

    def first_from(self, uint64_t sequence):
        """The smallest sequence >= `sequence` that the queue holds or will assign next."""
        return held_from(self.store, sequence)

    def count_between(self, uint64_t start, uint64_t end):
        """How many rows there are from `start` up to `end`; sequences that were never assigned do not count."""
        return count_between(self.store, start, end)

    def first_since(self, uint64_t time_ns):
        """The smallest sequence that was inserted at or after `time_ns`; head if there is none."""
        return first_since(self.store, time_ns)

    def wait_once(self, uint64_t sequence, double timeout_s):
        """Sleep until `sequence` may be read, wake_all is called, or `timeout_s` or a second has passed.

        One second at most, because a writer that was killed between its commit and its wake-up call never makes
        that call. A process that may not write sleeps for READ_ONLY_NS at most: it cannot tell writers that it sleeps,
        so they wake it only if another process sleeps, too.
        """
        cdef Control *control = self.store.control
        cdef timespec until
        cdef uint64_t wake_at = clock_ns(CLOCK_MONOTONIC) + 1000000000
        cdef uint32_t seen
        if 0 <= timeout_s < 1:
            wake_at += <uint64_t>(timeout_s * 1e9) - 1000000000
        if self.store.read_only:
            wake_at = min(wake_at, clock_ns(CLOCK_MONOTONIC) + READ_ONLY_NS)
        until.tv_sec = wake_at // 1000000000
        until.tv_nsec = wake_at % 1000000000
        with nogil:
            if not self.store.read_only:
                store32(&control.sleepers, 1)
            fence()
            seen = load32(&control.wake)
            if load64(&control.head) <= sequence:
                futex(&control.wake, FUTEX_WAIT_BITSET, seen, &until)
        PyErr_CheckSignals()

    @property
    def gates_number(self):
        """The number `stations` for which the gates of this process were made."""
        return self.store.stations_seen

    @property
    def slicings_number(self):
        """The number `slicings` for which the table of channels with slices was made."""
        return self.store.slicings_seen

    @property
    def wake_number(self):
        """Changes whenever something is put, or comes back to a station."""
        return load32(&self.store.control.wake)

    def wake_all(self):
        """Wake every sleeper."""
        if not self.store.read_only:
            add32(&self.store.control.wake, 1)
        futex(&self.store.control.wake, FUTEX_WAKE, 0x7FFFFFFF, NULL)

    def sweep(self):
        """Unmap files that have left the queue, unless the log is locked.

        A process that may not write does not lock it: a file that it unmaps too early is mapped again.
        """
        cdef int error
        if self.store.read_only:
            pthread_mutex_lock(&self.store.maps_lock)
            sweep_mappings(self.store)
            pthread_mutex_unlock(&self.store.maps_lock)
            return
        error = pthread_mutex_trylock(&self.store.control.lock)
        if error == EBUSY:
            return
        if recover_lock(self.store, error) == 0:
            pthread_mutex_lock(&self.store.maps_lock)
            sweep_mappings(self.store)
            pthread_mutex_unlock(&self.store.maps_lock)
            unlock_log(self.store)

    # --- locks for callers in Python --------------------------------------------------------------

    def held(self):
        """A context in which the lock of the log is held: no process appends meanwhile."""
        cdef Held held = Held.__new__(Held)
        held.log = self
        return held

    def held_for_sync(self, bint patient=True):
        """A context in which no other process flushes, also after a process died during a flush."""
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
        """The segment file that the last error was about; 0 none."""
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
        return read_state(self.store.control)

    def set_state(self, **fields):
        """Change shared numbers. Under the lock of the log, or while no other process is attached."""
        self.check_writable()
        write_state(self.store.control, fields)

    def publish(self, uint64_t tail):
        """Let readers see everything below `tail`, which has reached the disk. Under the lock for flushes.

        With a durability other than `disk` they see it from the commit on, and this does nothing.
        """
        self.check_writable()
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
        self.check_writable()
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
        """(place, pid, started, roles, attached_ns) of each place in use."""
        cdef Control *c = self.store.control
        cdef int i
        return [(i, c.attachments[i].pid, c.attachments[i].started, c.attachments[i].roles,
                 c.attachments[i].attached_ns) for i in range(ATTACHMENTS_MAX) if c.attachments[i].pid]

    def set_attachment(self, int place, uint64_t pid, uint64_t started, uint64_t roles, uint64_t attached_ns):
        cdef Attachment *a = &self.store.control.attachments[place]
        self.check_writable()
        a.started, a.roles, a.attached_ns = started, roles, attached_ns
        store64(&a.pid, pid)

    def feed_totals(self):
        """(feed, last sequence, products, payload bytes) of every feed ever put here."""
        cdef uint32_t i
        self.learn_names()
        return [(self.names[i], name_of(self.store, i).last, name_of(self.store, i).products,
                 name_of(self.store, i).payload_bytes)
                for i in range(ORIGINS_MAX, ORIGINS_MAX + <uint32_t>len(self.feeds))]


@cython.final
cdef class Held:
    """A lock as a context manager: no signal can come between taking the lock and the guarantee of its release."""
    cdef Log log
    cdef bint sync, patient, taken

    def __enter__(self):
        """True; False if another process has the lock and the caller does not want to wait."""
        cdef pthread_mutex_t *lock = &self.log.store.control.sync_lock
        cdef int error
        self.log.check_writable()
        if not self.sync:
            with nogil:
                error = -lock_log(self.log.store)
        elif self.patient:
            with nogil:
                error = lock_robust(lock)
        else:
            error = pthread_mutex_trylock(lock)
        if error == EOWNERDEAD:
            error = pthread_mutex_consistent(lock)
        if error == EBUSY:
            return False
        if error != 0:
            self.log.fail(-error)
        self.taken = True
        return True

    def __exit__(self, kind, value, trace):
        if not self.taken:
            return
        self.taken = False
        if self.sync:
            pthread_mutex_unlock(&self.log.store.control.sync_lock)
        else:
            unlock_log(self.log.store)
