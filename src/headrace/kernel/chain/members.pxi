# The members of a chain, which are its stations, and their consumers: set, removed, attached, listed.
#
# What Python gives is read before the lock is taken, so that nothing can raise while it is held.

cdef int read_terms(dict terms, Member *member) except -1:
    """Fill in the terms of a member; KeyError, TypeError or OverflowError if they are not numbers that fit."""
    memset(member, 0, sizeof(Member))
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
    return 0


cdef void copy_terms(Member *member, Member *given) noexcept nogil:
    """Copy the terms, and nothing that the chain counts."""
    member.stage, member.grouped, member.distribution = given.stage, given.grouped, given.distribution
    member.blocking, member.paused = given.blocking, given.paused
    member.order, member.discard, member.restore = given.order, given.discard, given.restore
    member.deliveries_max, member.capacity, member.prescale = given.deliveries_max, given.capacity, given.prescale
    member.hung_after_ns, member.timeout_ns = given.hung_after_ns, given.timeout_ns
    member.start_ns, member.stop_ns = given.start_ns, given.stop_ns
    member.max_queue, member.later = given.max_queue, given.later


cdef void remove_station(ChainHeader *chain, uint32_t number) noexcept nogil:
    """Remove a member. Its waiting products go to the rest of its group, or on to the stations behind it."""
    cdef Member *member = member_at(chain, number)
    cdef uint64_t others = member.later | stage_of(chain, member)
    cdef uint32_t place
    for place in range(chain.slots_ready):
        remove_from_slot(chain, place, number)
    while member.present:
        place = delist(chain, member, lowest_bit(member.present))
        go_on(chain, place, slot_at(chain, place).wanted & others, False)
    for place in range(consumers_end(chain)):
        if consumer_at(chain, place).used and consumer_at(chain, place).member == number:
            forget_consumer(chain, place)
    memset(member, 0, sizeof(Member))


cdef void remove_from_slot(ChainHeader *chain, uint32_t place, uint32_t number) noexcept nogil:
    """The product is no longer for this member: parked there, it is released; leased there, it waits there again."""
    cdef Slot *slot = slot_at(chain, place)
    if state_of(slot) == SLOT_FREE:
        return
    slot.wanted &= ~(<uint64_t>1 << number)
    if station_of(slot) != number:
        return
    if state_of(slot) == SLOT_PARKED:
        release_slot(chain, place)
    elif state_of(slot) == SLOT_LEASED:
        consumer_at(chain, owner_of(slot)).leased -= 1
        member_at(chain, number).leased -= 1
        come_back(chain, place, number)    # even after its last delivery: stations behind may want it


cdef size_t unpark(ChainHeader *chain, uint32_t number, const uint64_t *sequences, size_t count,
                   bint retry) noexcept nogil:
    """Bring parked products back to the input, or release them; how many. `sequences` NULL: all of the station."""
    cdef size_t unparked = 0, i
    cdef uint32_t place
    cdef Slot *slot
    cdef bint chosen
    for place in range(chain.slots_ready):
        slot = slot_at(chain, place)
        if state_of(slot) != SLOT_PARKED or station_of(slot) != number:
            continue
        chosen = sequences == NULL
        for i in range(count):
            chosen = chosen or sequences[i] == slot.sequence
        if not chosen:
            continue
        member_at(chain, number).parked -= 1
        unparked += 1
        if retry:
            slot.deliveries = slot.restarts = 0
            join_hand(chain, place)
            come_back(chain, place, number)
        else:
            release_slot(chain, place)
    return unparked


cdef dict dict_of_member(Member *m):
    return dict(
        stage=m.stage, blocking=m.blocking, paused=m.paused, capacity=m.capacity, prescale=m.prescale,
        waiting=m.waiting, leased=m.leased, parked=m.parked, admitted=m.admitted, delivered=m.delivered,
        acknowledged=m.acknowledged, discarded=m.discarded, expired=m.expired, evicted=m.evicted, damaged=m.damaged,
        restored=m.restored, redelivered=m.redelivered, parked_total=m.parked_total, flowed_around=m.flowed_around,
        dropped_fifo=m.dropped_fifo, dropped_priority=m.dropped_priority, dropped_deadline=m.dropped_deadline,
        dropped_parking=m.dropped_parking, rejected=m.rejected, evicted_ns=m.evicted_ns)


