# Columns: numbers, texts, payloads and properties of many rows as the buffers of Arrow arrays.
#
# `gather_numbers` and `gather_texts` build all columns of a kind in one pass, because what a column costs is the way of
# its rows through the caches, not the few bytes that are copied.

from cpython.mem cimport PyMem_Free
from libc.string cimport strlen

cdef extern from "Python.h":
    int Py_DTSF_ADD_DOT_0
    char *PyOS_double_to_string(double, char, int, int, int *) except NULL


cdef tuple gather_idents(Rows rows, size_t begin):
    """(offsets, bytes) of the idents from place `begin` on, as Arrow lays out strings."""
    cdef size_t i, count = rows.count - begin
    cdef uint64_t total = 0
    cdef Record *record
    cdef Ref *ref
    cdef char *data
    cdef uint32_t *offsets
    offsets_bytes = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
    offsets = <uint32_t *>PyBytes_AS_STRING(offsets_bytes)
    for i in range(count):
        if i + 8 < count:
            prefetch(<void *>rows.refs[begin + i + 8].record)
        ref = &rows.refs[begin + i]
        if rows.pinned_count:                                # others were made of rows that are verified
            ref.ident_bytes = ident_room(rows.pinned[ref.segment], ref)
        offsets[i] = <uint32_t>total
        total += ref.ident_bytes
    offsets[count] = <uint32_t>total
    data_bytes = PyBytes_FromStringAndSize(NULL, total)
    data = PyBytes_AS_STRING(data_bytes)
    with nogil:
        for i in range(count):
            ref = &rows.refs[begin + i]
            record = <Record *>ref.record
            memcpy(data + offsets[i], <char *>record + RECORD_HEADER + record.feed_bytes
                   + record.origin_bytes, ref.ident_bytes)
    return offsets_bytes, data_bytes


cdef uint16_t ident_room(Mapping *mapping, Ref *ref) noexcept nogil:
    """Bytes of the ident; 0 if it would lie outside its segment, which verify() reports."""
    cdef uint64_t offset = ref.record - <uint64_t>mapping.base
    cdef Record *record = <Record *>ref.record
    if (offset + RECORD_HEADER > mapping.size or offset + RECORD_HEADER + record.feed_bytes
            + record.origin_bytes + record.ident_bytes > mapping.size):
        return 0
    return record.ident_bytes


cdef tuple gather_payloads(Rows rows, bint wide):
    """(offsets, bytes) of all payloads, as Arrow lays out binary; `wide` for 64-bit offsets."""
    cdef size_t i
    cdef uint64_t total = 0
    cdef char *data
    cdef uint32_t *narrow_offsets = NULL
    cdef uint64_t *wide_offsets = NULL
    offsets_bytes = PyBytes_FromStringAndSize(NULL, (rows.count + 1) * (8 if wide else 4))
    if wide:
        wide_offsets = <uint64_t *>PyBytes_AS_STRING(offsets_bytes)
    else:
        narrow_offsets = <uint32_t *>PyBytes_AS_STRING(offsets_bytes)
    for i in range(rows.count):
        if wide:
            wide_offsets[i] = total
        else:
            narrow_offsets[i] = <uint32_t>total
        total += rows.refs[i].payload_bytes
    if wide:
        wide_offsets[rows.count] = total
    else:
        narrow_offsets[rows.count] = <uint32_t>total
    data_bytes = PyBytes_FromStringAndSize(NULL, total)
    data = PyBytes_AS_STRING(data_bytes)
    with nogil:
        for i in range(rows.count):
            if rows.refs[i].form == FORM_PLAIN:
                memcpy(data, <void *>rows.refs[i].payload, rows.refs[i].payload_bytes)
            else:
                with gil:
                    expand_into(rows, i, data)
            data += rows.refs[i].payload_bytes
    return offsets_bytes, data_bytes


# --- all columns in one pass ----------------------------------------------------------------------

cdef enum:
    FEED, ORIGIN, IDENT, PAYLOAD, TEXTS


