# The structures of everything that is shared: on disk, in shared memory, on the wire.
#
# docs/format.md is the normative page with the drawings, and says for each word of shared memory who writes it, who
# reads it, and in what memory order. This file says the same to the compiler. All numbers are little-endian. Times are
# nanoseconds since 1970 (UTC) unless they are called `boot`, which counts nanoseconds since the machine started and
# never jumps.
#
#   record   one product, self-contained: header, feed, origin, ident, properties, [expiry], [options], pad, payload
#   row      32 bytes about one product: what scans need, and what only this queue knows of it
#   segment  one file:  [header 256 B | records -->            <-- rows]
#   control  one file: lock, head, directory of segments, counters, attached processes
#   chain    one file: stations in series or groups, their consumers, and a slot for each product in hand

from libc.stdint cimport (
    int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t,
)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_mutexattr_t:
        pass

cpdef enum:
    FORMAT_VERSION = 3               # of the control file
    SEGMENT_VERSION = 1
    RECORD_PLAIN = 1                 # version of a record without options
    RECORD_WITH_OPTIONS = 2
    RECORD_MAGIC = 0x5248            # the bytes "HR"
    RECORD_HEADER = 56
    SEGMENT_HEADER = 256
    ROW_BYTES = 32
    NAME_BYTES = 320
    ORIGINS_MAX = 4096               # numbers below this are origins, from it on feeds
    NAMES_MAX = 262144
    NAMES_STEP = 1024                # names are allocated on disk in steps of this many
    SEGMENTS_MAX = 2048              # places in the directory; a queue uses all but one
    ATTACHMENTS_MAX = 1024
    SAMPLES = 64                     # one per second, for the rates
    FEED_BYTES_MAX = 255
    ORIGIN_BYTES_MAX = 63
    IDENT_BYTES_MAX = 1024
    PRIORITIES = 8
    PRIORITY_DEFAULT = 4
    SLICES = 65536
    NO_SLICE = 0xFFFF

cpdef enum:                          # name.kind
    NAME_FEED = 1
    NAME_ORIGIN = 2

cpdef enum:                          # kinds of values in a property block
    PROPERTY_INT = 1
    PROPERTY_FLOAT = 2
    PROPERTY_STR = 3
    PROPERTY_BOOL = 4

cpdef enum:                          # attachment.roles, one bit each
    ROLE_READER = 1
    ROLE_WRITER = 2

cpdef enum:                           # record flags: bits 0-2 priority, bits 3-5 signature kind
    RECORD_KIND = 56
    RECORD_EXPIRES = 64
    RECORD_REVISION = 128            # another payload of an earlier product; see ROW_REVISION

cpdef enum:                           # row flags
    ROW_DELETED = 1
    ROW_DAMAGED = 2
    ROW_EXPIRES = 4
    ROW_SIGNED = 8
    ROW_CONTINUES = 16               # its batch continues in the next row
    ROW_REVISION = 32                # another payload of an earlier product, for the stations behind
    ROW_OPTIONS = 64                 # the record has options
    ROW_UNPROVEN = 128               # its signature could not be recomputed: it counts for its origin alone
    ROW_HIDDEN = 35                  # deleted, damaged or a revision: readers of the log skip it

cpdef enum:                           # types of options of a record; headrace/product/options.py says what they mean
    OPTION_BOUND = 1
    OPTION_REPLAY = 2
    OPTION_HOPS = 3
    OPTION_SIGNED = 4
    OPTION_COMPRESSION = 128         # from here on: without knowing the option, nobody understands the payload
    OPTION_FRAGMENT = 129
    OPTIONS_BYTES_MAX = 4096

cpdef enum:                           # clock.source
    CLOCK_NONE = 0
    CLOCK_SYSTEM = 1
    CLOCK_NTP = 2

cpdef enum:                           # how a signature was made
    SIGNATURE_NONE = 0
    SIGNATURE_BLAKE3 = 1             # of the payload alone
    SIGNATURE_XXH3 = 2
    SIGNATURE_MD5 = 3
    SIGNATURE_GIVEN = 4              # by the producer, or unique; not a hash
    SIGNATURE_OF_IDENTITY = 4        # with one of the hashes: of feed, ident and payload
    SIGNATURE_HASH = 3               # the bits that name the hash

cpdef enum:                          # ref.proof: whether a signature from elsewhere is what it says
    PROOF_NONE = 0                   # not looked at
    PROOF_SOUND = 1                  # recomputed and equal, or no hash
    PROOF_OPEN = 2                   # nobody here can recompute it
    PROOF_WRONG = 3                  # another one than that of its content

