"""Gates: what makes a put wait for stations, or refuses it.

Three reasons, all recognised by the kernel while it appends (kernel/log/gates.pxi):

    blocked     a blocking station has as many products waiting as its capacity
    rejected    a station has `max_queue` products waiting
    held        the queue is full of products that a blocking station has not settled

The kernel refuses the append and `make_way` deals with it: it brings the station up to date and looks for dead
consumers, since either may make room. Only if the next attempt is refused too does it sleep until a consumer makes
room or the timeout is over. So a put waits only for work that is really left to do. A put that waits says for whom
(log/waits.py), on the logger `headrace.queue`.
"""

import contextlib
import logging
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from headrace.errors import BlockedError, RejectedError, StationMissingError
from headrace.kernel import _kernel as kernel
from headrace.log.seams import RECHECK_S, Storage, Wait
from headrace.log.waits import Waits
from headrace.selection import Selection
from headrace.station.chain import OpenChain
from headrace.station.document import chain_path
from headrace.station.stations import Stations
from headrace.station.terms import StationTerms
from headrace.units import format_count

_CODES = kernel.CODES
_NAMED_MAX = 5  # stations in one message

logger = logging.getLogger("headrace.queue")
_Gate = tuple[StationTerms | None, OpenChain]  # a station that may refuse; None: a chain that holds products


