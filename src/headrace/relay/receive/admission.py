"""Admission: which products of an arriving page may enter: those that were asked for, and that their sender may bring.

Zenoh holds live pages against the rules by their keys, and a key says nothing about what is in a page, or in a reply.
So every page, on whatever path it comes, is held here against two things, product by product, before it is stored:

    rights       the site that sent it may publish this feed (link/rights.py), and the origin is the site itself, or the
                 rule is one with `relay`, or the product is vouched for
    selection    all that the request asked for, but `age`, which the sender measured when it sent, and `every`

Feed and origin are decided once for each feed of a sender, and looked up in a table by the numbers that a batch has for
names; the other clauses are evaluated only if the selection has them. Rules that change make a new receiver, and with
it new tables.

Not here: what becomes of the rest, and how it is counted (intake.py).
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import ProductDamagedError
from headrace.link.audit import Audit
from headrace.link.rights import EVERYBODY, Rights, Rule, sender_rights
from headrace.product.cause import Cause
from headrace.relay.messages.page import Page
from headrace.selection import Selection
from headrace.selection.matching import narrowed

ADMITTED, NOT_ASKED, NO_RIGHT, FOREIGN = range(4)  # FOREIGN: the feed is permitted, the origin is not the sender
_UNDECIDED = 255
_SENDERS_MAX = 64  # tables of a gate; any number of sites may hold an origin's products
CAUSES: Mapping[int, Cause] = {
    NOT_ASKED: "not asked for", NO_RIGHT: "refused by rights", FOREIGN: "refused by rights"
}  # fmt: skip

Mask = npt.NDArray[np.bool_]
Verdicts = npt.NDArray[np.uint8]
Vouch = Callable[[Page], Mask | None]

log = logging.getLogger("headrace.fabric")


def nobody_vouches(page: Page) -> Mask | None:
    """Which products of a page are proved to be of their origin, whoever brings them; None: none is."""
    return None


class Admission:
    """By the rules of one site. Threads may share it; each upstream has a gate of its own."""

    def __init__(
        self, rules: Sequence[Rule] = (), is_vouched: Vouch = nobody_vouches, audit: Audit | None = None
    ) -> None:
        self.rules, self.is_vouched, self.audit = tuple(rules), is_vouched, audit or Audit(None)
        self._named = dict.fromkeys(name for rule in rules if not rule.deny for name in rule.who if name != EVERYBODY)

    def rights(self, site: str) -> Rights:
        return sender_rights(self.rules, site)

    def names(self, site: str) -> bool:
        """Whether a rule names this very site."""
        return site in self._named

    def holders(self, present: Collection[str], feeds: str) -> list[str]:
        """Those of the sites that may bring products of other origins; with rules, only a site that one names may."""
        if not self.rules:
            return list(present)
        return [site for site in self._named if site in present and self.may_bring_foreign(site, feeds)]

    def may_bring_foreign(self, site: str, feeds: str) -> bool:
        """Whether the site may bring products of other origins, of feeds that match the pattern."""
        rights = self.rights(site)
        allowed = rights.relay if self.is_vouched is nobody_vouches else rights.publish
        return allowed.meets(feeds)

    def gate(self, selection: Selection) -> "Gate":
        return Gate(self, selection)


class Gate:
    """For what one selection asked for. One thread uses it."""

    def __init__(self, admission: Admission, selection: Selection) -> None:
        self._admission, self._selection = admission, selection
        content = selection.replace(max_age_s=None, function=None)
        self._content = None if content.is_cheap else content
        self._slices = None if selection.slices is None else np.array(selection.slices)
        self._names: Sequence[str] = ()
        self._tables: dict[tuple[str, bool], Verdicts] = {}  # by sender, and whether it is the origin: by feed

    def verdicts(self, page: Page) -> Verdicts | None:
        """For each product of the page's batch, whether it may enter, or why not; None: all may.

        DictionaryError if the selection looks at a payload that cannot be expanded now.
        """
        found = self._by_rights(page)
        wanted = self._wanted(page, None if found is None else found == ADMITTED)
        if wanted is not None:
            found = np.zeros(len(page.batch), np.uint8) if found is None else found
            found[(found == ADMITTED) & ~wanted] = NOT_ASKED
        return found

    def may_be_brought(self, page: Page) -> Mask:
        """For each product of the page's batch, whether its sender may bring it, asked for or not."""
        found = self._by_rights(page)
        return np.ones(len(page.batch), np.bool_) if found is None else found < NO_RIGHT

    # --- by feed and origin -------------------------------------------------------------------------

    def _by_rights(self, page: Page) -> Verdicts | None:
        """By feed and origin alone; None: all may enter."""
        if not len(page.batch):
            return None
        if self._names is not page.batch.names or len(self._tables) > _SENDERS_MAX:
            self._names, self._tables = page.batch.names, {}
        columns = page.batch.columns
        origins, feeds, site = columns["origin"], columns["feed"], page.head.site
        first = int(origins[0])
        if len(origins) == 1 or bool((origins == first).all()):
            found = self._of_origin(site, first, feeds)
        else:
            found = np.empty(len(origins), np.uint8)
            for origin in np.flatnonzero(np.bincount(origins)).tolist():
                rows = origins == origin
                found[rows] = self._of_origin(site, origin, feeds[rows])
        if not found.any():
            return None
        return self._vouched(page, found) if bool((found == FOREIGN).any()) else found

    def _of_origin(self, site: str, origin: int, feeds: Any) -> Verdicts:
        name = self._names[origin]
        key = (site, name == site)
        table = self._tables.get(key)
        if table is None or len(table) < len(self._names):
            table = self._tables[key] = _grown(table, len(self._names))
        found: Verdicts = table[feeds]
        if bool((found == _UNDECIDED).any()):
            for feed in np.unique(feeds[found == _UNDECIDED]).tolist():
                table[feed] = self._decide(site, self._names[feed], name)
            found = table[feeds]
        return found if self._selection.wants_origin(name) else np.maximum(found, NOT_ASKED)

    def _decide(self, site: str, feed: str, origin: str) -> int:
        rights = self._admission.rights(site)
        if not rights.may_send(feed, origin, site):
            verdict = FOREIGN if feed in rights.publish else NO_RIGHT
            why = "publish that feed" if verdict == NO_RIGHT else "bring other origins than its own"
            log.warning("site %s: products of feed %r and origin %r are refused: no rule permits it to %s",
                        site, feed, origin, why)  # fmt: skip
            self._admission.audit.refuse("publish", feed, principal=site, why=f"origin {origin}: it may not {why}")
            return verdict
        return ADMITTED if self._selection.wants_feed(feed) else NOT_ASKED

    def _vouched(self, page: Page, found: Verdicts) -> Verdicts | None:
        """Products that are proved to be of their origin may come from whoever may publish their feed."""
        vouched = self._admission.is_vouched(page)
        if vouched is None:
            return found
        columns, names = page.batch.columns, page.batch.names
        for row in np.flatnonzero(vouched & (found == FOREIGN)).tolist():
            feed, origin = names[int(columns["feed"][row])], names[int(columns["origin"][row])]
            is_asked = self._selection.wants_feed(feed) and self._selection.wants_origin(origin)
            found[row] = ADMITTED if is_asked else NOT_ASKED
        return found if found.any() else None

    # --- by the other clauses -----------------------------------------------------------------------

    def _wanted(self, page: Page, admitted: Mask | None) -> Mask | None:
        """Which products the other clauses select; None: all. Only those that are admitted are looked at."""
        selection, batch = self._selection, page.batch
        if self._content is None and selection.priority is None and self._slices is None:
            return None
        wanted = np.ones(len(batch), np.bool_) if admitted is None else admitted.copy()
        if selection.priority is not None:
            low, high = selection.priority
            wanted &= (batch.columns["priority"] >= low) & (batch.columns["priority"] <= high)
        if self._slices is not None:
            wanted &= np.isin(batch.columns["slice"], self._slices)
        if self._content is not None and wanted.any():
            places = self._narrowed(self._content, page, np.flatnonzero(wanted))
            wanted[:] = False
            wanted[places] = True
        return wanted

    def _narrowed(self, content: Selection, page: Page, places: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The places that match; a payload that cannot be what its record says matches nothing."""
        try:
            return narrowed(content, page.batch, places, 0)
        except ProductDamagedError:
            if len(places) == 1:
                return places[:0]
            return np.concatenate([self._narrowed(content, page, places[row : row + 1]) for row in range(len(places))])


def _grown(table: Verdicts | None, size: int) -> Verdicts:
    """A table with a place for each name, and for names to come."""
    if table is None:
        return np.full(size, _UNDECIDED, np.uint8)
    return np.concatenate([table, np.full(max(size, 2 * len(table)) - len(table), _UNDECIDED, np.uint8)])
