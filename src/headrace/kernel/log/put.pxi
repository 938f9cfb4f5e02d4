# Put: from the objects of one call to the items that `append` takes. All of this happens before any lock is taken.

from cpython.bytearray cimport PyByteArray_CheckExact
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize


cdef int check_plain(payload) except -1:
    """TypeError for a buffer of references to Python objects: only their addresses would be stored."""
    cdef object form
    if PyByteArray_CheckExact(payload) or PyBytes_CheckExact(payload):
        return 0
    try:
        form = memoryview(payload).format
    except (ValueError, BufferError):
        return 0                     # NumPy has no format for dates, which are numbers
    if form != "B" and "O" in "".join(form.split(":")[::2]):   # names of fields stand between colons
        raise TypeError("the payload consists of references to Python objects")
    return 0


def check_payload(payload):
    """TypeError if the payload is not bytes, or has references to Python objects."""
    check_plain(payload)


@cython.internal
@cython.final
cdef class Payloads:
    """The payloads of one call, with their buffers held while they are copied."""
    cdef tuple objects
    cdef Py_buffer *buffers
    cdef size_t count

    def __cinit__(self, objects):
        self.objects = tuple(objects)

    def __dealloc__(self):
        cdef size_t i
        if self.buffers != NULL:
            for i in range(self.count):
                PyBuffer_Release(&self.buffers[i])   # does nothing for a buffer that was never taken
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
                self.buffers = <Py_buffer *>allocate_zeroed(len(self.objects), sizeof(Py_buffer))
                if self.buffers == NULL:
                    raise MemoryError
            check_plain(payload)
            PyObject_GetBuffer(payload, &self.buffers[place], PyBUF_SIMPLE)
            item.payload = <char *>self.buffers[place].buf
            item.payload_bytes = self.buffers[place].len
        return 0


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


cdef int set_options(Item *item, bytes options) except -1:
    """Point `item` at options that have been checked."""
    if PyBytes_GET_SIZE(options) > OPTIONS_BYTES_MAX:
        raise ValueError("options")
    item.options = PyBytes_AS_STRING(options)
    item.options_bytes = <uint16_t>PyBytes_GET_SIZE(options)
    return 0


cdef int sign_content(Log log, Item *item, content, const char *given) except -1:
    """Give the item the signature of its content, of which the payload is another form; or the one that was given."""
    cdef Item whole = item[0]
    cdef Py_buffer buffer
    PyObject_GetBuffer(content, &buffer, PyBUF_SIMPLE)
    whole.payload, whole.payload_bytes = <char *>buffer.buf, buffer.len
    try:
        if given != NULL:
            take_given(log, &whole, <const uint8_t *>given)
        else:
            sign(log, &whole, 1)
    finally:
        PyBuffer_Release(&buffer)
    item.kind = whole.kind
    memcpy(item.signature, whole.signature, 16)
    return 0


