# A chain of stations in shared memory: slots, waiting lists, and the mending of both.
#
# A product that some station of the chain selects takes a slot and keeps it until the last of these
# stations has put it. The slot's `mark` says where it is: waiting at a station, leased to a consumer,
# or parked. It is stored in one piece, and it is the truth; the lists (free slots, waiting products of
# a station by priority, all products in hand by sequence) and the counts are made of the marks, and
# are made anew by `rebuild` when somebody died inside the lock.
#
# Everything here runs under the chain's lock. Nothing here knows the log.

from libc.stdlib cimport qsort

cdef enum:
    MEMBERS_AT = 1024
    CONSUMERS_AT = MEMBERS_AT + MEMBERS_MAX * 512
    SLOTS_AT = CONSUMERS_AT + CONSUMERS_MAX * 128
    CHAIN_BYTES_MAX = SLOTS_AT + SLOTS_MAX * 64

cdef struct Ordered:
    uint64_t sequence
    uint32_t place


cdef inline Member *member_at(ChainHeader *chain, uint32_t member) noexcept nogil:
    return <Member *>(<char *>chain + MEMBERS_AT) + member


cdef inline Consumer *consumer_at(ChainHeader *chain, uint32_t place) noexcept nogil:
    return <Consumer *>(<char *>chain + CONSUMERS_AT) + place


cdef inline Slot *slot_at(ChainHeader *chain, uint32_t place) noexcept nogil:
    """Whatever a damaged file says, this stays inside the mapping."""
    return <Slot *>(<char *>chain + SLOTS_AT) + (place & (SLOTS_MAX - 1))


cdef inline uint64_t mark_of(uint64_t state, uint64_t member, uint64_t consumer, uint64_t ticket) noexcept nogil:
    return state | member << 8 | consumer << 16 | ticket << 32


cdef inline uint32_t state_of(Slot *slot) noexcept nogil:
    return slot.mark & 0xFF


cdef inline uint32_t station_of(Slot *slot) noexcept nogil:
    return (slot.mark >> 8) & 0xFF


cdef inline uint32_t owner_of(Slot *slot) noexcept nogil:
    return (slot.mark >> 16) & 0xFFFF


# --- all products in hand, by sequence -----------------------------------------------------------

cdef void join_hand(ChainHeader *chain, uint32_t place) noexcept nogil:
    """Insert by sequence; new products have the highest, so this looks at one neighbour."""
    cdef Slot *slot = slot_at(chain, place)
    cdef uint32_t older = chain.newest, newer = NOWHERE, steps = 0
    while older != NOWHERE and slot_at(chain, older).sequence > slot.sequence and steps <= chain.slots_ready:
        newer = older
        older = slot_at(chain, older).older
        steps += 1
    slot.older, slot.newer = older, newer
    if older == NOWHERE:
        chain.oldest = place
    else:
        slot_at(chain, older).newer = place
    if newer == NOWHERE:
        chain.newest = place
    else:
        slot_at(chain, newer).older = place
    chain.in_hand += 1


cdef void leave_hand(ChainHeader *chain, uint32_t place) noexcept nogil:
    cdef Slot *slot = slot_at(chain, place)
    if slot.older == NOWHERE:
        chain.oldest = slot.newer
    else:
        slot_at(chain, slot.older).newer = slot.newer
    if slot.newer == NOWHERE:
        chain.newest = slot.older
    else:
        slot_at(chain, slot.newer).older = slot.older
    chain.in_hand -= 1


cdef void note_low(ChainHeader *chain) noexcept nogil:
    """Everything below is settled."""
    cdef uint64_t low = chain.position
    if chain.oldest != NOWHERE and slot_at(chain, chain.oldest).sequence < low:
        low = slot_at(chain, chain.oldest).sequence
    if low != chain.low:
        store64(&chain.low, low)


cdef void release_slot(ChainHeader *chain, uint32_t place) noexcept nogil:
    cdef Slot *slot = slot_at(chain, place)
    if state_of(slot) != SLOT_PARKED:
        leave_hand(chain, place)
    store64(&slot.mark, SLOT_FREE)
    failpoint(FAIL_RELEASED)
    slot.next = chain.free
    chain.free = place


# --- the waiting lists of a station --------------------------------------------------------------

