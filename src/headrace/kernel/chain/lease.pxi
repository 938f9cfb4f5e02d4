# Leases: handing products to consumers, and settling them.
#
# `get` conducts, leases what waits, and then reads the products from the log without the lock of the chain. A lease is
# the mark of a slot: state, station, consumer and ticket in one word. A consumer settles a lease only if the mark is
# still exactly that, so a consumer that was declared dead in between cannot settle what was given to another one.
#
# Few products are got and settled with the interpreter lock held, because releasing it costs more than the work; if the
# lock of the chain is taken, the call releases the interpreter lock and waits.

cdef enum:                           # how a leased product is settled
    SETTLE_ACK = 0
    SETTLE_DISCARD = 1
    SETTLE_NACK = 2                  # not processed, and not because of the product
    SETTLE_FAILED = 3                # not processed, perhaps because of the product
    SETTLE_EVICTED = 4
    SETTLE_DAMAGED = 5

CHAIN_MAGIC = b"HRCHAIN\0"
SETTLE = {"ack": SETTLE_ACK, "discard": SETTLE_DISCARD, "nack": SETTLE_NACK, "failed": SETTLE_FAILED}

cpdef enum:
    GET_MAX = 65536                  # products in one get
    FEW = 16                         # up to this many products are got and settled with the interpreter lock held

cdef enum:
    SUSPECT = 2                      # deliveries after which a product is handed out alone
    SPIN_NS = 20000                  # a producer at full speed puts sooner than a sleeper wakes up
    LOOK_NS = 200000000              # how often a consumer checks whether the others are alive

cdef uint64_t NO_DEADLINE = 0xFFFFFFFFFFFFFFFF

cdef struct Lease:                   # copied from a slot while the lock is held
    uint64_t sequence
    uint64_t revision
    uint32_t place
    uint32_t ticket
    uint8_t deliveries
    uint8_t revisions


# --- get ------------------------------------------------------------------------------------------

cdef int take_leases(ChainHeader *chain, uint32_t number, uint64_t epoch, uint32_t limit, uint64_t now_ns,
                     Lease *leases) noexcept nogil:
    """Lease up to `limit` products to a consumer; how many, or a negative code. Under the lock."""
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
            break                    # it may have failed others: alone, it takes no other product with it
        place = delist(chain, member, priority)
        slot = slot_at(chain, place)
        if deadline_at(member, slot) <= now_ns:
            member.expired += 1
            if slot.expires_ns != 0 and slot.expires_ns <= now_ns:
                release_slot(chain, place)
            else:                    # too late for this station; stations behind it may allow more time
                go_on(chain, place, slot.wanted & member.later, False)
            continue
        if is_used_up(member, slot):     # by terms that have changed since it began to wait
            park(chain, place, consumer.member)
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


cdef int try_get(Chain chain, uint32_t number, uint64_t epoch, uint32_t limit, uint64_t now_ns, Lease *leases,
                 bint at_once) noexcept nogil:
    """Conduct, then lease; how many, or a negative code. -EBUSY only with `at_once`."""
    cdef ChainHeader *header = chain.header
    cdef Member *member = member_at(header, consumer_at(header, number).member % MEMBERS_MAX)
    cdef int outcome = chain.enter(at_once)
    cdef bint half_empty
    if outcome != 0:
        return outcome
    outcome = chain.conduct_if_current()
    if outcome == 0:
        if now_ns == 0:
            now_ns = site_now(chain.log.store.control)
        outcome = take_leases(header, number, epoch, limit, now_ns, leases)
    half_empty = member.waiting * 2 <= member.capacity
    unlock_chain(header)
    if half_empty:
        call_waiters(header, FOR_CAPACITY)
    return outcome


cdef bint is_time_to_look(ChainHeader *chain, uint64_t now) noexcept nogil:
    cdef uint64_t looked_ns = load64(&chain.looked_ns)
    return not looked_ns <= now <= looked_ns + LOOK_NS


cdef bint claim_look(ChainHeader *chain, uint64_t now) noexcept nogil:
    """Is it time to check whether other consumers are alive? If so, the caller undertakes to do it."""
    if not is_time_to_look(chain, now):
        return False
    store64(&chain.looked_ns, now)
    return True


cdef void sleep_until(Control *control, uint32_t seen, uint64_t wake_at) noexcept nogil:
    """Until `wake` differs from `seen` or the time has come: spin for a moment, then sleep."""
    cdef uint64_t spin_until = clock_ns(CLOCK_MONOTONIC) + SPIN_NS
    cdef timespec until
    while clock_ns(CLOCK_MONOTONIC) < min(spin_until, wake_at):
        if load32(&control.wake) != seen:
            return
        sched_yield()                # another thread may have work to do
    store32(&control.sleepers, 1)
    fence()
    until.tv_sec = wake_at // 1000000000
    until.tv_nsec = wake_at % 1000000000
    if load32(&control.wake) == seen:
        futex(&control.wake, FUTEX_WAIT_BITSET, seen, &until)