class StationGates:
    """The stations that writers of this process have to respect (log/seams.py: Gate)."""

    def __init__(self, stations: Stations) -> None:
        self._stations = stations
        self._gates: list[_Gate] = []
        self._waits = Waits()

    def make_way(self, error: kernel.KernelError, wait: Wait) -> None:
        """Remove the reason why the kernel refused an append, or wait for it; an error after the timeout."""
        if error.code == _CODES["stations"]:
            self.make_gates()
        else:
            self._wait_at(error, wait)

    def make_gates(self) -> None:
        """Tell the kernel which stations may refuse a put; it asks again when the stations have changed."""
        stations = self._stations
        number = stations.log.state["stations"]
        gates: list[tuple[kernel.Chain, int | None, npt.NDArray[np.uint8] | None]] = []
        made: list[_Gate] = []
        try:
            for terms in stations.document.stations:
                if (terms.blocking and (terms.capacity or terms.group)) or terms.max_queue:
                    chain = stations.chain(terms.chain)
                    gates.append((chain.kernel, terms.member, self._feeds(terms, chain)))
                    made.append((terms, chain))
            for holding in sorted({terms.chain for terms in stations.document.stations if terms.blocking}):
                chain = stations.chain(holding)
                gates.append((chain.kernel, None, None))
                made.append((None, chain))
        except StationMissingError:  # removed at this moment: the next append asks for gates again
            return
        kernel.set_gates(stations.log, number, gates)
        self._gates = made

    def save(self, storage: Storage) -> None:
        """Make the positions of all chains survive a power failure."""
        stations = self._stations
        for number in stations.document.chains:
            with contextlib.suppress(StationMissingError, FileNotFoundError):  # removed at this moment
                stations.chain(number).kernel.save_cell()
                storage.sync_file(chain_path(stations.path, number))

    def _feeds(self, terms: StationTerms, chain: OpenChain) -> npt.NDArray[np.uint8] | None:
        """Which feeds the station may want, by number; puts of other feeds do not wait for it. None: any feed."""
        selection = Selection.parse(terms.selection)
        if any(retired.until > chain.kernel.position for retired in terms.retired) or selection.feed is None:
            return None
        log = self._stations.log
        end = log.learn_names()
        return np.array([bool(name) and selection.wants_feed(name) for name in log.names[:end]], np.uint8)

    # --- wait -------------------------------------------------------------------------------------

    def _wait_at(self, error: kernel.KernelError, wait: Wait) -> None:
        """The first refusal brings the chain up to date; the next one waits, or raises."""
        gate = self._gate(error)
        if gate is None:
            return
        terms, chain = gate
        seen = chain.kernel.watch_room(terms is None)
        if wait.seen.get(chain.number) != seen:
            wait.seen[chain.number] = seen
            self._bring_up_to_date(terms, chain, wait)
            return
        wait.seen.clear()
        if error.code == _CODES["rejected"] and terms is not None:
            chain.kernel.count_rejected(terms.member)
        if error.code == _CODES["rejected"] or wait.left_s <= 0:
            self._refuse(error, terms, chain)
        if self._waits.is_due(chain.number, seen, wait.begun_s):
            logger.warning("waiting for %s%s", self._waits_for(terms, chain), self._full_too(chain))
        chain.kernel.wait_room(seen, min(wait.left_s, RECHECK_S))

    def _bring_up_to_date(self, terms: StationTerms | None, chain: OpenChain, wait: Wait) -> None:
        if wait.left_s <= 0 or chain.kernel.may_look():
            self._stations.recover(chain)
        if terms is None or not chain.kernel.is_surely_full(terms.member):
            self._stations.conduct(chain, calls=wait.left_s > 0)  # functions may be slow: not if the put may not wait
        if terms is not None and terms.retired:
            self.make_gates()  # an old selection may have decided about all of its products by now

    def _gate(self, error: kernel.KernelError) -> _Gate | None:
        """The gate that refused the append; None if the stations have changed since."""
        gates = self._gates
        if error.code == _CODES["held"]:
            holding = [gate for gate in gates if gate[0] is None]
            return min(holding, key=lambda gate: gate[1].kernel.low, default=None)
        return gates[error.file] if error.file < len(gates) and gates[error.file][0] is not None else None

    def _refuse(self, error: kernel.KernelError, terms: StationTerms | None, chain: OpenChain) -> NoReturn:
        stations = self._stations
        if error.code == _CODES["held"]:
            names = [repr(other.name) for other in stations.document.chain(chain.number) if other.blocking]
            who = f"station {names[0]} has" if len(names) == 1 else f"stations {', '.join(names)} have"
            raise BlockedError(
                f"{stations.path} is full of products that {who} not acknowledged; nothing was stored",
                "attach consumers, enlarge the queue, or remove the station",
                self._waits_for(terms, chain),
            )
        assert terms is not None
        if error.code == _CODES["rejected"]:
            raise RejectedError(
                f"station {terms.name!r} has {format_count(terms.max_queue or 0, 'product')} waiting, its max_queue; "
                "nothing was stored",
                "put again when its consumers have caught up, or raise max_queue",
            )
        raise BlockedError(
            f"blocking station {terms.name!r} was full until the timeout ({self._fullness(terms, chain)}); "
            "nothing was stored",
            "attach more consumers, raise its capacity, or give the put a longer timeout",
            self._waits_for(terms, chain),
        )

    # --- for whom ---------------------------------------------------------------------------------

    def _waits_for(self, terms: StationTerms | None, chain: OpenChain) -> str:
        """The station that makes puts wait, or those whose products fill the queue."""
        if terms is not None:
            return self._named(terms, chain)
        blocking = [other for other in self._stations.document.chain(chain.number) if other.blocking]
        return f"{_listed([self._named(other, chain) for other in blocking])}; their products fill the queue"

    def _full_too(self, chain: OpenChain) -> str:
        """Stations of other chains that would make puts wait next."""
        full = [
            self._named(terms, other)
            for terms, other in self._gates
            if terms is not None and other is not chain and self._is_full(terms, other)
        ]
        return f"; full too: {_listed(full)}" if full else ""

    def _named(self, terms: StationTerms, chain: OpenChain) -> str:
        return f"station {terms.name}: {self._fullness(terms, chain)}"

    def _fullness(self, terms: StationTerms, chain: OpenChain) -> str:
        """How many products wait, and who could take them."""
        of = f" of {terms.capacity:,}" if terms.capacity else ""
        consumers = sum(member == terms.member for _, member, *_ in chain.kernel.consumers())
        attached = f"{format_count(consumers, 'consumer')} attached" if consumers else "no consumer attached"
        return f"{self._backlog(terms, chain):,}{of} waiting, {attached}{', paused' if terms.paused else ''}"

    def _backlog(self, terms: StationTerms, chain: OpenChain) -> int:
        """What waits at the station, as the kernel counts it: up to its capacity, what is not scanned yet included."""
        waiting = chain.kernel.waiting(terms.member)
        unread = max(0, self._stations.log.tail - chain.kernel.position)
        return max(waiting, min(waiting + unread, terms.capacity or waiting))

    def _is_full(self, terms: StationTerms, chain: OpenChain) -> bool:
        """Whether it blocks and is full of products that it selects: the log is scanned for it first."""
        if terms.blocking and not chain.kernel.is_surely_full(terms.member):
            self._stations.conduct(chain)
        return terms.blocking and chain.kernel.is_surely_full(terms.member)


def _listed(names: list[str]) -> str:
    """The first few of them, and how many more there are."""
    shown = "; ".join(names[:_NAMED_MAX])
    return f"{shown}; {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else shown
