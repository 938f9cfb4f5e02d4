# The lock of a chain, and recovery: after the death of a process, of a consumer, or of the machine.
#
# The lock is a robust mutex in the file. If its holder dies, the next process to lock it sees EOWNERDEAD, sets `torn`,
# and derives lists and counts from the marks again. `torn` is cleared only after that succeeded; if memory is short,
# the next process to take the lock tries again.

from libc.stdlib cimport qsort

cdef struct Ordered:                 # a slot, to be sorted by sequence
    uint64_t sequence
    uint32_t place

cdef enum:                           # what a waiting writer waits for: bits of chain.waiters
    FOR_CAPACITY = 1
    FOR_LOW = 2


cdef int lock_chain(ChainHeader *chain, bint at_once) noexcept nogil:
    """0, or a negative errno and the lock is free. -EBUSY only with `at_once`."""
    cdef int error = pthread_mutex_trylock(&chain.lock) if at_once else lock_robust(&chain.lock)
    if error == EOWNERDEAD:
        store32(&chain.torn, 1)
        chain.recoveries += 1
        pthread_mutex_consistent(&chain.lock)
        error = 0
    if error == 0 and chain.torn:
        error = -rebuild_torn(chain)
        if error != 0:
            pthread_mutex_unlock(&chain.lock)
    return -error


cdef void unlock_chain(ChainHeader *chain) noexcept nogil:
    note_low(chain)
    pthread_mutex_unlock(&chain.lock)


cdef int rebuild_torn(ChainHeader *chain) noexcept nogil:
    """`rebuild`. If it fails, the chain stays marked as torn and the next process to lock it tries again."""
    cdef int error
    store32(&chain.torn, 1)
    error = rebuild(chain)
    if error == 0:
        store32(&chain.torn, 0)
    return error


cdef void call_waiters(ChainHeader *chain, uint32_t what) noexcept nogil:
    """Wake the writers that wait, if any of them waits for this."""
    fence()                          # the change that made room is visible before `waiters` is read
    if load32(&chain.waiters) & what and swap32(&chain.waiters, 0) != 0:
        add32(&chain.room, 1)
        futex(&chain.room, FUTEX_WAKE, 0x7FFFFFFF, NULL)


# --- after the death of a consumer ---------------------------------------------------------------

cdef void forget_consumer(ChainHeader *chain, uint32_t number) noexcept nogil:
    """Free the place of a consumer. The new epoch makes its leases invalid."""
    cdef Consumer *consumer = consumer_at(chain, number)
    consumer.epoch += 1
    consumer.leased = 0
    store32(&consumer.used, 0)


cdef int restore_leases(ChainHeader *chain, uint32_t number, uint32_t where, bint dead, bint counts) noexcept nogil:
    """Take back what a consumer holds and free its place; how many products, or -ENOMEM and nothing has changed.

    `counts`: it counts as a delivery, because the product may be why the consumer leaves.
    """
    cdef Member *member = member_at(chain, consumer_at(chain, number).member % MEMBERS_MAX)
    cdef Ordered *found = <Ordered *>allocate((<size_t>chain.in_hand + 2) * sizeof(Ordered))
    cdef uint32_t place = chain.oldest, steps = 0
    cdef int count = 0, i
    cdef Slot *slot
    if found == NULL:
        return -ENOMEM
    while place != NOWHERE and steps <= chain.in_hand:
        if state_of(slot_at(chain, place)) == SLOT_LEASED and owner_of(slot_at(chain, place)) == number:
            found[count].place = place
            count += 1
        place = slot_at(chain, place).newer
        steps += 1
    for i in range(count):           # the youngest first where they go to the front of a list
        place = found[i if where == RESTORE_OUTPUT else count - 1 - i].place
        slot = slot_at(chain, place)
        if not counts:
            slot.deliveries -= slot.deliveries > 0
        give_back_slot(chain, place, where)
        member.restored += dead
        failpoint(FAIL_RESTORED)
    free(found)
    forget_consumer(chain, number)
    return count


# --- after the death of a process that held the lock ---------------------------------------------

cdef int by_sequence(const void *a, const void *b) noexcept nogil:
    cdef uint64_t first = (<const Ordered *>a).sequence, second = (<const Ordered *>b).sequence
    return -1 if first < second else first > second


cdef void take_revision_back(ChainHeader *chain) noexcept nogil:
    """If a process died after it gave a slot a revision and before the new mark, restore the old revision."""
    cdef Slot *slot = slot_at(chain, <uint32_t>chain.revising - 1)
    if chain.revising != 0 and state_of(slot) == SLOT_LEASED and slot.revision != chain.revising_from:
        slot.revision = chain.revising_from
        slot.revisions -= slot.revisions != 0
    chain.revising = 0


