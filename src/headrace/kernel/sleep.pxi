# Sleep until a moment, without the interpreter, for the pacer.
#
# Linux may wake a sleeper up to its timer slack late, 50 microseconds by default, in order to wake several at once. The
# slack belongs to the thread: it is 1 nanosecond during the call, and then as it was. What remains is the time that the
# processor takes to wake up, 5 to 60 microseconds. Who needs less than that sleeps until shortly before the moment and
# spins for the rest, which costs a share of the processor.

from posix.time cimport TIMER_ABSTIME, clock_nanosleep

cdef extern from "<sys/prctl.h>" nogil:
    int PR_SET_TIMERSLACK
    int PR_GET_TIMERSLACK
    int prctl(int, ...)

cdef extern from *:
    """
    #if defined(__x86_64__) || defined(__i386__)
    #define hr_relax() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define hr_relax() __asm__ volatile("yield")
    #else
    #define hr_relax() __asm__ volatile("")
    #endif
    """
    void relax "hr_relax"() noexcept nogil


def sleep_precisely(uint64_t until_ns, uint64_t spin_ns):
    """Sleep until this moment of CLOCK_MONOTONIC; the last `spin_ns` of it are a loop. Returns the time now.

    A signal ends the sleep early: the caller looks at the time that is returned.
    """
    cdef timespec until
    cdef uint64_t wake_ns = until_ns - min(until_ns, spin_ns), now_ns
    cdef long slack
    cdef int error = 0
    with nogil:
        now_ns = clock_ns(CLOCK_MONOTONIC)
        if now_ns < wake_ns:
            until.tv_sec, until.tv_nsec = wake_ns // 1000000000, wake_ns % 1000000000
            slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)
            if slack > 1:
                prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
            error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)
            if slack > 1:
                prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0)
            now_ns = clock_ns(CLOCK_MONOTONIC)
        while error == 0 and now_ns < until_ns:
            relax()
            now_ns = clock_ns(CLOCK_MONOTONIC)
    return now_ns