cpdef enum:                           # what a crash leaves intact; see docs/guarantees.md
    DURABLE_MEMORY = 0
    DURABLE_PROCESS = 1
    DURABLE_DISK = 2

cpdef enum:                           # control.state
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
    uint32_t sequence                # low 32 bits: a row from before the file was reused never matches
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
    uint64_t number                  # position among the segments, grows by one
    uint64_t first                   # sequence of its first row
    uint64_t checksum                # XXH3 of the 64 bytes above
    uint8_t gap[56]
    uint32_t pins                    # views in use; changed only by atomic addition

cdef enum:
    ENTRY_KNOWN = 40                 # bytes of an Entry that puts do not change

cdef struct Entry:                   # 128 bytes: one segment in the directory
    uint64_t number                  # 0 while it is being written
    uint64_t first
    uint64_t end                     # first sequence after it; 0 while it is the newest
    uint64_t file
    uint64_t size
    uint64_t gap[3]
    uint64_t payload_bytes           # from here on: changed by every put
    uint64_t newest_ns               # latest insertion time in it
    uint64_t newest_boot_ns
    uint64_t deleted_products
    uint64_t deleted_bytes
    uint64_t reserved[3]

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

cdef struct Clock:                   # 64 bytes: how time since the machine started becomes UTC
    uint64_t boot_ns                 # one moment in both clocks
    uint64_t utc_ns
    int32_t rate_ppb                 # how much faster than boot time UTC runs, until `until_boot_ns`
    int32_t then_ppb                 # and from then on
    uint64_t until_boot_ns
    uint64_t bound_ns                # how far from the truth it may be at that moment
    uint32_t drift_ppb               # by how much the bound grows with time
    uint32_t source
    int64_t offset_ns                # UTC minus the clock of the system, when the words were written
    uint64_t reserved

cdef struct Control:
    # --- written at creation, by resize, and by recovery
    char magic[8]                    # "HRCONTRL"
    uint32_t version
    uint32_t state
    uint8_t uuid[16]
    uint8_t boot[16]                 # the start of the machine (boot_id) in which it was last used
    uint64_t size_bytes
    uint64_t age_ns                  # 0 = no limit
    uint64_t segment_bytes
    uint64_t secret[2]               # mixed into signatures, so that nobody can aim at one bucket
    uint32_t durability
    uint32_t signature_kind
    uint32_t origin                  # our own, by its number
    uint32_t clean                   # closed properly after a flush
    uint32_t sync_failed             # a flush failed: nothing is durable any more
    uint32_t gap0
    uint64_t feeds_end               # first number of a feed that is free
    uint64_t origins_end
    uint8_t gap1[64]
    # --- locks, a cache line each
    pthread_mutex_t lock             # all changes of the log
    uint8_t gap2[24]
    pthread_mutex_t sync_lock        # one flush at a time
    uint8_t gap3[24]
    # --- the cache line that readers watch
    uint64_t head                    # first sequence that readers may not see yet
    uint32_t wake                    # futex: changes with every head
    uint32_t sleepers                # a process may be asleep on `wake`
    uint8_t gap4[48]
    # --- the cache line that changes with every put, under `lock`
    uint64_t tail                    # next sequence; equals head unless durability is `disk`
    uint64_t data_end                # of the newest segment
    uint64_t held_products           # rows in all segments below tail
    uint64_t inserted_products
    uint64_t inserted_bytes
    uint64_t duplicates
    uint64_t gap5[2]
    # --- the cache line that changes with every segment, under `lock`; readers read it
    uint64_t oldest                  # oldest sequence still held
    uint64_t segment_oldest
    uint64_t segment_newest
    uint64_t next_file
    uint64_t spare_file              # an evicted segment file kept for the next one; 0 none
    uint64_t bytes_total             # of all segment files, the spare one included
    uint64_t dedup_table             # which file: generation << 40 | buckets
    uint64_t pending_file            # segment file that is being added or removed; 0 none
    # --- what changes seldom
    uint64_t opened_boot_ns          # when the newest segment was started
    uint64_t synced                  # everything below has reached the disk
    uint64_t synced_file             # files below this number have their directory entry on disk
    uint64_t synced_names            # feeds_end + origins_end when the names last reached the disk
    uint64_t evicted_products
    uint64_t evicted_bytes
    uint64_t deleted_products
    uint64_t unlinked_pinned         # segments that were evicted while they were pinned
    uint64_t recoveries
    uint64_t stations                # changes with every change of a station's terms
    uint64_t requests                # 1 once the site has saved how far its requests are
    uint64_t slicings                # changes with every channel with slices that is created or removed
    uint64_t gap6[4]
    Sample samples[SAMPLES]
    Attachment attachments[ATTACHMENTS_MAX]
    Entry directory[SEGMENTS_MAX]
    # --- the clock of the site; clock.pxi says how the two are used in turn
    uint64_t clock_turn              # 0: no clock has been set; otherwise its lowest bit says which one counts
    uint64_t gap7[7]
    Clock clocks[2]

