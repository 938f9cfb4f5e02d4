"""Intake: pages that upstreams bring, on their way into the site's queue.

A page is put as one, with everything that its origin said about each product; the queue drops a product that it holds
already. Products of this site that come back to it are left out, and so are those that were not asked for or that the
sender may not bring (admission.py), and what a fail-over has brought before. Nothing is left out uncounted: `Arrivals`
says what became of each product, and the counts of the sender what was refused. While the disk or the queue is full, or
a dictionary is missing, the page waits: the intake then says for how long it is of no use to go on (driver.py).
"""

import logging
import time
from collections.abc import Callable, Generator, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from headrace.errors import HeadraceError, InvalidError
from headrace.link.keys import OWN
from headrace.log.append import put_batch
from headrace.log.records import wrong_signatures
from headrace.product.cause import Cause
from headrace.queue import Queue, Receipt
from headrace.queue.queue import log_of
from headrace.relay.flows import Flows, Mask
from headrace.relay.hops import Hops
from headrace.relay.messages.inventory import Identities, identities
from headrace.relay.messages.page import Keep, Page
from headrace.relay.messages.source import Source
from headrace.relay.receive.admission import ADMITTED, CAUSES, Gate
from headrace.relay.receive.arrived import recognise, remember_held
from headrace.relay.receive.counts import Arrivals, Tally
from headrace.relay.receive.remembered import Remembered
from headrace.relay.signing.verify import CAUSES as UNPROVED
from headrace.relay.signing.verify import Verifier

_ROOM_S = 0.25  # for which a put waits for room, and with it a thread that others share
_RETRY_S = 0.05  # between two attempts

Result = TypeVar("Result")

log = logging.getLogger("headrace.fabric")


