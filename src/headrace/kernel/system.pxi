# What the kernel needs of the compiler and the operating system: atomics, robust lock, futex, clocks; the points at
# which tests kill a process or make an allocation fail; the guard against files that are truncated.

from libc.errno cimport EBUSY, EINVAL, ELOOP, ENOENT, ENOMEM, ENOTDIR, EROFS, ETIMEDOUT, errno
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset, strdup
from posix.fcntl cimport O_CREAT, O_EXCL, O_RDONLY, O_RDWR, open as c_open
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE,
    mmap, munmap,
)
from posix.signal cimport SA_SIGINFO, sigaction, sigaction_t, siginfo_t, sigemptyset
from posix.stat cimport fstat, stat as c_stat, struct_stat
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close as c_close, ftruncate, getpid

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <linux/futex.h>
    #include <sched.h>
    #include <signal.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    #include "arrow/vendored/xxhash/xxhash.h"

    #define hr_load(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define hr_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define hr_add(p, v) __atomic_add_fetch((p), (v), __ATOMIC_SEQ_CST)
    #define hr_or(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
    #define hr_swap(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
    #define hr_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #define hr_futex(word, op, value, timeout) \
        syscall(SYS_futex, (word), (op), (value), (timeout), NULL, FUTEX_BITSET_MATCH_ANY)
    #define hr_wide_multiply(a, b) ((uint64_t)(((unsigned __int128)(a) * (b)) >> 64))
    #define hr_die() kill(getpid(), SIGKILL)
    #define hr_prefetch(p) __builtin_prefetch(p)
    #define hr_lowest_bit(x) __builtin_ctz(x)
    #define hr_lowest_bit64(x) __builtin_ctzll(x)
    #define hr_leading_zeros(x) __builtin_clz(x)
    #define hr_keep_value(x) __asm__ volatile("" : : "r"(x))
    #define hr_likely(x) __builtin_expect(!!(x), 1)

    /* A regular file, opened without waiting and without following a link; EINVAL: it is something else. */
    static inline int hr_open_regular(int directory, const char *name, int flags)
    {
        struct stat status;
        int fd = openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) {
            if (errno == ELOOP || errno == ENXIO || errno == EISDIR)
                errno = EINVAL;
            return fd;
        }
        if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
            close(fd);
            errno = EINVAL;
            return -1;
        }
        return fd;
    }

    /* A new file in the directory gets its rights, as headrace/files.py says, whatever the umask is. */
    static inline void hr_give_rights(int directory, int fd)
    {
        struct stat status;
        if (fstat(directory, &status) == 0
            && fchmod(fd, status.st_mode & S_IWOTH ? 0600 : (status.st_mode & 0664) | 0600) != 0)
            errno = 0;      /* no right to: the file has those of its maker */
    }

    /* A lock that needs no right to write; it ends with the last descriptor of the opened file. */
    static inline int hr_lock_to_read(int fd)
    {
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        return fcntl(fd, F_OFD_SETLK, &lock);
    }

    static inline int hr_is_locked(int fd)
    {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
    }

    /* As __builtin_popcount, which is a call where the machine may lack the instruction. */
    static inline int hr_bits_set(uint32_t bits)
    {
        bits -= bits >> 1 & 0x55555555;
        bits = (bits & 0x33333333) + (bits >> 2 & 0x33333333);
        return (int)(((bits + (bits >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24);
    }

    int hr_is_wide(void);            // wide.c
    uint64_t hr_wide_sum(const void *, size_t);
    void hr_wide_update(XXH3_state_t *, const void *, size_t);

    /* XXH3_64bits of the first 30 of 32 bytes that are in registers, not in memory. */
    static inline uint64_t hr_sum_of_30(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
    {
        uint64_t secret[4], sum;
        memcpy(secret, XXH3_kSecret, 32);
        sum = 30 * XXH_PRIME64_1 + XXH3_mul128_fold64(a ^ secret[0], b ^ secret[1])
            + XXH3_mul128_fold64((b >> 48 | c << 16) ^ secret[2], (c >> 48 | d << 16) ^ secret[3]);
        return XXH3_avalanche(sum);
    }
    """
    bint is_wide "hr_is_wide"() noexcept nogil
    int open_regular "hr_open_regular"(int, const char *, int) noexcept nogil
    void give_rights "hr_give_rights"(int, int) noexcept nogil
    int lock_to_read "hr_lock_to_read"(int) noexcept nogil
    bint is_locked "hr_is_locked"(int) noexcept nogil
    uint64_t wide_sum "hr_wide_sum"(const void *, size_t) noexcept nogil
    uint64_t sum_of_30 "hr_sum_of_30"(uint64_t, uint64_t, uint64_t, uint64_t) noexcept nogil
    uint64_t load64 "hr_load"(uint64_t *) noexcept nogil
    uint32_t load32 "hr_load"(uint32_t *) noexcept nogil
    void store64 "hr_store"(uint64_t *, uint64_t) noexcept nogil
    void store32 "hr_store"(uint32_t *, uint32_t) noexcept nogil
    uint32_t add32 "hr_add"(uint32_t *, int) noexcept nogil
    uint64_t add64 "hr_add"(uint64_t *, long) noexcept nogil
    uint32_t or32 "hr_or"(uint32_t *, uint32_t) noexcept nogil
    uint32_t swap32 "hr_swap"(uint32_t *, uint32_t) noexcept nogil
    void fence "hr_fence"() noexcept nogil
    long futex "hr_futex"(uint32_t *, int, uint32_t, timespec *) noexcept nogil
    uint64_t wide_multiply "hr_wide_multiply"(uint64_t, uint64_t) noexcept nogil
    void die "hr_die"() noexcept nogil
    void prefetch "hr_prefetch"(const void *) noexcept nogil
    int lowest_bit "hr_lowest_bit"(uint32_t) noexcept nogil
    int bits_set "hr_bits_set"(uint32_t) noexcept nogil
    int lowest_bit64 "hr_lowest_bit64"(uint64_t) noexcept nogil
    int leading_zeros "hr_leading_zeros"(uint32_t) noexcept nogil
    void keep_value "hr_keep_value"(uint64_t) noexcept nogil
    bint likely "hr_likely"(bint) noexcept nogil
    int FUTEX_WAIT_BITSET
    int FUTEX_WAKE
    int CLOCK_BOOTTIME
    int SIGBUS
    int O_CLOEXEC
    int EOWNERDEAD
    int openat(int, const char *, int, ...) noexcept nogil
    int unlinkat(int, const char *, int) noexcept nogil
    int sched_yield() noexcept nogil
    int posix_fallocate(int, long, long) noexcept nogil
    int snprintf(char *, size_t, const char *, ...) noexcept nogil

    ctypedef struct XXH128_hash_t:
        uint64_t low64
        uint64_t high64
    ctypedef struct XXH3_state_t:
        pass
    uint64_t XXH3_64bits(const void *, size_t) noexcept nogil
    XXH128_hash_t XXH3_128bits(const void *, size_t) noexcept nogil
    ctypedef struct XXH128_canonical_t:
        pass
    void XXH128_canonicalFromHash(XXH128_canonical_t *, XXH128_hash_t) noexcept nogil
    int XXH3_64bits_reset(XXH3_state_t *) noexcept nogil
    int XXH3_128bits_reset(XXH3_state_t *) noexcept nogil
    XXH128_hash_t XXH3_128bits_digest(XXH3_state_t *) noexcept nogil
    int XXH3_64bits_update(XXH3_state_t *, const void *, size_t) noexcept nogil
    void wide_update "hr_wide_update"(XXH3_state_t *, const void *, size_t) noexcept nogil
    uint64_t XXH3_64bits_digest(XXH3_state_t *) noexcept nogil

cdef extern from "<pthread.h>" nogil:
    int PTHREAD_PROCESS_SHARED
    int PTHREAD_MUTEX_ROBUST
    int pthread_mutexattr_init(pthread_mutexattr_t *)
    int pthread_mutexattr_setpshared(pthread_mutexattr_t *, int)
    int pthread_mutexattr_setrobust(pthread_mutexattr_t *, int)
    int pthread_mutexattr_destroy(pthread_mutexattr_t *)
    int pthread_mutex_init(pthread_mutex_t *, const pthread_mutexattr_t *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_trylock(pthread_mutex_t *)
    int pthread_mutex_timedlock(pthread_mutex_t *, const timespec *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_mutex_consistent(pthread_mutex_t *)
    int pthread_atfork(void (*)() noexcept nogil, void (*)() noexcept nogil, void (*)() noexcept nogil)


cdef enum:
    LOOK_S = 1                       # between two looks at a lock that is taken


cdef void init_robust_lock(pthread_mutex_t *lock) noexcept nogil:
    cdef pthread_mutexattr_t attributes
    pthread_mutexattr_init(&attributes)
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED)
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST)
    memset(lock, 0, sizeof(pthread_mutex_t))
    pthread_mutex_init(lock, &attributes)
    pthread_mutexattr_destroy(&attributes)


cdef int lock_robust(pthread_mutex_t *lock) noexcept nogil:
    """As pthread_mutex_lock, for a lock whose holder may be killed.

    A waiter that is woken, and killed before it has the lock, may take the wake-up with it. So nobody sleeps for longer
    than LOOK_S without looking at the lock again.
    """
    cdef int error = pthread_mutex_trylock(lock)
    cdef timespec until
    while error == EBUSY or error == ETIMEDOUT:
        clock_gettime(CLOCK_REALTIME, &until)
        until.tv_sec += LOOK_S
        error = pthread_mutex_timedlock(lock, &until)
    return error


cdef inline uint64_t clock_ns(int which) noexcept nogil:
    cdef timespec now
    clock_gettime(which, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec


# --- failpoints: a test arms one, and the process kills itself when it reaches it ---------------

cdef enum:
    FAIL_NEVER = 0
    FAIL_RECORD = 1
    FAIL_ROW = 2
    FAIL_DEDUP = 3
    FAIL_COMMIT = 4
    FAIL_WAKE = 5
    FAIL_EVICT_OLDEST = 6
    FAIL_EVICT_UNLINK = 7
    FAIL_EVICTED = 8
    FAIL_SEGMENT_SEALED = 9
    FAIL_SEGMENT_FILE = 10
    FAIL_SEGMENT_HEADER = 11
    FAIL_SEGMENT_ENTRY = 12
    FAIL_SEGMENT_ADDED = 13
    FAIL_DEDUP_GROWN = 14
    FAIL_NAME = 15
    FAIL_SLOT_FILLED = 16
    FAIL_SLOT_MARKED = 17
    FAIL_ADMITTED = 18
    FAIL_LEASED = 19
    FAIL_SETTLED = 20
    FAIL_RESTORED = 21
    FAIL_RELEASED = 22
    FAIL_REBUILT = 23
    FAIL_REVISED = 24
    FAIL_PARKED = 25
    FAIL_CLOCK = 26
    FAIL_OTHER = 27

FAILPOINTS = {
    "append:record-written": FAIL_RECORD,
    "append:row-written": FAIL_ROW,
    "append:signature-noted": FAIL_DEDUP,
    "append:before-commit": FAIL_COMMIT,
    "append:after-commit": FAIL_WAKE,
    "evict:oldest-advanced": FAIL_EVICT_OLDEST,
    "evict:before-unlink": FAIL_EVICT_UNLINK,
    "evict:done": FAIL_EVICTED,
    "segment:sealed": FAIL_SEGMENT_SEALED,
    "segment:file-made": FAIL_SEGMENT_FILE,
    "segment:header-written": FAIL_SEGMENT_HEADER,
    "segment:entry-written": FAIL_SEGMENT_ENTRY,
    "segment:added": FAIL_SEGMENT_ADDED,
    "dedup:grown": FAIL_DEDUP_GROWN,
    "name:text-written": FAIL_NAME,
    "chain:slot-filled": FAIL_SLOT_FILLED,
    "chain:slot-marked": FAIL_SLOT_MARKED,
    "chain:admitted": FAIL_ADMITTED,
    "chain:leased": FAIL_LEASED,
    "chain:settled": FAIL_SETTLED,
    "chain:restored": FAIL_RESTORED,
    "chain:released": FAIL_RELEASED,
    "chain:rebuilt": FAIL_REBUILT,
    "chain:revised": FAIL_REVISED,
    "chain:parked": FAIL_PARKED,
    "clock:words-written": FAIL_CLOCK,
}

cdef int armed_point = FAIL_NEVER
cdef long armed_passes = 0
cdef object armed_name = None


cdef inline void failpoint(int point) noexcept nogil:
    global armed_passes
    if armed_point == point:
        armed_passes -= 1
        if armed_passes <= 0:
            die()


def arm_failpoint(str name, long passes=1):
    """Kill this process (SIGKILL) the `passes`-th time it reaches the point `name`; "" disarms.

    Other names than those in FAILPOINTS belong to Python code, which calls `reach_failpoint`.
    """
    global armed_point, armed_passes, armed_name
    armed_passes = passes
    armed_name = name
    armed_point = FAILPOINTS.get(name, FAIL_OTHER) if name else FAIL_NEVER


def reach_failpoint(str name):
    """A failpoint in Python code."""
    if armed_point == FAIL_OTHER and armed_name == name:
        failpoint(FAIL_OTHER)


# --- allocations: tests make one fail -------------------------------------------------------------

cdef long allocations_left = 0       # until one fails; 0 none does


def fail_allocation(long passes):
    """Make the `passes`-th allocation from now on fail, once; 0 none. Whether one is still to fail.

    Only the kernel's own allocations count, not those of the interpreter.
    """
    global allocations_left
    cdef bint armed = allocations_left != 0
    allocations_left = passes
    return armed


cdef bint is_to_fail() noexcept nogil:
    global allocations_left
    if allocations_left == 0:
        return False
    allocations_left -= 1
    return allocations_left == 0


cdef void *allocate(size_t size) noexcept nogil:
    return NULL if is_to_fail() else malloc(max(size, <size_t>1))


cdef void *allocate_zeroed(size_t count, size_t size) noexcept nogil:
    return NULL if is_to_fail() else calloc(max(count, <size_t>1), size)


cdef void *reallocate(void *old, size_t size) noexcept nogil:
    """As realloc: if it returns NULL, `old` is still valid."""
    return NULL if is_to_fail() else realloc(old, max(size, <size_t>1))


# --- SIGBUS: a mapped file that is truncated must not end the process ----------------------------
#
# The handler maps an empty private page over the hole and marks the range. A reader of the page finds a
# wrong checksum; a writer sees the mark before it commits.

cdef struct Guarded:
    uintptr_t base                   # 0 = free
    size_t size
    uint32_t holed

cdef enum:
    GUARDED_MAX = 8192

cdef Guarded guarded[GUARDED_MAX]
cdef pthread_mutex_t guarded_lock    # all zero is an unlocked mutex
cdef sigaction_t sigbus_before
cdef bint sigbus_installed = False


cdef void on_sigbus(int signal, siginfo_t *info, void *context) noexcept nogil:
    cdef uintptr_t address = <uintptr_t>info.si_addr
    cdef uintptr_t page = address & ~<uintptr_t>4095
    cdef int i
    for i in range(GUARDED_MAX):
        if guarded[i].base != 0 and guarded[i].base <= address < guarded[i].base + guarded[i].size:
            mmap(<void *>page, 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
            store32(&guarded[i].holed, 1)
            return
    sigaction(SIGBUS, &sigbus_before, NULL)      # not ours: the fault is raised again for its owner


cdef void install_sigbus() noexcept:
    global sigbus_installed
    cdef sigaction_t action
    if sigbus_installed:
        return
    memset(&action, 0, sizeof(action))
    action.sa_sigaction = on_sigbus
    action.sa_flags = SA_SIGINFO
    sigemptyset(&action.sa_mask)
    sigaction(SIGBUS, &action, &sigbus_before)
    sigbus_installed = True


cdef Guarded *guard(void *base, size_t size) noexcept nogil:
    cdef Guarded *free_one = NULL
    cdef int i
    pthread_mutex_lock(&guarded_lock)
    for i in range(GUARDED_MAX):
        if guarded[i].base == 0:
            free_one = &guarded[i]
            free_one.size = size
            free_one.holed = 0
            free_one.base = <uintptr_t>base
            break
    pthread_mutex_unlock(&guarded_lock)
    return free_one


cdef inline bint is_holed(Guarded *entry) noexcept nogil:
    return entry != NULL and load32(&entry.holed) != 0


cdef void unguard(Guarded *entry) noexcept nogil:
    if entry != NULL:
        entry.base = 0