cdef inline bint by_deadline(Member *member) noexcept nogil:
    """Are the lists sorted by deadline, rather than in the order of arrival?"""
    return member.order == BY_DEADLINE


cdef inline uint64_t deadline_at(Member *member, Slot *slot) noexcept nogil:
    """When the product is of no more use to the station."""
    cdef uint64_t deadline_ns = slot.expires_ns if slot.expires_ns else <uint64_t>0xFFFFFFFFFFFFFFFF
    if member.timeout_ns != 0 and slot.inserted_ns + member.timeout_ns < deadline_ns:
        return slot.inserted_ns + member.timeout_ns
    return deadline_ns


cdef bint comes_before(Member *member, Slot *slot, Slot *other) noexcept nogil:
    cdef uint64_t mine, others
    if by_deadline(member):
        mine, others = deadline_at(member, slot), deadline_at(member, other)
        if mine != others:
            return mine < others
    return slot.sequence < other.sequence


cdef void enlist(ChainHeader *chain, uint32_t place, uint32_t number, bint in_order) noexcept nogil:
    """Let a product wait at a station: at the end, or where its sequence or deadline belongs."""
    cdef Member *member = member_at(chain, number)
    cdef Slot *slot = slot_at(chain, place)
    cdef uint32_t before = NOWHERE, behind, steps = 0
    slot.priority &= PRIORITIES - 1
    store64(&slot.mark, mark_of(SLOT_WAITING, number, 0, 0))
    failpoint(FAIL_SLOT_MARKED)
    member.waiting += 1
    if not (member.present >> slot.priority) & 1:
        member.present |= 1 << slot.priority
        member.first[slot.priority] = member.last[slot.priority] = place
        slot.next = NOWHERE
        return
    if (in_order or by_deadline(member)) and comes_before(member, slot, slot_at(chain, member.last[slot.priority])):
        behind = member.first[slot.priority]
        while not comes_before(member, slot, slot_at(chain, behind)) and steps <= chain.slots_ready:
            before = behind
            behind = slot_at(chain, behind).next
            steps += 1
        slot.next = behind
        if before == NOWHERE:
            member.first[slot.priority] = place
        else:
            slot_at(chain, before).next = place
        return
    slot_at(chain, member.last[slot.priority]).next = place
    member.last[slot.priority] = place
    slot.next = NOWHERE


cdef uint32_t delist(ChainHeader *chain, Member *member, uint32_t priority) noexcept nogil:
    """Take the first of a list that has one."""
    cdef uint32_t place = member.first[priority]
    member.first[priority] = slot_at(chain, place).next
    if member.first[priority] == NOWHERE:
        member.present &= ~(<uint32_t>1 << priority)
    member.waiting -= 1
    return place


cdef uint32_t list_by(ChainHeader *chain, Member *member, uint32_t rule, bint highest) noexcept nogil:
    """Which of the lists has the product that comes first by `rule`. At least one has something."""
    cdef uint32_t present = member.present, best = NOWHERE, priority
    cdef uint64_t mine, others
    if not present & (present - 1):
        return lowest_bit(present)
    if rule == BY_PRIORITY:
        return 31 - leading_zeros(present) if highest else lowest_bit(present)
    while present:
        priority = lowest_bit(present)
        present &= present - 1
        if best == NOWHERE:
            best = priority
            continue
        if rule == BY_DEADLINE:
            mine = deadline_at(member, slot_at(chain, member.first[priority]))
            others = deadline_at(member, slot_at(chain, member.first[best]))
            if mine != others:
                best = priority if mine < others else best
                continue
        if slot_at(chain, member.first[priority]).sequence < slot_at(chain, member.first[best]).sequence:
            best = priority
    return best


cdef bint goes_before(Member *member, Slot *slot, Slot *other) noexcept nogil:
    """Is this one dropped rather than the other?"""
    cdef uint64_t mine, others
    if member.discard == BY_DEADLINE:
        mine, others = deadline_at(member, slot), deadline_at(member, other)
        if mine != others:
            return mine < others
    return slot.sequence < other.sequence


