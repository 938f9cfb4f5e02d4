"""SubscriptionTable: which of very many subscriptions select this product?

    table = SubscriptionTable()
    table.add("anna", "wx/radar/**")
    table.add(17, Selection(tags={"station": "KFTG"}, ident="hail"), owner="anna")
    table.matches(product)              ->  ["anna", 17], in no particular order

`matches` returns exactly the keys whose `Selection.wants` holds, each once. Every selection stands in one index
(plan.py lists them), under the term that it shares with the fewest others, and what the index does not decide is
checked. The cost of a product therefore depends on its own feed, ident and properties and on the subscriptions that
they find, not on the number of the others. With `every=N` a key gets each Nth product that it selects; the table counts
for each key from the moment it was added.

A subscription that no index can help, such as ident `x` or SQL without an equality, is unindexed: it is checked for
every product. Every product pays for that, so there is a limit: `unindexed_max` in all, `unindexed_owner_max` for one
owner, and `unindexed_max` under one term of an index. Beyond that `add` refuses. Every check is timed and charged to
its subscription; `statistics()` names the costliest.

Threads. Any number may call `matches` while others add and remove. Writers serialise on a lock. Readers take none,
except to copy the keys of a subscription once after a change: what they read is immutable and replaced in one step.
A subscription that was added before `matches` was called is found, one that was removed before is not, and one that
changes during the call may be found or not, each key at most once. A key that is in use is refused: to change a
subscription without a gap, add the new one under a new key, then remove the old one. A finalizer (`__del__`) must not
add or remove: it may run on a thread that holds the lock.

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
from headrace.selection.functions import Function
from headrace.selection.selection import Selection
from headrace.selection.table.field_indexes import FeedIndex, FieldIndex, Unindexed
from headrace.selection.table.plan import access_paths, undecided
from headrace.selection.table.regex_index import RegexIndex
from headrace.selection.table.subscription import Access, Subscription
from headrace.selection.table.tag_index import TagIndex

UNINDEXED_MAX = 1000
UNINDEXED_OWNER_MAX = 100
LOAD_FREE = 8  # up to this many under one term cost no more than another access
COSTLIEST = 10
_REMEDY = "name a feed, a tag, or three characters in a row that the ident must contain, or use = in `where`"


Wanted = Selection | str | Mapping[str, Any] | Function | None


class Index(Protocol):
    """What every index offers. A term comes from plan.py; `add` returns what `remove` needs."""

    name: str

    def __len__(self) -> int: ...
    def find(self, product: Product) -> Iterable[Subscription]: ...
    def load(self, term: Any) -> int: ...
    def add(self, term: Any, subscription: Subscription) -> Any: ...
    def remove(self, placed: Any, subscription: Subscription) -> None: ...


@dataclass(frozen=True, slots=True)
class Cost:
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
    unindexed: int  # selections checked for every product
    unindexed_max: int
    products: int  # calls of `matches`
    checked: int
    failed: int  # functions that raised; each counts as not wanted
    spent_s: float  # in checks
    costliest: tuple[Cost, ...]


class SubscriptionTable:
    """See the module."""

    def __init__(self, *, unindexed_max: int = UNINDEXED_MAX, unindexed_owner_max: int = UNINDEXED_OWNER_MAX) -> None:
        self.unindexed_max = unindexed_max
        self.unindexed_owner_max = unindexed_owner_max
        self._lock = Lock()
        self._unindexed = Unindexed()
        indexes: list[Index] = [
            FieldIndex("feed"), TagIndex(), RegexIndex(), FieldIndex("slice"), FieldIndex("origin"), FeedIndex(),
            self._unindexed,
        ]  # fmt: skip
        self._indexes = {index.name: index for index in indexes}
        self._finders: tuple[Callable[[Product], Iterable[Subscription]], ...] = ()
        self._by_key: dict[Hashable, Subscription] = {}
        self._by_meaning: dict[Hashable, Subscription] = {}
        self._owned: Counter[Hashable] = Counter()  # unindexed of each owner
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
        """From now on `key` is among the matches of what `selection` selects.

        SelectionError, and nothing changed: the key is in use, a pattern exceeds its limit, or the limit of
        subscriptions that are checked one by one is reached.
        """
        wanted = Selection.of(selection)
        meaning = _meaning(wanted)
        offered = [] if meaning in self._by_meaning else access_paths(wanted)
        with self._lock:
            if key in self._by_key:
                raise SelectionError(
                    f"the key {key!r} has a subscription already",
                    "add the new one under another key, then remove this one",
                )
            known = self._by_meaning.get(meaning)
            subscription = known or self._made(wanted, offered or access_paths(wanted))
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
            if _is_unindexed(subscription):
                self._owned[owner] -= 1
                if not self._owned[owner]:
                    del self._owned[owner]
            if not subscription.keys:
                self._unlink(subscription)
            return True

    def _made(self, selection: Selection, offered: list[Access]) -> Subscription:
        """A subscription by the access that decides everything, or else by the one with the least load."""
        for access in offered:
            if not undecided(selection, access):
                return Subscription(selection, access, None, self._lock)
        access = min(offered, key=lambda access: max(self._load(access), LOAD_FREE))
        load = self._load(access)
        if load >= self.unindexed_max:
            raise _overloaded(selection, access, load)
        return Subscription(selection, access, selection.wants, self._lock)

    def _load(self, access: Access) -> int:
        """How many subscriptions are checked together with one that has this access."""
        return max(self._indexes[access.index].load(term) for term in access.terms)

    def _charge(self, subscription: Subscription, owner: Hashable) -> None:
        if not _is_unindexed(subscription):
            return
        if owner is not None and self._owned[owner] >= self.unindexed_owner_max:
            raise SelectionError(
                f"{owner!r} already has {self._owned[owner]} subscriptions that are checked for every product",
                f"{_REMEDY}, or raise unindexed_owner_max",
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
        """Look only into indexes that hold something."""
        self._finders = tuple(index.find for index in self._indexes.values() if len(index))

    # --- statistics -------------------------------------------------------------------------

    def statistics(self) -> TableStatistics:
        with self._lock:
            held = list(set(self._by_key.values()))
            gone = self._gone.copy()
            keys = len(self._by_key)
        return TableStatistics(
            keys=keys,
            selections=len(held),
            placed=dict(Counter(subscription.access.index for subscription in held)),
            unindexed=sum(map(_is_unindexed, held)),
            unindexed_max=self.unindexed_max,
            products=self._products,
            checked=gone["checked"] + sum(subscription.checked for subscription in held),
            failed=gone["failed"] + sum(subscription.failed for subscription in held),
            spent_s=(gone["spent_ns"] + sum(subscription.spent_ns for subscription in held)) / 1e9,
            costliest=tuple(map(_cost, nlargest(COSTLIEST, held, key=lambda subscription: subscription.spent_ns))),
        )


def _meaning(selection: Selection) -> Hashable:
    """A key that is equal for equal selections. Texts distinguish True from 1, which equality does not."""
    return str(selection), id(selection.function)


def _is_unindexed(subscription: Subscription) -> bool:
    return subscription.is_checked and subscription.access.index == Unindexed.name


def _overloaded(selection: Selection, access: Access, load: int) -> SelectionError:
    where = "for every product" if access.index == Unindexed.name else f"under the same {access.index}"
    return SelectionError(
        f"{load} subscriptions are already checked one by one {where}, the limit; {str(selection)!r} is refused",
        f"{_REMEDY}, or raise unindexed_max",
    )


def _cost(subscription: Subscription) -> Cost:
    key, owner = next(iter(subscription.keys.items()), (None, None))
    return Cost(
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
