# Ready: at which of many stations a `get` is worth an attempt.
#
# One thread of a site waits on behalf of hundreds of consumers. After each put it asks here, once for all of them,
# rather than trying a `get` for each: a station that wants nothing of what was put costs a look at a few words.

cdef bint is_ready(Chain chain, uint32_t number, uint64_t now_ns, uint64_t now) noexcept:
    """Take up the latest products if that is little work. Does a product wait, or is something to be done first?"""
    cdef ChainHeader *header = chain.header
    cdef Member *member = member_at(header, number)
    cdef uint64_t position = load64(&header.position), head = load64(&chain.log.store.control.head)
    cdef int outcome
    if is_time_to_look(header, now) or chain.terms_seen != load64(&header.terms):
        return True
    if head > position:
        if not chain.conducts or head - position > FEW:
            return True              # a `get` does it, without the interpreter lock
        if chain.enter(True) != 0:
            return True
        outcome = chain.conduct_if_current()
        unlock_chain(header)
        if outcome != 0:
            return True
        if member.waiting * 2 <= member.capacity:
            call_waiters(header, FOR_CAPACITY)
    return load32(&member.waiting) != 0 and not member.paused and member.start_ns <= now_ns


def find_ready(list chains not None, list members not None, uint64_t now_ns):
    """Indexes of the pairs of chain and member at which `get` may find products, or has something to do first.

    `now_ns` is the time by a clock that the queue was given; 0: that of the site. Holds the interpreter lock, and
    waits for no other: a chain whose lock is taken counts as ready.
    """
    cdef uint64_t now = clock_ns(CLOCK_MONOTONIC)
    cdef Py_ssize_t i
    cdef Chain chain
    found = []
    for i in range(len(chains)):
        chain = chains[i]
        if now_ns == 0:
            now_ns = site_now(chain.log.store.control)
        if is_ready(chain, checked(members[i], MEMBERS_MAX), now_ns, now):
            found.append(i)
    return found
