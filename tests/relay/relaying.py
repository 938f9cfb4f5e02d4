"""Helpers for tests of relays: put and list texts, and ask a site how far it is."""

from headrace import Queue
from support.fleet import Fabric, held


def put(queue: Queue, feed: str, *payloads: str) -> None:
    for payload in payloads:
        queue.put(payload.encode(), feed=feed, ident=payload)


def texts(queue: Queue, feed: str | None = None) -> list[str]:
    return [payload.decode() for name, _, _, payload in held(queue) if feed in (None, name)]


def is_live(fabric: Fabric, name: str, count: int = 1, at: str | None = None) -> bool:
    """Whether so many upstreams of a site are live: all of them, or those at one other site.

    A request without `sites` has an upstream at every site that it meets, so say which one matters if there are more.
    """
    upstreams = fabric.sites[name].statistics().upstreams
    return sum(each.counts.state == "live" for each in upstreams if at in (None, each.site)) >= count


def has_examined(fabric: Fabric, name: str, at: str) -> bool:
    """Whether a site knows that it has everything that the other site has now."""
    upto = fabric.queues[at].next - 1
    bases = [each.base for each in fabric.sites[name].statistics().upstreams if each.site == at]
    return bool(bases) and min(bases) >= upto
