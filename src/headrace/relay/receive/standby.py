"""Standby: the state machine of one request at a site that could take over, and does not serve it now.

A switch must neither skip nor repeat, and no clock can tell where to begin. So the position at every site of a
fail-over request is known at any time: everything up to `base`, in sequences of that site's queue, has arrived here or
is accounted for. At the active site the upstream moves it. Here it is moved by comparison:

    standby       every few seconds ask the site which products it has behind what was compared last (an inventory,
                  without payloads), and compare them with what has arrived here; the base moves up to the first product
                  that has not
    unreachable   the site does not reply: wait, ask again

Our queue may have evicted a product that this site still lists, and our memory of it may be gone, too (after a restart,
or after very many others). Then the active site is asked where it holds the product: whatever it holds up to the
position there has arrived.

A product that the site has had for a minute, and that the active site has not brought, will not come from there: it is
read from here and stored. So is one that this site would evict soon. The minute decides only when a product is read, by
the time that passes, and never whether.

The position is first known when the site is first present, and begins at the request's `from`. A site with a new queue
is compared from its first product on. What the site evicted before it could be compared may have come from the active
site, or may be lost. It is named as a range, by the cause `evicted unseen`, until it is known that other sites have
supplied it (unseen.py).

Built like an upstream: a generator of actions, without threads, Zenoh and wall clock (upstream.py says why). The base
moves only after `Store` has been performed.
"""

import logging
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headrace.errors import FabricError
from headrace.log.records import Names
from headrace.product.cause import Cause, LostBy
from headrace.relay.messages.inventory import ROWS_MAX, Identities, InventoryReply, Numbers, rows_of
from headrace.relay.messages.page import Page, PageHead
from headrace.relay.messages.query import (
    Identify,
    IdentifyReply,
    Inventory,
    Locate,
    LocateReply,
    Resolve,
    ResolveReply,
    Unreachable,
)
from headrace.relay.messages.validation import check_identity, check_page
from headrace.relay.receive.actions import Ask, NextPage, Pause, ReadLog, Recognise, SaveProgress, Steps, Store
from headrace.relay.receive.counts import UpstreamStatistics
from headrace.relay.receive.track import Known
from headrace.relay.receive.unseen import Others, settle, whole_after
from headrace.relay.receive.unseen import begin as begin_unseen
from headrace.relay.receive.upstream import backoff_s
from headrace.selection import Selection

LOOK_S = 2.0  # between two comparisons
PATIENCE_S = 60.0  # a product that the active site has not brought by then is read from the standby
MISSING_MAX = 100_000  # products that are remembered as missing; beyond that nothing more is compared
_REPLIES = 16  # inventories in one comparison
_READ = 1000  # products at once
_DANGER = 4  # the oldest quarter of a site's queue may be evicted soon

Served = tuple[str, Known]  # a site, and the position there

log = logging.getLogger("headrace.fabric")


