# Weighing: how the bytes of a range are spread, from index rows alone.
#
# A Weigher adds up the weight of the wanted rows, and notes a stretch whenever enough has come together. It goes on
# where it stopped, so that the caller can learn new names in between. It holds at most the pin of one segment.

cdef enum:
    COMPLETE = 1                     # a stretch


@cython.final
cdef class Weigher:
    """Stretches of about `stretch_bytes`; a product weighs its payload and `product_bytes`."""
    cdef Log log
    cdef Growing ends, sizes, counts
    cdef uint64_t *slices            # bytes by slice
    cdef uint64_t *slice_products    # products by slice
    cdef uint64_t stretch_bytes, product_bytes
    cdef uint64_t size, count        # of the stretch that is not complete
    cdef readonly uint64_t next      # where it goes on
    cdef readonly uint64_t products  # wanted ones so far

    def __cinit__(self, Log log not None, uint64_t stretch_bytes, uint64_t product_bytes):
        self.log = log
        self.stretch_bytes, self.product_bytes = stretch_bytes, product_bytes
        self.slices = <uint64_t *>allocate_zeroed(SLICES, sizeof(uint64_t))
        self.slice_products = <uint64_t *>allocate_zeroed(SLICES, sizeof(uint64_t))
        if self.slices == NULL or self.slice_products == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.slices)
        free(self.slice_products)
        free(self.ends.data)
        free(self.sizes.data)
        free(self.counts.data)

    def run(self, uint64_t start, uint64_t stop, uint64_t products_max, RowFilter row_filter):
        """Go on from `start` up to `stop`, or until there are `products_max`; 0, or the code why it stopped before."""
        cdef const Wanted *wanted = &row_filter.wanted if row_filter is not None else NULL
        cdef Store *store = self.log.store
        cdef uint64_t number
        cdef Entry entry
        cdef Mapping *mapping = NULL
        cdef int error = 0
        self.next = start
        if state_holed(store):
            return CODE_DAMAGED
        stop = min(stop, load64(&store.control.head))
        while self.next < stop and self.products < products_max:
            number = segment_with(store, self.next)
            if number == 0:
                return CODE_GONE
            error = pin_segment(store, number, &entry, &mapping)
            if error == CODE_GONE and self.next >= load64(&store.control.oldest):
                continue
            if error != 0:
                return error
            try:
                if self.next < entry.first or (entry.end != 0 and self.next >= entry.end):
                    return CODE_GONE             # a gap between two segments
                while True:
                    with nogil:
                        error = self.weigh_stretch(mapping, &entry, stop, products_max, wanted)
                    if error != COMPLETE:
                        break
                    self.end_stretch(self.next)
            finally:
                release_view(store, mapping)
            if error != 0:
                return error
        return 0

    cdef int weigh_stretch(self, Mapping *mapping, Entry *entry, uint64_t stop, uint64_t products_max,
                           const Wanted *wanted) noexcept nogil:
        """COMPLETE, 0 at the end of the segment, of the range or of the products, or a code."""
        cdef uint64_t end = min(entry.end if 0 < entry.end < stop else stop, entry.first + rows_room(mapping.size))
        cdef uint64_t weight
        cdef int found
        cdef Row row
        if entry.first + rows_room(mapping.size) <= self.next < stop:
            return CODE_DAMAGED
        while self.next < end and self.products < products_max:
            load_row(mapping, self.next - entry.first, &row)
            if not fits(&row, self.next):
                return CODE_DAMAGED
            if wanted != NULL:
                found = row_wanted(wanted, &row)
                if found < 0:
                    return found
            else:
                found = 1
            self.next += 1
            if found == 0 or row.flags & ROW_HIDDEN:
                continue
            weight = row.payload_bytes + self.product_bytes
            self.size += weight
            self.count += 1
            self.products += 1
            self.slices[row.slice] += weight
            self.slice_products[row.slice] += 1
            if self.size >= self.stretch_bytes:
                return COMPLETE
        return 0

    cdef int end_stretch(self, uint64_t end) except -1:
        grow(&self.ends, <char *>&end, 8)
        grow(&self.sizes, <char *>&self.size, 8)
        grow(&self.counts, <char *>&self.count, 8)
        self.size = self.count = 0
        return 0

    def finish(self, uint64_t end):
        """End the last stretch at `end`; ends, sizes and products of all stretches, bytes and products by slice."""
        cdef uint32_t i
        self.end_stretch(end)
        sizes = {i: self.slices[i] for i in range(SLICES) if self.slice_products[i]}
        products = {i: self.slice_products[i] for i in range(SLICES) if self.slice_products[i]}
        return (self.numbers(&self.ends), self.numbers(&self.sizes), self.numbers(&self.counts), sizes, products)

    cdef list numbers(self, Growing *buffer):
        cdef size_t i
        return [(<uint64_t *>buffer.data)[i] for i in range(buffer.used // 8)]