cdef tuple wait_and_get(Chain chain, uint32_t number, uint64_t epoch, uint32_t limit, double timeout_s,
                        uint64_t now_ns, uint64_t looked, Lease *leases):
    """What `Chain.get` returns, once there is nothing else to do first."""
    cdef Control *control = chain.log.store.control
    cdef uint64_t now = clock_ns(CLOCK_MONOTONIC), begun = now, until = NO_DEADLINE, position, expired
    cdef Member *member = member_at(chain.header, consumer_at(chain.header, number).member % MEMBERS_MAX)
    cdef uint32_t seen
    cdef int outcome
    cdef double left_s
    if 0 <= timeout_s < 1e9:
        until = begun + <uint64_t>(timeout_s * 1e9)
    while True:
        seen = load32(&control.wake)
        position, expired = load64(&chain.header.position), load64(&member.expired)
        outcome = try_get(chain, number, epoch, limit, now_ns, leases, True) if limit <= FEW else -EBUSY
        if outcome == -EBUSY:
            with nogil:
                outcome = try_get(chain, number, epoch, limit, now_ns, leases, False)
        if outcome == 0 and (chain.is_under_way(position) or (
                load64(&member.expired) != expired and load64(&chain.header.position) < load64(&control.head))):
            PyErr_CheckSignals()     # or what had expired has made room for more
            continue
        if outcome == 0 and not chain.conducts and load64(&control.head) > looked:
            outcome = CODE_LOOK
        if outcome != 0 or now >= until:
            break
        with nogil:
            sleep_until(control, seen, min(until, now + LOOK_NS))
        PyErr_CheckSignals()
        now = clock_ns(CLOCK_MONOTONIC)
        if now >= begun + LOOK_NS and now < until:
            outcome = CODE_LOOK
            break
    left_s = timeout_s if until == NO_DEADLINE else <double>(until - min(now, until)) / 1e9
    return collect(chain, leases, outcome, number, left_s) if outcome > 0 else (outcome, left_s)


cdef tuple collect(Chain chain, Lease *leases, uint32_t count, uint32_t number, double left_s):
    """(how many, Rows) behind the leases. Leases on missing products are settled; after an error all are given back."""
    cdef Log log = chain.log
    cdef Rows rows
    cdef int outcome
    try:
        rows = Rows(log)
        rows.next = load64(&chain.header.position)
        rows.leased_by = chain.header.number
        rows.reserve(count)
        if count <= FEW:
            outcome = pick_leased(chain, rows, leases, count, number)
        else:
            with nogil:
                outcome = pick_leased(chain, rows, leases, count, number)
        if ORIGINS_MAX + len(log.feeds) != log.store.control.feeds_end or (
                len(log.origins) != log.store.control.origins_end):
            log.learn_names()
    except BaseException:
        give_back_leases(chain, leases, count, number)
        raise
    return (<int>rows.count, rows) if rows.count else (outcome, left_s)


cdef int pick_leased(Chain chain, Rows rows, Lease *leases, uint32_t count, uint32_t number) noexcept nogil:
    """Add the leased products to `rows`; if there is none, the code that says why."""
    cdef Store *store = chain.log.store
    cdef int outcome, why = CODE_LOOK
    cdef uint64_t head = load64(&store.control.head)
    cdef uint32_t i
    cdef Lease *lease
    cdef Ref *ref
    for i in range(count):
        lease = &leases[i]
        outcome = CODE_GONE
        if lease.revision == 0 or not is_deleted(store, lease.sequence):
            outcome = rows.pick_one(lease.revision if lease.revision else lease.sequence, head)
        if outcome != 0:
            if outcome != CODE_GONE and outcome != CODE_DAMAGED:
                why = outcome        # such as too many open files: the product exists, and its lease goes back
            settle_missing(chain, lease, number, outcome)
            continue
        ref = &rows.refs[rows.count - 1]
        ref.sequence = lease.sequence
        ref.slot = lease.place
        ref.deliveries = lease.deliveries
        ref.revisions = lease.revisions
        ref.ticket = lease.ticket
    return why


cdef void settle_missing(Chain chain, Lease *lease, uint32_t number, int outcome) noexcept nogil:
    """A leased product was not found in the log: it is gone, damaged, or cannot be read now."""
    cdef int how = SETTLE_NACK
    if outcome == CODE_GONE:
        how = SETTLE_EVICTED
    elif outcome == CODE_DAMAGED:
        how = SETTLE_DAMAGED
    if chain.enter() == 0:
        settle_slot(chain.header, lease.place, number, lease.ticket, how, 0)
        unlock_chain(chain.header)


cdef void give_back_leases(Chain chain, Lease *leases, uint32_t count, uint32_t number) noexcept:
    """The caller never sees these products: they wait again, the youngest first so that they keep their order."""
    cdef uint32_t i
    with nogil:
        if chain.enter() == 0:
            for i in range(count, 0, -1):
                settle_slot(chain.header, leases[i - 1].place, number, leases[i - 1].ticket, SETTLE_NACK, 0)
            unlock_chain(chain.header)
            chain.wake_consumers()