cdef struct Bucket:                  # one cache line: 8 x (16-bit tag, low 48 bits of a sequence)
    uint64_t slots[8]


# --- chains: stations and their leases; docs/format.md has the drawing ---------------------------

cpdef enum:
    CHAIN_VERSION = 2
    MEMBERS_MAX = 64                     # stations in one chain
    CONSUMERS_MAX = 1024             # of one chain
    SLOTS_MAX = 262144
    SLOTS_STEP = 1024                # slots are allocated on disk in steps of this many
    PARKED_MAX = 1000                # per station
    WINDOW = 4096                    # products waiting at a station without a capacity of its own

cdef enum:
    NOWHERE = 0xFFFFFFFF             # no slot

cpdef enum:                           # slot states
    SLOT_FREE = 0
    SLOT_WAITING = 1
    SLOT_LEASED = 2
    SLOT_PARKED = 3

cpdef enum:                           # member.order and member.discard
    BY_ANY = 0
    BY_FIFO = 1
    BY_LIFO = 2
    BY_PRIORITY = 3
    BY_DEADLINE = 4

cpdef enum:                           # member.restore: where a dead consumer's products go
    RESTORE_INPUT = 0
    RESTORE_OUTPUT = 1
    RESTORE_START = 2
    RESTORE_GROUP = 3

cpdef enum:                           # member.distribution
    ROUND_ROBIN = 0
    LEAST_LOADED = 1

cdef struct Slot:                    # 64 bytes: one product in a chain's hands
    uint64_t sequence
    uint64_t revision                # sequence of its latest payload; 0 = the product itself
    uint64_t wanted                  # members that select it, one bit each
    uint64_t expires_ns              # the product's own expiry; 0 = never
    uint64_t inserted_ns
    uint64_t mark                    # state 8 | member 8 | consumer 16 | ticket 32, stored in one piece
    uint32_t next                    # in its waiting list, or in the list of free slots
    uint32_t older                   # neighbours in the list of all products in hand, by sequence
    uint32_t newer
    uint8_t deliveries               # deliveries by this station
    uint8_t revisions
    uint8_t priority
    uint8_t restarts                 # returns to the start of the chain

cdef struct Member:                  # 512 bytes: one station
    uint32_t used
    uint32_t stage                   # position in the chain; members of a group share one
    uint32_t grouped                 # has parallel stations at its stage
    uint32_t distribution
    uint32_t blocking
    uint32_t paused
    uint32_t order
    uint32_t discard
    uint32_t restore
    uint32_t deliveries_max          # 0 = no limit
    uint32_t capacity                # 0 = as much as the queue holds
    uint32_t prescale
    uint64_t prescale_count
    uint64_t hung_after_ns
    uint64_t timeout_ns              # 0 = none
    uint64_t start_ns
    uint64_t stop_ns
    uint64_t max_queue               # 0 = none
    uint64_t later                   # members of later stages
    uint32_t turn                    # of a group: the member served last (held by its first member)
    uint32_t present                 # waiting lists that are not empty, one bit each
    uint32_t first[PRIORITIES]       # waiting lists
    uint32_t last[PRIORITIES]
    uint32_t waiting
    uint32_t leased
    uint32_t parked
    uint32_t gap0
    uint64_t admitted
    uint64_t delivered
    uint64_t acknowledged
    uint64_t discarded
    uint64_t expired
    uint64_t evicted
    uint64_t damaged
    uint64_t restored
    uint64_t redelivered
    uint64_t parked_total
    uint64_t flowed_around           # from here on: dropped, by cause
    uint64_t dropped_fifo
    uint64_t dropped_priority
    uint64_t dropped_deadline
    uint64_t dropped_parking
    uint64_t rejected
    uint64_t evicted_ns              # when a product was last counted in `evicted`; CLOCK_REALTIME, 0 never
    uint64_t gap1[23]

cdef struct Consumer:                # 128 bytes: one attachment
    uint32_t used
    uint32_t member
    uint64_t epoch                   # changes when the place gets another owner
    uint64_t pid
    uint64_t attached_ns
    uint64_t heartbeat_ns            # CLOCK_MONOTONIC
    uint64_t leased
    uint64_t delivered
    uint64_t acknowledged
    uint64_t left_ns                 # attached_ns of the last owner that detached by itself
    uint64_t gap[7]

