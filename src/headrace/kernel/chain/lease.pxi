# Chain: what Python sees of a chain of stations. It has no policy; headrace.station has.

cdef enum:                           # how a leased product is settled
    SETTLE_ACK = 0
    SETTLE_DISCARD = 1
    SETTLE_NACK = 2                  # undone, and no fault of the product
    SETTLE_FAILED = 3                # undone, and perhaps its fault
    SETTLE_EVICTED = 4
    SETTLE_DAMAGED = 5

CHAIN_MAGIC = b"HRCHAIN\0"
SETTLE = {"ack": SETTLE_ACK, "discard": SETTLE_DISCARD, "nack": SETTLE_NACK, "failed": SETTLE_FAILED}

cpdef enum:
    GET_MAX = 65536                  # products in one get
    FEW = 16                         # so few products are got and settled without letting other threads run meanwhile

cdef enum:
    SUSPECT = 2                      # deliveries after which a product is handed out alone
    SPIN_NS = 20000                  # a producer at full speed comes sooner than a sleeper wakes up
    LOOK_NS = 200000000              # how often a sleeper sees whether the others are alive


cdef uint64_t FOR_EVER = 0xFFFFFFFFFFFFFFFF

cdef struct Lease:                   # what is copied of a slot while the lock is held
    uint64_t sequence
    uint64_t revision
    uint32_t place
    uint32_t ticket
    uint8_t deliveries
    uint8_t revisions


cdef inline uint64_t now_or(uint64_t now_ns) noexcept nogil:
    return now_ns if now_ns else clock_ns(CLOCK_REALTIME)


