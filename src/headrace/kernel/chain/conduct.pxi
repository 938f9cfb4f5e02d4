# Conducting: taking products up from the log into a chain.
#
# In ET, a conductor moves events from station to station. Here there is no conductor process: a consumer that asks for
# products conducts, under the lock of the chain. The log is read once for all stations, in order, from `position` on.
# Each row is shown to every station of the chain; if any of them wants the product, it takes a slot and goes to the
# first of them. Conducting stops where a blocking station is full, so that no station misses a product that it is
# entitled to.

cdef struct Term:                    # what one station of the chain requires of index rows
    const Wanted *wanted             # NULL = everything
    uint32_t member

cdef enum:
    CONDUCT_MAX = 65536              # rows read while the lock is held


cdef int grow_slots(ChainHeader *chain, int fd) noexcept nogil:
    """Add SLOTS_STEP slots to the file and to the list of free slots, in rising order."""
    cdef uint32_t ready = chain.slots_ready, place
    cdef int error
    if ready + SLOTS_STEP > SLOTS_MAX:
        return -ENOMEM
    error = posix_fallocate(fd, 0, SLOTS_AT + <long>(ready + SLOTS_STEP) * sizeof(Slot))
    if error != 0:
        return -error
    for place in range(ready + SLOTS_STEP, ready, -1):
        slot_at(chain, place - 1).mark = SLOT_FREE
        slot_at(chain, place - 1).next = chain.free
        chain.free = place - 1
    store32(&chain.slots_ready, ready + SLOTS_STEP)
    return 0


cdef int take_slot(ChainHeader *chain, int fd, uint32_t *place) noexcept nogil:
    """1 and a slot, 0 if the chain holds as many products as it can, or a negative errno."""
    cdef int error = 0
    if chain.free == NOWHERE:
        error = grow_slots(chain, fd)
    if error != 0:
        return 0 if error == -ENOMEM else error
    place[0] = chain.free
    chain.free = slot_at(chain, place[0]).next
    return 1


cdef uint64_t expiry_of(Mapping *mapping, Row *row) noexcept nogil:
    """The product's own expiry; 0 = never. The record is not verified yet and may point anywhere."""
    cdef uint64_t offset = <uint64_t>row.offset * 8, expires_ns = 0, place
    cdef Record *record = <Record *>(mapping.base + offset)
    if not row.flags & ROW_EXPIRES or offset < SEGMENT_HEADER or offset + RECORD_HEADER > mapping.size:
        return 0
    place = (offset + RECORD_HEADER + record.feed_bytes + record.origin_bytes + record.ident_bytes
             + record.properties_bytes)
    if place + 8 <= mapping.size:
        memcpy(&expires_ns, mapping.base + place, 8)
    return expires_ns


cdef bint is_in_hand(ChainHeader *chain, uint64_t sequence) noexcept nogil:
    """After a seek backwards, or a death before `position` was stored: is the product in hand already?"""
    cdef uint32_t place = chain.newest, steps = 0
    while place != NOWHERE and slot_at(chain, place).sequence > sequence and steps <= chain.slots_ready:
        place = slot_at(chain, place).older
        steps += 1
    return place != NOWHERE and slot_at(chain, place).sequence == sequence


cdef uint64_t count_down(ChainHeader *chain, uint64_t wanted) noexcept nogil:
    """Prescale: of the members that want a product, those whose turn it is."""
    cdef uint64_t rest = wanted, chosen = 0
    cdef uint32_t number
    cdef Member *member
    while rest:
        number = lowest_bit64(rest)
        rest &= rest - 1
        member = member_at(chain, number)
        member.prescale_count += 1
        if member.prescale <= 1 or member.prescale_count % member.prescale == 0:
            chosen |= <uint64_t>1 << number
    return chosen


cdef void count_up(ChainHeader *chain, uint64_t wanted) noexcept nogil:
    """Undo count_down: the product was not taken up after all."""
    cdef uint32_t number
    while wanted:
        number = lowest_bit64(wanted)
        wanted &= wanted - 1
        member_at(chain, number).prescale_count -= 1


cdef bint is_alone(ChainHeader *chain, uint32_t number) noexcept nogil:
    """Is this the only station of the chain? Only then may the rest wait in the log: others would wait with it."""
    cdef uint32_t other
    for other in range(MEMBERS_MAX):
        if other != number and member_at(chain, other).used:
            return False
    return True