cdef list slots_of(ChainHeader *chain, uint32_t number, uint32_t state):
    """What `Chain.slots` returns. Under the lock, which the caller releases even if this raises."""
    cdef uint32_t place
    cdef Slot *slot
    found = []
    for place in range(chain.slots_ready):
        slot = slot_at(chain, place)
        if state_of(slot) == state and station_of(slot) == number:
            found.append((place, slot.sequence, slot.revision, slot.deliveries))
    return found


cdef uint32_t count_in_hand(ChainHeader *chain, uint32_t number, uint64_t *oldest_ns) noexcept nogil:
    """Redeliveries among the waiting and leased products of a station; `oldest_ns` gets
    when the first was inserted, or 0."""
    cdef uint32_t place = chain.oldest, steps = 0, retries = 0
    cdef Slot *slot
    oldest_ns[0] = 0
    while place != NOWHERE and steps <= chain.slots_ready:
        steps += 1
        slot = slot_at(chain, place)
        if station_of(slot) == number:
            if oldest_ns[0] == 0:
                oldest_ns[0] = slot.inserted_ns
            retries += slot.deliveries > (1 if state_of(slot) == SLOT_LEASED else 0)
        place = slot.newer
    return retries


# --- consumers ------------------------------------------------------------------------------------

cdef int attach_consumer(ChainHeader *chain, uint32_t number, uint32_t member, uint64_t pid) noexcept nogil:
    """Take a place; what its last owner held goes back first. 0, or -ENOMEM and nothing has changed."""
    cdef Consumer *consumer = consumer_at(chain, number)
    cdef int restored
    if consumer.used:                # its last owner has died
        restored = restore_leases(chain, number, member_at(chain, consumer.member % MEMBERS_MAX).restore, True, True)
        if restored < 0:
            return restored
    consumer.member = member
    consumer.pid = pid
    consumer.attached_ns = clock_ns(CLOCK_REALTIME)
    consumer.heartbeat_ns = clock_ns(CLOCK_MONOTONIC)
    consumer.leased = consumer.delivered = consumer.acknowledged = 0
    consumer.epoch += 1
    if number >= chain.consumers_end:
        store32(&chain.consumers_end, number + 1)    # before `used`, so that a place in use is always below it
    store32(&consumer.used, 1)
    return 0


cdef bint note_heartbeat(ChainHeader *chain, uint32_t number, uint64_t epoch, uint64_t now) noexcept nogil:
    """Without the lock. False if the consumer was declared dead."""
    cdef Consumer *consumer = consumer_at(chain, number)
    if consumer.used == 0 or consumer.epoch != epoch:
        return False
    store64(&consumer.heartbeat_ns, now)
    return True


cdef bint is_hung(ChainHeader *chain, uint32_t number) noexcept nogil:
    """Is the last heartbeat older than the station allows? Without the lock."""
    cdef Consumer *consumer = consumer_at(chain, number)
    cdef Member *member = member_at(chain, consumer.member % MEMBERS_MAX)
    cdef uint64_t heartbeat_ns = load64(&consumer.heartbeat_ns), now = clock_ns(CLOCK_MONOTONIC)
    return member.hung_after_ns != 0 and now > heartbeat_ns and now - heartbeat_ns > member.hung_after_ns


cdef list list_consumers(ChainHeader *chain):
    """What `Chain.consumers` returns. Without the lock: a word may be newer than its neighbour."""
    cdef uint32_t i
    cdef Consumer *c
    cdef uint64_t now = clock_ns(CLOCK_MONOTONIC)
    found = []
    for i in range(consumers_end(chain)):
        c = consumer_at(chain, i)
        if c.used:
            found.append((i, c.member, c.epoch, c.pid, c.attached_ns, now - min(now, c.heartbeat_ns), c.leased,
                          c.delivered, c.acknowledged))
    return found