cdef int rebuild(ChainHeader *chain) noexcept nogil:
    """Derive all lists and counts from the marks; 0, or -ENOMEM and nothing has changed."""
    cdef uint32_t ready = chain.slots_ready, place, i, count = 0
    cdef Ordered *found = <Ordered *>allocate((<size_t>ready + 1) * sizeof(Ordered))
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
    for i in range(consumers_end(chain)):
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
            chain.position = chain.admitting + 1   # taken up, but its conductor died before it stored this
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
    """Is the mark of a slot in use one that can exist?"""
    if state_of(slot) == SLOT_FREE or state_of(slot) > SLOT_PARKED:
        return False
    return (slot.sequence != 0 and slot.priority < PRIORITIES and station_of(slot) < MEMBERS_MAX
            and owner_of(slot) < CONSUMERS_MAX and member_at(chain, station_of(slot)).used != 0)


# --- after a restart of the machine --------------------------------------------------------------

cdef void save_cell(ChainHeader *chain) noexcept nogil:
    """Record the position at which the chain continues after a power failure."""
    cdef uint64_t generation = max(chain.cells[0].generation, chain.cells[1].generation) + 1
    cdef Cell *cell = &chain.cells[generation % 2]
    cell.generation = generation
    cell.low = chain.low
    cell.checksum = XXH3_64bits(cell, 16)


cdef uint64_t saved_low(ChainHeader *chain) noexcept nogil:
    """`low` of the newest cell whose checksum is correct; 0 if neither is."""
    cdef uint64_t low = 0, generation = 0
    cdef int i
    for i in range(2):
        if chain.cells[i].generation > generation and chain.cells[i].checksum == XXH3_64bits(&chain.cells[i], 16):
            generation, low = chain.cells[i].generation, chain.cells[i].low
    return low


cdef int reset_chain(ChainHeader *chain, bint trusted, uint64_t tail) noexcept nogil:
    """While no other process is attached: a new lock, no consumers, and the last position that can be trusted."""
    cdef uint32_t i
    cdef int error
    init_robust_lock(&chain.lock)
    store32(&chain.waiters, 0)
    if not trusted:
        for i in range(chain.slots_ready):
            slot_at(chain, i).mark = SLOT_FREE
        chain.position = saved_low(chain)
    chain.position = min(chain.position, tail)
    error = rebuild_torn(chain)
    for i in range(consumers_end(chain)):
        if error >= 0 and consumer_at(chain, i).used:
            error = restore_leases(chain, i, member_at(chain, consumer_at(chain, i).member % MEMBERS_MAX).restore, True,
                                   True)
    if error >= 0:
        store32(&chain.consumers_end, 0)
    note_low(chain)
    return min(error, 0)


def format_chain(int fd, bytes uuid not None, uint64_t number, uint64_t position):
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


cdef list check_chain(ChainHeader *chain):
    """What is inconsistent, as sentences. Under the lock, which the caller releases even if this raises."""
    cdef uint32_t place = chain.oldest, count = 0, i, number
    cdef uint64_t sequence = 0
    cdef uint32_t waiting[MEMBERS_MAX]
    cdef uint32_t leased[MEMBERS_MAX]
    found = []
    memset(waiting, 0, sizeof(waiting))
    memset(leased, 0, sizeof(leased))
    while place != NOWHERE and count <= chain.slots_ready:
        if place >= chain.slots_ready or slot_at(chain, place).sequence < sequence:
            found.append("the list of products in hand is out of order")
            break
        sequence = slot_at(chain, place).sequence
        number = station_of(slot_at(chain, place))
        if not is_sound_slot(chain, slot_at(chain, place)):
            found.append(f"slot {place} is in hand but its mark is invalid")
            break
        waiting[number] += state_of(slot_at(chain, place)) == SLOT_WAITING
        leased[number] += state_of(slot_at(chain, place)) == SLOT_LEASED
        place = slot_at(chain, place).newer
        count += 1
    if count != chain.in_hand:
        found.append(f"the count of products in hand is {chain.in_hand}, the list has {count}")
    for i in range(MEMBERS_MAX):
        if member_at(chain, i).used and waiting[i] != member_at(chain, i).waiting:
            found.append(f"station {i} counts {member_at(chain, i).waiting} waiting products, {waiting[i]} are listed")
        if member_at(chain, i).used and leased[i] != member_at(chain, i).leased:
            found.append(f"station {i} counts {member_at(chain, i).leased} leased products, {leased[i]} are listed")
    place, count = chain.free, 0
    while place != NOWHERE and count <= chain.slots_ready:
        if place >= chain.slots_ready or state_of(slot_at(chain, place)) != SLOT_FREE:
            found.append(f"slot {place} is in the list of free slots but is not free")
            break
        place = slot_at(chain, place).next
        count += 1
    return found