class Intake:
    """Into the queue of one site. Threads may share it."""

    def __init__(
        self, queue: Queue, site: str, tally: Tally, *, remembers: bool, verifier: Verifier | None = None
    ) -> None:
        """`remembers`: also what the queue has evicted, for requests that fail over. `verifier`: of signed products.

        A queue with signatures recognises what it holds; one without them must remember that, too.
        """
        self._queue, self._site, self._tally, self._verifier = queue, site, tally, verifier
        self.flows, self.hops = Flows(), Hops(queue.path)
        self.has_signatures = queue.config.dedup != "none"
        self._remembered = Remembered() if remembers else None
        if self._remembered is not None and not self.has_signatures:
            remember_held(queue, self._remembered)

    def put(
        self, request: str, gate: Gate, page: Page, keep: Keep | None, *, may_repeat: bool
    ) -> Generator[float, None, None]:
        """Put the page, and end when it is in the queue. Yields, as often as it has to wait, for how many seconds.

        A product that the queue can never take is counted and left out. `gate` says what may enter. `may_repeat`:
        another site may have brought some of it before.
        """
        arrivals = self._tally.arrivals(request)
        keep = self._without_ours(page, keep, arrivals)
        if (verifier := self._verifier) is not None:
            refused = yield from self._when_possible(arrivals, page, lambda: verifier.refused(page.batch))
            if refused is not None:
                keep = self._without_refused(request, page, keep, refused, UNPROVED)
        verdicts = yield from self._when_possible(arrivals, page, lambda: gate.verdicts(page))
        if verdicts is not None:
            keep = self._without_refused(request, page, keep, verdicts)
        admitted = keep
        keep = yield from self._when_possible(arrivals, page, lambda: self._without_forged(request, page, admitted))
        if may_repeat:
            keep = self._without_remembered(page, keep, arrivals)
        try:
            yield from self._put(arrivals, page, keep)
        except InvalidError:
            rows = np.arange(len(page.batch)) if keep is None else np.flatnonzero(keep)
            yield from self._put_in_halves(arrivals, page, rows)

    def admitted(self, request: str, gate: Gate, page: Page) -> Generator[float, None, Mask]:
        """Which products of a page its sender may bring, and nothing refutes; yields as `put` does."""
        arrivals, mask = self._tally.arrivals(request), gate.may_be_brought(page)
        if (verifier := self._verifier) is not None:
            refused = yield from self._when_possible(arrivals, page, lambda: verifier.refused(page.batch))
            if refused is not None:
                mask &= refused == 0
        wrong = yield from self._when_possible(arrivals, page, lambda: wrong_signatures(page.batch, None))
        return mask if wrong is None else mask & ~wrong

    def _put_in_halves(
        self, arrivals: Arrivals, page: Page, rows: npt.NDArray[np.intp]
    ) -> Generator[float, None, None]:
        """Retry in halves, so that only the invalid products are left out (as `in_halves` does)."""
        ranges = [(0, len(rows))] if len(rows) else []
        while ranges:
            start, stop = ranges.pop()
            part = np.zeros(len(page.batch), np.uint8)
            part[rows[start:stop]] = 1
            try:
                yield from self._put(arrivals, page, part)
            except InvalidError as error:
                if stop - start > 1:
                    middle = (start + stop) // 2
                    ranges += [(middle, stop), (start, middle)]
                    continue
                arrivals.refused, arrivals.refused_at = arrivals.refused + 1, time.monotonic()
                ident = page.batch[int(rows[start])].ident
                log.error("site %s: product %r is refused: %s", page.head.site, ident, error)

    def _put(self, arrivals: Arrivals, page: Page, keep: Keep | None) -> Generator[float, None, None]:
        """Put when the disk and the queue have room; InvalidError if the queue can never take it as it is."""

        def put() -> Receipt:
            return put_batch(log_of(self._queue), page.batch, keep, _ROOM_S, passed_on=True)

        receipt = yield from self._when_possible(arrivals, page, put)
        self._count(arrivals, page, keep, receipt)

    def _when_possible(
        self, arrivals: Arrivals, page: Page, act: Callable[[], Result]
    ) -> Generator[float, None, Result]:
        """Act, and repeat that as long as it fails for a reason that may pass; InvalidError does not."""
        while True:
            try:
                result = act()
                arrivals.waiting = ""
                return result
            except InvalidError:
                raise
            except (HeadraceError, OSError) as error:  # a full disk or a full queue: nothing is lost, it waits
                arrivals.waiting = str(error)
                log.debug("products of site %s wait: %s", page.head.site, error)
            yield _RETRY_S

    def _count(self, arrivals: Arrivals, page: Page, keep: Keep | None, receipt: Receipt) -> None:
        arrivals.products += receipt.stored
        arrivals.duplicates += receipt.products - receipt.stored
        if not receipt.products:
            return
        wanted = None if keep is None else keep.astype(np.bool_)
        if self._verifier is not None:
            self._verifier.note(page.batch, wanted)
        if self._remembered is not None:
            columns = page.columns
            self._remembered.add(columns if wanted is None else columns[wanted], page.batch.names)
        new = None
        if receipt.stored < receipt.products:
            new = np.ones(len(page.batch), np.bool_) if wanted is None else wanted.copy()
            new[new] = ~receipt.duplicates
        self._count_expired(arrivals, page, wanted if new is None else new)
        self.flows.add(page, wanted, new, log_of(self._queue).now_ns())
        if receipt.stored:
            head, sequences = page.head, page.sequences.tolist()
            source = Source(head.site, head.queue, min(sequences), max(sequences))
            self.hops.add(receipt.first, receipt.first + receipt.stored - 1, head.site, source)

    def _count_expired(self, arrivals: Arrivals, page: Page, new: Mask | None) -> None:
        """Count products that have expired by the clock of this site: the queue has them, and no reader sees them."""
        expires_ns = page.columns["expires_ns"] if new is None else page.columns["expires_ns"][new]
        if expires_ns.any():
            now_ns = log_of(self._queue).now_ns()
            count = int(np.count_nonzero((expires_ns > 0) & (expires_ns <= np.uint64(now_ns))))
            if count:
                arrivals.expired, arrivals.expired_at = arrivals.expired + count, time.monotonic()

    def _without_ours(self, page: Page, keep: Keep | None, arrivals: Arrivals) -> Keep | None:
        """Leave out products of this site that come back to it."""
        if page.head.stream == OWN:
            return keep
        others = np.array([origin != self._site for origin in page.batch.origins], np.uint8)
        arrivals.returned += int(np.count_nonzero(others == 0 if keep is None else keep > others))
        return others if keep is None else keep & others

    def _without_forged(self, request: str, page: Page, keep: Keep | None) -> Keep | None:
        """Leave out, and count for the site that sent them, products whose signature is not that of their content."""
        wrong = wrong_signatures(page.batch, keep)
        if wrong is None:
            return keep
        forged: dict[Cause, int] = {"wrong signature": int(np.count_nonzero(wrong))}
        self._tally.upstream(request, page.head.site).leave_out(forged, time.monotonic())
        right = (~wrong).astype(np.uint8)
        return right if keep is None else keep & right

    def _without_refused(
        self, request: str, page: Page, keep: Keep | None, verdicts: Keep, names: Mapping[int, Cause] = CAUSES
    ) -> Keep:
        """Leave out, and count for the site that sent them, products that may not enter; `names` are the causes."""
        counts = np.bincount(verdicts if keep is None else verdicts[keep.astype(np.bool_)])
        causes: dict[Cause, int] = {}
        for verdict, cause in names.items():
            if verdict < len(counts) and counts[verdict]:
                causes[cause] = causes.get(cause, 0) + int(counts[verdict])
        if causes:
            sender = self._tally.upstream(request, page.head.site)
            sender.leave_out(causes, time.monotonic())
            unwelcome = [verdict for verdict, cause in names.items() if cause != "not asked for"]
            refused = page.sequences[np.isin(verdicts, unwelcome)]
            sender.refused_upto = max(sender.refused_upto, int(refused.max(initial=0)))
        admitted: Keep = (verdicts == ADMITTED).astype(np.uint8)
        return admitted if keep is None else keep & admitted

    def _without_remembered(self, page: Page, keep: Keep | None, arrivals: Arrivals) -> Keep | None:
        """Leave out what has arrived, though the queue does not hold it, or does not recognise it."""
        if self._remembered is None:
            return keep
        known = self._remembered.knows(identities(page.batch.columns, page.batch.names))
        if keep is not None:
            known &= keep.astype(np.bool_)
        if not known.any():
            return keep
        arrivals.duplicates += int(np.count_nonzero(known))
        left = (~known).astype(np.uint8)
        return left if keep is None else keep & left

    def recognise(self, products: Identities) -> Mask:
        """Which of these have arrived, whichever site brought them."""
        return recognise(self._queue, self._remembered or Remembered(), products)