cdef uint32_t take_victim(ChainHeader *chain, Member *member) noexcept nogil:
    """Of what waits, take the one that the policy drops first."""
    cdef uint32_t present = member.present, victim = NOWHERE, ahead = NOWHERE, place, before, priority, list_of = 0
    if (member.discard == BY_DEADLINE) == (member.order == BY_DEADLINE):
        return delist(chain, member, list_by(chain, member, member.discard, False))
    if member.discard == BY_PRIORITY:
        present &= ~(present - 1)    # the lowest only
    while present:                   # the lists are in another order: look at all
        priority = lowest_bit(present)
        present &= present - 1
        place, before = member.first[priority], NOWHERE
        while place != NOWHERE:
            if victim == NOWHERE or goes_before(member, slot_at(chain, place), slot_at(chain, victim)):
                victim, ahead, list_of = place, before, priority
            before, place = place, slot_at(chain, place).next
    if ahead == NOWHERE:
        return delist(chain, member, list_of)
    slot_at(chain, ahead).next = slot_at(chain, victim).next
    if member.last[list_of] == victim:
        member.last[list_of] = ahead
    member.waiting -= 1
    return victim


# --- which station gets it -----------------------------------------------------------------------

cdef inline bint is_full(Member *member) noexcept nogil:
    return member.capacity != 0 and member.waiting >= member.capacity


cdef uint32_t next_station(ChainHeader *chain, uint64_t candidates) noexcept nogil:
    """Of these members, the one that a product goes to next. There is at least one."""
    cdef uint32_t best = NOWHERE, number
    cdef uint64_t rest = candidates
    while rest:
        number = lowest_bit64(rest)
        rest &= rest - 1
        if best == NOWHERE or member_at(chain, number).stage < member_at(chain, best).stage:
            best = number
    if member_at(chain, best).grouped:
        return share(chain, candidates, best)
    return best


cdef uint32_t keeper_of(ChainHeader *chain, uint32_t stage) noexcept nogil:
    """The first member of a stage keeps the turn of its group."""
    cdef uint32_t number = 0
    while number < MEMBERS_MAX - 1 and (not member_at(chain, number).used or member_at(chain, number).stage != stage):
        number += 1
    return number


cdef uint32_t share(ChainHeader *chain, uint64_t candidates, uint32_t first) noexcept nogil:
    """One of the parallel stations: in turn, or the one with the least to do; a full one only if all are."""
    cdef uint32_t stage = member_at(chain, first).stage, best = NOWHERE, number, step
    cdef uint32_t turn = member_at(chain, keeper_of(chain, stage)).turn
    cdef bint in_turn = member_at(chain, first).distribution == ROUND_ROBIN
    cdef Member *member
    for step in range(1, MEMBERS_MAX + 1):
        number = (turn + step) % MEMBERS_MAX
        member = member_at(chain, number)
        if not (candidates >> number) & 1 or member.stage != stage:
            continue
        if best == NOWHERE or (is_full(member_at(chain, best)) and not is_full(member)):
            best = number
            if in_turn and not is_full(member):
                break
        elif not in_turn and not is_full(member) and (
                member.waiting + member.leased < member_at(chain, best).waiting + member_at(chain, best).leased):
            best = number
    return best


cdef inline void note_surge(ChainHeader *chain) noexcept nogil:
    """Something waits that the log had not for this station: those who put look at the capacities again."""
    store64(&chain.surges, chain.surges + 1)


cdef void come_back(ChainHeader *chain, uint32_t place, uint32_t number) noexcept nogil:
    """Let a product wait at a station where it was before, in its old place."""
    enlist(chain, place, number, True)
    note_surge(chain)


cdef void go_on(ChainHeader *chain, uint32_t place, uint64_t candidates, bint in_order) noexcept nogil:
    """As `arrive`, for a product that the chain has had in hand."""
    arrive(chain, place, candidates, in_order)
    if candidates:
        note_surge(chain)


cdef void arrive(ChainHeader *chain, uint32_t place, uint64_t candidates, bint in_order) noexcept nogil:
    """Bring a product to the next station that takes it; if none is left, the chain is done with it.

    A station that is not blocking and whose capacity is full takes no more: by its policy it lets the new product
    or one that waits go on to the stations behind it.
    """
    cdef uint32_t number, victim, rule
    cdef Member *member
    while candidates:
        number = next_station(chain, candidates)
        member = member_at(chain, number)
        if member.grouped:
            member_at(chain, keeper_of(chain, member.stage)).turn = number
        if not in_order:
            slot_at(chain, place).deliveries = 0
        if member.blocking or in_order or not is_full(member):
            member.admitted += not in_order
            enlist(chain, place, number, in_order)
            return
        candidates = slot_at(chain, place).wanted & member.later
        if member.discard == BY_LIFO or member.discard == BY_ANY:
            member.flowed_around += 1
            continue
        rule = member.discard
        enlist(chain, place, number, False)
        victim = take_victim(chain, member)
        if rule == BY_FIFO:
            member.dropped_fifo += 1
        elif rule == BY_PRIORITY:
            member.dropped_priority += 1
        else:
            member.dropped_deadline += 1
        if victim != place:
            member.admitted += 1
        place = victim               # it goes on, to the stations that come later
        candidates = slot_at(chain, place).wanted & member.later
    release_slot(chain, place)


