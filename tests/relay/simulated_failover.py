"""A request that fails over, in a simulated world: sites that relay, and a receiver whose queue evicts.

    Relay      a site that has products of the origin, in its own order: some of them, some late
    Receiver   Failover, an upstream at one site and standbys at the others; may die at any moment and start again

What the receiver stores is a list of numbers instead of a queue. It recognises what it holds, as a queue does by
signatures, and what it remembers (the real Remembered); `has_signatures` says whether it recognises what it holds.
"""

from collections import deque
from functools import cached_property, partial
from typing import Any

import numpy as np
from simulated_driver import Driver
from simulation import Corpus, Network, Origin, Site, World

from headrace import Selection
from headrace.relay.messages.inventory import Identities, identities
from headrace.relay.messages.query import Trace, TraceReply
from headrace.relay.messages.source import Source
from headrace.relay.receive import actions
from headrace.relay.receive.failover import LOOK_S, Failover, Running
from headrace.relay.receive.remembered import Remembered
from headrace.relay.receive.standby import Standby
from headrace.relay.receive.track import Known
from headrace.relay.receive.upstream import Upstream, UpstreamStatistics

SELECTION = "**"
_SAVE_S = 1.0


Place = tuple[str, bytes, int]  # a site, its queue, and a sequence there


class Relay(Origin):
    """It begins without products."""

    def take(self, numbers: list[int], places: list[Place] | None = None) -> None:
        """These products of the corpus have arrived here, from these places; without places, they were put here."""
        for at, number in enumerate(numbers):
            if places is not None:
                self.places[self.queue, self.next] = places[at]
            self.log.append(number)
        if self.present:
            for stream in self.streams.values():
                stream.advance()

    @cached_property
    def places(self) -> dict[tuple[bytes, int], Place]:
        """By queue and sequence: where a product came from."""
        return {}

    def trace(self, query: Trace) -> TraceReply:
        """As hops.py does it, for exactly this range."""
        rows = range(query.first, query.last + 1)
        rest = [row for row in rows if (self.queue, row) not in self.places]
        found: dict[tuple[str, bytes], list[int]] = {}
        for row in rows:
            if place := self.places.get((self.queue, row)):
                found.setdefault(place[:2], []).append(place[2])
        sources = tuple(Source(site, queue, min(there), max(there)) for (site, queue), there in found.items())
        return TraceReply(self.queue, sources, *((rest[0], rest[-1]) if rest else (query.last + 1, query.last)))

    def place_of(self, number: int) -> Place | None:
        """Where it holds a product."""
        for row in range(self.next - 1, self.oldest - 1, -1):
            if self.log[row] == number:
                return self.name, self.queue, row
        return None

    def renew(self, queue: bytes, numbers: list[int]) -> None:
        """It has a new queue, with these products."""
        self.queue, self.log, self.oldest = queue, [0, *numbers], 1
        self.restart()
        self.world.note(f"{self.name} has a new queue with {len(numbers)} products")


class Member(Driver):
    """Drives one machine of the receiver."""

    def __init__(self, receiver: "Receiver", machine: Upstream | Standby) -> None:
        self._receiver, self._has_ended = receiver, False
        super().__init__(receiver.world, receiver.network, receiver.sites, machine)  # type: ignore[arg-type]

    @property
    def site(self) -> str:
        return self.upstream.site

    @property
    def known(self) -> Known:
        return self.upstream.known

    @property
    def statistics(self) -> UpstreamStatistics:
        return self.upstream.statistics

    def end(self) -> None:
        self._steps.close()
        self._ticket = self._live = self._pausing = None
        self._has_ended = True

    def has_ended(self, within_s: float = 0.0) -> bool:
        return self._has_ended

    def save(self) -> None:
        self._receiver.save()

    def listens(self, stream: str, feed: str | None) -> bool:
        return not self._has_ended and super().listens(stream, feed)

    def hear(self, feed: str | None, attachment: bytes, payload: bytes, corrupted: bool) -> None:
        if not self._has_ended:
            super().hear(feed, attachment, payload, corrupted)

    def _note_start(self, site: Site, sequence: int) -> None:
        self._receiver.begun[site.name, site.queue] = sequence  # the last reply counts: earlier ones were lost

    def _store(self, action: actions.Store) -> None:
        self._receiver.store(action, is_live=self.statistics.state == "live")

    def _recognise(self, action: actions.Recognise) -> Any:
        return self._receiver.recognise(action.products)

    def _find_missing(self, action: actions.FindMissing) -> tuple[int, int]:
        return action.first, action.last  # nothing is put at a relay


