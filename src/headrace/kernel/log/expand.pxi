# Expansion: rows whose payload is stored in a shorter form.
#
# Such a row has the size of the payload as it was put, so that sizes, limits and columns are those of the payload. Its
# address is that of the frame: a reader of the payload gets a copy that is expanded at that moment. Only the last
# one is kept, so a batch of large products takes no more memory than one of them. Columns are expanded into their
# place. Records on the wire, and into another queue, are passed on as they are.
#
# The size in a record from elsewhere is compared with the one in the frame (`frame_bytes`) before the record is used.

from headrace.errors import DictionaryError, ProductDamagedError
from headrace.product.expansion import expand as expand_frame, refuse as refuse_payload

cdef enum:                           # ref.form
    FORM_PLAIN = 0
    FORM_ZSTD = 1
    FORM_UNKNOWN = 2                 # an option says so that this version does not know: the payload is not used
    CODEC_ZSTD = 1
    FRAME_MAGIC = 0xFD2FB528
    OPTION_MUST_KNOW = 128           # from this type on

cpdef enum:
    EXPANDED_BYTES_MAX = 1 << 30     # of a compressed product


cdef packed struct Compressed:       # the value of OPTION_COMPRESSION
    uint8_t codec
    uint32_t dictionary              # 0 none
    uint32_t payload_bytes           # before


cdef int64_t frame_bytes(const uint8_t *frame, uint64_t size) noexcept nogil:
    """The size that a frame of zstd says it expands to; -1 if it does not say, or is none."""
    cdef uint32_t magic, number = 0
    cdef uint8_t descriptor
    cdef uint64_t place = 5, bytes
    cdef uint64_t whole = 0
    if size < 6:
        return -1
    memcpy(&magic, frame, 4)
    if magic != FRAME_MAGIC:
        return -1
    descriptor = frame[4]
    place += 0 if descriptor & 32 else 1         # a window, unless it is a single segment
    number = descriptor & 3                      # the number of a dictionary
    place += 4 if number == 3 else number
    bytes = 1 << (descriptor >> 6)
    if bytes == 1 and not descriptor & 32:
        return -1
    if place + bytes > size:
        return -1
    memcpy(&whole, frame + place, bytes)
    whole += 256 if bytes == 2 else 0
    return <int64_t>whole if whole <= EXPANDED_BYTES_MAX else -1


cdef bint wrong_compression(const Record *record, uint64_t body) noexcept nogil:
    """Does a record, whose options are well formed, expand to another size than it says?"""
    cdef const uint8_t *value
    cdef Compressed *compressed
    if record.version != RECORD_WITH_OPTIONS:
        return False
    value = find_option(<const uint8_t *>record + options_offset(record) + OPTIONS_HEAD, options_bytes(record),
                        OPTION_COMPRESSION)
    if value == NULL:
        return False
    compressed = <Compressed *>value
    if compressed.codec != CODEC_ZSTD:
        return False                             # nobody here expands it
    return frame_bytes(<const uint8_t *>record + body, record.payload_bytes) != compressed.payload_bytes


cdef void fill_form(Ref *ref) noexcept nogil:
    """Of a row with options: in which form its payload is, and its size as it was put."""
    cdef const uint8_t *block = <const uint8_t *>options_of(ref)
    cdef Compressed *compressed
    cdef size_t place = options_before(block, ref.options_bytes, OPTION_MUST_KNOW)
    while place < ref.options_bytes:
        if block[place] == OPTION_COMPRESSION:
            compressed = <Compressed *>(block + place + OPTION_HEAD)
            ref.form = FORM_ZSTD if compressed.codec == CODEC_ZSTD and ref.form == FORM_PLAIN else FORM_UNKNOWN
            ref.payload_bytes = compressed.payload_bytes
        elif block[place] != OPTION_FRAGMENT:
            ref.form = FORM_UNKNOWN
        place += OPTION_HEAD + block[place + 1]


cdef inline Compressed *compression_of(Ref *ref) noexcept nogil:
    return <Compressed *>find_option(<const uint8_t *>options_of(ref), ref.options_bytes, OPTION_COMPRESSION)


cdef bytes expand_row(Rows rows, size_t place):
    """The payload of a row that is not plain; what expansion.py raises."""
    cdef Ref *ref = &rows.refs[place]
    cdef Compressed *compressed
    cdef Record *record = <Record *>ref.record
    if ref.form != FORM_ZSTD:
        refuse_payload(ref.sequence)
    compressed = compression_of(ref)
    frame = PyMemoryView_FromMemory(<char *>record + body_offset(record), record.payload_bytes, PyBUF_READ)
    try:
        payload = expand_frame(frame, compressed.dictionary, compressed.payload_bytes, rows.dictionaries,
                               ref.sequence)
    finally:
        frame.release()
    return payload


cdef view_expanded(Rows rows, size_t place):
    """A view of the payload of a row that is not plain. That of the last row is kept."""
    if rows.expanded is None or rows.expanded_place != place:
        payload = expand_row(rows, place)
        rows.expanded, rows.expanded_place = payload, place
    return memoryview(rows.expanded)


cdef int expand_into(Rows rows, size_t place, char *where) except -1:
    cdef bytes payload = expand_row(rows, place)
    memcpy(where, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
    return 0


def needed_dictionaries(Rows rows not None):
    """The numbers of the dictionaries that these rows need."""
    cdef uint32_t last = 0
    cdef Compressed *compressed
    cdef size_t i
    numbers = set()
    for i in range(rows.count):
        if rows.refs[i].form == FORM_ZSTD:
            compressed = compression_of(&rows.refs[i])
            if compressed.dictionary != last:
                last = compressed.dictionary
                numbers.add(last)
    return numbers