cdef struct Cell:                    # where the chain continues after a power failure
    uint64_t generation
    uint64_t low
    uint64_t checksum                # XXH3 of the 16 bytes above

cdef struct ChainHeader:             # 1024 bytes, then members, consumers, slots
    char magic[8]                    # "HRCHAIN\0"
    uint32_t version
    uint32_t slots_ready             # slots that are allocated in the file
    uint8_t uuid[16]                 # of the queue
    uint64_t number
    uint8_t gap0[24]
    pthread_mutex_t lock             # all changes of the chain
    uint8_t gap1[24]
    uint64_t position                # the log has been read up to here
    uint64_t low                     # every product below is settled; a blocking chain keeps the rest
    uint64_t terms                   # changes with the terms of any member
    uint32_t ticket
    uint32_t free                    # first free slot
    uint32_t oldest                  # of all products in hand, by sequence
    uint32_t newest
    uint32_t in_hand
    uint32_t room                    # futex: changes when a waiting writer should look again
    uint32_t waiters                 # writers may wait: bit 0 for room at a station, bit 1 for `low` to move
    uint32_t torn                    # lists and counts must be rebuilt
    uint64_t recoveries
    uint64_t lost_products           # evicted before the chain read them
    uint64_t lost_first
    uint64_t lost_last
    uint64_t damaged_rows
    uint64_t admitting               # the product that was last taken up
    uint64_t looked_ns               # when consumers were last checked for life; CLOCK_MONOTONIC
    uint64_t revising                # 1 + slot whose revision is being changed; 0 none
    Cell cells[2]
    uint64_t revising_from           # what that slot's `revision` was before
    uint64_t lost_ns                 # when `lost_products` last grew; CLOCK_REALTIME, 0 never
    uint32_t consumers_end           # no place from here on was taken since the chain was reset
    uint32_t gap3
    uint64_t surges                  # changes when a product waits that did not come from the log; own cache line
    uint64_t gap4[87]


# --- for Python, which types none of these numbers again; enums that say cpdef are exported as well ---

CONTROL_BYTES = sizeof(Control)
CONTROL_BYTES_1 = sizeof(Control) - 64 - 2 * sizeof(Clock)   # in version 1, which had no clock
SEQUENCE_LEAP = 1 << 32              # a leap keeps the low 32 bits, which rows hold
CONSUMER_BYTES = sizeof(Consumer)
CONSUMER_LOCKS_AT = 1 << 40          # byte of a chain file that consumer 0 locks; far behind its end, never written

DURABILITIES = {"memory": DURABLE_MEMORY, "process": DURABLE_PROCESS, "disk": DURABLE_DISK}
HASHES = {"blake3": SIGNATURE_BLAKE3, "xxh3": SIGNATURE_XXH3, "md5": SIGNATURE_MD5}
ORDERS = {"any": BY_ANY, "fifo": BY_FIFO, "priority": BY_PRIORITY, "deadline": BY_DEADLINE}
DISCARDS = {"any": BY_ANY, "fifo": BY_FIFO, "lifo": BY_LIFO, "priority": BY_PRIORITY, "deadline": BY_DEADLINE}
RESTORES = {"input": RESTORE_INPUT, "output": RESTORE_OUTPUT, "start": RESTORE_START, "group": RESTORE_GROUP}
DISTRIBUTIONS = {"round_robin": ROUND_ROBIN, "least_loaded": LEAST_LOADED}

cdef Row row_shape                   # never read: only its addresses are compared
ROW_FIELDS = {                       # field of an index row: (offset, bytes)
    "inserted_ns": (<char *>&row_shape.inserted_ns - <char *>&row_shape, sizeof(row_shape.inserted_ns)),
    "offset": (<char *>&row_shape.offset - <char *>&row_shape, sizeof(row_shape.offset)),
    "payload_bytes": (<char *>&row_shape.payload_bytes - <char *>&row_shape, sizeof(row_shape.payload_bytes)),
    "feed": (<char *>&row_shape.feed - <char *>&row_shape, sizeof(row_shape.feed)),
    "sequence": (<char *>&row_shape.sequence - <char *>&row_shape, sizeof(row_shape.sequence)),
    "origin": (<char *>&row_shape.origin - <char *>&row_shape, sizeof(row_shape.origin)),
    "slice": (<char *>&row_shape.slice - <char *>&row_shape, sizeof(row_shape.slice)),
    "priority": (<char *>&row_shape.priority - <char *>&row_shape, sizeof(row_shape.priority)),
    "flags": (<char *>&row_shape.flags - <char *>&row_shape, sizeof(row_shape.flags)),
    "check": (<char *>&row_shape.check - <char *>&row_shape, sizeof(row_shape.check)),
}