class Standby:
    """One request at one site. Run by a driver; other threads may read `known` and `statistics`."""

    def __init__(
        self, site: str, selection: Selection, begin_at: str, now: Callable[[], float],
        served_by: Callable[[], Served | None], others: Others, *, known: Known | None = None, ours: str = "",
        statistics: UpstreamStatistics | None = None,
    ) -> None:  # fmt: skip
        """`served_by`: the active site and the position there, if it is live: then what is missing will not come soon.

        `others`: how far the request is at its other sites. `ours` is our own site: its products are not missing.
        """
        self.site, self.selection = site, selection
        self.statistics = statistics or UpstreamStatistics()
        self.statistics.state = "asking"
        self._known, self._others = known or Known(), others
        self._miss_up_to(0 if self._known.whole else self._known.base)
        self._begin_at, self._now, self._served_by, self._ours = begin_at, now, served_by, ours
        self._names = Names()
        self._compared = self._known.base  # up to here in the site's queue; at least the base
        self._missing: tuple[Numbers, Identities] = _NOTHING  # behind the base and up to there
        self._ends: deque[tuple[float, int]] = deque()  # when, and the end of the site's log then
        self._oldest = self._next = 0  # in the site's log

    @property
    def behind(self) -> int:
        """Sequences between the base and the end of the site's log, when that was last compared."""
        return max(0, self._next - 1 - self._known.base)

    @property
    def known(self) -> Known:
        return self._known

    def hear_beat(self) -> None:
        """Nobody listens to a standby's stream."""

    def run(self) -> Steps[None]:
        """Compare forever."""
        failures = 0
        while True:
            try:
                yield from self._begin()
                while True:
                    yield from self._compare()
                    failures, self.statistics.state, self.statistics.problem = 0, "standby", ""
                    self.statistics.failing = ""
                    yield from self._take_what_is_due()
                    yield from self._settle()
                    yield Pause(LOOK_S)
            except (Unreachable, FabricError) as error:
                is_news = not failures or str(error) != self.statistics.problem
                self.statistics.state, self.statistics.problem = "unreachable", str(error)
                self.statistics.failing = str(error)
                log.log(logging.INFO if is_news else logging.DEBUG, "standby site %s: %s", self.site, error)
                yield from self._settle()
                yield Pause(backoff_s(failures))
                failures += 1

    def _settle(self) -> Steps[None]:
        yield from settle(self.site, self.statistics, self._others, self._known.since, self._now())

    def _begin(self) -> Steps[None]:
        identity: IdentifyReply = yield Ask(self.site, Identify(), IdentifyReply)
        check_identity(identity)
        is_same = identity.queue == self._known.queue
        if is_same and self._known.base < identity.next:
            return
        if is_same:
            log.warning("standby site %s: its log ends at %d, before our position %d; it is compared from its oldest "
                        "product on", self.site, identity.next - 1, self._known.base)  # fmt: skip
            self.statistics.begin_again(self._now())
            start, since = max(identity.oldest, 1), (yield SaveProgress())
        elif self._known.queue:
            log.warning("standby site %s has a new queue; it is compared from its first product on", self.site)
            start, since = 1, (yield SaveProgress())
        else:
            reply: ResolveReply = yield Ask(self.site, Resolve(self._begin_at), ResolveReply)
            start, since = reply.sequence, 0
        self._compared, self._missing = start - 1, _NOTHING
        self._ends.clear()
        self._known = Known(identity.queue, start - 1, start, identity.receivable, since, whole=start)
        yield SaveProgress()

    # --- comparing --------------------------------------------------------------------------------

    def _compare(self) -> Steps[None]:
        """Drop from the missing products those that have arrived, and look at what is new in the site's log."""
        if len(self._missing[0]):
            self._keep(~(yield Recognise(self._missing[1])))
        for _ in range(_REPLIES):
            reply: InventoryReply = yield Ask(
                self.site, Inventory(str(self.selection), self._compared, ROWS_MAX), InventoryReply
            )
            if reply.queue != self._known.queue or reply.after != self._compared:
                raise Unreachable("its log changed during the reply")
            yield from self._add(reply)
            self._forget_evicted(reply.oldest)
            if self._compared >= reply.next - 1 or len(self._missing[0]) >= MISSING_MAX:
                break
        self._note_end(reply)
        self._move()

    def _add(self, reply: InventoryReply) -> Steps[None]:
        sequences, products = rows_of(reply, self._ours)
        has_arrived = yield Recognise(products)
        has_arrived[~has_arrived] = yield from self._has_served(products.where(~has_arrived))
        before = self._missing
        self._missing = (
            np.concatenate([before[0], sequences[~has_arrived]]), _joined(before[1], products.where(~has_arrived))
        )  # fmt: skip
        if reply.lost_first:
            yield from self._note_unseen(max(reply.lost_first, self._compared + 1), reply.lost_last)
        if reply.is_partial:
            self._miss_up_to(reply.upto)
        self._compared = reply.upto

    def _has_served(self, products: Identities) -> Steps[npt.NDArray[np.bool_]]:
        """Which of these the active site holds up to the position there: they have arrived, and were evicted here."""
        none, served = np.zeros(len(products), np.bool_), self._served_by()
        if served is None or not len(products):
            return none
        site, known = served
        query = _located(str(self.selection), products)
        try:
            reply: LocateReply = yield Ask(site, query, LocateReply)
        except (Unreachable, FabricError):  # then they count as missing
            return none
        if reply.queue != known.queue or len(reply.sequences) != 8 * len(products):
            return none
        sequences = np.frombuffer(reply.sequences, np.uint64)
        return (sequences >= max(1, known.began)) & (sequences <= known.base)

    def _forget_evicted(self, oldest: int) -> None:
        """The site no longer has them. Until the active site is live it may still bring them: they stay missing."""
        if self._served_by():
            is_gone = self._missing[0] < np.uint64(oldest)
            self._lose(self._missing[0][is_gone], "evicted")
            self._keep(~is_gone)

    def _miss_up_to(self, last: int) -> None:
        """Not everything up to there has arrived. To be called before the base moves over it."""
        self._known = self._known._replace(whole=max(self._known.whole, last + 1))

    def _note_unseen(self, first: int, last: int) -> Steps[None]:
        """The site evicted these before they could be compared: whether they have arrived is unknown."""
        if first <= last:
            self._miss_up_to(last)
            yield from begin_unseen(self.site, self._known.queue, first, last, self.statistics, self._now())
            log.warning("standby site %s: products %d-%d may be lost: evicted there before they could be compared with "
                        "what the active site has sent", self.site, first, last)  # fmt: skip

    def _lose(self, sequences: Numbers, cause: LostBy) -> None:
        """Name products that nobody can give, as ranges."""
        breaks = np.flatnonzero(np.diff(sequences) > 1) + 1
        for part in np.split(sequences, breaks) if len(sequences) else ():
            first, last = int(part[0]), int(part[-1])
            self._miss_up_to(last)
            self.statistics.lose(first, last, cause, self._now())
            log.error("standby site %s: products %d-%d are lost (%s there, and brought by nobody)", self.site, first,
                      last, cause)  # fmt: skip

    def _note_end(self, reply: InventoryReply) -> None:
        """Remember how long the site has had which products; while nobody serves the request that says nothing."""
        if self._served_by():
            self._ends.append((self._now(), reply.next))
        self._oldest, self._next = reply.oldest, reply.next

    def _keep(self, which: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> None:
        sequences, products = self._missing
        self._missing = sequences[which], products.where(which)

    def _move(self) -> None:
        """Move the base up to the first product that is missing."""
        base = int(self._missing[0][0]) - 1 if len(self._missing[0]) else self._compared
        self._known = self._known._replace(base=max(base, self._known.base))

    # --- taking -----------------------------------------------------------------------------------

    def _due(self) -> int:
        """Products below this sequence are read from here: the active site does not bring them, or they may go soon."""
        due = 0
        if self._served_by() and self._oldest > 1:  # it evicts
            due = self._oldest + (self._next - self._oldest) // _DANGER
        since = self._now() - PATIENCE_S
        while len(self._ends) > 1 and self._ends[1][0] <= since:
            self._ends.popleft()
        return max(due, self._ends[0][1]) if self._ends and self._ends[0][0] <= since else due

    def _take_what_is_due(self) -> Steps[None]:
        due = self._due()
        while len(self._missing[0]) and self._missing[0][0] < due:
            sequences = self._missing[0]
            after, count = int(sequences[0]) - 1, int(np.count_nonzero(sequences < np.uint64(due)))
            reply = yield ReadLog(self.site, str(self.selection), after, self._names, products=min(count, _READ))
            page: Page | None
            while (page := (yield NextPage(reply))) is not None:
                check_page(page, self.site)
                if page.head.queue != self._known.queue or page.head.upto <= after:
                    raise Unreachable("its log changed during the reply")
                yield from self._take(page)
            if len(self._missing[0]) and self._missing[0][0] == sequences[0]:
                raise Unreachable("no page came")

    def _take(self, page: Page) -> Steps[None]:
        """Store a page; the receiver leaves out what has arrived. Nothing of its range is missing then."""
        missing = self._missing[0]
        wanted = np.isin(page.sequences, missing)
        if wanted.any():
            yield Store(page, wanted.astype(np.uint8))
            count = int(np.count_nonzero(wanted))
            self.statistics.products += count
            self.statistics.from_standby += count
        self._note_lost(page.head)
        self._count_left_out(page)
        self._known = self._known._replace(whole=whole_after(page.head, self._known.whole))
        self._keep(missing > np.uint64(page.head.upto))
        self._move()

    def _count_left_out(self, page: Page) -> None:
        """Count missing products that the page should have and does not: it says how many it left out, and why."""
        head, missing = page.head, self._missing[0]
        is_absent = (missing > head.after) & (missing <= head.upto) & ~np.isin(missing, page.sequences)
        is_absent &= (missing < head.lost_first) | (missing > head.lost_last)
        absent, counts = int(np.count_nonzero(is_absent)), dict[Cause, int]()
        for cause, count in head.left_out.items():  # some of these may have arrived from elsewhere
            counts[cause] = min(count, absent - sum(counts.values()))
        counts = {cause: count for cause, count in counts.items() if count}
        if counts:
            self.statistics.leave_out(counts, self._now())

    def _note_lost(self, head: PageHead) -> None:
        if head.lost_first:
            missing = self._missing[0]
            self._lose(missing[(missing >= head.lost_first) & (missing <= head.lost_last)], head.lost_by)


_NO_NUMBERS = np.zeros(0, np.uint64)
_NOTHING = (_NO_NUMBERS, Identities(
    _NO_NUMBERS, _NO_NUMBERS, np.zeros(0, "V16"), np.zeros(0, np.uint8), np.zeros(0, np.object_), np.zeros(0, np.bool_)
))  # fmt: skip


def _located(selection: str, products: Identities) -> Locate:
    origins, places = np.unique(products.origins.astype(str), return_inverse=True)
    return Locate(
        selection, products.signatures.tobytes(), products.kinds.tobytes(), tuple(origins.tolist()),
        places.astype(np.uint16).tobytes(),
    )  # fmt: skip


def _joined(one: Identities, other: Identities) -> Identities:
    return Identities(
        np.concatenate([one.keys, other.keys]), np.concatenate([one.created, other.created]),
        np.concatenate([one.signatures, other.signatures]), np.concatenate([one.kinds, other.kinds]),
        np.concatenate([one.origins, other.origins]), np.concatenate([one.is_ours, other.is_ours]),
    )  # fmt: skip
