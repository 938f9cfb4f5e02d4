# Place: is the queue still where it was opened?
#
# Everything shared is mapped, so a queue whose directory was moved, deleted or replaced works on by itself: puts are
# stored where no one looks for them, and the documents that are found by their path (stations, channels) are missing or
# those of another queue. So each operation asks whether the path still leads to the control file that is mapped. The
# answer costs a system call, which may take longer than a small put, and ten times as long where nothing was called for
# some milliseconds, because all that it needs has left the caches. So puts, gets and acknowledgements ask at most every
# PLACE_NS: at 100 products per second only one in ten waits for it. What is put in between is where everything that was
# put before is.

cdef enum:
    PLACE_NS = 100000000


cdef int look_for_place(Store *store) noexcept nogil:
    """0 if the path leads to our control file, CODE_MOVED if it does not, or minus the errno that hides it."""
    cdef struct_stat status
    if store.place == NULL:
        return 0
    if c_stat(store.place, &status) != 0:
        return CODE_MOVED if errno in (ENOENT, ENOTDIR, ELOOP) else -errno
    if status.st_dev != store.place_device or status.st_ino != store.place_inode:
        return CODE_MOVED
    return 0


cdef inline int check_place(Store *store, uint64_t now, bint always) noexcept nogil:
    """As `look_for_place`, unless the last look was less than PLACE_NS before `now`, by whichever clock since boot."""
    cdef int outcome
    if not always and now - store.place_seen_ns < PLACE_NS:
        return 0
    outcome = look_for_place(store)
    if outcome == 0:
        store.place_seen_ns = now
    return outcome