cdef tuple gather_texts(Rows rows, const uint8_t[::1] wanted):
    """Of feeds, origins, idents and payloads: (offsets, bytes) as Arrow lays out strings, None where `wanted` is 0.

    For rows that are verified. OverflowError if a column has 2 GiB or more.
    """
    cdef uint32_t *offsets[TEXTS]
    cdef char *data[TEXTS]
    cdef uint64_t total[TEXTS]
    cdef uint32_t size[TEXTS]
    cdef size_t i
    cdef int k
    cdef Ref *ref
    cdef char *text
    if wanted.shape[0] != TEXTS:
        raise ValueError("one byte for each of feed, origin, ident, payload")
    columns = [None] * TEXTS
    for k in range(TEXTS):
        offsets[k] = data[k] = NULL
        total[k] = 0
        if wanted[k]:
            buffer = PyBytes_FromStringAndSize(NULL, (rows.count + 1) * 4)
            offsets[k] = <uint32_t *>PyBytes_AS_STRING(buffer)
            columns[k] = buffer
    with nogil:
        for i in range(rows.count):
            ref = &rows.refs[i]
            size[FEED], size[ORIGIN] = ref.feed_bytes, ref.origin_bytes
            size[IDENT], size[PAYLOAD] = ref.ident_bytes, ref.payload_bytes
            for k in range(TEXTS):
                if offsets[k] != NULL:
                    offsets[k][i] = <uint32_t>total[k]
                    total[k] += size[k]
    for k in range(TEXTS):
        if total[k] >= 1 << 31:
            raise OverflowError("a column of 2 GiB or more")
        if offsets[k] != NULL:
            offsets[k][rows.count] = <uint32_t>total[k]
            buffer = PyBytes_FromStringAndSize(NULL, total[k])
            data[k] = PyBytes_AS_STRING(buffer)
            columns[k] = (columns[k], buffer)
    with nogil:
        for i in range(rows.count):
            if i + 8 < rows.count:
                prefetch(<void *>rows.refs[i + 8].record)
            ref = &rows.refs[i]
            text = <char *>ref.record + RECORD_HEADER
            if offsets[FEED] != NULL:
                memcpy(data[FEED] + offsets[FEED][i], text, ref.feed_bytes)
            text += ref.feed_bytes
            if offsets[ORIGIN] != NULL:
                memcpy(data[ORIGIN] + offsets[ORIGIN][i], text, ref.origin_bytes)
            text += ref.origin_bytes
            if offsets[IDENT] != NULL:
                memcpy(data[IDENT] + offsets[IDENT][i], text, ref.ident_bytes)
            if offsets[PAYLOAD] != NULL:
                if ref.form == FORM_PLAIN:
                    memcpy(data[PAYLOAD] + offsets[PAYLOAD][i], <void *>ref.payload, ref.payload_bytes)
                else:
                    with gil:
                        expand_into(rows, i, data[PAYLOAD] + offsets[PAYLOAD][i])
    return tuple(columns)


cdef struct Numbers:                 # of one row of each, except that the validity bitmaps have a bit
    int64_t *sequence
    int64_t *origin_sequence
    int64_t *created_us
    int64_t *inserted_us
    int64_t *expiry_us
    uint32_t *priority
    uint32_t *slice
    uint8_t *signature
    uint8_t *has_expiry
    uint8_t *has_slice
    uint8_t *has_signature


