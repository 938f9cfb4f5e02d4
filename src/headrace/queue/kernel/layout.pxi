# The shapes of everything that is shared: on disk, in shared memory, on the wire.
#
# docs/format.md is the normative page with the drawings; this file says the same to the compiler.
# All numbers are little-endian. Times are nanoseconds since 1970 (UTC) unless they are called `boot`,
# which counts nanoseconds since the machine started and never jumps.
#
#   record   one product, self-contained: header, feed, origin, ident, properties, [expiry], pad, payload
#   row      32 bytes about one product: what scans need, and what only this queue knows
#   segment  one file:  [header 256 B | records -->            <-- rows]
#   control  one file: lock, head, directory of segments, counters, attached processes

from libc.stdint cimport (
    int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t,
)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_mutexattr_t:
        pass

cdef enum:
    FORMAT_VERSION = 1
    RECORD_MAGIC = 0x5248            # the bytes "HR"
    RECORD_HEADER = 56
    SEGMENT_HEADER = 256
    ROW_BYTES = 32
    NAME_ENTRY = 320
    ORIGINS_MAX = 4096               # names below this are origins, from it on feeds
    NAMES_MAX = 262144
    NAMES_STEP = 1024                # names are allocated on disk in steps of this many
    DIRECTORY = 2048                 # segments that one queue can hold
    ATTACHMENTS = 1024
    SAMPLES = 64                     # one per second, for the rates
    NO_SLICE = 0xFFFF

cdef enum:                           # record flags: bits 0-2 priority, bits 3-5 signature kind
    RECORD_EXPIRES = 64

cdef enum:                           # row flags
    ROW_DELETED = 1
    ROW_DAMAGED = 2
    ROW_EXPIRES = 4
    ROW_SIGNED = 8
    ROW_CONTINUES = 16               # its batch goes on with the next row
    ROW_REVISION = 32                # another payload of an earlier product, for the stations behind the one that put it
    ROW_HIDDEN = 35                  # deleted, damaged or a revision: plain readers pass over it

cdef enum:                           # how a product is identified
    SIGNATURE_NONE = 0
    SIGNATURE_BLAKE3 = 1
    SIGNATURE_XXH3 = 2
    SIGNATURE_MD5 = 3
    SIGNATURE_GIVEN = 4

cdef enum:                           # what survives what, see docs/guarantees.md
    DURABLE_MEMORY = 0
    DURABLE_PROCESS = 1
    DURABLE_DISK = 2

cdef enum:                           # control.state
    STATE_READY = 1
    STATE_RECOVERING = 2

cdef packed struct Record:           # 56 bytes, then the variable part
    uint16_t magic
    uint8_t version
    uint8_t flags
    uint32_t checksum                # XXH3 of bytes 8..end, low 32 bits, XOR bytes 0..3
    uint32_t payload_bytes
    uint16_t ident_bytes
    uint8_t feed_bytes
    uint8_t origin_bytes
    uint8_t signature[16]
    uint64_t created_ns
    uint64_t origin_sequence
    uint32_t previous_delta          # origin_sequence minus that of the feed's previous product; 0 unknown
    uint16_t properties_bytes
    uint16_t slice

cdef packed struct Row:              # 32 bytes
    uint64_t inserted_ns
    uint32_t offset                  # of the record in its segment, in 8-byte words
    uint32_t payload_bytes
    uint32_t feed
    uint32_t sequence                # low 32 bits: a row left over from an earlier life never fits
    uint16_t origin                  # these last 8 bytes are always written in one store
    uint16_t slice
    uint8_t priority
    uint8_t flags
    uint16_t check                   # XXH3 of the 30 bytes above, low 16 bits

cdef struct SegmentHeader:           # the first 256 bytes of a segment file
    char magic[8]                    # "HRSEGMNT"
    uint32_t version
    uint32_t reserved
    uint8_t uuid[16]                 # of the queue
    uint64_t file                    # number in the file's name
    uint64_t size
    uint64_t number                  # place among the segments, grows by one
    uint64_t first                   # sequence of its first row
    uint64_t checksum                # XXH3 of the 64 bytes above
    uint8_t gap[56]
    uint32_t pins                    # views that somebody holds; only ever added to and taken from

