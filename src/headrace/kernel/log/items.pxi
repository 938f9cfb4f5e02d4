# Items: from the objects of one call to what `append` takes. All of this before any lock.

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize

import hashlib

from blake3 import blake3 as blake3_hasher

cdef object md5_hasher = hashlib.md5


cdef class Payloads:
    """The payloads of one call, held still while they are copied."""
    cdef tuple objects
    cdef Py_buffer *buffers
    cdef size_t count

    def __cinit__(self, objects):
        self.objects = tuple(objects)

    def __dealloc__(self):
        cdef size_t i
        if self.buffers != NULL:
            for i in range(self.count):
                PyBuffer_Release(&self.buffers[i])   # does nothing for one that was never taken
            free(self.buffers)

    cdef int take(self, size_t place, Item *item) except -1:
        """Point `item` at payload `place`. Places are taken in order."""
        cdef object payload = self.objects[place]
        self.count = place + 1
        if PyBytes_CheckExact(payload):
            item.payload = PyBytes_AS_STRING(payload)
            item.payload_bytes = PyBytes_GET_SIZE(payload)
        else:
            if self.buffers == NULL:
                self.buffers = <Py_buffer *>calloc(len(self.objects), sizeof(Py_buffer))
                if self.buffers == NULL:
                    raise MemoryError
            PyObject_GetBuffer(payload, &self.buffers[place], PyBUF_SIMPLE)
            item.payload = <char *>self.buffers[place].buf
            item.payload_bytes = self.buffers[place].len
        return 0


cdef int sign(Item *item, uint8_t kind, object payload) except -1:
    """Compute the signature of a payload; XXH3 here, the others by their libraries."""
    cdef bytes digest
    item.kind = kind
    if kind == SIGNATURE_XXH3:
        XXH128_canonicalFromHash(<XXH128_canonical_t *>item.signature, XXH3_128bits(item.payload, item.payload_bytes))
    elif kind == SIGNATURE_BLAKE3:
        digest = blake3_hasher(payload).digest()
        memcpy(item.signature, PyBytes_AS_STRING(digest), 16)
    elif kind == SIGNATURE_MD5:
        digest = md5_hasher(payload, usedforsecurity=False).digest()
        memcpy(item.signature, PyBytes_AS_STRING(digest), 16)
    return 0


cdef bint whole_name(Name *name, uint8_t kind) noexcept nogil:
    return (name.kind == kind and name.bytes > 0
            and (<uint32_t>XXH3_64bits(name.text, name.bytes) ^ name.kind) == name.checksum)


cdef inline uint64_t payload_bytes_max(Store *store) noexcept nogil:
    return min(store.control.size_bytes // 4, <uint64_t>0xFFFFFFFF)


cdef int set_ident(Item *item, str ident) except -1:
    cdef Py_ssize_t size = 0
    cdef const char *text = PyUnicode_AsUTF8AndSize(ident, &size)
    if size > IDENT_BYTES_MAX:
        raise ValueError("ident")
    item.ident = text
    item.ident_bytes = <uint16_t>size
    return 0