cdef void park(ChainHeader *chain, uint32_t place) noexcept nogil:
    """Lay aside a product that nobody could deal with. It is not waiting, and holds nothing back."""
    cdef Slot *slot = slot_at(chain, place)
    cdef uint32_t number = station_of(slot)
    cdef Member *member = member_at(chain, number)
    if member.parked >= PARKED_MAX:
        member.dropped_parking += 1
        release_slot(chain, place)
        return
    leave_hand(chain, place)
    store64(&slot.mark, mark_of(SLOT_PARKED, number, 0, 0))
    slot.next = NOWHERE
    member.parked += 1
    member.parked_total += 1


cdef uint64_t stage_of(ChainHeader *chain, Member *member) noexcept nogil:
    """All members that stand where this one does."""
    cdef uint64_t members = 0
    cdef uint32_t number
    for number in range(MEMBERS_MAX):
        if member_at(chain, number).used and member_at(chain, number).stage == member.stage:
            members |= <uint64_t>1 << number
    return members


cdef void give_back_slot(ChainHeader *chain, uint32_t place, uint32_t where) noexcept nogil:
    """A leased product comes back undone: to the input, on to the output, to the start, or to the group."""
    cdef Slot *slot = slot_at(chain, place)
    cdef uint32_t number = station_of(slot)
    cdef Member *member = member_at(chain, number)
    member.leased -= 1
    if where == RESTORE_OUTPUT:
        go_on(chain, place, slot.wanted & member.later, False)
    elif where == RESTORE_START:
        slot.restarts += slot.restarts < 0xFF
        go_on(chain, place, slot.wanted, True)
    elif where == RESTORE_GROUP and member.grouped:
        go_on(chain, place, slot.wanted & stage_of(chain, member), True)
    else:
        come_back(chain, place, number)


# --- after a death -------------------------------------------------------------------------------

cdef int by_sequence(const void *a, const void *b) noexcept nogil:
    cdef uint64_t first = (<const Ordered *>a).sequence, second = (<const Ordered *>b).sequence
    return -1 if first < second else first > second


cdef void forget_consumer(ChainHeader *chain, uint32_t number) noexcept nogil:
    cdef Consumer *consumer = consumer_at(chain, number)
    consumer.epoch += 1
    consumer.leased = 0
    store32(&consumer.used, 0)


cdef int restore_leases(ChainHeader *chain, uint32_t number, uint32_t where, bint dead) noexcept nogil:
    """Take back what a consumer holds and free its place; how many, or -ENOMEM."""
    cdef Member *member = member_at(chain, consumer_at(chain, number).member % MEMBERS_MAX)
    cdef Ordered *found = <Ordered *>malloc((<size_t>chain.in_hand + 2) * sizeof(Ordered))
    cdef uint32_t place = chain.oldest, steps = 0
    cdef int count = 0, i
    if found == NULL:
        return -ENOMEM
    while place != NOWHERE and steps <= chain.in_hand:
        if state_of(slot_at(chain, place)) == SLOT_LEASED and owner_of(slot_at(chain, place)) == number:
            found[count].place = place
            count += 1
        place = slot_at(chain, place).newer
        steps += 1
    for i in range(count):           # the youngest first where they go to the front of a list
        give_back_slot(chain, found[i if where == RESTORE_OUTPUT else count - 1 - i].place, where)
        member.restored += dead
        failpoint(FAIL_RESTORED)
    free(found)
    forget_consumer(chain, number)
    return count


