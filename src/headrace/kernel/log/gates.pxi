# Gates: stations that make writers wait.
#
# A blocking station that is full makes producers wait. A chain with a blocking station keeps products in the queue
# until they are settled. Writers read both from words in the chain file: under the lock of the log, without that of the
# chain. Each process has its own list of gates, which Python makes again whenever `control.stations` changes.

cdef inline uint64_t backlog_of(Gate *gate, uint64_t tail) noexcept nogil:
    """Products that wait at the station, including those that the chain has not read yet."""
    cdef uint64_t position = load64(&gate.chain.position)
    return load32(&gate.member.waiting) + (tail - position if position < tail else 0)


cdef inline int shut(Gate *gate, uint64_t tail) noexcept nogil:
    """0, or the code why nothing more may be put for this station.

    A backlog grows by one with each put, and otherwise only by a surge. So a writer that found room for many products
    need not read the words of the consumers, which evicts them from the cache of another core, until that many were
    put.
    """
    cdef uint64_t surges = load64(&gate.chain.surges), backlog, room = 1 << 62
    if tail < gate.open_until and surges == gate.surges:
        return 0
    backlog = backlog_of(gate, tail)
    if gate.member.max_queue != 0:
        if backlog >= gate.member.max_queue:
            return CODE_REJECTED
        room = gate.member.max_queue - backlog
    if gate.member.blocking and gate.member.capacity != 0:
        if backlog >= gate.member.capacity:
            return CODE_BLOCKED
        room = min(room, gate.member.capacity - backlog)
    gate.open_until, gate.surges = tail + room, surges
    return 0


cdef int concerns(Gate *gate, Item *items, size_t count) noexcept nogil:
    """Is any of the items for this station? CODE_STATIONS if the mask does not cover one of the feeds."""
    cdef size_t i
    if gate.feeds == NULL:
        return 1
    for i in range(count):
        if items[i].feed >= gate.feeds_count:
            return CODE_STATIONS
        if gate.feeds[items[i].feed]:
            return 1
    return 0


cdef bint has_open_mate(Store *store, Gate *gate) noexcept nogil:
    """Does another station of the same group have room?"""
    cdef uint32_t i
    if not gate.member.grouped:
        return False
    for i in range(store.gates_count):
        if (store.gates[i].chain == gate.chain and store.gates[i].member != NULL
                and store.gates[i].member.stage == gate.member.stage
                and shut(&store.gates[i], store.control.tail) == 0):
            return True
    return False


cdef int pass_gates(Store *store, Item *items, size_t count) noexcept nogil:
    """May these be appended now? If not, the outcome of the first item is the gate. Under the lock of the log."""
    cdef uint32_t i
    cdef int outcome, concerned
    if store.control.stations != store.stations_seen:
        return CODE_STATIONS
    for i in range(store.gates_count):
        outcome = shut(&store.gates[i], store.control.tail) if store.gates[i].member != NULL else 0
        if outcome == 0 or count == 0:
            continue
        concerned = concerns(&store.gates[i], items, count)
        if concerned < 0:
            return concerned
        if concerned and not has_open_mate(store, &store.gates[i]):
            items[0].outcome = i
            return outcome
    return 0


cdef bint held_back(Store *store, uint64_t end) noexcept nogil:
    """Does a chain keep products below `end` in the queue? Under the lock of the log."""
    cdef uint32_t i
    if store.control.stations != store.stations_seen:
        return True
    for i in range(store.gates_count):
        if store.gates[i].member == NULL and load64(&store.gates[i].chain.low) < end:
            return True
    return False


def set_gates(Log log not None, uint64_t seen, gates not None):
    """What writers of this process must respect: (Chain, member or None, feed mask or None) each."""
    cdef Store *store = log.store
    cdef Gate *made = <Gate *>allocate_zeroed(len(gates), sizeof(Gate))
    cdef Chain chain
    cdef const uint8_t[::1] feeds
    cdef uint32_t i
    if made == NULL:
        raise MemoryError
    try:
        for i in range(<uint32_t>len(gates)):
            chain, member, feeds = gates[i]
            if chain is None:
                raise TypeError("gates")
            made[i].chain = chain.header
            made[i].member = NULL if member is None else member_at(chain.header, checked(member, MEMBERS_MAX))
            if feeds is not None:
                made[i].feeds_count = <uint32_t>feeds.shape[0]
                made[i].feeds = &feeds[0] if feeds.shape[0] else <const uint8_t *>b""
        with log.held():
            made, store.gates = store.gates, made
            store.gates_count = <uint32_t>len(gates)
            store.stations_seen = seen
            before, log.gate_owners = log.gate_owners, gates     # freed after the lock is released
    finally:
        free(made)                   # the old ones, or after an error the new ones
