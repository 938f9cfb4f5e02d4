# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True, auto_pickle=False, autotestdict=False
"""The kernel: the only native code of Headrace.

One extension module in several files, in the order in which they build on each other:

    layout          every shared structure; docs/format.md has the drawings
    system          atomics, robust lock, futex, clocks, failpoints, the SIGBUS guard
    sleep           until a moment, precisely
    codes           what went wrong: codes in C, KernelError in Python

    log/store       one opened queue in one process: mapped files, pins, fork
    log/place       whether the queue is still where it was opened
    log/dedup       the duplicate table
    log/segment     segments are added and evicted; recovery after the death of a writer
    log/clock       the time of the site
    log/options     what few products carry besides
    log/append      records, rows, commit
    log/gates       stations that make writers wait
    log/slices      channels that cut their stream into slices
    log/refs        one product as a batch sees it; which rows are wanted
    log/scan        Rows: pick, keep, verify
    log/join        rows of several batches as one
    log/columns     Rows as the buffers of Arrow arrays
    log/product     RowProduct: one row as an object
    log/weigh       Weigher: how the bytes of a range are spread
    log/sign        signatures: what identifies a product
    log/put         from the objects of a call to what append takes
    log/validate    records from a buffer that is not trusted
    log/wire        records on their way between queues
    log/prove       whether their signatures are what they say
    log/state       the shared numbers by name
    log/log         Log: what Python calls
    log/maintenance what happens under the lock, or while no other process is attached
    log/survey      walking segment files that are not trusted

    chain/slots     products in hand: marks, lists, waiting products
    chain/route     which station a product goes to next
    chain/recovery  the lock of a chain, and what happens after a death
    chain/members   stations and consumers
    chain/conduct   from the log into a chain
    chain/lease     get and settle
    chain/chain     Chain: what Python calls
    chain/ready     which of many stations have something to hand out

C data and functions without the interpreter (`nogil`) do the work; the classes Log, Rows and Chain are thin.
docs/concurrency.md argues why this is correct; tests/log and tests/station try to prove it wrong.
"""

include "layout.pxi"
include "system.pxi"
include "sleep.pxi"
include "codes.pxi"
include "log/store.pxi"
include "log/place.pxi"
include "log/dedup.pxi"
include "log/segment.pxi"
include "log/clock.pxi"
include "log/options.pxi"
include "log/append.pxi"
include "log/gates.pxi"
include "log/slices.pxi"
include "log/refs.pxi"
include "log/expand.pxi"
include "log/scan.pxi"
include "log/join.pxi"
include "log/columns.pxi"
include "log/product.pxi"
include "log/weigh.pxi"
include "log/sign.pxi"
include "log/put.pxi"
include "log/validate.pxi"
include "log/wire.pxi"
include "log/prove.pxi"
include "log/state.pxi"
include "log/log.pxi"
include "log/maintenance.pxi"
include "log/survey.pxi"
include "chain/slots.pxi"
include "chain/route.pxi"
include "chain/recovery.pxi"
include "chain/members.pxi"
include "chain/conduct.pxi"
include "chain/lease.pxi"
include "chain/chain.pxi"
include "chain/ready.pxi"
include "chain/handing.pxi"