cdef void take_revision_back(ChainHeader *chain) noexcept nogil:
    """If somebody died between giving a slot a revision and its new mark, it has the old revision still."""
    cdef Slot *slot = slot_at(chain, <uint32_t>chain.revising - 1)
    if chain.revising != 0 and state_of(slot) == SLOT_LEASED and slot.revision != chain.revising_from:
        slot.revision = chain.revising_from
        slot.revisions -= slot.revisions != 0
    chain.revising = 0


cdef int rebuild(ChainHeader *chain) noexcept nogil:
    """Make all lists and counts anew from the marks."""
    cdef uint32_t ready = chain.slots_ready, place, i, count = 0
    cdef Ordered *found = <Ordered *>malloc((ready + 1) * sizeof(Ordered))
    cdef Slot *slot
    cdef Member *member
    if found == NULL:
        return -ENOMEM
    take_revision_back(chain)
    chain.free = chain.oldest = chain.newest = NOWHERE
    chain.in_hand = 0
    for i in range(MEMBERS_MAX):
        member = member_at(chain, i)
        member.waiting = member.leased = member.parked = member.present = 0
    for i in range(CONSUMERS_MAX):
        consumer_at(chain, i).leased = 0
    for place in range(ready, 0, -1):
        slot = slot_at(chain, place - 1)
        if not is_sound_slot(chain, slot):
            slot.mark = SLOT_FREE
            slot.next = chain.free
            chain.free = place - 1
        elif state_of(slot) == SLOT_PARKED:
            member_at(chain, station_of(slot)).parked += 1
        else:
            found[count].sequence = slot.sequence
            found[count].place = place - 1
            count += 1
    qsort(found, count, sizeof(Ordered), by_sequence)
    failpoint(FAIL_REBUILT)
    for i in range(count):
        slot = slot_at(chain, found[i].place)
        join_hand(chain, found[i].place)
        if slot.sequence == chain.admitting and chain.position <= chain.admitting:
            chain.position = chain.admitting + 1   # taken up, and not noted before its conductor died
        if state_of(slot) == SLOT_WAITING:
            enlist(chain, found[i].place, station_of(slot), False)
        else:
            member_at(chain, station_of(slot)).leased += 1
            consumer_at(chain, owner_of(slot)).leased += 1
    free(found)
    note_low(chain)
    note_surge(chain)
    return 0


cdef bint is_sound_slot(ChainHeader *chain, Slot *slot) noexcept nogil:
    if state_of(slot) == SLOT_FREE or state_of(slot) > SLOT_PARKED:
        return False
    return (slot.sequence != 0 and slot.priority < PRIORITIES and station_of(slot) < MEMBERS_MAX
            and owner_of(slot) < CONSUMERS_MAX and member_at(chain, station_of(slot)).used != 0)


cdef void save_cell(ChainHeader *chain) noexcept nogil:
    """Note where the chain would begin again after a power failure."""
    cdef uint64_t generation = max(chain.cells[0].generation, chain.cells[1].generation) + 1
    cdef Cell *cell = &chain.cells[generation % 2]
    cell.generation = generation
    cell.low = chain.low
    cell.checksum = XXH3_64bits(cell, 16)


cdef int lock_chain(ChainHeader *chain, bint at_once) noexcept nogil:
    """Mends what a dead holder left behind; if that fails, the next one tries again. -EBUSY only if `at_once`."""
    cdef int error = pthread_mutex_trylock(&chain.lock) if at_once else pthread_mutex_lock(&chain.lock)
    if error == EOWNERDEAD:
        store32(&chain.torn, 1)
        chain.recoveries += 1
        pthread_mutex_consistent(&chain.lock)
        error = 0
    if error == 0 and chain.torn:
        error = -rebuild(chain)
        if error != 0:
            pthread_mutex_unlock(&chain.lock)
            return -error
        store32(&chain.torn, 0)
    return -error


cdef void unlock_chain(ChainHeader *chain) noexcept nogil:
    note_low(chain)
    pthread_mutex_unlock(&chain.lock)


cdef enum:                           # what those who put may wait for
    FOR_CAPACITY = 1
    FOR_LOW = 2


cdef void call_waiters(ChainHeader *chain, uint32_t what) noexcept nogil:
    """Those who wait look again, if any of them waits for this."""
    fence()                          # what made the room is seen before `waiters` is asked
    if load32(&chain.waiters) & what and swap32(&chain.waiters, 0) != 0:
        add32(&chain.room, 1)
        futex(&chain.room, FUTEX_WAKE, 0x7FFFFFFF, NULL)
