"""Principal: what the clients of one name use of a site together, held against its quotas (link/quotas.py).

Quotas hold where there are rules. Without rules a name proves nothing: then all clients share one Principal without
limits; programs at the socket of the queue have none either. Names that no rule names share one with the clients that
have none.

Two kinds of refusal. What a principal holds (clients, consumers, stations, parts) is refused by an error that names the
quota. What it does per second (calls, bytes, processor time) makes the site busy for it: its clients pause and call
again, so that they are slowed down and do not fail. Both are counted by quota, and are problems of the site.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import QuotaError
from headrace.link.keys import AT_SOCKET
from headrace.link.quotas import Quotas, QuotaTable, refused
from headrace.link.rights import Rule, is_principal

if TYPE_CHECKING:
    from headrace.remote.server.clients import Client

_BURSTS_S = {"selection_s": 0.1}  # a second's worth of processor time at once would delay everybody else
_PIECES = 8  # of which the mean is taken
_NOTE_S = 1.0  # between two notes of one quota in the audit log

OnRefusal = Callable[[str | None, QuotaError], None]


@dataclass(frozen=True, slots=True)
class Refusals:
    """How often a principal was refused by one quota since the start, and when last."""

    principal: str | None
    quota: str
    limit: float
    count: int
    at: float  # monotonic seconds


@dataclass(slots=True)
class Rate:
    """A budget per second. It may be overdrawn once, so that one large piece passes; then it must recover.

    What was not used in the last `burst_s` is lost.
    """

    burst_s: float = 1.0
    left: float | None = None  # None: not used yet
    then: float = 0.0
    piece: float = 0.0  # what one piece of work commonly takes

    def allows(self, per_s: float, now: float) -> bool:
        most = per_s * self.burst_s
        before = most if self.left is None else self.left
        self.left, self.then = min(most, before + (now - self.then) * per_s), now
        return self.left > 0

    def spend(self, amount: float) -> None:
        self.left = (self.left or 0.0) - amount


@dataclass(eq=False)
class Principal:
    """One for each name; threads share it."""

    name: str | None
    table: QuotaTable | None  # None: no limits
    on_refusal: OnRefusal = lambda name, error: None
    now: Callable[[], float] = time.monotonic
    clients: "set[Client]" = field(default_factory=set)  # `Clients` changes it
    waiting_bytes: int = 0
    refused: dict[str, Refusals] = field(default_factory=dict)
    _introduced: dict[str, set[str]] = field(default_factory=dict)
    _rates: dict[str, Rate] = field(default_factory=dict)
    _noted: dict[str, float] = field(default_factory=dict)
    _waits: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def quotas(self) -> Quotas | None:
        return None if self.table is None else self.table.of(self.name)

    @property
    def has_limits(self) -> bool:
        return self.table is not None

    def refuse(self, quota: str) -> QuotaError:
        """Count a refusal; the error to raise."""
        quotas, now = self.quotas, self.now()
        assert quotas is not None
        limit = getattr(quotas, quota)
        error = refused(quota, limit, self.name)
        with self._lock:
            count = self.refused[quota].count if quota in self.refused else 0
            self.refused[quota] = Refusals(self.name, quota, limit, count + 1, now)
            is_new = now - self._noted.get(quota, -_NOTE_S) >= _NOTE_S
            if is_new:
                self._noted[quota] = now
        if is_new:
            self.on_refusal(self.name, error)
        return error

    # --- per second -------------------------------------------------------------------------------

    def takes(self, quota: str, amount: float = 1.0) -> bool:
        """Whether there is something left of a quota per second, of which this takes some."""
        return self._allows(quota, amount)

    def may_spend(self, quota: str) -> bool:
        """As `takes`, for what is known only afterwards: `spend`."""
        return self._allows(quota, 0.0)

    def _allows(self, quota: str, amount: float) -> bool:
        quotas = self.quotas
        if quotas is None:
            return True
        with self._lock:
            rate = self._rate(quota)
            allowed = rate.allows(getattr(quotas, quota), self.now())
            if allowed:
                rate.spend(amount)
        if not allowed:
            self.refuse(quota)
        return allowed

    def spend(self, quota: str, amount: float) -> None:
        if self.table is not None:
            with self._lock:
                self._rate(quota).spend(amount)

    def reserve(self, quota: str) -> float | None:
        """Take what a piece of work commonly costs, as soon as it is queued; None: there is nothing left.

        `settle` corrects that. Otherwise all that is queued before the first piece is done would be free.
        """
        with self._lock:
            expected = self._rate(quota).piece
        return expected if self._allows(quota, expected) else None

    def settle(self, quota: str, reserved: float, amount: float) -> None:
        """A piece of work is done, for which so much was reserved."""
        if self.table is not None:
            with self._lock:
                rate = self._rate(quota)
                rate.piece += (amount - rate.piece) / _PIECES
                rate.spend(amount - reserved)

    def _rate(self, quota: str) -> Rate:
        return self._rates.setdefault(quota, Rate(_BURSTS_S.get(quota, 1.0)))

    # --- what it holds ----------------------------------------------------------------------------

    def check(self, quota: str, held: int) -> None:
        """QuotaError if it holds as much as it may."""
        quotas = self.quotas
        if quotas is not None and held >= getattr(quotas, quota):
            raise self.refuse(quota)

    def hold(self, size: int) -> bool:
        """Keep so many bytes of a payload until `release`; False if that is too much. A single one always may."""
        quotas = self.quotas
        with self._lock:
            fits = quotas is None or not self.waiting_bytes or self.waiting_bytes + size <= quotas.waiting_bytes
            if fits:
                self.waiting_bytes += size
        if not fits:
            self.refuse("waiting_bytes")
        return fits

    def release(self, size: int) -> None:
        with self._lock:
            self.waiting_bytes -= size

    def introduce(self, quota: str, names: Iterable[str]) -> None:
        """QuotaError if these names, which are new to the queue, are more than it may add: they stay there for good."""
        quotas = self.quotas
        if quotas is None:
            return
        with self._lock:
            known = self._introduced.setdefault(quota, set())
            new = set(names) - known
            fits = len(known) + len(new) <= getattr(quotas, quota)
            if fits:
                known |= new
        if not fits:
            raise self.refuse(quota)

    def consumers(self) -> int:
        """And suppliers, of all its clients."""
        return sum(len(client.consumers) + len(client.suppliers) for client in self.clients)


class Principals:
    """All principals of a site. Any thread may use it."""

    def __init__(self, rules: Sequence[Rule], table: QuotaTable, on_refusal: OnRefusal) -> None:
        self._rules, self._on_refusal = rules, on_refusal
        self._table = table if rules else None
        self._all: dict[str | None, Principal] = {}
        self._lock = threading.Lock()

    def of(self, name: str | None) -> Principal:
        key = name if is_principal(self._rules, name) else None
        with self._lock:
            found = self._all.get(key)
            if found is None:
                found = self._all[key] = Principal(key, None if key == AT_SOCKET else self._table, self._on_refusal)
            return found

    def refusals(self) -> list[Refusals]:
        """By all quotas so far."""
        with self._lock:
            known = list(self._all.values())
        return [each for principal in known for each in list(principal.refused.values())]
