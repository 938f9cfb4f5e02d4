# Which rows are wanted, as far as index rows can tell: by feed, origin, priority and slice.
#
# Python decides each feed and origin once and gives the answers as masks over their numbers. A row
# that speaks of a name beyond the masks cannot be decided: the caller learns the new names first.

cimport cython

cdef struct Wanted:
    const uint8_t *feeds             # NULL = all
    const uint8_t *origins
    const uint8_t *slices
    uint32_t feeds_count
    uint32_t origins_count
    uint32_t priorities              # one bit each


cdef inline int row_wanted(const Wanted *wanted, Row *row) noexcept nogil:
    """1, 0, or CODE_UNKNOWN_FEED."""
    if wanted.feeds != NULL:
        if row.feed >= wanted.feeds_count:
            return CODE_UNKNOWN_FEED
        if not wanted.feeds[row.feed]:
            return 0
    if not (wanted.priorities >> (row.priority & 7)) & 1:
        return 0
    if wanted.slices != NULL and not wanted.slices[row.slice]:
        return 0
    if wanted.origins != NULL:
        if row.origin >= wanted.origins_count:
            return CODE_UNKNOWN_FEED
        return wanted.origins[row.origin] != 0
    return 1


@cython.final
cdef class RowFilter:
    """What a selection asks of index rows; None for a mask that lets everything through."""
    cdef Wanted wanted
    cdef const uint8_t[::1] feeds, origins, slices

    def __cinit__(self, const uint8_t[::1] feeds=None, const uint8_t[::1] origins=None,
                  uint32_t priorities=255, const uint8_t[::1] slices=None):
        self.feeds, self.origins, self.slices = feeds, origins, slices
        self.wanted.priorities = priorities
        if feeds is not None:
            self.wanted.feeds_count = <uint32_t>feeds.shape[0]
            self.wanted.feeds = &feeds[0] if feeds.shape[0] else <const uint8_t *>b""
        if origins is not None:
            self.wanted.origins_count = <uint32_t>origins.shape[0]
            self.wanted.origins = &origins[0] if origins.shape[0] else <const uint8_t *>b""
        if slices is not None:
            if slices.shape[0] != SLICES:
                raise ValueError("one byte for each of the 65536 slices")
            self.wanted.slices = &slices[0]
