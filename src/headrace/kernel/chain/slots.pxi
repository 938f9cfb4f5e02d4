# Slots: the products that a chain of stations has in hand, in shared memory.
#
# A product takes a slot when any station of the chain selects it, and keeps the slot until the last of these stations
# has acknowledged it. The `mark` of the slot says where the product is: waiting at a station, leased to a consumer, or
# parked. The mark is stored in one piece and is the truth. The rest is derived from the marks, and `rebuild`
# (recovery.pxi) derives it again when a process has died while it held the lock:
#
#   free slots          singly linked through `next`, from chain.free
#   products in hand    doubly linked through `older` and `newer`, by sequence, from chain.oldest to chain.newest
#   waiting products    singly linked through `next`, per station and priority, from member.first to member.last
#   counts              in the header, the members and the consumers
#
# Everything here runs under the lock of the chain. Nothing here knows the log.

cdef enum:
    MEMBERS_AT = 1024
    CONSUMERS_AT = MEMBERS_AT + MEMBERS_MAX * 512
    SLOTS_AT = CONSUMERS_AT + CONSUMERS_MAX * 128
    CHAIN_BYTES_MAX = SLOTS_AT + SLOTS_MAX * 64


cdef inline Member *member_at(ChainHeader *chain, uint32_t member) noexcept nogil:
    return <Member *>(<char *>chain + MEMBERS_AT) + member


cdef inline Consumer *consumer_at(ChainHeader *chain, uint32_t place) noexcept nogil:
    return <Consumer *>(<char *>chain + CONSUMERS_AT) + place


cdef inline uint32_t consumers_end(ChainHeader *chain) noexcept nogil:
    """No consumer has a place from here on: a look at all consumers need not read the whole table."""
    return min(load32(&chain.consumers_end), <uint32_t>CONSUMERS_MAX)


cdef inline Slot *slot_at(ChainHeader *chain, uint32_t place) noexcept nogil:
    """The index is masked, so that a damaged file never leads outside the mapping."""
    return <Slot *>(<char *>chain + SLOTS_AT) + (place & (SLOTS_MAX - 1))


cdef inline uint32_t checked(uint32_t number, uint32_t end) except? 0xFFFFFFFF:
    """A place below `end`; otherwise IndexError, rather than a pointer to somewhere else in the file."""
    if number >= end:
        raise IndexError(number)
    return number


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
    """Insert by sequence. A new product has the highest sequence, so this usually looks at one neighbour."""
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
    """Unlink a product from the list of those in hand."""
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
    """Publish `low`: every product below it is settled."""
    cdef uint64_t low = chain.position
    if chain.oldest != NOWHERE and slot_at(chain, chain.oldest).sequence < low:
        low = slot_at(chain, chain.oldest).sequence
    if low != chain.low:
        store64(&chain.low, low)


cdef void release_slot(ChainHeader *chain, uint32_t place) noexcept nogil:
    """The chain has finished with the product: its slot is free."""
    cdef Slot *slot = slot_at(chain, place)
    if state_of(slot) != SLOT_PARKED:
        leave_hand(chain, place)
    store64(&slot.mark, SLOT_FREE)
    failpoint(FAIL_RELEASED)
    slot.next = chain.free
    chain.free = place


# --- the waiting lists of a station --------------------------------------------------------------

cdef inline bint by_deadline(Member *member) noexcept nogil:
    """Are the lists sorted by deadline rather than in order of arrival?"""
    return member.order == BY_DEADLINE


cdef inline uint64_t deadline_at(Member *member, Slot *slot) noexcept nogil:
    """When the product becomes useless to the station: its own expiry, or the timeout or stop time of the station."""
    cdef uint64_t deadline_ns = slot.expires_ns if slot.expires_ns else <uint64_t>0xFFFFFFFFFFFFFFFF
    if member.stop_ns != 0:
        deadline_ns = min(deadline_ns, member.stop_ns)
    if member.timeout_ns != 0 and slot.inserted_ns + member.timeout_ns < deadline_ns:
        return slot.inserted_ns + member.timeout_ns
    return deadline_ns


cdef bint comes_before(Member *member, Slot *slot, Slot *other) noexcept nogil:
    """Does `slot` stand before `other` in a waiting list?"""
    cdef uint64_t mine, others
    if by_deadline(member):
        mine, others = deadline_at(member, slot), deadline_at(member, other)
        if mine != others:
            return mine < others
    return slot.sequence < other.sequence


cdef void enlist(ChainHeader *chain, uint32_t place, uint32_t number, bint in_order) noexcept nogil:
    """Let a product wait at a station: at the end of its list, or where its sequence or deadline belongs."""
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
    """Take the first product of a list that is not empty."""
    cdef uint32_t place = member.first[priority]
    member.first[priority] = slot_at(chain, place).next
    if member.first[priority] == NOWHERE:
        member.present &= ~(<uint32_t>1 << priority)
    member.waiting -= 1
    return place


cdef uint32_t list_by(ChainHeader *chain, Member *member, uint32_t rule, bint highest) noexcept nogil:
    """Which list has the product that comes first by `rule`. At least one list is not empty."""
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
    """Is `slot` dropped rather than `other`?"""
    cdef uint64_t mine, others
    if member.discard == BY_DEADLINE:
        mine, others = deadline_at(member, slot), deadline_at(member, other)
        if mine != others:
            return mine < others
    return slot.sequence < other.sequence


cdef uint32_t take_victim(ChainHeader *chain, Member *member) noexcept nogil:
    """Take the waiting product that the discard policy drops first."""
    cdef uint32_t present = member.present, victim = NOWHERE, ahead = NOWHERE, place, before, priority, list_of = 0
    if (member.discard == BY_DEADLINE) == (member.order == BY_DEADLINE):
        return delist(chain, member, list_by(chain, member, member.discard, False))
    if member.discard == BY_PRIORITY:
        present &= ~(present - 1)    # the lowest only
    while present:                   # the lists have another order: compare all
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
