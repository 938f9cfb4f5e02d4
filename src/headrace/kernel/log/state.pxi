# The shared numbers of the control file, by name; positions by time; the sums that names carry.

cdef dict read_state(Control *c):
    """The shared numbers of the control file."""
    return {
        "version": c.version, "state": c.state, "uuid": c.uuid[:16], "boot": c.boot[:16],
        "size_bytes": c.size_bytes, "age_ns": c.age_ns, "segment_bytes": c.segment_bytes,
        "durability": c.durability, "signature_kind": c.signature_kind, "clean": c.clean,
        "origin": c.origin, "head": c.head, "tail": c.tail, "oldest": c.oldest,
        "segment_oldest": c.segment_oldest, "segment_newest": c.segment_newest,
        "next_file": c.next_file, "spare_file": c.spare_file, "bytes_total": c.bytes_total,
        "data_end": c.data_end, "pending_file": c.pending_file,
        "dedup_table": c.dedup_table, "dedup_bytes": buckets_of(c.dedup_table) * sizeof(Bucket),
        "feeds_end": c.feeds_end, "origins_end": c.origins_end,
        "synced_names": c.synced_names, "synced": c.synced, "synced_file": c.synced_file,
        "inserted_products": c.inserted_products, "inserted_bytes": c.inserted_bytes,
        "duplicates": c.duplicates, "evicted_products": c.evicted_products,
        "evicted_bytes": c.evicted_bytes, "deleted_products": c.deleted_products,
        "held_products": c.held_products, "sync_failed": c.sync_failed,
        "unlinked_pinned": c.unlinked_pinned, "recoveries": c.recoveries, "stations": c.stations,
        "requests": c.requests, "slicings": c.slicings,
    }


cdef int write_state(Control *c, dict fields) except -1:
    """Change shared numbers; KeyError for a name that is not one of them."""
    for field, value in fields.items():
        if field == "size_bytes":
            c.size_bytes = value
        elif field == "age_ns":
            c.age_ns = value
        elif field == "segment_bytes":
            c.segment_bytes = value
        elif field == "state":
            store32(&c.state, value)
        elif field == "clean":
            store32(&c.clean, value)
        elif field == "boot":
            memcpy(c.boot, <char *>(<bytes>value), 16)
        elif field == "tail":
            store64(&c.tail, value)
        elif field == "head":
            store64(&c.head, value)
        elif field == "oldest":
            store64(&c.oldest, value)
        elif field == "segment_oldest":
            store64(&c.segment_oldest, value)
        elif field == "segment_newest":
            store64(&c.segment_newest, value)
        elif field == "next_file":
            c.next_file = value
        elif field == "spare_file":
            c.spare_file = value
        elif field == "synced":
            store64(&c.synced, value)
        elif field == "synced_file":
            c.synced_file = value
        elif field == "sync_failed":
            store32(&c.sync_failed, value)
        elif field == "synced_names":
            c.synced_names = value
        elif field == "pending_file":
            c.pending_file = value
        elif field == "origin":
            c.origin = value
        elif field == "feeds_end":
            store64(&c.feeds_end, value)
        elif field == "origins_end":
            store64(&c.origins_end, value)
        elif field == "deleted_products":
            c.deleted_products = value
        elif field == "signature_kind":
            c.signature_kind = value
        elif field == "stations":
            store64(&c.stations, value)
        elif field == "requests":
            store64(&c.requests, value)
        elif field == "slicings":
            store64(&c.slicings, value)
        else:
            raise KeyError(field)
    return 0


cdef uint64_t first_since(Store *store, uint64_t time_ns) noexcept nogil:
    """The smallest sequence whose insertion time is at or after `time_ns`; head if there is none."""
    cdef uint64_t number, place, end, head = load64(&store.control.head)
    cdef Entry entry
    cdef Mapping *mapping = NULL
    cdef uint64_t found = 0
    for number in range(load64(&store.control.segment_oldest),
                        load64(&store.control.segment_newest) + 1):
        if entry_of(store, number).newest_ns < time_ns:
            continue
        if pin_segment(store, number, &entry, &mapping) != 0:
            continue
        end = min(entry.end if 0 < entry.end < head else head, entry.first + rows_room(entry.size))
        for place in range(end - entry.first if end > entry.first else 0):
            if row_of(mapping, place).inserted_ns >= time_ns:
                found = entry.first + place
                break
        release_view(store, mapping)
        if found:
            return found
    return head


cdef uint64_t count_between(Store *store, uint64_t start, uint64_t end) noexcept nogil:
    """How many rows there are from `start` up to `end`; sequences that were never given do not count."""
    cdef uint64_t number, first, last, count = 0
    cdef Entry *entry
    for number in range(load64(&store.control.segment_oldest), load64(&store.control.segment_newest) + 1):
        entry = entry_of(store, number)
        first = max(entry.first, start)
        last = min(entry.end if entry.end else end, end)
        count += last - first if last > first else 0
    return count


cdef bint whole_name(Name *name, uint8_t kind) noexcept nogil:
    return (name.kind == kind and name.bytes > 0
            and (<uint32_t>XXH3_64bits(name.text, name.bytes) ^ name.kind) == name.checksum)