class Receiver:
    """One fail-over request. `capacity` is how many products its queue holds."""

    def __init__(
        self, world: World, network: Network, sites: dict[str, Site], corpus: Corpus, begin_at: str, capacity: int,
        *, has_signatures: bool = True,
    ) -> None:  # fmt: skip
        self.world, self.network, self.sites = world, network, sites
        self._corpus, self._begin_at, self._has_signatures = corpus, begin_at, has_signatures
        self.counts: dict[int, int] = {}  # by number: how often it was stored
        self.held: deque[int] = deque(maxlen=capacity)
        self.begun: dict[tuple[str, bytes], int] = {}  # by site and queue: where it began
        self.met: set[tuple[str, bytes]] = set()  # sites and their queues
        self.lost: list[tuple[str, int, int]] = []
        self._saved: dict[str, Known] = {}
        self.deaths = self._run = 0
        self._start()

    def _start(self) -> None:
        self._run += 1
        self.remembered = Remembered(4096)
        if not self._has_signatures and self.held:
            self.remembered.add(self._corpus.columns[list(self.held)], self._corpus.names)
        self.members: dict[str, Member] = {}
        self.failover: Failover | None = None
        self.failover = Failover(
            "r", tuple(self.sites), lambda: self.world.now, serve=self._serve, stand_by=self._stand_by,
            is_present=lambda site: self.sites[site].present, takes_from_us=lambda site: False,
        )  # fmt: skip
        self.world.after(LOOK_S, partial(self._look, self._run))
        self.world.after(_SAVE_S, partial(self._save_regularly, self._run))

    def die(self) -> None:
        """kill -9, and a new start with what was saved and what the queue holds."""
        self.deaths += 1
        self.world.note("the receiver dies")
        for member in self.members.values():
            self._note_lost(member)
            member.end()
        self._start()

    def _look(self, run: int) -> None:
        if run == self._run and self.failover is not None:
            self.failover.look()
            self.world.after(LOOK_S, partial(self._look, run))

    def _save_regularly(self, run: int) -> None:
        if run == self._run:
            self.save()
            self.world.after(_SAVE_S, partial(self._save_regularly, run))

    def save(self) -> None:
        self.met |= {(site, member.known.queue) for site, member in self.members.items() if member.known.queue}
        self._saved |= {site: member.known for site, member in self.members.items() if member.known.queue}

    def _serve(self, site: str, before: Running | None, from_oldest: bool) -> Member:
        begin_at = "oldest" if from_oldest else self._begin_at
        return self._begin(Upstream(site, Selection.parse(SELECTION), begin_at, lambda: self.world.now, relayed=True,
                                    others=partial(self._others, site), known=self._known(site, before),
                                    statistics=before.statistics if before else None))  # fmt: skip

    def _stand_by(self, site: str, before: Running | None) -> Member:
        return self._begin(Standby(site, Selection.parse(SELECTION), self._begin_at, lambda: self.world.now,
                                   self._served_by, partial(self._others, site), known=self._known(site, before),
                                   statistics=before.statistics if before else None))  # fmt: skip

    def _known(self, site: str, before: Running | None) -> Known | None:
        known = self._saved.get(site) if before is None else before.known
        return known if known is not None and known.queue else None

    def _others(self, site: str) -> dict[str, Known]:
        return {name: member.known for name, member in self.members.items() if name != site}

    def _served_by(self) -> tuple[str, Known] | None:
        active = self.failover.active if self.failover is not None else None
        return (active.site, active.known) if active is not None and active.statistics.state == "live" else None

    def _begin(self, machine: Upstream | Standby) -> Member:
        member = self.members[machine.site] = Member(self, machine)
        site = self.sites[machine.site]
        assert isinstance(site, Relay)
        site.subscribers = [member]
        self.world.note(f"{type(machine).__name__} at {machine.site} behind {machine.known.base}")
        return member

    # --- its queue ----------------------------------------------------------------------------------

    def store(self, action: actions.Store, *, is_live: bool) -> None:
        batch = action.page.batch
        keep = np.ones(len(batch), np.bool_) if action.keep is None else action.keep.astype(np.bool_)
        if not is_live or not self._has_signatures:
            keep = keep & ~self.remembered.knows(identities(batch.columns, batch.names))
        for product, is_kept in zip(batch, keep.tolist(), strict=True):
            number = int(bytes(product.payload).split()[0])
            if is_kept and not (self._has_signatures and number in self.held):
                self.counts[number] = self.counts.get(number, 0) + 1
                self.held.append(number)
        self.remembered.add(batch.columns[keep], batch.names)
        self.world.note(f"stored {int(keep.sum())} of {action.page.head.site} up to {action.page.head.upto}")

    def recognise(self, products: Identities) -> Any:
        known = self.remembered.knows(products)
        if self._has_signatures and self.held:
            held = self._corpus.columns[list(self.held)]["signature"]
            known |= np.isin(products.signatures.view("S16"), held.view("S16"))
        return known

    def _note_lost(self, member: Member) -> None:
        self.lost += [(member.site, first, last) for first, last, _ in member.statistics.lost]

    def named_as_lost(self) -> set[int]:
        """Numbers in ranges that were named; in the sequences of the site as it is now."""
        for member in self.members.values():
            self._note_lost(member)
        return {self.sites[site].log[row] for site, first, last in self.lost
                for row in range(first, min(last + 1, self.sites[site].next))}  # fmt: skip
