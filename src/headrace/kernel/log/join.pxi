# Join: rows of several batches as one batch, in any order, for the release buffer and the pacer.
#
# The refs are copied, the records are not: the new rows hold the rows that they were taken from, and so their pins or
# buffers. Batches of different queues number their feeds and origins differently; then the caller gives the names that
# they have together, and for each batch a table from its numbers to these.
#
# Leases survive if all rows were leased from one chain of one queue: then a consumer settles the joined rows as those
# that it got. Otherwise slot and ticket mean different things in different rows, and the joined rows count as not
# leased.


def join_rows(list parts not None, const uint32_t[::1] which not None, const uint32_t[::1] places not None,
              list names=None, list feeds=None, list origins=None):
    """The rows at `places` of the parts `which`, in this order, as rows of their own.

    `names` is given if the parts have different ones; `feeds` and `origins` are its numbers, one array for each part.
    """
    cdef size_t count = which.shape[0], parts_count = len(parts), i
    cdef Rows joined, part
    cdef Rows first = parts[0] if parts_count else None
    cdef Joining *joining
    cdef int64_t wrong
    cdef bint is_one_log = names is None
    if <size_t>places.shape[0] != count or (names is not None and (
            feeds is None or origins is None or <size_t>len(feeds) != parts_count
            or <size_t>len(origins) != parts_count)):
        raise ValueError("places")
    joining = <Joining *>allocate_zeroed(max(parts_count, <size_t>1), sizeof(Joining))
    if joining == NULL:
        raise MemoryError
    try:
        for i in range(parts_count):
            part = parts[i]
            joining[i].refs, joining[i].count = part.refs, part.count
            is_one_log = is_one_log and part.log is first.log and part.leased_by == first.leased_by
            if names is not None:
                joining[i].renames = True
                set_table(&joining[i].feeds, &joining[i].feeds_count, feeds[i])
                set_table(&joining[i].origins, &joining[i].origins_count, origins[i])
        joined = Rows(first.log if first is not None and names is None else None)
        joined.parts = tuple(parts)
        joined.texts = names if names is not None else first.texts if first is not None else []
        joined.leased_by = first.leased_by if is_one_log and first is not None else 0
        joined.reserve(count)
        if count and joined.refs == NULL:
            raise MemoryError
        with nogil:
            wrong = join_refs(joined.refs, &joined.bytes, joining, parts_count, &which[0] if count else NULL,
                              &places[0] if count else NULL, count)
        if wrong >= 0:
            raise IndexError(f"part {which[wrong]} has no row {places[wrong]}, or its names are unknown")
        joined.count = count
        return joined
    finally:
        free(joining)


cdef struct Joining:                 # one of the parts
    Ref *refs
    size_t count
    bint renames
    const uint32_t *feeds            # new numbers by old ones
    const uint32_t *origins
    size_t feeds_count
    size_t origins_count


cdef int set_table(const uint32_t **table, size_t *count, const uint32_t[::1] numbers) except -1:
    """The list that the array comes from keeps it alive."""
    table[0] = &numbers[0] if numbers.shape[0] else NULL
    count[0] = numbers.shape[0]
    return 0


cdef int64_t join_refs(Ref *to, uint64_t *total, Joining *parts, size_t parts_count, const uint32_t *which,
                       const uint32_t *places, size_t count) noexcept nogil:
    """-1, or the index of a row that does not exist or has a name without a number."""
    cdef size_t i
    cdef Joining *part
    for i in range(count):
        if which[i] >= parts_count or places[i] >= parts[which[i]].count:
            return <int64_t>i
        part = &parts[which[i]]
        if i + 8 < count and which[i + 8] < parts_count:
            prefetch(&parts[which[i + 8]].refs[places[i + 8]])
        to[i] = part.refs[places[i]]
        if part.renames:
            if to[i].feed >= part.feeds_count or to[i].origin >= part.origins_count:
                return <int64_t>i
            to[i].feed = part.feeds[to[i].feed]
            to[i].origin = <uint16_t>part.origins[to[i].origin]
        total[0] += to[i].payload_bytes
    return -1