cdef dict gather_numbers(Rows rows):
    """The numbers of all rows, times in microseconds, as buffers of Arrow arrays by the name of the column.

    `expiry`, `slice` and `signature` are (validity bitmap, values); the bitmap is None if no value is missing.
    """
    cdef Numbers to
    cdef size_t i, count = rows.count, bitmap = (rows.count + 7) // 8
    cdef size_t expiries = 0, slices = 0, signatures = 0
    cdef Ref *ref
    cdef uint8_t bit
    buffers = [PyBytes_FromStringAndSize(NULL, count * size) for size in (8, 8, 8, 8, 8, 4, 4, 16)]
    bitmaps = [PyBytes_FromStringAndSize(NULL, bitmap) for _ in range(3)]
    to.sequence = <int64_t *>PyBytes_AS_STRING(buffers[0])
    to.origin_sequence = <int64_t *>PyBytes_AS_STRING(buffers[1])
    to.created_us = <int64_t *>PyBytes_AS_STRING(buffers[2])
    to.inserted_us = <int64_t *>PyBytes_AS_STRING(buffers[3])
    to.expiry_us = <int64_t *>PyBytes_AS_STRING(buffers[4])
    to.priority = <uint32_t *>PyBytes_AS_STRING(buffers[5])
    to.slice = <uint32_t *>PyBytes_AS_STRING(buffers[6])
    to.signature = <uint8_t *>PyBytes_AS_STRING(buffers[7])
    to.has_expiry = <uint8_t *>PyBytes_AS_STRING(bitmaps[0])
    to.has_slice = <uint8_t *>PyBytes_AS_STRING(bitmaps[1])
    to.has_signature = <uint8_t *>PyBytes_AS_STRING(bitmaps[2])
    with nogil:
        memset(to.has_expiry, 0, bitmap)
        memset(to.has_slice, 0, bitmap)
        memset(to.has_signature, 0, bitmap)
        for i in range(count):
            ref = &rows.refs[i]
            bit = 1 << (i & 7)
            to.sequence[i] = <int64_t>ref.sequence
            to.origin_sequence[i] = <int64_t>ref.origin_sequence
            to.created_us[i] = <int64_t>(ref.created_ns // 1000)
            to.inserted_us[i] = <int64_t>(ref.inserted_ns // 1000)
            to.expiry_us[i] = <int64_t>(ref.expires_ns // 1000)
            to.priority[i] = ref.priority
            to.slice[i] = ref.slice
            memcpy(to.signature + 16 * i, ref.signature, 16)
            if ref.expires_ns != 0:
                to.has_expiry[i >> 3] |= bit
                expiries += 1
            if ref.slice != NO_SLICE:
                to.has_slice[i >> 3] |= bit
                slices += 1
            if ref.kind != 0:
                to.has_signature[i >> 3] |= bit
                signatures += 1
    return {
        "sequence": buffers[0], "origin_sequence": buffers[1], "created": buffers[2], "inserted": buffers[3],
        "expiry": (None if expiries == count else bitmaps[0], buffers[4]), "priority": buffers[5],
        "slice": (None if slices == count else bitmaps[1], buffers[6]),
        "signature": (None if signatures == count else bitmaps[2], buffers[7]),
    }


# --- properties -----------------------------------------------------------------------------------

cdef struct Growing:
    char *data
    size_t used
    size_t room


cdef int grow(Growing *buffer, const char *data, size_t size) except -1:
    cdef char *moved
    cdef size_t room = (buffer.used + size) * 2 + 64
    if buffer.used + size > buffer.room:
        moved = <char *>reallocate(buffer.data, room)
        if moved == NULL:
            raise MemoryError
        buffer.data = moved
        buffer.room = room
    memcpy(buffer.data + buffer.used, data, size)
    buffer.used += size
    return 0


cdef int grow_number(Growing *buffer, uint32_t number) except -1:
    return grow(buffer, <char *>&number, 4)


cdef int grow_value(Growing *buffer, uint8_t kind, const char *value, size_t size) except -1:
    """The value of one property as text."""
    cdef char text[32]
    cdef double real
    cdef int64_t whole
    cdef char *shortest
    if kind == PROPERTY_INT and size == 8:
        memcpy(&whole, value, 8)
        grow(buffer, text, snprintf(text, 32, b"%lld", <long long>whole))
    elif kind == PROPERTY_FLOAT and size == 8:
        memcpy(&real, value, 8)
        shortest = PyOS_double_to_string(real, b"r"[0], 0, Py_DTSF_ADD_DOT_0, NULL)
        try:
            grow(buffer, shortest, strlen(shortest))
        finally:
            PyMem_Free(shortest)
    elif kind == PROPERTY_STR:
        grow(buffer, value, size)
    elif kind == PROPERTY_BOOL and size == 1:
        grow(buffer, b"true" if value[0] else b"false", 4 if value[0] else 5)
    return 0


@cython.internal
@cython.final
cdef class PropertyColumns:
    """Five buffers: offsets of the entries of each product, offsets of names, names, offsets of values, values."""
    cdef Growing buffers[5]
    cdef uint32_t entries

    def __cinit__(self):
        grow_number(&self.buffers[0], 0)
        grow_number(&self.buffers[1], 0)
        grow_number(&self.buffers[3], 0)

    def __dealloc__(self):
        cdef int i
        for i in range(5):
            free(self.buffers[i].data)

    cdef int add(self, const char *block, size_t size) except -1:
        cdef size_t place = 0, name_bytes, value_bytes
        while place + 4 <= size:
            name_bytes = <uint8_t>block[place + 1]
            value_bytes = (<uint16_t *>(block + place + 2))[0]
            if place + 4 + name_bytes + value_bytes > size:
                break
            grow(&self.buffers[2], block + place + 4, name_bytes)
            grow_number(&self.buffers[1], <uint32_t>self.buffers[2].used)
            grow_value(&self.buffers[4], block[place], block + place + 4 + name_bytes, value_bytes)
            grow_number(&self.buffers[3], <uint32_t>self.buffers[4].used)
            place += 4 + name_bytes + value_bytes
            self.entries += 1
        return grow_number(&self.buffers[0], self.entries)

    cdef tuple finish(self):
        return tuple([PyBytes_FromStringAndSize(self.buffers[i].data, self.buffers[i].used)
                      for i in range(5)])


cdef tuple gather_properties(Rows rows):
    """The properties of all rows as the buffers of an Arrow map from name to text."""
    cdef PropertyColumns columns = PropertyColumns()
    cdef Ref *ref
    cdef size_t i
    for i in range(rows.count):
        ref = &rows.refs[i]
        columns.add(<char *>ref.record + RECORD_HEADER + ref.feed_bytes + ref.origin_bytes
                    + ref.ident_bytes, ref.properties_bytes)
    return columns.finish()
