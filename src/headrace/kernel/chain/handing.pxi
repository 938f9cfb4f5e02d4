# Handing: leased products one by one, for `for product in consumer`.
#
# A consumer gets a few products with one call and hands them out from here. Each is acknowledged when the next is asked
# for, so a process that dies repeats the product in hand and those that were not handed out, and nothing else.
#
# A loop that ends early gives the rest back, and so does the heartbeat of the process while one product takes long, so
# that other consumers need not wait for the rest. Both may happen at any moment, in a finaliser also while this very
# thread holds the lock of the chain. So they try for the lock, for GIVE_BACK_NS at most; what is left is tried again by
# the heartbeat, and goes back with `detach`. The interpreter lock is held from the first look at the numbers to their
# change, here and in `__next__`.

cdef enum:
    GIVE_BACK_NS = 10_000_000


@cython.final
cdef class LeasedProducts:
    """The products of leased rows, one after the other; each is acknowledged when the next is asked for."""
    cdef Chain chain
    cdef Rows rows
    cdef object names, consumer      # the consumer is asked whether it still belongs to this process
    cdef uint32_t number
    cdef uint64_t epoch
    cdef size_t handed               # products handed out so far; the last of them is in hand
    cdef size_t end                  # how many are handed out in all
    cdef size_t settled

    def __cinit__(self, Chain chain not None, uint32_t number, uint64_t epoch, Rows rows not None, names, consumer):
        self.chain, self.rows, self.names, self.consumer = chain, rows, names, consumer
        self.number, self.epoch, self.end = checked(number, CONSUMERS_MAX), epoch, rows.count

    def __iter__(self):
        return self

    def __next__(self):
        """Raises KernelError(lease_lost) if the consumer was declared dead."""
        if self.consumer._foreign:
            self.consumer._check()
        if self.settled < self.handed:
            self.settle()
        if self.handed >= self.end:
            raise StopIteration
        self.handed += 1
        return row_product(self.rows, self.names, <uint32_t>(self.handed - 1))

    def give_back(self):
        """Give back what was not handed out."""
        cdef uint64_t until = clock_ns(CLOCK_MONOTONIC) + GIVE_BACK_NS
        cdef size_t count = self.end - self.handed, i
        cdef uint32_t places[FEW]
        cdef int64_t outcome = -EBUSY
        if self.consumer._foreign or count > FEW:
            return
        for i in range(count):
            places[i] = <uint32_t>(self.handed + i)
        while count and outcome == -EBUSY and clock_ns(CLOCK_MONOTONIC) < until:
            outcome = settle_all(self.chain, self.number, self.epoch, self.rows, places, count, SETTLE_NACK, NULL, True)
        if outcome != -EBUSY:
            self.end = self.handed

    cdef int settle(self) except -1:
        """Acknowledge the product in hand, unless the program has settled it itself."""
        cdef uint32_t place = <uint32_t>(self.handed - 1)
        cdef Chain chain = self.chain
        cdef int64_t outcome = check_place(chain.log.store, clock_ns(CLOCK_MONOTONIC), False)
        if outcome == 0:
            outcome = settle_all(chain, self.number, self.epoch, self.rows, &place, 1, SETTLE_ACK, NULL, True)
            if outcome == -EBUSY:
                with nogil:
                    outcome = settle_all(chain, self.number, self.epoch, self.rows, &place, 1, SETTLE_ACK, NULL, False)
        if outcome < 0:
            raise KernelError(<int>outcome)
        self.settled = self.handed
        return 0