cdef int64_t put_one(Log log, payload, str feed, str ident, uint64_t created_ns, uint8_t priority,
                     uint64_t expires_ns, bytes properties, uint16_t slice, bytes signature,
                     object origin, uint64_t origin_sequence, uint64_t previous, bytes options, uint64_t now_ns,
                     uint64_t boot_ns, uint64_t assigned, content) except? 0:
    """What `Log.put` says."""
    cdef Item item
    cdef Py_buffer buffer
    cdef Store *store = log.store
    cdef int outcome, spread
    memset(&item, 0, sizeof(item))
    memset(&buffer, 0, sizeof(buffer))
    item.feed = log.feed_id(feed)
    set_ident(&item, ident)
    item.created_ns = created_ns
    item.expires_ns = expires_ns
    item.priority = priority
    item.slice = slice
    item.origin = <uint16_t>store.control.origin
    if origin is not None:
        item.origin = <uint16_t>log.origins[origin]
        item.carried = 1
    item.origin_sequence = origin_sequence
    item.previous = previous
    if properties is not None:
        item.properties = PyBytes_AS_STRING(properties)
        item.properties_bytes = <uint16_t>PyBytes_GET_SIZE(properties)
    if options is not None:
        set_options(&item, options)
    spread = assign_slices(log, &item, 1, assigned)
    if PyBytes_CheckExact(payload):
        item.payload = PyBytes_AS_STRING(payload)
        item.payload_bytes = PyBytes_GET_SIZE(payload)
    else:
        check_plain(payload)
        PyObject_GetBuffer(payload, &buffer, PyBUF_SIMPLE)
        item.payload = <char *>buffer.buf
        item.payload_bytes = buffer.len
    try:
        if item.payload_bytes > payload_bytes_max(store):
            log.fail(CODE_DAMAGED if state_holed(store) else CODE_PAYLOAD_TOO_LARGE)
        if content is not None:
            sign_content(log, &item, content, PyBytes_AS_STRING(signature) if signature is not None else NULL)
        elif signature is not None:
            take_given(log, &item, <const uint8_t *>PyBytes_AS_STRING(signature))
        else:
            sign(log, &item, 1)
        outcome = EBUSY
        if item.payload_bytes <= 65536 and not store.read_only:
            outcome = pthread_mutex_trylock(&store.control.lock)
        if outcome == EBUSY:
            with nogil:
                outcome = append(store, &item, 1, now_ns, boot_ns)
        else:
            outcome = recover_lock(store, outcome)
            if outcome == 0:
                outcome = append_locked(store, &item, 1, now_ns, boot_ns)
                unlock_log(store)
                wake_sleepers(store)
    finally:
        PyBuffer_Release(&buffer)
    if outcome < 0:
        log.refuse(outcome, &item)
    if spread:
        count_spread(store, &item, 1)
    return -<int64_t>item.outcome if item.duplicate else <int64_t>item.outcome


cdef tuple put_many(Log log, payloads, feeds, idents, const uint64_t[::1] created_ns,
                    const uint8_t[::1] priorities, const uint64_t[::1] expires_ns, properties,
                    const uint16_t[::1] slices, signatures, origins,
                    const uint64_t[::1] origin_sequences, const uint64_t[::1] previous, options,
                    uint64_t now_ns, uint64_t boot_ns, uint64_t assigned, contents):
    """What `Log.put_many` says."""
    cdef Payloads held = Payloads(payloads)
    cdef size_t count = len(held.objects), i
    cdef Item *items
    cdef Item *item
    cdef bint each_feed = isinstance(feeds, list), each_ident = isinstance(idents, list)
    cdef bint each_block = isinstance(properties, list), each_origin = isinstance(origins, list)
    cdef uint32_t feed = 0 if each_feed else log.feed_id(feeds)
    cdef bytes block
    cdef int spread
    cdef Item same
    memset(&same, 0, sizeof(same))
    items = <Item *>allocate_zeroed(count, sizeof(Item))     # last of all: what is above may raise
    if items == NULL:
        raise MemoryError
    try:
        if not each_ident:
            set_ident(&same, idents)
        same.origin = <uint16_t>log.store.control.origin
        if origins is not None and not each_origin:
            same.origin = <uint16_t>log.origins[origins]
        for i in range(count):
            item = &items[i]
            item.feed = log.feed_id(<str>feeds[i]) if each_feed else feed
            item.ident = same.ident
            item.ident_bytes = same.ident_bytes
            if each_ident:
                set_ident(item, <str>idents[i])
            item.origin = <uint16_t>log.origins[origins[i]] if each_origin else same.origin
            item.carried = origins is not None
            held.take(i, item)
            if item.payload_bytes > payload_bytes_max(log.store):
                log.fail(CODE_PAYLOAD_TOO_LARGE)
            item.slice = NO_SLICE
            if properties is not None:
                block = properties[i] if each_block else properties
                item.properties = PyBytes_AS_STRING(block)
                item.properties_bytes = <uint16_t>PyBytes_GET_SIZE(block)
            if options is not None:
                block = (<list>options)[i] if isinstance(options, list) else options
                if block is not None:
                    set_options(item, block)
            item.priority = priorities[i if priorities.shape[0] > 1 else 0]
        if created_ns is not None:
            for i in range(count):
                items[i].created_ns = created_ns[i if created_ns.shape[0] > 1 else 0]
        if expires_ns is not None:
            for i in range(count):
                items[i].expires_ns = expires_ns[i if expires_ns.shape[0] > 1 else 0]
        if slices is not None:
            for i in range(count):
                items[i].slice = slices[i if slices.shape[0] > 1 else 0]
        if origin_sequences is not None:
            for i in range(count):
                items[i].origin_sequence = origin_sequences[i]
                items[i].previous = previous[i] if previous is not None else 0
        spread = assign_slices(log, items, count, assigned)
        if contents is not None or signatures is not None:
            for i in range(count):
                block = signatures[i] if signatures is not None else None
                if contents is not None and contents[i] is not None:
                    sign_content(log, &items[i], contents[i], PyBytes_AS_STRING(block) if block is not None else NULL)
                elif block is not None:
                    take_given(log, &items[i], <const uint8_t *>PyBytes_AS_STRING(block))
        sign(log, items, count)
        return append_many(log, items, count, now_ns, boot_ns, spread)
    finally:
        free(items)


