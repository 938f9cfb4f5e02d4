# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""The queue's kernel: the only native code of Headrace.

One extension module in several files, in the order in which they build on each other:

    layout       every shared shape, with drawings in docs/format.md
    system       atomics, robust lock, futex, clocks, failpoints, the SIGBUS guard
    store        one opened queue in one process: mapped files and pins
    dedup        the duplicate memory
    segment      segments come and go; what happens after a writer's death
    append       records, rows, commit
    gate         what stations may ask of those who put
    properties   properties as an Arrow map
    filter       which index rows are wanted
    scan         Rows: pick, keep, verify, gather
    items        from the objects of a call to what append takes
    wire         records on their way between queues
    log          Log: what Python calls
    held         locks as contexts, files that may shrink
    maintenance  what happens under the lock, or while nobody else is attached
    survey       walking files that nobody need trust
    chain         a chain of stations: slots, waiting lists, what happens after a consumer's death
    conduct      from the log into a chain
    lease        Chain: get and put

docs/concurrency.md argues why this is right; tests/queue tries to prove it wrong.
"""

include "layout.pxi"
include "system.pxi"
include "log/store.pxi"
include "log/dedup.pxi"
include "log/segment.pxi"
include "log/append.pxi"
include "log/gate.pxi"
include "log/properties.pxi"
include "log/filter.pxi"
include "log/scan.pxi"
include "log/items.pxi"
include "log/wire.pxi"
include "log/place.pxi"
include "log/log.pxi"
include "log/held.pxi"
include "log/maintenance.pxi"
include "log/survey.pxi"
include "chain/chain.pxi"
include "chain/conduct.pxi"
include "chain/lease.pxi"