@cython.no_gc
cdef class Chain:
    """A mapped chain file. Calls take the chain's lock themselves, unless they say otherwise."""
    cdef Log log
    cdef ChainHeader *chain
    cdef Guarded *guarded
    cdef readonly int fd
    cdef Term terms[MEMBERS_MAX]
    cdef uint32_t terms_count
    cdef uint64_t terms_seen, terms_until        # the chain's `terms` they belong to; where they end
    cdef bint conducts                           # index rows decide for all stations of the chain
    cdef object filters

    def __cinit__(self, Log log not None, int fd, uint64_t number):
        """Takes over the descriptor of the file of chain `number`."""
        cdef void *where
        cdef struct_stat status
        self.log = log
        self.fd = fd
        self.chain = NULL
        install_sigbus()
        where = mmap(NULL, CHAIN_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if where == MAP_FAILED:
            raise KernelError(-errno)
        self.chain = <ChainHeader *>where
        self.guarded = guard(where, CHAIN_BYTES_MAX)
        if (fstat(fd, &status) != 0 or status.st_size < SLOTS_AT
                or memcmp(self.chain.magic, b"HRCHAIN\0", 8) != 0 or self.chain.number != number
                or memcmp(self.chain.uuid, log.store.control.uuid, 16) != 0
                or SLOTS_AT + <long>self.chain.slots_ready * 64 > status.st_size
                or self.chain.slots_ready > SLOTS_MAX):
            raise KernelError(CODE_DAMAGED)
        if self.chain.version != CHAIN_VERSION:
            raise KernelError(CODE_NEWER)

    def __dealloc__(self):
        if self.chain != NULL:
            unguard(self.guarded)
            munmap(self.chain, CHAIN_BYTES_MAX)
        if self.fd >= 0:
            c_close(self.fd)

    cdef int enter(self, bint at_once=False) noexcept nogil:
        cdef int error = lock_chain(self.chain, at_once)
        if error == 0 and is_holed(self.guarded):
            pthread_mutex_unlock(&self.chain.lock)
            return CODE_DAMAGED
        return error

    cdef lock(self):
        cdef int error = self.enter(True)
        if error == -EBUSY:
            with nogil:
                error = self.enter()
        if error != 0:
            raise KernelError(error)

    cdef void wake_consumers(self) noexcept nogil:
        add32(&self.log.store.control.wake, 1)
        wake_sleepers(self.log.store)

    # --- terms ------------------------------------------------------------------------------------

    def set_member(self, uint32_t number, dict terms):
        """Give a member its terms; a new one begins with empty lists and counts of zero."""
        cdef Member *member = member_at(self.chain, number)
        self.lock()
        try:
            if not member.used:
                memset(member, 0, sizeof(Member))
            anew = member.order != terms["order"] or member.discard != terms["discard"]
            member.stage = terms["stage"]
            member.grouped = terms["grouped"]
            member.distribution = terms["distribution"]
            member.blocking = terms["blocking"]
            member.paused = terms["paused"]
            member.order = terms["order"]
            member.discard = terms["discard"]
            member.restore = terms["restore"]
            member.deliveries_max = terms["deliveries_max"]
            member.capacity = terms["capacity"]
            member.prescale = terms["prescale"]
            member.hung_after_ns = terms["hung_after_ns"]
            member.timeout_ns = terms["timeout_ns"]
            member.start_ns = terms["start_ns"]
            member.stop_ns = terms["stop_ns"]
            member.max_queue = terms["max_queue"]
            member.later = terms["later"]
            store32(&member.used, 1)
            if anew and member.waiting:          # what waits is put into the new order
                rebuild(self.chain)
            store64(&self.chain.terms, self.chain.terms + 1)
        finally:
            unlock_chain(self.chain)

    def remove_member(self, uint32_t number):
        """Forget a station; what waits there goes to the others of its group, or on to the stations behind it."""
        cdef Member *member = member_at(self.chain, number)
        cdef uint64_t others
        cdef uint32_t place
        self.lock()
        try:
            others = member.later | stage_of(self.chain, member)
            for place in range(self.chain.slots_ready):
                self.remove_from(slot_at(self.chain, place), place, number)
            while member.present:
                place = delist(self.chain, member, lowest_bit(member.present))
                go_on(self.chain, place, slot_at(self.chain, place).wanted & others, False)
            for place in range(CONSUMERS_MAX):
                if consumer_at(self.chain, place).used and consumer_at(self.chain, place).member == number:
                    forget_consumer(self.chain, place)
            memset(member, 0, sizeof(Member))
            store64(&self.chain.terms, self.chain.terms + 1)
        finally:
            unlock_chain(self.chain)
        self.wake_consumers()
        call_waiters(self.chain, FOR_CAPACITY | FOR_LOW)

    cdef void remove_from(self, Slot *slot, uint32_t place, uint32_t number) noexcept nogil:
        cdef Member *member = member_at(self.chain, number)
        cdef uint64_t bit = <uint64_t>1 << number
        if state_of(slot) == SLOT_FREE:
            return
        slot.wanted &= ~bit
        if station_of(slot) != number:
            return
        if state_of(slot) == SLOT_PARKED:
            release_slot(self.chain, place)
        elif state_of(slot) == SLOT_LEASED:
            consumer_at(self.chain, owner_of(slot)).leased -= 1
            give_back_slot(self.chain, place, RESTORE_INPUT)

    def note_terms(self):
        """Say to all processes that the terms have changed."""
        store64(&self.chain.terms, self.chain.terms + 1)
        self.wake_consumers()
        call_waiters(self.chain, FOR_CAPACITY | FOR_LOW)

    def use_terms(self, uint64_t seen, list members, list filters, uint64_t until, bint conducts):
        """How this process looks at rows on behalf of the chain: one RowFilter (or None) for each member."""
        cdef uint32_t i
        cdef RowFilter row_filter
        self.lock()                  # no thread of ours is conducting meanwhile
        for i in range(<uint32_t>len(members)):
            row_filter = filters[i]
            self.terms[i].member = members[i]
            self.terms[i].wanted = &row_filter.wanted if row_filter is not None else NULL
        self.terms_count = <uint32_t>len(members)
        self.filters = filters
        self.terms_seen = seen
        self.terms_until = until
        self.conducts = conducts
        unlock_chain(self.chain)

    @property
    def terms_number(self):
        return load64(&self.chain.terms)

    def waiting(self, uint32_t number):
        """Products that wait at a station, as far as the log has been looked at."""
        return load32(&member_at(self.chain, number).waiting)

    def wait(self, uint32_t seen, double timeout_s):
        """Sleep until something has been put or come back; `seen` is `Log.wake_number` before looking."""
        cdef uint64_t wake_at = clock_ns(CLOCK_MONOTONIC) + <uint64_t>(max(timeout_s, 0) * 1e9)
        with nogil:
            self.sleep(seen, wake_at)
        PyErr_CheckSignals()

    @property
    def position(self):
        return load64(&self.chain.position)

    @property
    def low(self):
        return load64(&self.chain.low)

    # --- from the log -----------------------------------------------------------------------------

    cdef int conduct_if_current(self) noexcept nogil:
        """Under the lock."""
        if self.terms_seen != self.chain.terms:
            return CODE_TERMS
        if not self.conducts:
            return 0
        cdef int outcome = conduct(
            self.log.store, self.chain, self.fd, self.terms_until, self.terms, self.terms_count)
        if outcome == 0 and self.chain.position >= self.terms_until:
            return CODE_TERMS
        return outcome

    def conduct(self):
        """Take up from the log what index rows alone decide; 0 or trouble."""
        cdef int outcome
        with nogil:
            outcome = self.enter()
            if outcome == 0:
                outcome = self.conduct_if_current()
                unlock_chain(self.chain)
        return outcome

    def admit(self, uint64_t seen, uint64_t start, uint64_t end, const uint64_t[::1] sequences,
              const uint8_t[::1] priorities, const uint64_t[::1] wanted, const uint64_t[::1] expires_ns,
              const uint64_t[::1] inserted_ns):
        """Take up what the caller has found in [start, end); False if somebody else was faster.

        If there is no room for all of it, the chain goes on where the room ended.
        """
        cdef size_t i
        cdef bint mine = False
        cdef uint64_t reached = end
        self.lock()
        try:
            mine = self.chain.terms == seen and self.chain.position == start and start <= end
            if mine:
                for i in range(<size_t>sequences.shape[0]):
                    if admit(self.chain, self.fd, sequences[i], priorities[i], wanted[i], expires_ns[i],
                             inserted_ns[i]) <= 0:
                        reached = sequences[i]
                        break
                store64(&self.chain.position, reached)
        finally:
            unlock_chain(self.chain)
        return mine

    def skip(self, uint64_t start, uint64_t lost_last):
        """Pass over what was evicted before anybody looked: [position, lost_last]."""
        self.lock()
        if self.chain.position == start and lost_last >= start:
            self.chain.lost_products += lost_last + 1 - start
            self.chain.lost_first = start
            self.chain.lost_last = lost_last
            store64(&self.chain.position, lost_last + 1)
        unlock_chain(self.chain)

    def seek(self, uint64_t position):
        """Begin again at `position`; what waits is forgotten, what is leased stays so."""
        cdef uint32_t place
        self.lock()
        self.chain.admitting = 0
        store64(&self.chain.position, position)
        for place in range(self.chain.slots_ready):
            if state_of(slot_at(self.chain, place)) == SLOT_WAITING:
                slot_at(self.chain, place).mark = SLOT_FREE
        rebuild(self.chain)
        save_cell(self.chain)
        unlock_chain(self.chain)
        self.wake_consumers()
        call_waiters(self.chain, FOR_CAPACITY | FOR_LOW)

    # --- get --------------------------------------------------------------------------------------

    cdef int take_leases(self, uint32_t number, uint64_t epoch, uint32_t limit, uint64_t now_ns,
                         Lease *leases) noexcept nogil:
        """Hand out up to `limit` products; how many, or trouble. Under the lock."""
        cdef ChainHeader *chain = self.chain
        cdef Consumer *consumer = consumer_at(chain, number)
        cdef Member *member
        cdef uint32_t count = 0, place, priority
        cdef Slot *slot
        if consumer.used == 0 or consumer.epoch != epoch:
            return CODE_LEASE_LOST
        member = member_at(chain, consumer.member % MEMBERS_MAX)
        if member.used == 0:
            return CODE_LEASE_LOST
        if member.paused or member.start_ns > now_ns:
            return 0
        chain.ticket += 1
        while count < limit and member.present:
            priority = list_by(chain, member, member.order, True)
            if count != 0 and slot_at(chain, member.first[priority]).deliveries >= SUSPECT:
                break                # it may be its fault: it goes alone, and the others are not parked with it
            place = delist(chain, member, priority)
            slot = slot_at(chain, place)
            if deadline_at(member, slot) <= now_ns:
                member.expired += 1
                if slot.expires_ns != 0 and slot.expires_ns <= now_ns:
                    release_slot(chain, place)
                else:                # of no more use here; others may have more time
                    go_on(chain, place, slot.wanted & member.later, False)
                continue
            if member.deliveries_max != 0 and max(slot.deliveries, slot.restarts) >= member.deliveries_max:
                park(chain, place)
                continue
            if slot.deliveries:
                member.redelivered += 1
            slot.deliveries += slot.deliveries < 0xFF
            store64(&slot.mark, mark_of(SLOT_LEASED, consumer.member, number, chain.ticket))
            failpoint(FAIL_LEASED)
            leases[count].sequence, leases[count].revision = slot.sequence, slot.revision
            leases[count].place, leases[count].ticket = place, chain.ticket
            leases[count].deliveries, leases[count].revisions = slot.deliveries, slot.revisions
            count += 1
            if slot.deliveries > SUSPECT:
                break
        member.leased += count
        member.delivered += count
        consumer.leased += count
        consumer.delivered += count
        return count

    cdef int try_get(self, uint32_t number, uint64_t epoch, uint32_t limit, uint64_t now_ns,
                     Lease *leases, bint at_once) noexcept nogil:
        cdef Member *member = member_at(self.chain, consumer_at(self.chain, number).member % MEMBERS_MAX)
        cdef int outcome = self.enter(at_once)
        cdef bint low
        if outcome != 0:
            return outcome
        outcome = self.conduct_if_current()
        if outcome == 0:
            outcome = self.take_leases(number, epoch, limit, now_or(now_ns), leases)
        low = member.waiting * 2 <= member.capacity
        unlock_chain(self.chain)
        if low:
            call_waiters(self.chain, FOR_CAPACITY)
        return outcome

    def get(self, uint32_t number, uint64_t epoch, uint32_t limit, double timeout_s, uint64_t now_ns, uint64_t looked,
            uint64_t terms_seen):
        """(outcome, Rows): up to `limit` products, waiting for the first until `timeout_s` (negative: for ever).

        The outcome is how many were handed out, or trouble; then there is what is left of the time instead of Rows.
        CODE_LOOK asks the caller to see whether the other consumers are alive, and, where index rows do not decide
        alone, to look at the log from `looked` on; CODE_TERMS to read the terms, which are newer than `terms_seen`;
        then to come again.
        """
        cdef Lease few[64]
        cdef Lease *leases = few
        cdef uint64_t now = clock_ns(CLOCK_MONOTONIC), begun = now, position
        cdef uint64_t until = FOR_EVER
        cdef uint32_t seen
        cdef int outcome
        cdef double left_s
        limit = min(limit, <uint32_t>GET_MAX)
        if 0 <= timeout_s < 1e9:
            until = begun + <uint64_t>(timeout_s * 1e9)
        if limit > 64:
            leases = <Lease *>malloc(limit * sizeof(Lease))
            if leases == NULL:
                raise MemoryError
        try:
            self.beat_at(number, epoch, now)
            if self.claim_look(now):
                return CODE_LOOK, timeout_s
            if terms_seen != load64(&self.chain.terms):
                return CODE_TERMS, timeout_s
            while True:
                seen = load32(&self.log.store.control.wake)
                position = load64(&self.chain.position)
                outcome = self.try_get(number, epoch, limit, now_ns, leases, True) if limit <= FEW else -EBUSY
                if outcome == -EBUSY:
                    with nogil:
                        outcome = self.try_get(number, epoch, limit, now_ns, leases, False)
                if outcome == 0 and self.is_under_way(position):
                    PyErr_CheckSignals()
                    continue
                if outcome == 0 and not self.conducts and load64(&self.log.store.control.head) > looked:
                    outcome = CODE_LOOK
                if outcome != 0 or now >= until:
                    break
                with nogil:
                    self.sleep(seen, min(until, now + LOOK_NS))
                PyErr_CheckSignals()
                now = clock_ns(CLOCK_MONOTONIC)
                if now >= begun + LOOK_NS and now < until:
                    outcome = CODE_LOOK
                    break
            left_s = timeout_s if until == FOR_EVER else <double>(until - min(now, until)) / 1e9
            return self.collect(leases, outcome, number, left_s) if outcome > 0 else (outcome, left_s)
        finally:
            if leases != few:
                free(leases)

    def get_plain(self, uint32_t number, uint64_t epoch, uint32_t limit, uint64_t terms_seen):
        """Rows of up to `limit` products if some are there and nothing else is to be done first; else None."""
        cdef Lease few[FEW]
        cdef uint64_t now = clock_ns(CLOCK_MONOTONIC)
        cdef int outcome
        if limit > FEW or self.is_time_to_look(now) or terms_seen != load64(&self.chain.terms):
            return None
        self.beat_at(number, epoch, now)
        outcome = self.try_get(number, epoch, limit, 0, few, True)
        if outcome <= 0:
            return None
        outcome, found = self.collect(few, outcome, number, 0)
        return found if outcome > 0 else None

    cdef bint claim_look(self, uint64_t now) noexcept nogil:
        """Is it time to see whether other consumers are alive? Then the caller has promised to."""
        if not self.is_time_to_look(now):
            return False
        store64(&self.chain.looked_ns, now)
        return True

    cdef bint is_time_to_look(self, uint64_t now) noexcept nogil:
        cdef uint64_t looked_ns = load64(&self.chain.looked_ns)
        return not looked_ns <= now <= looked_ns + LOOK_NS

    cdef bint is_under_way(self, uint64_t position) noexcept nogil:
        """Has the look at the log ended only because it took too long for one lock?"""
        cdef uint64_t reached = load64(&self.chain.position)
        return (self.conducts and reached > position and reached < self.terms_until
                and reached < load64(&self.log.store.control.head))

    cdef void sleep(self, uint32_t seen, uint64_t wake_at) noexcept nogil:
        """Until `wake` changes or the time is over: awake for a moment, then asleep."""
        cdef Control *control = self.log.store.control
        cdef uint64_t spin_until = clock_ns(CLOCK_MONOTONIC) + SPIN_NS
        cdef timespec until
        while clock_ns(CLOCK_MONOTONIC) < min(spin_until, wake_at):
            if load32(&control.wake) != seen:
                return
            sched_yield()            # to whoever has something to do
        store32(&control.sleepers, 1)
        fence()
        until.tv_sec = wake_at // 1000000000
        until.tv_nsec = wake_at % 1000000000
        if load32(&control.wake) == seen:
            futex(&control.wake, FUTEX_WAIT_BITSET, seen, &until)

    cdef collect(self, Lease *leases, uint32_t count, uint32_t number, double left_s):
        """(how many, Rows) behind the leases; those that cannot be had any more are settled at once."""
        cdef Rows rows = Rows(self.log)
        cdef int trouble
        rows.next = load64(&self.chain.position)
        rows.leased_by = self.chain.number
        rows.reserve(count)
        if count <= FEW:
            trouble = self.pick_leased(rows, leases, count, number)
        else:
            with nogil:
                trouble = self.pick_leased(rows, leases, count, number)
        if rows.count == 0:
            return trouble, left_s
        if ORIGINS_MAX + len(self.log.feeds) != self.log.store.control.feeds_end or (
                len(self.log.origins) != self.log.store.control.origins_end):
            self.log.learn_names()
        return <int>rows.count, rows

    cdef int pick_leased(self, Rows rows, Lease *leases, uint32_t count, uint32_t number) noexcept nogil:
        """Add what was leased; why nothing was, if so."""
        cdef int outcome, trouble = CODE_LOOK
        cdef uint64_t head = load64(&self.log.store.control.head)
        cdef uint32_t i
        cdef Lease *lease
        cdef Ref *ref
        for i in range(count):
            lease = &leases[i]
            outcome = CODE_GONE
            if lease.revision == 0 or not is_deleted(self.log.store, lease.sequence):
                outcome = rows.pick_one(lease.revision if lease.revision else lease.sequence, head)
            if outcome != 0:
                if outcome != CODE_GONE and outcome != CODE_DAMAGED:
                    trouble = outcome            # too many open files, say: it is there, and goes back
                self.settle_missing(lease, number, outcome)
                continue
            ref = &rows.refs[rows.count - 1]
            ref.sequence = lease.sequence
            ref.slot = lease.place
            ref.deliveries = lease.deliveries
            ref.revisions = lease.revisions
            ref.ticket = lease.ticket
        return trouble

    cdef void settle_missing(self, Lease *lease, uint32_t number, int outcome) noexcept nogil:
        cdef int how = SETTLE_NACK
        if outcome == CODE_GONE:
            how = SETTLE_EVICTED
        elif outcome == CODE_DAMAGED:
            how = SETTLE_DAMAGED
        if self.enter() == 0:
            self.settle_slot(lease.place, number, lease.ticket, how, 0)
            unlock_chain(self.chain)

    # --- put --------------------------------------------------------------------------------------

    cdef bint settle_slot(self, uint32_t place, uint32_t number, uint32_t ticket, int how,
                          uint64_t revision) noexcept nogil:
        """Under the lock; False if the caller does not hold this product."""
        cdef ChainHeader *chain = self.chain
        cdef Slot *slot
        cdef Member *member
        if place >= chain.slots_ready:
            return False
        slot = slot_at(chain, place)
        if (state_of(slot) != SLOT_LEASED or owner_of(slot) != number
                or <uint32_t>(slot.mark >> 32) != ticket):
            return False
        member = member_at(chain, station_of(slot))
        consumer_at(chain, number).leased -= 1
        if how == SETTLE_NACK or how == SETTLE_FAILED:
            if how == SETTLE_NACK:
                slot.deliveries -= slot.deliveries > 0
            give_back_slot(chain, place, RESTORE_INPUT)
            return True
        member.leased -= 1
        if how == SETTLE_ACK:
            member.acknowledged += 1
            consumer_at(chain, number).acknowledged += 1
            if revision:
                chain.revising_from = slot.revision
                store64(&chain.revising, <uint64_t>place + 1)
                slot.revision = revision
                slot.revisions += slot.revisions < 0xFF
                failpoint(FAIL_REVISED)
            go_on(chain, place, slot.wanted & member.later, False)
            chain.revising = 0
            return True
        if how == SETTLE_DISCARD:
            member.discarded += 1
        elif how == SETTLE_EVICTED:
            member.evicted += 1
        else:
            member.damaged += 1
        release_slot(chain, place)
        return True

    def settle(self, uint32_t number, uint64_t epoch, Rows rows not None, const uint32_t[::1] chosen, int how,
               const uint64_t[::1] revisions):
        """Settle leased rows, all of them or those at the places `chosen`; how many were not held any more.

        Raises KernelError(lease_lost) if the consumer itself was taken for dead.
        """
        cdef size_t count = rows.count if chosen is None else <size_t>chosen.shape[0]
        cdef const uint32_t *places = NULL
        cdef const uint64_t *others = NULL
        cdef int64_t refused = -EBUSY
        if count and chosen is not None:
            places = &chosen[0]
        if count and revisions is not None:
            others = &revisions[0]
        if count <= FEW:
            refused = self.settle_all(number, epoch, rows, places, count, how, others, True)
        if refused == -EBUSY:
            with nogil:
                refused = self.settle_all(number, epoch, rows, places, count, how, others, False)
        if refused < 0:
            raise KernelError(<int>refused)
        return refused

    cdef int64_t settle_all(self, uint32_t number, uint64_t epoch, Rows rows, const uint32_t *places, size_t count,
                            int how, const uint64_t *revisions, bint at_once) noexcept nogil:
        """How many were not held any more, or trouble."""
        cdef Consumer *consumer = consumer_at(self.chain, number)
        cdef size_t i, place, refused = 0
        cdef uint32_t in_hand
        cdef uint64_t low
        cdef bint lost, wake, room
        cdef int error = self.enter(at_once)
        if error != 0:
            return error
        lost = consumer.used == 0 or consumer.epoch != epoch
        in_hand, low = self.chain.in_hand, self.chain.low
        if not lost:
            for i in range(count):
                place = i if places == NULL else places[i]
                if place >= rows.count or rows.leased_by != self.chain.number or not self.settle_slot(
                        rows.refs[place].slot, number, <uint32_t>rows.refs[place].ticket, how,
                        revisions[i] if revisions != NULL else 0):
                    refused += 1
                failpoint(FAIL_SETTLED)
        wake = in_hand < self.chain.in_hand + count - refused         # something waits again
        unlock_chain(self.chain)
        room = self.chain.low != low
        if wake and not lost:
            self.wake_consumers()
        if room:
            call_waiters(self.chain, FOR_LOW)
        return CODE_LEASE_LOST if lost else <int64_t>refused

    def count_passed(self, uint32_t number, uint64_t expired, uint64_t damaged):
        """Note what a reader on behalf of the station has passed over."""
        add64(&member_at(self.chain, number).expired, <long>expired)
        add64(&member_at(self.chain, number).damaged, <long>damaged)

    def put_revisions(self, Rows rows not None, const uint32_t[::1] places, list payloads, uint64_t now_ns, uint64_t boot_ns):
        """Append other payloads of these products, for the stations behind; their sequences."""
        cdef Payloads held = Payloads(payloads)
        cdef size_t count = places.shape[0], i
        cdef Item *items = <Item *>calloc(max(count, 1), sizeof(Item))
        cdef Ref *ref
        cdef char *text
        cdef int outcome
        if items == NULL:
            raise MemoryError
        try:
            if rows.log is not self.log:
                self.log.fail(CODE_LEASE_LOST)
            for i in range(count):
                ref = &rows.refs[places[i]]
                held.take(i, &items[i])
                if items[i].payload_bytes > payload_bytes_max(self.log.store):
                    self.log.fail(CODE_PAYLOAD_TOO_LARGE)
                text = <char *>ref.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes
                items[i].feed, items[i].origin = ref.feed, ref.origin
                items[i].ident, items[i].ident_bytes = text, ref.ident_bytes
                items[i].properties, items[i].properties_bytes = text + ref.ident_bytes, ref.properties_bytes
                items[i].created_ns, items[i].expires_ns = ref.created_ns, ref.expires_ns
                items[i].origin_sequence = ref.origin_sequence
                items[i].previous = ref.previous
                items[i].priority, items[i].slice = ref.priority, ref.slice
                items[i].revision = 1
            with nogil:
                outcome = append(self.log.store, items, count, now_ns, boot_ns)
            if outcome < 0:
                self.log.fail(outcome)
            return [items[i].outcome for i in range(count)]
        finally:
            free(items)

    # --- consumers --------------------------------------------------------------------------------

    def attach(self, uint32_t number, uint32_t member, uint64_t pid):
        """Take a consumer's place, which the caller has locked for itself; its epoch."""
        cdef Consumer *consumer = consumer_at(self.chain, number)
        self.lock()
        if consumer.used:            # its last holder has died
            restore_leases(self.chain, number, member_at(self.chain, consumer.member % MEMBERS_MAX).restore, True)
        consumer.member = member
        consumer.pid = pid
        consumer.attached_ns = clock_ns(CLOCK_REALTIME)
        consumer.beat_ns = clock_ns(CLOCK_MONOTONIC)
        consumer.leased = consumer.delivered = consumer.acknowledged = 0
        consumer.epoch += 1
        store32(&consumer.used, 1)
        unlock_chain(self.chain)
        return consumer.epoch

    def detach(self, uint32_t number, uint64_t epoch):
        """Leave; whatever is still leased goes back to the input. False if it was taken for dead before."""
        cdef Consumer *consumer = consumer_at(self.chain, number)
        cdef bint mine
        self.lock()
        mine = consumer.used != 0 and consumer.epoch == epoch
        if mine:
            restore_leases(self.chain, number, RESTORE_INPUT, False)
        unlock_chain(self.chain)
        self.wake_consumers()
        return mine

    def beat(self, uint32_t number, uint64_t epoch):
        """Say that the consumer is alive; False if it was taken for dead."""
        return self.beat_at(number, epoch, clock_ns(CLOCK_MONOTONIC))

    cdef bint beat_at(self, uint32_t number, uint64_t epoch, uint64_t now) noexcept nogil:
        cdef Consumer *consumer = consumer_at(self.chain, number)
        if consumer.used == 0 or consumer.epoch != epoch:
            return False
        store64(&consumer.beat_ns, now)
        return True

    def hung(self, uint32_t number):
        """Has this consumer not beaten for longer than its station allows?"""
        cdef Consumer *consumer = consumer_at(self.chain, number)
        cdef Member *member = member_at(self.chain, consumer.member % MEMBERS_MAX)
        cdef uint64_t beat_ns = load64(&consumer.beat_ns), now = clock_ns(CLOCK_MONOTONIC)
        return member.hung_after_ns != 0 and now > beat_ns and now - beat_ns > member.hung_after_ns

    def recover(self, uint32_t number, uint64_t epoch):
        """Take back what a consumer holds and free its place; how many, or -1 if it has changed hands."""
        cdef Consumer *consumer = consumer_at(self.chain, number)
        cdef int count = -1
        self.lock()
        if consumer.used and consumer.epoch == epoch:
            count = restore_leases(self.chain, number, member_at(self.chain, consumer.member % MEMBERS_MAX).restore, True)
        unlock_chain(self.chain)
        if count >= 0:
            self.wake_consumers()
            call_waiters(self.chain, FOR_CAPACITY | FOR_LOW)
        return count

    def consumers(self):
        """(place, member, epoch, pid, attached_ns, beat age ns, leased, delivered, acknowledged) of all attached."""
        cdef uint32_t i
        cdef Consumer *consumer
        cdef uint64_t now = clock_ns(CLOCK_MONOTONIC)
        found = []
        for i in range(CONSUMERS_MAX):
            consumer = consumer_at(self.chain, i)
            if consumer.used:
                found.append((i, consumer.member, consumer.epoch, consumer.pid, consumer.attached_ns,
                              now - min(now, consumer.beat_ns), consumer.leased, consumer.delivered, consumer.acknowledged))
        return found

    # --- for those who put ------------------------------------------------------------------------

    def wait_room(self, uint32_t seen, double timeout_s):
        """Sleep until somebody has made room, or the time is over. `seen` is `room_number` before looking."""
        cdef uint64_t wake_at = clock_ns(CLOCK_MONOTONIC) + <uint64_t>(max(timeout_s, 0) * 1e9)
        cdef timespec until
        until.tv_sec = wake_at // 1000000000
        until.tv_nsec = wake_at % 1000000000
        with nogil:
            if load32(&self.chain.room) == seen:
                futex(&self.chain.room, FUTEX_WAIT_BITSET, seen, &until)
        PyErr_CheckSignals()

    def is_surely_full(self, uint32_t number):
        """Does the station have as many products waiting as it takes, whatever the log has for it besides?"""
        cdef Member *member = member_at(self.chain, number)
        cdef uint32_t waiting = load32(&member.waiting)
        return (0 < member.capacity <= waiting) or (0 < member.max_queue <= waiting)

    def may_look(self):
        """Is it time to see whether consumers are alive? Then the caller has promised to."""
        return self.claim_look(clock_ns(CLOCK_MONOTONIC))

    def count_rejected(self, uint32_t number):
        """A put was refused because of max_queue."""
        add64(&member_at(self.chain, number).rejected, 1)

    def watch_room(self, bint held):
        """Ask to be called when a capacity has room, or else when the chain lets products go; the number to wait by."""
        cdef uint32_t seen = load32(&self.chain.room)
        or32(&self.chain.waiters, FOR_LOW if held else FOR_CAPACITY)
        return seen

    # --- parked -----------------------------------------------------------------------------------

    def slots(self, uint32_t number, uint32_t state):
        """(place, sequence, revision, deliveries) of a station's products in one state."""
        cdef uint32_t place
        cdef Slot *slot
        found = []
        self.lock()
        try:
            for place in range(self.chain.slots_ready):
                slot = slot_at(self.chain, place)
                if state_of(slot) == state and station_of(slot) == number:
                    found.append((place, slot.sequence, slot.revision, slot.deliveries))
        finally:
            unlock_chain(self.chain)
        return found

    def unpark(self, uint32_t number, const uint64_t[::1] sequences, bint retry):
        """Bring parked products back to the station's input, or forget them; how many. None: all."""
        cdef uint32_t place
        cdef size_t i
        cdef Slot *slot
        cdef bint chosen
        count = 0
        self.lock()
        for place in range(self.chain.slots_ready):
            slot = slot_at(self.chain, place)
            if state_of(slot) != SLOT_PARKED or station_of(slot) != number:
                continue
            chosen = sequences is None
            if sequences is not None:
                for i in range(<size_t>sequences.shape[0]):
                    chosen = chosen or sequences[i] == slot.sequence
            if not chosen:
                continue
            member_at(self.chain, number).parked -= 1
            count += 1
            if retry:
                slot.deliveries = slot.restarts = 0
                join_hand(self.chain, place)
                come_back(self.chain, place, number)
            else:
                release_slot(self.chain, place)
        unlock_chain(self.chain)
        self.wake_consumers()
        return count

    # --- tell and mend ----------------------------------------------------------------------------

    def members(self):
        """The places in use."""
        return [number for number in range(MEMBERS_MAX) if member_at(self.chain, number).used]

    def member(self, uint32_t number):
        """Terms, counts and counters of one station; None if the place is free."""
        cdef Member *member = member_at(self.chain, number)
        if not member.used:
            return None
        return dict(
            stage=member.stage, blocking=member.blocking, paused=member.paused, capacity=member.capacity,
            prescale=member.prescale, waiting=member.waiting, leased=member.leased, parked=member.parked,
            admitted=member.admitted, delivered=member.delivered, acknowledged=member.acknowledged, discarded=member.discarded,
            expired=member.expired, evicted=member.evicted, damaged=member.damaged, restored=member.restored,
            redelivered=member.redelivered, parked_total=member.parked_total, flowed_around=member.flowed_around,
            dropped_fifo=member.dropped_fifo, dropped_priority=member.dropped_priority,
            dropped_deadline=member.dropped_deadline, dropped_parking=member.dropped_parking,
            rejected=member.rejected)

    def in_hand(self, uint32_t number):
        """(oldest sequence or 0, how many were handed out before) of what waits or is leased at a station."""
        cdef uint32_t place, steps = 0
        cdef Slot *slot
        cdef uint64_t oldest = 0
        retries = 0
        self.lock()
        place = self.chain.oldest
        while place != NOWHERE and steps <= self.chain.slots_ready:
            steps += 1
            slot = slot_at(self.chain, place)
            if station_of(slot) == number:
                if oldest == 0:
                    oldest = slot.sequence
                retries += slot.deliveries > (1 if state_of(slot) == SLOT_LEASED else 0)
            place = slot.newer
        unlock_chain(self.chain)
        return oldest, retries

    @property
    def state(self):
        cdef ChainHeader *chain = self.chain
        return dict(position=chain.position, low=chain.low, in_hand=chain.in_hand, slots=chain.slots_ready,
                    lost_products=chain.lost_products, lost_first=chain.lost_first, lost_last=chain.lost_last,
                    damaged_rows=chain.damaged_rows, recoveries=chain.recoveries)

    def save_cell(self):
        """Note where the chain would begin again after a power failure."""
        self.lock()
        save_cell(self.chain)
        unlock_chain(self.chain)

    def settle_alone(self, bint trusted, uint64_t tail):
        """While nobody else is attached: a fresh lock, no consumers, and the last position that can be believed."""
        cdef ChainHeader *chain = self.chain
        cdef uint64_t low = 0, generation = 0
        cdef uint32_t i
        init_robust_lock(&chain.lock)
        store32(&chain.waiters, 0)
        if not trusted:
            for i in range(2):
                if (chain.cells[i].generation > generation
                        and chain.cells[i].checksum == XXH3_64bits(&chain.cells[i], 16)):
                    generation, low = chain.cells[i].generation, chain.cells[i].low
            for i in range(chain.slots_ready):
                slot_at(chain, i).mark = SLOT_FREE
            chain.position = low
        chain.position = min(chain.position, tail)
        chain.torn = 0
        if rebuild(chain) != 0:
            raise MemoryError
        for i in range(CONSUMERS_MAX):
            if consumer_at(chain, i).used:
                restore_leases(chain, i, member_at(chain, consumer_at(chain, i).member % MEMBERS_MAX).restore, True)
        note_low(chain)

    def check(self):
        """What is inconsistent, in words; nothing if all is well."""
        cdef ChainHeader *chain = self.chain
        cdef uint32_t place, count = 0, i, number
        cdef uint64_t sequence = 0
        cdef uint32_t waiting[MEMBERS_MAX]
        cdef uint32_t leased[MEMBERS_MAX]
        found = []
        memset(waiting, 0, sizeof(waiting))
        memset(leased, 0, sizeof(leased))
        self.lock()
        place = chain.oldest
        while place != NOWHERE and count <= chain.slots_ready:
            if place >= chain.slots_ready or slot_at(chain, place).sequence < sequence:
                found.append("the list of products in hand is out of order")
                break
            sequence = slot_at(chain, place).sequence
            number = station_of(slot_at(chain, place))
            if not is_sound_slot(chain, slot_at(chain, place)):
                found.append(f"slot {place} is in hand but its mark cannot be")
                break
            waiting[number] += state_of(slot_at(chain, place)) == SLOT_WAITING
            leased[number] += state_of(slot_at(chain, place)) == SLOT_LEASED
            place = slot_at(chain, place).newer
            count += 1
        if count != chain.in_hand:
            found.append(f"{chain.in_hand} products are said to be in hand, {count} are")
        for i in range(MEMBERS_MAX):
            if member_at(chain, i).used and waiting[i] != member_at(chain, i).waiting:
                found.append(f"station {i} counts {member_at(chain, i).waiting} waiting products, {waiting[i]} are")
            if member_at(chain, i).used and leased[i] != member_at(chain, i).leased:
                found.append(f"station {i} counts {member_at(chain, i).leased} leased products, {leased[i]} are")
        place, count = chain.free, 0
        while place != NOWHERE and count <= chain.slots_ready:
            if place >= chain.slots_ready or state_of(slot_at(chain, place)) != SLOT_FREE:
                found.append(f"slot {place} is in the list of free ones but is not free")
                break
            place = slot_at(chain, place).next
            count += 1
        unlock_chain(self.chain)
        return found


def format_chain(int fd, bytes uuid, uint64_t number, uint64_t position):
    """Write an empty chain into a new file."""
    cdef int error = posix_fallocate(fd, 0, SLOTS_AT)
    cdef void *where
    cdef ChainHeader *chain
    if error != 0:
        raise KernelError(-error)
    where = mmap(NULL, SLOTS_AT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    if where == MAP_FAILED:
        raise KernelError(-errno)
    chain = <ChainHeader *>where
    memset(chain, 0, SLOTS_AT)
    chain.version = CHAIN_VERSION
    memcpy(chain.uuid, <char *>uuid, 16)
    chain.number = number
    chain.position = chain.low = position
    chain.free = chain.oldest = chain.newest = NOWHERE
    chain.terms = 1
    save_cell(chain)
    init_robust_lock(&chain.lock)
    memcpy(chain.magic, b"HRCHAIN\0", 8)
    munmap(where, SLOTS_AT)


def set_gates(Log log, uint64_t seen, gates):
    """What writers of this process have to mind: (Chain, member or None, feed mask or None) each."""
    cdef Store *store = log.store
    cdef Gate *made = <Gate *>calloc(max(len(gates), 1), sizeof(Gate))
    cdef Gate *before
    cdef Chain chain
    cdef const uint8_t[::1] feeds
    cdef uint32_t i
    if made == NULL:
        raise MemoryError
    for i in range(<uint32_t>len(gates)):
        chain, member, feeds = gates[i]
        made[i].chain = chain.chain
        made[i].member = NULL if member is None else member_at(chain.chain, member)
        if feeds is not None:
            made[i].feeds_count = <uint32_t>feeds.shape[0]
            made[i].feeds = &feeds[0] if feeds.shape[0] else <const uint8_t *>b""
    with log.held():
        before, store.gates = store.gates, made
        store.gates_count = <uint32_t>len(gates)
        store.stations_seen = seen
        owners, log.gate_owners = log.gate_owners, gates
    free(before)