cdef int admit(ChainHeader *chain, int fd, uint64_t sequence, uint32_t priority, uint64_t wanted,
               uint64_t expires_ns, uint64_t inserted_ns) noexcept nogil:
    """Take a product up for the members that want it: 1, 0 if there is no room now, or a negative code."""
    cdef uint64_t chosen
    cdef uint32_t place = NOWHERE, number
    cdef int taken
    cdef Member *member
    cdef Slot *slot
    if chain.newest != NOWHERE and slot_at(chain, chain.newest).sequence >= sequence and is_in_hand(chain, sequence):
        return 1
    chosen = count_down(chain, wanted)
    if chosen == 0:
        return 1
    number = next_station(chain, chosen)
    member = member_at(chain, number)
    if (member.blocking and is_full(member)) or (
            member.capacity == 0 and member.waiting >= WINDOW and is_alone(chain, number)):
        count_up(chain, wanted)
        return 0
    taken = take_slot(chain, fd, &place)
    if taken <= 0:
        count_up(chain, wanted)
        return taken
    slot = slot_at(chain, place)
    slot.sequence = sequence
    slot.revision = 0
    slot.wanted = chosen
    slot.expires_ns = expires_ns
    slot.inserted_ns = inserted_ns
    slot.deliveries = slot.revisions = slot.restarts = 0
    slot.priority = <uint8_t>(priority & 7)
    store64(&chain.admitting, sequence)
    join_hand(chain, place)
    failpoint(FAIL_SLOT_FILLED)
    if member.grouped or is_full(member):
        arrive(chain, place, chosen, False)
    else:                            # as `arrive`, whose answer is known here
        member.admitted += 1
        enlist(chain, place, number, False)
    failpoint(FAIL_ADMITTED)
    store64(&chain.position, sequence + 1)
    return 1


cdef int conduct_segment(ChainHeader *chain, int fd, Mapping *mapping, Entry *entry, uint64_t end,
                         const Term *terms, uint32_t terms_count) noexcept nogil:
    """1 if it reached `end`, 0 if there is no room, or a negative code."""
    cdef uint64_t sequence = chain.position, wanted, late
    cdef uint32_t i
    cdef int found = 1
    cdef Row row
    while sequence < end:
        load_row(mapping, sequence - entry.first, &row)
        if not fits(&row, sequence):
            chain.damaged_rows += 1
            sequence += 1
            continue
        wanted = late = 0
        if not row.flags & ROW_HIDDEN:
            for i in range(terms_count):
                found = 1 if terms[i].wanted == NULL else row_wanted(terms[i].wanted, &row)
                if found < 0:
                    break
                if found and is_too_late(member_at(chain, terms[i].member), &row):
                    late |= <uint64_t>1 << terms[i].member
                elif found:
                    wanted |= <uint64_t>1 << terms[i].member
            if found < 0:
                break
        if wanted:
            found = admit(chain, fd, sequence, row.priority, wanted, expiry_of(mapping, &row), row.inserted_ns)
            if found <= 0:
                break
        while late:
            member_at(chain, lowest_bit64(late)).expired += 1
            late &= late - 1
        sequence += 1
        found = 1
    store64(&chain.position, sequence)
    return found


cdef inline bint is_too_late(Member *member, Row *row) noexcept nogil:
    """Was the product put after the stop time of the station?"""
    return member.stop_ns != 0 and row.inserted_ns >= member.stop_ns


cdef int conduct(Store *store, ChainHeader *chain, int fd, uint64_t stop, const Term *terms,
                 uint32_t terms_count) noexcept nogil:
    """Read the log from `position` on; 0 or a negative code. Under the lock of the chain."""
    cdef uint64_t head = min(load64(&store.control.head), stop)
    cdef uint64_t start = chain.position, number, held
    cdef Entry entry
    cdef Mapping *mapping = NULL
    cdef int outcome
    while chain.position < head and chain.position < start + CONDUCT_MAX:
        held = held_from(store, chain.position)
        if held != chain.position:
            skip_to(store, chain, held)
            continue
        number = segment_with(store, chain.position)
        if number == 0:
            return 0
        outcome = pin_segment(store, number, &entry, &mapping)
        if outcome == CODE_GONE:
            continue
        if outcome != 0:
            return outcome
        if chain.position < entry.first or (entry.end != 0 and chain.position >= entry.end):
            release_view(store, mapping)
            continue
        outcome = conduct_segment(
            chain, fd, mapping, &entry,
            min(min(entry.end if 0 < entry.end < head else head, entry.first + rows_room(mapping.size)),
                start + CONDUCT_MAX), terms, terms_count)
        release_view(store, mapping)
        if outcome <= 0:
            return outcome
    return 0


cdef void skip_to(Store *store, ChainHeader *chain, uint64_t held) noexcept nogil:
    """Pass over what the log does not hold: products evicted before, and sequences that were never assigned."""
    cdef uint64_t oldest = load64(&store.control.oldest)
    if chain.position < oldest:
        chain.lost_products += <uint32_t>(oldest - chain.position)    # without leaps, which are 2**32 each
        chain.lost_ns = site_now(store.control)
        chain.lost_first = chain.position
        chain.lost_last = oldest - 1
    store64(&chain.position, held)
