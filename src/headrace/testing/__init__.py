"""Fakes and checks that users of Headrace need for their own tests.

    FeedGenerator   a seeded stream of products like those of real feeds
    Draft           one product of it, ready to put
    Oracle          remembers what was sent and judges what a consumer received
    Verdict         its judgement
    MockClock       a time of day that moves only when you move it
    MemoryGroup     processing nodes that share slices, without a queue: to try a balancing algorithm
    PowerCut        a disk that remembers what a power failure would leave
    NarrowLink      a connection to a site that carries so many bytes per second, and can be cut
    faults.arm      kill this process at a chosen step of the queue's work

A first check of anything that carries products:

    oracle = Oracle()
    for draft in FeedGenerator(seed=1, products=1000):
        oracle.sent(draft)
        carry(draft)
    ...                           # the consumer calls oracle.received(feed, ident, payload)
    assert oracle.verdict().ok, oracle.verdict()

Generator and oracle depend on no other part of Headrace, so that a fault in one of them cannot hide itself.
"""

from headrace.testing.clock import MockClock
from headrace.testing.draft import Draft
from headrace.testing.faults import PowerCut
from headrace.testing.generator import FeedGenerator
from headrace.testing.memory_group import MemoryGroup
from headrace.testing.narrow_link import NarrowLink
from headrace.testing.oracle import Oracle
from headrace.testing.verdict import Verdict

__all__ = ["Draft", "FeedGenerator", "MemoryGroup", "MockClock", "NarrowLink", "Oracle", "PowerCut", "Verdict"]
