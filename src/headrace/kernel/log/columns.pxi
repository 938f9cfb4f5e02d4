# Columns: idents, payloads and properties of many rows as the buffers of Arrow arrays.

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
        if rows.log is not None:
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
            memcpy(data, <void *>rows.refs[i].payload, rows.refs[i].payload_bytes)
            data += rows.refs[i].payload_bytes
    return offsets_bytes, data_bytes


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