# --- settle ---------------------------------------------------------------------------------------

cdef void count_evicted(Member *member) noexcept nogil:
    member.evicted += 1
    member.evicted_ns = clock_ns(CLOCK_REALTIME)


cdef int drop_evicted(ChainHeader *chain, uint64_t held_from) noexcept nogil:
    """Release products that wait and are older than what the log holds; 0, or -ENOMEM and a later call completes it.

    Without this they would be noticed only when they are delivered. Under the lock.
    """
    cdef uint32_t place = chain.oldest, steps = 0, count = 0
    cdef Slot *slot
    while place != NOWHERE and steps <= chain.in_hand:
        slot = slot_at(chain, place)
        if slot.sequence >= held_from:
            break
        if state_of(slot) == SLOT_WAITING and max(slot.sequence, slot.revision) < held_from:
            count_evicted(member_at(chain, station_of(slot)))
            store32(&chain.torn, 1)
            slot.mark = SLOT_FREE
            count += 1
        place = slot.newer
        steps += 1
    return -rebuild_torn(chain) if count else 0


cdef bint settle_slot(ChainHeader *chain, uint32_t place, uint32_t number, uint32_t ticket, int how,
                      uint64_t revision) noexcept nogil:
    """False if the consumer does not hold this lease. Under the lock."""
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
        count_evicted(member)
    else:
        member.damaged += 1
    release_slot(chain, place)
    return True


cdef int64_t settle_all(Chain chain, uint32_t number, uint64_t epoch, Rows rows, const uint32_t *places, size_t count,
                        int how, const uint64_t *revisions, bint at_once) noexcept nogil:
    """How many leases the consumer no longer held, or a negative code. -EBUSY only with `at_once`."""
    cdef ChainHeader *header = chain.header
    cdef Consumer *consumer = consumer_at(header, number)
    cdef size_t i, place, refused = 0
    cdef uint32_t in_hand
    cdef uint64_t low
    cdef bint lost, waits_again
    cdef int error = chain.enter(at_once)
    if error != 0:
        return error
    lost = consumer.used == 0 or consumer.epoch != epoch
    in_hand, low = header.in_hand, header.low
    if not lost:
        for i in range(count):
            place = i if places == NULL else places[i]
            if place >= rows.count or rows.leased_by != header.number or not settle_slot(
                    header, rows.refs[place].slot, number, <uint32_t>rows.refs[place].ticket, how,
                    revisions[i] if revisions != NULL else 0):
                refused += 1
            failpoint(FAIL_SETTLED)
    waits_again = in_hand < header.in_hand + count - refused
    unlock_chain(header)
    if waits_again and not lost:
        chain.wake_consumers()
    if header.low != low:
        call_waiters(header, FOR_LOW)
    return CODE_LEASE_LOST if lost else <int64_t>refused


cdef list append_revisions(Log log, Rows rows, const uint32_t[::1] places, list payloads, uint64_t now_ns,
                           uint64_t boot_ns):
    """Append new payloads of the products at these places; the sequences of the revisions."""
    cdef Payloads held = Payloads(payloads)
    cdef size_t count = places.shape[0], i
    cdef Item *items
    cdef Ref *ref
    cdef char *text
    cdef int outcome
    if <size_t>len(held.objects) != count:
        raise ValueError("payloads")
    items = <Item *>allocate_zeroed(max(count, <size_t>1), sizeof(Item))
    if items == NULL:
        raise MemoryError
    try:
        if rows.log is not log:
            log.fail(CODE_LEASE_LOST)
        for i in range(count):
            if places[i] >= rows.count:
                raise IndexError(places[i])
            ref = &rows.refs[places[i]]
            held.take(i, &items[i])
            if items[i].payload_bytes > payload_bytes_max(log.store):
                log.fail(CODE_PAYLOAD_TOO_LARGE)
            text = <char *>ref.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes
            items[i].feed, items[i].origin = ref.feed, ref.origin
            items[i].ident, items[i].ident_bytes = text, ref.ident_bytes
            items[i].properties, items[i].properties_bytes = text + ref.ident_bytes, ref.properties_bytes
            items[i].options = options_of(ref)
            items[i].options_bytes = <uint16_t>options_before(
                <const uint8_t *>items[i].options, ref.options_bytes, OPTION_SIGNED)
            items[i].created_ns, items[i].expires_ns = ref.created_ns, ref.expires_ns
            items[i].origin_sequence = ref.origin_sequence
            items[i].previous = ref.previous
            items[i].priority, items[i].slice = ref.priority, ref.slice
            items[i].revision = 1
        with nogil:
            outcome = append(log.store, items, count, now_ns, boot_ns)
        if outcome < 0:
            log.fail(outcome)
        return [items[i].outcome for i in range(count)]
    finally:
        free(items)
