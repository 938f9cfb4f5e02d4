# Codes: how C functions say what went wrong, and the exception that carries it to Python.
#
# A function that can fail returns a negative code and leaves its arguments as they were unless it says otherwise.
# headrace.log.explain turns a KernelError into the error that a user sees.

cdef enum:                           # outcomes below zero; a plain errno is negated as it is
    CODE_DAMAGED = -1001             # a file is damaged
    CODE_BATCH_TOO_LARGE = -1002     # a batch would evict its own beginning
    CODE_NAMES_FULL = -1003          # no number is left for a new feed or origin
    CODE_UNKNOWN_FEED = -1004        # the feed mask of the caller is older than the row
    CODE_GONE = -1005                # the product has been evicted
    CODE_PAYLOAD_TOO_LARGE = -1006
    CODE_STATIONS = -1007            # the gates of the caller are older than the stations
    CODE_BLOCKED = -1008             # a blocking station is full
    CODE_REJECTED = -1009            # a channel has as many waiting products as it accepts
    CODE_HELD = -1010                # a chain holds products that would have to be evicted
    CODE_LEASE_LOST = -1011          # the consumer was declared dead
    CODE_TERMS = -1012               # the terms of the caller are older than those of the chain
    CODE_LOOK = -1013                # time to check whether other consumers are alive
    CODE_NEWER = -1014               # a chain file of another version
    CODE_ALTERED = -1015             # a record changed while it was copied
    CODE_REVISION = -1016            # a revision, which never leaves its queue
    CODE_MOVED = -1017               # the queue is no longer where it was opened
    CODE_SLICES = -1018              # slices were assigned by a table that is older than the channels
    CODE_FUNCTION = -1019            # a function of a user assigns the slice
    CODE_SLICE_GIVEN = -1020         # a slice was given, and the channel assigns slices
    CODE_SLICE_MISSING = -1021       # the channel needs a slice that is given, and below its number of slices
    CODE_SIGNATURE = -1022           # a signature that is a hash, and not that of the content

CODES = {
    "damaged": CODE_DAMAGED,
    "batch_too_large": CODE_BATCH_TOO_LARGE,
    "names_full": CODE_NAMES_FULL,
    "unknown_feed": CODE_UNKNOWN_FEED,
    "gone": CODE_GONE,
    "payload_too_large": CODE_PAYLOAD_TOO_LARGE,
    "stations": CODE_STATIONS,
    "blocked": CODE_BLOCKED,
    "rejected": CODE_REJECTED,
    "held": CODE_HELD,
    "lease_lost": CODE_LEASE_LOST,
    "terms": CODE_TERMS,
    "look": CODE_LOOK,
    "newer": CODE_NEWER,
    "altered": CODE_ALTERED,
    "revision": CODE_REVISION,
    "moved": CODE_MOVED,
    "slices": CODE_SLICES,
    "function": CODE_FUNCTION,
    "slice_given": CODE_SLICE_GIVEN,
    "slice_missing": CODE_SLICE_MISSING,
    "signature": CODE_SIGNATURE,
}


class KernelError(Exception):
    """`code` is a negative errno or one of CODES, `file` the number of the segment file concerned.

    For a buffer of records, `file` is the offset of the bad record and `fault` says what is wrong with it. For a slice,
    `file` is the place of the product in its batch and `fault` is its feed.
    """

    def __init__(self, code, file=0, fault=""):
        super().__init__(code, file, fault)
        self.code = code
        self.file = file
        self.fault = fault
