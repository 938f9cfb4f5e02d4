# Sleep until a moment, without the interpreter, for the pacer.
#
# Linux may wake a sleeper up to its timer slack late, 50 microseconds by default, in order to wake several at once. The
# slack belongs to the thread: the first call sets it to 1 nanosecond, for good. What remains is the time that the
# processor takes to wake up, 5 to 60 microseconds. Who needs less than that sleeps until shortly before the moment and
# spins for the rest, which costs a share of the processor.

from posix.time cimport TIMER_ABSTIME, clock_nanosleep

cdef extern from "<sys/prctl.h>" nogil:
    int PR_SET_TIMERSLACK
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
    static __thread int hr_is_prompt;
    #define hr_set_prompt() (hr_is_prompt = 1)
    """
    void set_prompt "hr_set_prompt"() noexcept nogil
    int is_prompt "hr_is_prompt"     # whether this thread has no timer slack
    void relax "hr_relax"() noexcept nogil


def sleep_precisely(uint64_t until_ns, uint64_t spin_ns):
    """Sleep until this moment of CLOCK_MONOTONIC; the last `spin_ns` of it are a loop. Returns the time now.

    A signal ends the sleep early: the caller looks at the time that is returned.
    """
    cdef timespec until
    cdef uint64_t wake_ns = until_ns - min(until_ns, spin_ns), now_ns
    cdef int error = 0
    with nogil:
        now_ns = clock_ns(CLOCK_MONOTONIC)
        if now_ns < wake_ns:
            until.tv_sec, until.tv_nsec = wake_ns // 1000000000, wake_ns % 1000000000
            if not is_prompt:
                prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
                set_prompt()
            error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)
            now_ns = clock_ns(CLOCK_MONOTONIC)
        while error == 0 and now_ns < until_ns:
            relax()
            now_ns = clock_ns(CLOCK_MONOTONIC)
    return now_ns
