# Routing: which station a product goes to next, and what a full station does with it.
#
# Stations stand in stages. A product goes through the stages in order; stations of one stage form a group and share the
# products between them. `wanted` of a slot has one bit for each member that selects the product, `later` of a member
# one bit for each member of a later stage. Everything here runs under the lock of the chain.

cdef inline bint is_full(Member *member) noexcept nogil:
    return member.capacity != 0 and member.waiting >= member.capacity


cdef uint32_t next_station(ChainHeader *chain, uint64_t candidates) noexcept nogil:
    """The member that a product goes to next, out of `candidates`, which is not empty."""
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
    """The first member of a stage holds the turn of its group."""
    cdef uint32_t number = 0
    while number < MEMBERS_MAX - 1 and (not member_at(chain, number).used or member_at(chain, number).stage != stage):
        number += 1
    return number


cdef uint32_t share(ChainHeader *chain, uint64_t candidates, uint32_t first) noexcept nogil:
    """One of the parallel stations: by turns, or the one with the least to do; a full one only if all are full."""
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
    """A product waits that did not come from the log: writers must read the backlog of this station again."""
    store64(&chain.surges, chain.surges + 1)


cdef void come_back(ChainHeader *chain, uint32_t place, uint32_t number) noexcept nogil:
    """Let a product wait again at a station where it was before, in its old position."""
    enlist(chain, place, number, True)
    note_surge(chain)


cdef void go_on(ChainHeader *chain, uint32_t place, uint64_t candidates, bint in_order) noexcept nogil:
    """As `arrive`, for a product that is in hand already. `in_order`: it comes back, and may be parked."""
    arrive(chain, place, candidates, in_order)
    if candidates:
        note_surge(chain)


cdef void arrive(ChainHeader *chain, uint32_t place, uint64_t candidates, bint in_order) noexcept nogil:
    """Bring a product to the next station that takes it. Without candidates the chain has finished with it.

    A full station that does not block takes no more: by its discard policy, either the new product or a waiting one
    goes on to the stations behind it.
    """
    cdef uint32_t number, victim, rule
    cdef Member *member
    while candidates:
        number = next_station(chain, candidates)
        member = member_at(chain, number)
        if member.grouped:
            member_at(chain, keeper_of(chain, member.stage)).turn = number
        if in_order:
            wait_or_park(chain, place, number)
            return
        slot_at(chain, place).deliveries = 0
        if is_used_up(member, slot_at(chain, place)):    # it was sent back to the start too often
            member.admitted += 1
            park(chain, place, number)
            return
        if member.blocking or not is_full(member):
            member.admitted += 1
            enlist(chain, place, number, False)
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
        place = victim               # the victim goes on to later stages
        candidates = slot_at(chain, place).wanted & member.later
    release_slot(chain, place)


cdef inline bint is_used_up(Member *member, Slot *slot) noexcept nogil:
    """Was the product delivered as often as the station allows?"""
    return member.deliveries_max != 0 and max(slot.deliveries, slot.restarts) >= member.deliveries_max


cdef void wait_or_park(ChainHeader *chain, uint32_t place, uint32_t number) noexcept nogil:
    """A product comes back to a station: it waits there in its old position, unless this was its last delivery."""
    if is_used_up(member_at(chain, number), slot_at(chain, place)):
        park(chain, place, number)
    else:
        come_back(chain, place, number)


cdef void park(ChainHeader *chain, uint32_t place, uint32_t number) noexcept nogil:
    """Set aside a product that no consumer could process. It does not wait and holds nothing back."""
    cdef Slot *slot = slot_at(chain, place)
    cdef Member *member = member_at(chain, number)
    if member.parked >= PARKED_MAX:
        member.dropped_parking += 1
        release_slot(chain, place)
        return
    leave_hand(chain, place)
    store64(&slot.mark, mark_of(SLOT_PARKED, number, 0, 0))
    failpoint(FAIL_PARKED)
    slot.next = NOWHERE
    member.parked += 1
    member.parked_total += 1


cdef uint64_t stage_of(ChainHeader *chain, Member *member) noexcept nogil:
    """All members at the stage of `member`, one bit each."""
    cdef uint64_t members = 0
    cdef uint32_t number
    for number in range(MEMBERS_MAX):
        if member_at(chain, number).used and member_at(chain, number).stage == member.stage:
            members |= <uint64_t>1 << number
    return members


cdef void give_back_slot(ChainHeader *chain, uint32_t place, uint32_t where) noexcept nogil:
    """A leased product returns unprocessed: to the input, the output, the start of the chain, or the group.

    Here it is parked after its last delivery, and not when the next consumer asks: there may be none.
    """
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
        wait_or_park(chain, place, number)
