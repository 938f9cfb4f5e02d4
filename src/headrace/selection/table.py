"""SubscriptionTable: which of very many subscriptions want this product?

    table = SubscriptionTable()
    table.add("anna", "wx/radar/**")
    table.add(17, Selection(tags={"station": "KFTG"}, ident="hail"), owner="anna")
    table.matches(product)              ->  ["anna", 17], in no particular order

`matches` gives exactly the keys whose `Selection.wants` holds, each once. Every selection stands in one index
(`access.py` lists them), under the term that it shares with the fewest others, and what the index does not decide is
checked. The time of a product therefore depends on its own feed, ident and properties and on the subscriptions found by
them, not on the number of the others. With `every=N` a key gets each Nth product of those that it wants; the table
counts for each key from the moment when it was added.

A subscription that no index can help, such as ident `x` or SQL without an equality, is residue: it is checked for
every product. That costs everybody, so there is room for `residue_max` of them and for `residue_owner_max` of one
owner, and for as many as `residue_max` under one term of an index. Beyond that `add` refuses. Every check is timed and
charged to its subscription; `statistics()` names the dearest.

Threads. Any number may call `matches` while others add and remove. Writers take turns at a lock. Readers take none,
except to copy the keys of a subscription once after these have changed: what they walk over is immutable and replaced
in one step. What was added before `matches` was called is found, what was removed before is not, and what changes
meanwhile is found or not, each key at most once. A key that is taken is refused: whoever changes a subscription adds
the new one under a new key, then removes the old one, and has no gap. A finalizer (`__del__`) must not add or remove:
it may run on a thread that holds the lock.

Not here: who the keys are and how products reach them.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest
from threading import Lock
from typing import Any, Protocol

from headrace.errors import SelectionError
from headrace.product.product import Product
from headrace.selection.access import Access
from headrace.selection.feed_index import FeedIndex
from headrace.selection.field_index import FieldIndex
from headrace.selection.regex_index import RegexIndex
from headrace.selection.residue import Residue
from headrace.selection.selection import Function, Selection
from headrace.selection.subscription import Subscription
from headrace.selection.tag_index import TagIndex
from headrace.selection.ways import undecided, ways

RESIDUE_MAX = 1000
RESIDUE_OWNER_MAX = 100
COMPANY_FREE = 8  # so many under one term cost no more than another way in
DEAREST = 10
_REMEDY = "name a feed, a tag, or three characters in a row that the ident must contain, or use = in `where`"


Wanted = Selection | str | Mapping[str, Any] | Function | None


class Index(Protocol):
    """What every index offers. A term is what `access.py` gives it; `add` returns what `remove` needs."""

    name: str

    def __len__(self) -> int: ...
    def find(self, product: Product) -> Iterable[Subscription]: ...
    def crowd(self, term: Any) -> int: ...
    def add(self, term: Any, subscription: Subscription) -> Any: ...
    def remove(self, placed: Any, subscription: Subscription) -> None: ...


@dataclass(frozen=True, slots=True)
class Expense:
    """What one selection has cost since it was added."""

    selection: str
    keys: int
    a_key: Hashable
    owner: Hashable  # of that key
    place: str  # the index it stands in
    checked: int
    wanted: int
    failed: int
    spent_s: float


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """A table at one moment. Counts go on when subscriptions are removed."""

    keys: int
    selections: int  # distinct ones
    placed: Mapping[str, int]  # selections by index
    residue: int  # selections checked for every product
    residue_max: int
    products: int  # calls of `matches`
    checked: int
    failed: int  # functions that raised; each counts as not wanted
    spent_s: float  # in checks
    dearest: tuple[Expense, ...]


class SubscriptionTable:
    """See the module."""

    def __init__(self, *, residue_max: int = RESIDUE_MAX, residue_owner_max: int = RESIDUE_OWNER_MAX) -> None:
        self.residue_max = residue_max
        self.residue_owner_max = residue_owner_max
        self._lock = Lock()
        self._residue = Residue()
        indexes: list[Index] = [
            FieldIndex("feed"), TagIndex(), RegexIndex(), FieldIndex("slice"), FieldIndex("origin"), FeedIndex(),
            self._residue,
        ]  # fmt: skip
        self._indexes = {index.name: index for index in indexes}
        self._finders: tuple[Callable[[Product], Iterable[Subscription]], ...] = ()
        self._by_key: dict[Hashable, Subscription] = {}
        self._by_meaning: dict[Hashable, Subscription] = {}
        self._owned: Counter[Hashable] = Counter()  # residue of each owner
        self._products = 0
        self._gone = Counter[str]()  # counts of removed subscriptions

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def matches(self, product: Product, now_ns: int = 0) -> list[Hashable]:
        """The keys that want a product, each once, in no particular order.

        `now_ns` is what `max_age_s` is measured against.
        """
        self._products += 1
        keys: list[Hashable] = []
        for find in self._finders:
            for subscription in find(product):
                if subscription.check is None or subscription.wants(product, now_ns):
                    keys += subscription.keys_now or subscription.refresh()
        return keys

    # --- changes ----------------------------------------------------------------------------------

    def add(self, key: Hashable, selection: Wanted = None, *, owner: Hashable = None) -> None:
        """From now on `key` is among the matches of what `selection` wants.

        SelectionError: the key is taken, a pattern is over its budget, or there is no room for one more that would have
        to be checked one by one. Nothing is changed then.
        """
        wanted = Selection.of(selection)
        meaning = _meaning(wanted)
        offered = [] if meaning in self._by_meaning else ways(wanted)
        with self._lock:
            if key in self._by_key:
                raise SelectionError(
                    f"the key {key!r} has a subscription already",
                    "add the new one under another key, then remove this one",
                )
            known = self._by_meaning.get(meaning)
            subscription = known or self._made(wanted, offered or ways(wanted))
            self._charge(subscription, owner)
            subscription.keys[key] = owner
            subscription.keys_now = None
            self._by_key[key] = subscription
            if known is None:
                self._link(subscription)

    def remove(self, key: Hashable) -> bool:
        """Forget a key; False if there was none."""
        with self._lock:
            subscription = self._by_key.pop(key, None)
            if subscription is None:
                return False
            owner = subscription.keys.pop(key)
            subscription.keys_now = None
            if _is_residue(subscription):
                self._owned[owner] -= 1
                if not self._owned[owner]:
                    del self._owned[owner]
            if not subscription.keys:
                self._unlink(subscription)
            return True

    def _made(self, selection: Selection, offered: list[Access]) -> Subscription:
        """A subscription by the way that decides everything, or else by the one with the least company."""
        for access in offered:
            if not undecided(selection, access):
                return Subscription(selection, access, None, self._lock)
        access = min(offered, key=lambda access: max(self._company(access), COMPANY_FREE))
        company = self._company(access)
        if company >= self.residue_max:
            raise _crowded(selection, access, company)
        return Subscription(selection, access, selection.wants, self._lock)

    def _company(self, access: Access) -> int:
        """How many would have to be checked together with a subscription that came by this way."""
        return max(self._indexes[access.index].crowd(term) for term in access.terms)

    def _charge(self, subscription: Subscription, owner: Hashable) -> None:
        if not _is_residue(subscription):
            return
        if owner is not None and self._owned[owner] >= self.residue_owner_max:
            raise SelectionError(
                f"{owner!r} has {self._owned[owner]} subscriptions already that every product is checked for",
                f"{_REMEDY}, or raise residue_owner_max",
            )
        self._owned[owner] += 1

    def _link(self, subscription: Subscription) -> None:
        index = self._indexes[subscription.access.index]
        subscription.placed = [index.add(term, subscription) for term in subscription.access.terms]
        if subscription.every == 1:
            self._by_meaning[_meaning(subscription.selection)] = subscription
        self._refresh()

    def _unlink(self, subscription: Subscription) -> None:
        index = self._indexes[subscription.access.index]
        for placed in subscription.placed:
            index.remove(placed, subscription)
        self._by_meaning.pop(_meaning(subscription.selection), None)
        self._gone.update(checked=subscription.checked, failed=subscription.failed, spent_ns=subscription.spent_ns)
        self._refresh()

    def _refresh(self) -> None:
        """Ask only those indexes that hold something."""
        self._finders = tuple(index.find for index in self._indexes.values() if len(index))

    # --- what it has cost -------------------------------------------------------------------------

    def statistics(self) -> TableStatistics:
        with self._lock:
            held = list(set(self._by_key.values()))
            gone = self._gone.copy()
            keys = len(self._by_key)
        return TableStatistics(
            keys=keys,
            selections=len(held),
            placed=dict(Counter(subscription.access.index for subscription in held)),
            residue=sum(map(_is_residue, held)),
            residue_max=self.residue_max,
            products=self._products,
            checked=gone["checked"] + sum(subscription.checked for subscription in held),
            failed=gone["failed"] + sum(subscription.failed for subscription in held),
            spent_s=(gone["spent_ns"] + sum(subscription.spent_ns for subscription in held)) / 1e9,
            dearest=tuple(map(_expense, nlargest(DEAREST, held, key=lambda subscription: subscription.spent_ns))),
        )


def _meaning(selection: Selection) -> Hashable:
    """What is alike for selections that want the same. Their texts tell True from 1, which equality does not."""
    return str(selection), id(selection.function)


def _is_residue(subscription: Subscription) -> bool:
    return subscription.is_dear and subscription.access.index == Residue.name


def _crowded(selection: Selection, access: Access, company: int) -> SelectionError:
    where = "for every product" if access.index == Residue.name else f"under the same {access.index}"
    return SelectionError(
        f"{company} subscriptions are checked one by one {where} already; there is no room for {str(selection)!r}",
        f"{_REMEDY}, or raise residue_max",
    )


def _expense(subscription: Subscription) -> Expense:
    key, owner = next(iter(subscription.keys.items()), (None, None))
    return Expense(
        selection=str(subscription.selection),
        keys=len(subscription.keys),
        a_key=key,
        owner=owner,
        place=subscription.access.index,
        checked=subscription.checked,
        wanted=subscription.wanted,
        failed=subscription.failed,
        spent_s=subscription.spent_ns / 1e9,
    )
