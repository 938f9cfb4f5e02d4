# Chain: what Python sees of a chain of stations. It holds no policy; headrace.station does.

@cython.no_gc
@cython.final
cdef class Chain:
    """A mapped chain file. Each call takes the lock of the chain itself, and releases it on every way out."""
    cdef Log log
    cdef ChainHeader *header
    cdef Guarded *guarded
    cdef readonly int fd
    cdef bint owns_fd
    cdef Term terms[MEMBERS_MAX]
    cdef uint32_t terms_count
    cdef uint64_t terms_seen         # the number `terms` of the header that they belong to
    cdef uint64_t terms_until        # they hold for products below this sequence
    cdef bint conducts               # index rows decide for all stations of the chain
    cdef object filters              # what `terms` point into

    def __cinit__(self, Log log not None, int fd, uint64_t number):
        """Takes over the descriptor of the file of chain `number`."""
        cdef void *where
        cdef struct_stat status
        self.log = log
        self.fd = fd
        self.owns_fd = True
        install_sigbus()
        where = mmap(NULL, CHAIN_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if where == MAP_FAILED:
            raise KernelError(-errno)
        self.header = <ChainHeader *>where
        self.guarded = guard(where, CHAIN_BYTES_MAX)
        if (fstat(fd, &status) != 0 or status.st_size < MEMBERS_AT
                or memcmp(self.header.magic, b"HRCHAIN\0", 8) != 0 or self.header.number != number
                or memcmp(self.header.uuid, log.store.control.uuid, 16) != 0):
            raise KernelError(CODE_DAMAGED)
        if self.header.version != CHAIN_VERSION:
            raise KernelError(CODE_NEWER)
        if (SLOTS_AT + <long>self.header.slots_ready * 64 > status.st_size
                or self.header.slots_ready > SLOTS_MAX):
            raise KernelError(CODE_DAMAGED)

    def __dealloc__(self):
        if self.header != NULL:
            unguard(self.guarded)
            munmap(self.header, CHAIN_BYTES_MAX)
        if self.owns_fd:
            c_close(self.fd)

    cdef int enter(self, bint at_once=False) noexcept nogil:
        """Lock the chain: 0, or a negative code and the lock is free."""
        cdef int error = lock_chain(self.header, at_once)
        if error == 0 and is_holed(self.guarded):
            pthread_mutex_unlock(&self.header.lock)
            return CODE_DAMAGED
        return error

    cdef int lock(self) except -1:
        """As `enter`, but raises. Release the interpreter lock only if another thread or process has the lock."""
        cdef int error = self.enter(True)
        if error == -EBUSY:
            with nogil:
                error = self.enter()
        if error != 0:
            raise KernelError(error)
        return 0

    cdef void wake_consumers(self) noexcept nogil:
        add32(&self.log.store.control.wake, 1)
        wake_sleepers(self.log.store)

    cdef void wake_everyone(self) noexcept nogil:
        """After a change of terms or position: consumers and waiting writers look again."""
        self.wake_consumers()
        call_waiters(self.header, FOR_CAPACITY | FOR_LOW)

    # --- terms ------------------------------------------------------------------------------------

    def set_member(self, uint32_t number, dict terms not None):
        """Set the terms of a member. A new member starts with empty lists and counts of zero."""
        cdef Member *member = member_at(self.header, checked(number, MEMBERS_MAX))
        cdef Member given
        cdef bint reordered
        cdef int error = 0
        read_terms(terms, &given)    # raises before anything is locked or changed
        self.lock()
        if not member.used:
            memset(member, 0, sizeof(Member))
        reordered = member.order != given.order or member.discard != given.discard
        copy_terms(member, &given)
        store32(&member.used, 1)
        if reordered and member.waiting:
            error = rebuild_torn(self.header)
        store64(&self.header.terms, self.header.terms + 1)
        unlock_chain(self.header)
        if error != 0:
            raise MemoryError

    def remove_member(self, uint32_t number):
        """Remove a station; its waiting products go to the others of its group, or on to the stations behind it."""
        checked(number, MEMBERS_MAX)
        self.lock()
        remove_station(self.header, number)
        store64(&self.header.terms, self.header.terms + 1)
        unlock_chain(self.header)
        self.wake_everyone()

    def note_terms(self):
        """Tell all processes that the terms have changed."""
        store64(&self.header.terms, self.header.terms + 1)
        self.wake_everyone()

    def use_terms(self, uint64_t seen, list members not None, list filters not None, uint64_t until, bint conducts):
        """How this process reads rows on behalf of the chain: one RowFilter (or None) for each member."""
        cdef Term terms[MEMBERS_MAX]
        cdef uint32_t count = <uint32_t>len(members), i
        cdef RowFilter row_filter
        if count > MEMBERS_MAX or len(filters) != len(members):
            raise ValueError("one filter for each member")
        memset(terms, 0, sizeof(terms))
        for i in range(count):       # raises before anything is locked or changed
            row_filter = filters[i]
            terms[i].member = checked(members[i], MEMBERS_MAX)
            terms[i].wanted = &row_filter.wanted if row_filter is not None else NULL
        before = self.filters        # freed after the lock is released
        self.lock()                  # no other thread of this process conducts meanwhile
        memcpy(self.terms, terms, sizeof(terms))
        self.terms_count = count
        self.filters = filters
        self.terms_seen = seen
        self.terms_until = until
        self.conducts = conducts
        unlock_chain(self.header)

    @property
    def terms_number(self):
        """Changes with the terms of any member."""
        return load64(&self.header.terms)

    # --- from the log -----------------------------------------------------------------------------

    @property
    def position(self):
        """The log has been read up to here, for all stations of the chain."""
        return load64(&self.header.position)

    @property
    def low(self):
        """Every product below this sequence is settled."""
        return load64(&self.header.low)

    cdef int conduct_if_current(self) noexcept nogil:
        """Conduct, unless the terms have changed; 0 or a negative code. Under the lock."""
        if self.terms_seen != self.header.terms:
            return CODE_TERMS
        if not self.conducts:
            return 0
        cdef int outcome = conduct(
            self.log.store, self.header, self.fd, self.terms_until, self.terms, self.terms_count)
        if outcome == 0 and self.header.position >= self.terms_until:
            return CODE_TERMS
        return outcome

    cdef bint is_under_way(self, uint64_t position) noexcept nogil:
        """Did conducting stop only because it had held the lock for long enough?"""
        cdef uint64_t reached = load64(&self.header.position)
        return (self.conducts and reached > position and reached < self.terms_until
                and reached < load64(&self.log.store.control.head))

    def conduct(self):
        """Take up from the log what index rows alone decide; 0 or a negative code."""
        cdef int outcome
        with nogil:
            outcome = self.enter()
            if outcome == 0:
                outcome = self.conduct_if_current()
                unlock_chain(self.header)
        return outcome

    def admit(self, uint64_t seen, uint64_t start, uint64_t end, const uint64_t[::1] sequences,
              const uint8_t[::1] priorities, const uint64_t[::1] wanted, const uint64_t[::1] expires_ns,
              const uint64_t[::1] inserted_ns):
        """Take up what the caller has selected in [start, end); the new position, 0 if another process was faster.

        If there is no room for all of it, the chain continues later where the room ended.
        """
        cdef size_t i
        cdef bint mine
        cdef uint64_t reached = end
        self.lock()
        mine = self.header.terms == seen and self.header.position == start and start <= end
        if mine:
            for i in range(<size_t>sequences.shape[0]):
                if admit(self.header, self.fd, sequences[i], priorities[i], wanted[i], expires_ns[i],
                         inserted_ns[i]) <= 0:
                    reached = sequences[i]
                    break
            store64(&self.header.position, reached)
        unlock_chain(self.header)
        return reached if mine else 0

    def skip(self, uint64_t start, uint64_t lost_last):
        """Pass over products that were evicted before the chain read them: [position, lost_last]."""
        self.lock()
        if self.header.position == start and lost_last >= start:
            self.header.lost_products += lost_last + 1 - start
            self.header.lost_ns = site_now(self.log.store.control)
            self.header.lost_first = start
            self.header.lost_last = lost_last
            store64(&self.header.position, lost_last + 1)
        unlock_chain(self.header)

    def seek(self, uint64_t position):
        """Continue at `position`; waiting products are forgotten, leases stay valid."""
        cdef uint32_t place
        cdef int error
        self.lock()
        self.header.admitting = 0
        store64(&self.header.position, position)
        for place in range(self.header.slots_ready):
            if state_of(slot_at(self.header, place)) == SLOT_WAITING:
                slot_at(self.header, place).mark = SLOT_FREE
        error = rebuild_torn(self.header)
        save_cell(self.header)
        unlock_chain(self.header)
        self.wake_everyone()
        if error != 0:
            raise MemoryError

    # --- leases; see lease.pxi --------------------------------------------------------------------

    def get(self, uint32_t number, uint64_t epoch, uint32_t limit, double timeout_s, uint64_t now_ns, uint64_t looked,
            uint64_t terms_seen):
        """(outcome, Rows): up to `limit` products; waits for the first until `timeout_s`, without limit if negative.

        The outcome is the number of products, or a negative code; then the remaining time stands in place of Rows.
        CODE_LOOK asks the caller to check whether the other consumers are alive and, where index rows alone do not
        decide, to read the log from `looked` on. CODE_TERMS asks it to read the terms, which are newer than
        `terms_seen`. In both cases the caller then calls again.
        """
        cdef Lease few[64]
        cdef Lease *leases = few
        cdef uint64_t now = clock_ns(CLOCK_MONOTONIC)
        cdef int place = check_place(self.log.store, now, False)
        checked(number, CONSUMERS_MAX)
        if place != 0:
            return place, timeout_s
        note_heartbeat(self.header, number, epoch, now)
        if claim_look(self.header, now):
            return CODE_LOOK, timeout_s
        if terms_seen != load64(&self.header.terms):
            return CODE_TERMS, timeout_s
        limit = min(limit, <uint32_t>GET_MAX)
        if limit > 64:
            leases = <Lease *>allocate(limit * sizeof(Lease))
            if leases == NULL:
                raise MemoryError
        try:
            return wait_and_get(self, number, epoch, limit, timeout_s, now_ns, looked, leases)
        finally:
            if leases != few:
                free(leases)

    def get_plain(self, uint32_t number, uint64_t epoch, uint32_t limit, uint64_t terms_seen):
        """Rows of up to `limit` products if some are there and nothing else is to be done first; otherwise None."""
        cdef Lease few[FEW]
        cdef uint64_t now = clock_ns(CLOCK_MONOTONIC)
        cdef int outcome
        if (limit > FEW or is_time_to_look(self.header, now) or terms_seen != load64(&self.header.terms)
                or check_place(self.log.store, now, False) != 0):
            return None
        checked(number, CONSUMERS_MAX)
        note_heartbeat(self.header, number, epoch, now)
        outcome = try_get(self, number, epoch, limit, 0, few, True)
        if outcome <= 0:
            return None
        outcome, found = collect(self, few, outcome, number, 0)
        return found if outcome > 0 else None

    def settle(self, uint32_t number, uint64_t epoch, Rows rows not None, const uint32_t[::1] chosen, int how,
               const uint64_t[::1] revisions):
        """Settle leased rows, all of them or those at the places `chosen`; how many were no longer held.

        Raises KernelError(lease_lost) if the consumer itself was declared dead.
        """
        cdef size_t count = rows.count if chosen is None else <size_t>chosen.shape[0]
        cdef const uint32_t *places = NULL
        cdef const uint64_t *others = NULL
        cdef int64_t refused = -EBUSY
        cdef int place = check_place(self.log.store, clock_ns(CLOCK_MONOTONIC), False)
        checked(number, CONSUMERS_MAX)
        if place != 0:
            raise KernelError(place)
        if revisions is not None and <size_t>revisions.shape[0] != count:
            raise ValueError("revisions")
        if count and chosen is not None:
            places = &chosen[0]
        if count and revisions is not None:
            others = &revisions[0]
        if count <= FEW:
            refused = settle_all(self, number, epoch, rows, places, count, how, others, True)
        if refused == -EBUSY:
            with nogil:
                refused = settle_all(self, number, epoch, rows, places, count, how, others, False)
        if refused < 0:
            raise KernelError(<int>refused)
        return refused

    def put_revisions(self, Rows rows not None, const uint32_t[::1] places not None, list payloads not None,
                      uint64_t now_ns, uint64_t boot_ns):
        """Append new payloads of these products, for the stations behind; their sequences."""
        return append_revisions(self.log, rows, places, payloads, now_ns, boot_ns)

    def count_passed(self, uint32_t number, uint64_t expired, uint64_t damaged):
        """Count what a reader on behalf of the station has passed over."""
        cdef Member *member = member_at(self.header, checked(number, MEMBERS_MAX))
        add64(&member.expired, <long>expired)
        add64(&member.damaged, <long>damaged)

    # --- consumers --------------------------------------------------------------------------------

    def attach(self, uint32_t number, uint32_t member, uint64_t pid):
        """Take the place of a consumer, whose byte the caller has locked; its epoch."""
        cdef uint64_t epoch
        cdef int error
        checked(number, CONSUMERS_MAX)
        checked(member, MEMBERS_MAX)
        self.lock()
        error = attach_consumer(self.header, number, member, pid)
        epoch = consumer_at(self.header, number).epoch
        unlock_chain(self.header)
        if error != 0:
            raise MemoryError
        return epoch

    def detach(self, uint32_t number, uint64_t epoch, bint failed):
        """Leave; remaining leases go back to the input, and count as delivered if the consumer `failed`.

        False if the consumer was declared dead before.
        """
        cdef Consumer *consumer = consumer_at(self.header, checked(number, CONSUMERS_MAX))
        cdef int restored = 0
        cdef bint mine
        self.lock()
        mine = consumer.used != 0 and consumer.epoch == epoch
        if mine:
            restored = restore_leases(self.header, number, RESTORE_INPUT, False, failed)
            if restored >= 0:
                store64(&consumer.left_ns, consumer.attached_ns)
        unlock_chain(self.header)
        self.wake_consumers()
        if failed:
            call_waiters(self.header, FOR_LOW)    # a product that was parked holds nothing back
        if restored < 0:
            raise MemoryError
        return mine

    def heartbeat(self, uint32_t number, uint64_t epoch):
        """Say that the consumer is alive; False if it was declared dead."""
        return note_heartbeat(self.header, checked(number, CONSUMERS_MAX), epoch, clock_ns(CLOCK_MONOTONIC))

    def hung(self, uint32_t number):
        """Is the last heartbeat of this consumer older than its station allows?"""
        return is_hung(self.header, checked(number, CONSUMERS_MAX))

    def recover(self, uint32_t number, uint64_t epoch):
        """Take back what a consumer holds and free its place; how many, or -1 if the place has another owner now."""
        cdef Consumer *consumer = consumer_at(self.header, checked(number, CONSUMERS_MAX))
        cdef int count = -1
        self.lock()
        if consumer.used and consumer.epoch == epoch:
            count = restore_leases(
                self.header, number, member_at(self.header, consumer.member % MEMBERS_MAX).restore, True, True)
        unlock_chain(self.header)
        if count >= 0:
            self.wake_everyone()
        if count == -ENOMEM:
            raise MemoryError
        return count

    def left_cleanly(self, uint32_t number, uint64_t attached_ns):
        """Did the consumer that attached there at that time detach by itself? No, if another one has done so since."""
        return load64(&consumer_at(self.header, checked(number, CONSUMERS_MAX)).left_ns) == attached_ns

    def consumers(self):
        """(place, member, epoch, pid, attached_ns, age of heartbeat ns, leased, delivered, acknowledged) of each."""
        return list_consumers(self.header)

    # --- waiting ----------------------------------------------------------------------------------

    def wait(self, uint32_t seen, double timeout_s):
        """Sleep until something was put or came back; `seen` is `Log.wake_number` before the caller looked."""
        cdef uint64_t wake_at = clock_ns(CLOCK_MONOTONIC) + <uint64_t>(max(timeout_s, 0) * 1e9)
        with nogil:
            sleep_until(self.log.store.control, seen, wake_at)
        PyErr_CheckSignals()

    def watch_room(self, bint held):
        """Ask for a wake-up when a station has room, or, if `held`, when `low` moves; the number to wait with."""
        cdef uint32_t seen = load32(&self.header.room)
        or32(&self.header.waiters, FOR_LOW if held else FOR_CAPACITY)
        return seen

    def wait_room(self, uint32_t seen, double timeout_s):
        """Sleep until there is room or the time is over; `seen` is what `watch_room` returned."""
        cdef uint64_t wake_at = clock_ns(CLOCK_MONOTONIC) + <uint64_t>(max(timeout_s, 0) * 1e9)
        cdef timespec until
        until.tv_sec = wake_at // 1000000000
        until.tv_nsec = wake_at % 1000000000
        with nogil:
            if load32(&self.header.room) == seen:
                futex(&self.header.room, FUTEX_WAIT_BITSET, seen, &until)
        PyErr_CheckSignals()

    def may_look(self):
        """Is it time to check whether consumers are alive? If so, the caller undertakes to do it."""
        return claim_look(self.header, clock_ns(CLOCK_MONOTONIC))

    def is_surely_full(self, uint32_t number):
        """Is the station full even without what the log still has for it?"""
        cdef Member *member = member_at(self.header, checked(number, MEMBERS_MAX))
        cdef uint32_t waiting = load32(&member.waiting)
        return (0 < member.capacity <= waiting) or (0 < member.max_queue <= waiting)

    def count_rejected(self, uint32_t number):
        """Count a put that was refused because of max_queue."""
        add64(&member_at(self.header, checked(number, MEMBERS_MAX)).rejected, 1)

    # --- inspection and repair --------------------------------------------------------------------

    def waiting(self, uint32_t number):
        """Products that wait at a station, as far as the log has been read."""
        return load32(&member_at(self.header, checked(number, MEMBERS_MAX)).waiting)

    def slots(self, uint32_t number, uint32_t state):
        """(place, sequence, revision, deliveries) of the products of a station that are in one state."""
        self.lock()
        try:
            return slots_of(self.header, number, state)
        finally:
            unlock_chain(self.header)

    def unpark(self, uint32_t number, const uint64_t[::1] sequences, bint retry):
        """Bring parked products back to the input of the station, or release them; how many. None: all."""
        cdef uint64_t none = 0
        cdef const uint64_t *chosen = NULL
        cdef size_t count = 0, unparked
        checked(number, MEMBERS_MAX)
        if sequences is not None:
            count = sequences.shape[0]
            chosen = &sequences[0] if count else &none
        self.lock()
        unparked = unpark(self.header, number, chosen, count, retry)
        unlock_chain(self.header)
        self.wake_consumers()
        return unparked

    def members(self):
        """The places that are in use."""
        return [number for number in range(MEMBERS_MAX) if member_at(self.header, number).used]

    def member(self, uint32_t number):
        """Terms, counts and counters of one station; None if the place is free."""
        cdef Member *member = member_at(self.header, checked(number, MEMBERS_MAX))
        return dict_of_member(member) if member.used else None

    def drop_evicted(self):
        """Release and count waiting products that the log no longer holds."""
        cdef int error
        self.lock()
        error = drop_evicted(self.header, load64(&self.log.store.control.oldest))
        unlock_chain(self.header)
        if error != 0:
            raise MemoryError

    def in_hand(self, uint32_t number):
        """Of the waiting and leased products of a station: when the oldest was inserted, or 0; redeliveries."""
        cdef uint64_t oldest_ns = 0
        cdef uint32_t retries
        self.lock()
        retries = count_in_hand(self.header, number, &oldest_ns)
        unlock_chain(self.header)
        return oldest_ns, retries

    @property
    def state(self):
        """Positions and counters of the chain, as a dict."""
        cdef ChainHeader *h = self.header
        return dict(position=h.position, low=h.low, in_hand=h.in_hand, slots=h.slots_ready,
                    lost_products=h.lost_products, lost_ns=h.lost_ns, lost_first=h.lost_first, lost_last=h.lost_last,
                    damaged_rows=h.damaged_rows, recoveries=h.recoveries)

    def save_cell(self):
        """Record the position at which the chain continues after a power failure."""
        self.lock()
        save_cell(self.header)
        unlock_chain(self.header)

    def reset(self, bint trusted, uint64_t tail):
        """While no other process is attached: a new lock, no consumers, and the last position that can be trusted."""
        if reset_chain(self.header, trusted, tail) != 0:
            raise MemoryError

    def check(self):
        """What is inconsistent, as sentences; an empty list if nothing is."""
        self.lock()
        try:
            return check_chain(self.header)
        finally:
            unlock_chain(self.header)
