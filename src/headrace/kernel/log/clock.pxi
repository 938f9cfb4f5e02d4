# The clock of a site: UTC from the time since the machine started, and from words that one process keeps right.
#
# Two sets of words lie in the control file. A writer fills the one that does not count and then moves `clock_turn`, so
# a writer that dies leaves the other one as it was, and readers take no lock. No set of words may put the clock back.
# The new words begin some microseconds after they are written, with what the old ones show then. Until that moment a
# process that reads them gets that time, so no process sees time fall, whichever words it has read.

cdef enum:
    CLOCK_AHEAD_NS = 20000           # new words begin so long after they are written
    CLOCK_LATE_NS = 20000000         # how far words may be behind that were made a moment ago
    CLOCK_ATTEMPTS = 8
    CLOCK_FRESH_NS = 30000000000     # how long words without a source count


cdef inline uint64_t clock_at(const Clock *clock, uint64_t boot_ns) noexcept nogil:
    """UTC at this time since the machine started. Never falls as `boot_ns` grows."""
    cdef int64_t passed = <int64_t>(boot_ns - clock.boot_ns)
    cdef int64_t slewed
    if passed <= 0:
        return clock.utc_ns
    slewed = <int64_t>(clock.until_boot_ns - clock.boot_ns) if clock.until_boot_ns > clock.boot_ns else 0
    if passed <= slewed:
        return clock.utc_ns + passed + <int64_t>(<double>passed * clock.rate_ppb / 1e9)
    return (clock.utc_ns + passed + <int64_t>(<double>slewed * clock.rate_ppb / 1e9)
            + <int64_t>(<double>(passed - slewed) * clock.then_ppb / 1e9))


cdef inline uint64_t bound_at(const Clock *clock, uint64_t boot_ns) noexcept nogil:
    """How far from the truth the clock may be at this time, in nanoseconds; 0 unknown."""
    cdef int64_t passed = <int64_t>(boot_ns - clock.boot_ns)
    if clock.bound_ns == 0:
        return 0
    return clock.bound_ns + <uint64_t>(<double>max(passed, 0) * clock.drift_ppb / 1e9)


cdef bint load_clock(Control *control, Clock *clock) noexcept nogil:
    """Copy the words that count; False if no clock has been set.

    Words without a source follow the clock of the system, and somebody may have set that right since: they count only
    while the process that follows it lives.
    """
    cdef uint64_t turn = load64(&control.clock_turn), again
    while turn != 0:
        clock[0] = control.clocks[turn & 1]
        fence()
        again = load64(&control.clock_turn)
        if again == turn:            # otherwise a writer may have begun to fill these words
            return clock.source != CLOCK_NONE or clock_ns(CLOCK_BOOTTIME) < clock.boot_ns + CLOCK_FRESH_NS
        turn = again
    return False


cdef inline uint64_t site_ns(Control *control, uint64_t boot_ns, uint32_t *bound_us) noexcept nogil:
    """The time of the site, which is the system's unless a clock is set, and its bound in microseconds; 0 unknown."""
    cdef Clock clock
    cdef uint64_t bound_ns
    bound_us[0] = 0
    if load64(&control.clock_turn) == 0 or not load_clock(control, &clock):
        return clock_ns(CLOCK_REALTIME)
    bound_ns = bound_at(&clock, boot_ns)
    bound_us[0] = <uint32_t>min((bound_ns + 999) // 1000, <uint64_t>0xFFFFFFFF)
    return clock_at(&clock, boot_ns)


cdef inline uint64_t site_now(Control *control) noexcept nogil:
    cdef uint32_t bound_us
    return site_ns(control, clock_ns(CLOCK_BOOTTIME), &bound_us)


cdef bint set_clock(Control *control, const Clock *clock, bint back) noexcept nogil:
    """Make these words count; False if they put the clock back and `back` does not allow it. Under the lock.

    Words for a slower clock are behind by now, because they were made a moment ago. The clock continues from what it
    shows, and what that is too much is added to the bound.
    """
    cdef uint64_t turn = control.clock_turn + 1 if control.clock_turn else 2
    cdef uint64_t begin_ns, shown_ns, asked_ns
    cdef uint32_t bound_us
    cdef Clock made = clock[0], old
    cdef int attempt
    for attempt in range(CLOCK_ATTEMPTS):
        begin_ns = clock_ns(CLOCK_BOOTTIME) + CLOCK_AHEAD_NS
        if not back:
            shown_ns = site_ns(control, begin_ns, &bound_us) + CLOCK_AHEAD_NS * (not load_clock(control, &old))
            asked_ns = clock_at(clock, begin_ns)
            if shown_ns > asked_ns and shown_ns - asked_ns > CLOCK_LATE_NS:
                return False
            made.boot_ns, made.utc_ns = begin_ns, max(shown_ns, asked_ns)
            if clock.bound_ns:
                made.bound_ns = bound_at(clock, begin_ns) + (made.utc_ns - asked_ns) + CLOCK_AHEAD_NS
        control.clocks[turn & 1] = made
        failpoint(FAIL_CLOCK)
        if back or clock_ns(CLOCK_BOOTTIME) < begin_ns:     # otherwise we were interrupted
            break
    store64(&control.clock_turn, turn)
    return True


cdef dict clock_words(const Clock *clock):
    return {
        "boot_ns": clock.boot_ns, "utc_ns": clock.utc_ns, "rate_ppb": clock.rate_ppb, "then_ppb": clock.then_ppb,
        "until_boot_ns": clock.until_boot_ns, "bound_ns": clock.bound_ns, "drift_ppb": clock.drift_ppb,
        "source": clock.source, "offset_ns": clock.offset_ns,
    }