cdef struct Entry:                   # 128 bytes: one segment in the directory
    uint64_t number                  # 0 while it is being written
    uint64_t first
    uint64_t end                     # first sequence after it; 0 while it is the newest
    uint64_t file
    uint64_t size
    uint64_t payload_bytes
    uint64_t newest_ns               # latest insertion time in it
    uint64_t newest_boot_ns
    uint64_t deleted_products
    uint64_t deleted_bytes
    uint64_t reserved[6]

cdef struct Sample:                  # totals at the first put of a second
    uint64_t boot_ns
    uint64_t products
    uint64_t bytes
    uint64_t duplicates

cdef struct Attachment:              # 64 bytes: one process (or one more opening in it)
    uint64_t pid                     # 0 = free
    uint64_t started                 # of the process, in clock ticks since boot
    uint64_t roles                   # 1 has read, 2 has written
    uint64_t attached_ns
    uint64_t reserved[4]

cdef struct Name:                    # 320 bytes: a feed or an origin, known by its place
    uint8_t kind                     # 1 feed, 2 origin
    uint8_t bytes
    uint16_t reserved
    uint32_t checksum                # XXH3 of the text, low 32 bits, XOR kind
    uint64_t last                    # newest sequence put here under this feed
    uint64_t products
    uint64_t payload_bytes
    uint64_t spare[4]
    char text[256]

cdef struct Control:
    # --- written at creation, by resize, and by recovery
    char magic[8]                    # "HRCONTRL"
    uint32_t version
    uint32_t state
    uint8_t uuid[16]
    uint8_t boot[16]                 # the machine start in which it was last used
    uint64_t size_bytes
    uint64_t age_ns                  # 0 = no limit
    uint64_t segment_bytes
    uint64_t secret[2]               # stirs signatures, so that nobody can aim at one bucket
    uint32_t durability
    uint32_t signature_kind
    uint32_t origin                  # our own, as a name
    uint32_t clean                   # closed in order after a flush
    uint32_t sync_failed             # the disk refused a flush: nothing is durable any more
    uint8_t gap0[84]
    # --- locks, a line each
    pthread_mutex_t lock             # all changes of the log
    uint8_t gap1[24]
    pthread_mutex_t sync_lock        # one flush at a time
    uint8_t gap2[24]
    # --- the line that readers watch
    uint64_t head                    # first sequence that readers may not see yet
    uint32_t wake                    # futex: changes with every head
    uint32_t sleepers                # somebody may be asleep on `wake`
    uint8_t gap3[48]
    # --- the writer's lines, changed under `lock`
    uint64_t tail                    # next sequence; equals head unless durability is `disk`
    uint64_t data_end                # of the newest segment
    uint64_t oldest                  # oldest sequence still held
    uint64_t segment_oldest
    uint64_t segment_newest
    uint64_t next_file
    uint64_t spare_file              # an evicted segment file kept for the next one; 0 none
    uint64_t bytes_total             # of all segment files, the spare one included
    uint64_t dedup_table             # which file: generation << 40 | buckets
    uint64_t feeds_end               # first name of a feed that is not taken yet
    uint64_t origins_end
    uint64_t synced                  # everything below has reached the disk
    uint64_t opened_boot_ns          # when the newest segment was begun
    uint64_t synced_file             # files below this number have their directory entry on disk
    uint64_t pending_file            # segment file in the middle of coming or going; 0 none
    uint64_t held_products           # rows in all segments below tail
    uint64_t synced_names            # feeds_end + origins_end when the names last reached the disk
    # --- counters
    uint64_t inserted_products
    uint64_t inserted_bytes
    uint64_t duplicates
    uint64_t evicted_products
    uint64_t evicted_bytes
    uint64_t deleted_products
    uint64_t unlinked_pinned         # segments that left while somebody still looked at them
    uint64_t recoveries
    uint64_t gap5[7]
    Sample samples[SAMPLES]
    Attachment attachments[ATTACHMENTS]
    Entry directory[DIRECTORY]

cdef struct Bucket:                  # one cache line: 8 x (16-bit tag, low 48 bits of a sequence)
    uint64_t slots[8]
