# Properties as the buffers of an Arrow map from name to text.

from cpython.mem cimport PyMem_Free
from libc.string cimport strlen

cdef extern from "Python.h":
    int Py_DTSF_ADD_DOT_0
    char *PyOS_double_to_string(double, char, int, int, int *) except NULL

cdef struct Growing:
    char *data
    size_t used
    size_t room


cdef int grow(Growing *buffer, const char *data, size_t size) except -1:
    cdef char *moved
    if buffer.used + size > buffer.room:
        buffer.room = (buffer.used + size) * 2 + 64
        moved = <char *>realloc(buffer.data, buffer.room)
        if moved == NULL:
            raise MemoryError
        buffer.data = moved
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
        if shortest == NULL:
            raise MemoryError
        grow(buffer, shortest, strlen(shortest))
        PyMem_Free(shortest)
    elif kind == PROPERTY_STR:
        grow(buffer, value, size)
    elif kind == PROPERTY_BOOL and size == 1:
        grow(buffer, b"true" if value[0] else b"false", 4 if value[0] else 5)
    return 0


cdef class PropertyColumns:
    """Five buffers: where each product's entries begin, name ends, names, value ends, values."""
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
