# Held things: locks as contexts, and files that may shrink under us.

cdef class Mapped:
    """A whole file, mapped and writable, that may shrink without ending the interpreter; see `holed`."""
    cdef char *base
    cdef Py_ssize_t size
    cdef Guarded *guarded

    def __cinit__(self, int fd, Py_ssize_t size):
        cdef void *where = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        install_sigbus()
        if where == MAP_FAILED:
            raise KernelError(-errno)
        self.base = <char *>where
        self.size = size
        self.guarded = guard(where, size)

    def __dealloc__(self):
        if self.base != NULL:
            unguard(self.guarded)
            munmap(self.base, self.size)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.base, self.size, 0, flags)

    @property
    def holed(self):
        """Whether the file was found shorter than its mapping."""
        return is_holed(self.guarded)


cdef class Held:
    """`with` this, and the lock is held: no signal can come between taking it and the promise to give it back."""
    cdef Log log
    cdef bint sync, patient, taken

    def __enter__(self):
        """True, or False for a lock that somebody else has and that was not to be waited for."""
        cdef pthread_mutex_t *lock = &self.log.store.control.sync_lock
        cdef int error
        if not self.sync:
            with nogil:
                error = -lock_log(self.log.store)
        elif self.patient:
            with nogil:
                error = pthread_mutex_lock(lock)
        else:
            error = pthread_mutex_trylock(lock)
        if error == EOWNERDEAD:
            error = pthread_mutex_consistent(lock)
        if error == EBUSY:
            return False
        if error != 0:
            self.log.fail(-error)
        self.taken = True
        return True

    def __exit__(self, kind, value, trace):
        if not self.taken:
            return
        self.taken = False
        if self.sync:
            pthread_mutex_unlock(&self.log.store.control.sync_lock)
        else:
            unlock_log(self.log.store)