cdef long number_in(PyObject *given, long default, long end) except? -1:
    """A whole number below `end`; the default for None and NULL."""
    cdef long number
    if given == NULL or <object>given is None:
        return default
    if not PyLong_CheckExact(<object>given):
        raise ValueError("not a whole number")
    number = <object>given
    if not 0 <= number < end:
        raise ValueError("out of range")
    return number


cdef inline uint8_t priority_in(PyObject *given) except? 0:
    return <uint8_t>number_in(given, PRIORITY_DEFAULT, PRIORITIES)


cdef inline uint16_t slice_in(PyObject *given) except? 0:
    return <uint16_t>number_in(given, NO_SLICE, NO_SLICE)


cdef int fill_slices(Item *items, size_t count, given) except -1:
    """The slices of items that have none yet: one for all, a list, or an array."""
    cdef const uint16_t[::1] numbers
    cdef uint16_t same
    cdef size_t i
    if given is None or PyLong_CheckExact(given):
        same = slice_in(<PyObject *>given)
        for i in range(count):
            items[i].slice = same
        return 0
    if <size_t>len(given) != count:
        raise ValueError("slices")
    if isinstance(given, list):
        for i in range(count):
            number = (<list>given)[i]
            items[i].slice = slice_in(<PyObject *>number)
        return 0
    numbers = given
    for i in range(count):
        if numbers[i] == NO_SLICE:
            raise ValueError("slice")
        items[i].slice = numbers[i]
    return 0


cdef tuple put_many_plain(Log log, payloads, str feed, str ident, uint8_t priority, slices):
    """What `Log.put_many_plain` says."""
    cdef Payloads held = Payloads(payloads)
    cdef size_t count = len(held.objects), i
    cdef int spread
    cdef Item *items
    cdef Item same
    memset(&same, 0, sizeof(same))
    same.feed = log.feed_id(feed)
    set_ident(&same, ident)
    same.origin = <uint16_t>log.store.control.origin
    same.slice = NO_SLICE
    same.priority = priority
    items = <Item *>allocate(count * sizeof(Item))
    if items == NULL:
        raise MemoryError
    try:
        for i in range(count):
            items[i] = same
            held.take(i, &items[i])
            if items[i].payload_bytes > payload_bytes_max(log.store):
                log.fail(CODE_PAYLOAD_TOO_LARGE)
        if slices is not None:
            fill_slices(items, count, slices)
        spread = assign_slices(log, items, count)
        sign(log, items, count)
        return append_many(log, items, count, 0, 0, spread)
    finally:
        free(items)


cdef tuple append_many(Log log, Item *items, size_t count, uint64_t now_ns, uint64_t boot_ns, int spread):
    """Append all or none; what `Log.put_many` returns. `spread` is what `assign_slices` has returned."""
    cdef size_t i, stored = 0
    cdef uint64_t first = 0
    cdef int outcome
    with nogil:
        outcome = append(log.store, items, count, now_ns, boot_ns)
    if outcome < 0:
        log.refuse(outcome, items)
    if spread:
        count_spread(log.store, items, count)
    for i in range(count):
        if not items[i].duplicate:
            if stored == 0:
                first = items[i].outcome
            stored += 1
    outcomes = None
    if stored < count:
        outcomes = [-<int64_t>items[i].outcome if items[i].duplicate
                    else <int64_t>items[i].outcome for i in range(count)]
    return first, stored, outcomes
