"""Steering: one round of keeping a site's clock: look at the system, ask servers that are due, correct the words.

The words are in memory that every process of the queue maps (log/clock_words.py), and one process steers. It continues
from the words that it finds, so a restart of the keeper moves nothing. A site without a source that is right follows
the clock of the system nevertheless, without a bound, so that its time stamps do not go back when somebody sets it.

Not here: the thread, the lock and the file for others (keeper.py).
"""

import logging
import os
from dataclasses import replace
from typing import Protocol

import msgspec

from headrace.log.clock_words import NO_SOURCE, NTP, SOURCES, SYSTEM, ClockWords
from headrace.timing.clock.association import BURST_S, Association
from headrace.timing.clock.discipline import READING_NS, Estimate, steer
from headrace.timing.clock.following import Following
from headrace.timing.clock.machine import Machine
from headrace.timing.clock.ntp import Ntp
from headrace.timing.clock.samples import Rate
from headrace.timing.clock.sockets import Sockets
from headrace.timing.clock.state import ClockState, ServerState, Situation
from headrace.timing.clock.terms import ClockTerms, check_server

LOOK_S = 1.0  # at the clock of the system
REFRESH_NS = 8_000_000_000  # how often the bound of the system's clock is copied
_NS = 1_000_000_000

log = logging.getLogger("headrace.clock")


class SharedClock(Protocol):
    """Where the words are."""

    def read_clock(self) -> ClockWords | None: ...
    def write_clock(self, words: ClockWords) -> None: ...
    def clear_clock(self) -> None: ...


class Steering:
    """Keeps the words right; used by one thread."""

    def __init__(self, clock: SharedClock, terms: ClockTerms, machine: Machine, burst_s: float = BURST_S) -> None:
        self._clock, self._terms, self._machine = clock, terms, machine
        self._ntp = Ntp([Association(check_server(each), terms.poll_s, burst_s) for each in terms.servers])
        self._sockets = Sockets(machine)
        self._following = Following()
        self._kernel = machine.kernel()
        self._moment = machine.moment()
        self._source: int | None = None
        self._written_ns = 0
        self._fresh = False  # there are new samples
        self.steps = self.stepped_ns = 0
        self._start_from(clock.read_clock())

    def _start_from(self, words: ClockWords | None) -> None:
        if words is None or not words.bound_ns:
            return
        boot_ns = self._moment.boot_ns
        offset_ns, half_ns = words.at(boot_ns) - boot_ns, words.bound_at(boot_ns)
        rate = Rate(words.then_ppb, words.drift_ppb)
        self._ntp.start_from(Estimate(boot_ns, offset_ns, offset_ns - half_ns, offset_ns + half_ns, rate))

    def act(self) -> None:
        """Everything that is due."""
        self._look()
        if self._source == NTP:
            self._exchange()
        else:
            self._follow()

    def wait(self) -> None:
        """Until replies have come, or something is due: at most a second."""
        boot_ns = self._machine.moment().boot_ns
        due = [each.due_ns for each in self._ntp.servers if each.due_ns is not None] if self._source == NTP else []
        wait_s = min([LOOK_S, *((due_ns - boot_ns) / _NS for due_ns in due)])
        self._fresh |= bool(self._sockets.wait(wait_s, self._ntp.frequency.rate))

    def wake(self) -> None:
        """End a wait; from any thread."""
        self._sockets.wake()

    def close(self) -> None:
        """Leave the words as they are: their bound grows. Without a bound, the system's clock counts again."""
        self._sockets.close()
        words, moment = self._clock.read_clock(), self._machine.moment()
        if words is None or words.bound_ns:
            return
        if words.at(moment.boot_ns) <= moment.system_ns + READING_NS + moment.width_ns:
            self._clock.clear_clock()

    # --- sources ----------------------------------------------------------------------------------

    def _look(self) -> None:
        """At the clock of the system: whether it was set, or runs at another rate, and who disciplines it."""
        before, before_ns = self._kernel, self._moment.boot_ns
        self._moment, self._kernel = self._machine.moment(), self._machine.kernel()
        if self._following.look(self._moment):
            log.warning("the clock of the system was set by %+.3f s", self._following.step_ns / 1e9)
            self._written_ns = 0
        source = self._choose()
        if source != self._source:
            self._source, self._written_ns = source, 0
            log.info("source of the time: %s%s", SOURCES[source], f" ({self._unkept()})" if source == NO_SOURCE else "")
        if self._kernel.rate_ppb != before.rate_ppb:
            self._ntp.disturb(self._kernel.rate_ppb - before.rate_ppb, before_ns, self._moment.boot_ns)
            self._written_ns = 0

    def _choose(self) -> int:
        if self._terms.source == "ntp":
            return NTP
        if self._kernel.is_disciplined:
            return SYSTEM
        return NTP if self._terms.servers else NO_SOURCE

    def _follow(self) -> None:
        estimate = self._following.estimate(self._moment, self._kernel)
        words = self._clock.read_clock()
        boot_ns = self._moment.boot_ns
        is_better = words is not None and estimate.high_ns - estimate.offset_ns < words.bound_at(boot_ns) * 9 // 10
        if not self._written_ns or boot_ns - self._written_ns >= REFRESH_NS or (self._source == SYSTEM and is_better):
            self._steer(estimate)

    def _exchange(self) -> None:
        for server in self._ntp.servers:
            if server.due_ns is not None and server.due_ns <= self._machine.moment().boot_ns:
                self._sockets.ask(server)
        boot_ns = self._machine.moment().boot_ns
        is_new, self._fresh = self._fresh and self._ntp.elect(boot_ns), False
        estimate = self._ntp.estimate(boot_ns)
        if estimate is None:
            self._follow_meanwhile()
        elif is_new or not self._written_ns or self._is_corrected(boot_ns):
            self._steer(estimate)

    def _follow_meanwhile(self) -> None:
        """Before the servers have agreed for the first time: the clock of the system, without a bound."""
        if not self._written_ns:
            self._steer(self._following.estimate(self._moment, self._kernel), NO_SOURCE)

    def _is_corrected(self, boot_ns: int) -> bool:
        """A correction has ended since the words were written, so the bound is smaller now."""
        words = self._clock.read_clock()
        return words is not None and words.boot_ns < words.until_boot_ns <= boot_ns

    def _steer(self, estimate: Estimate, source: int | None = None) -> None:
        source = (self._source or NO_SOURCE) if source is None else source
        moment = self._machine.moment()
        words, estimate = self._clock.read_clock(), estimate.aged(moment.boot_ns, estimate.rate)
        shown_ns = moment.system_ns if words is None else words.at(moment.boot_ns)
        steered = steer(shown_ns, estimate, source, moment.system_ns)
        unknown = source == NO_SOURCE
        self._clock.write_clock(replace(steered.words, bound_ns=0, drift_ppb=0) if unknown else steered.words)
        self._written_ns = moment.boot_ns
        if steered.stepped_ns:
            self.steps, self.stepped_ns = self.steps + 1, steered.stepped_ns
            log.warning("the clock of the site jumped ahead by %.3f s", steered.stepped_ns / 1e9)

    # --- for people -------------------------------------------------------------------------------

    def state(self) -> ClockState:
        moment = self._machine.moment()
        words = self._clock.read_clock() or ClockWords(0, 0)
        boot_ns = moment.boot_ns
        situation, why = self._situation(boot_ns)
        left_ns = 0
        if words.until_boot_ns > boot_ns:
            left_ns = (words.until_boot_ns - boot_ns) * (words.rate_ppb - words.then_ppb) // _NS
        shown_ns = words.at(boot_ns) if words.boot_ns else moment.system_ns
        return ClockState(
            wanted=self._terms.source, source=SOURCES[self._source or NO_SOURCE], situation=situation, why=why,
            offset_ns=shown_ns - moment.system_ns, bound_ns=words.bound_at(boot_ns) if words.bound_ns else None,
            drift_ppb=words.drift_ppb, rate_ppb=words.then_ppb, left_ns=left_ns, steps=self.steps,
            stepped_ns=self.stepped_ns, system_steps=self._following.steps, contradicted=self._ntp.contradicted,
            disturbed=self._ntp.disturbed,
            servers=tuple(self._server(server, shown_ns - boot_ns, boot_ns) for server in self._ntp.servers),
            process=os.getpid(), saved_boot_ns=boot_ns,
        )  # fmt: skip

    def _situation(self, boot_ns: int) -> tuple[Situation, str]:
        if self._source == SYSTEM and self._kernel.is_disciplined:
            return "synchronised", ""
        if self._source != NTP:
            return "unsynchronised", self._unkept()
        agreed_ns, servers = self._ntp.elected_ns, self._ntp.servers
        if agreed_ns and boot_ns - agreed_ns < 3 * max(each.poll_s for each in servers) * _NS + 10 * _NS:
            return "synchronised", ""
        known: Situation = "unsynchronised" if self._ntp.estimate(boot_ns) is None else "holdover"
        if any(each.state == "waiting" for each in servers):
            return ("holdover" if known == "holdover" else "starting"), "the servers have not replied yet"
        replying = sum(each.state == "reachable" for each in servers)
        why = f"{replying} of {len(servers)} servers reply, and no majority agrees" if replying else "no server replies"
        return known, why

    def _unkept(self) -> str:
        why = self._kernel.trouble or "no daemon disciplines the clock of the system"
        return why + ("" if self._terms.source == "system" else ", and no server is named")

    def _server(self, server: Association, offset_ns: int, boot_ns: int) -> ServerState:
        rate, last = self._ntp.frequency.rate, server.last
        best = server.filter.best(boot_ns, rate)
        verdict = self._ntp.verdicts.get(server.name, "waiting") if server.state == "reachable" else server.state
        if not best and server.refused["unsynchronised"]:
            verdict = "unsynchronised"
        common = ServerState(
            server.name, verdict, self._sockets.addresses.get(server.name, ""), 0 if last is None else last.stratum,
            server.reached, asked=server.asked, accepted=server.accepted, refused=dict(server.refused),
            stepped=server.stepped, trouble=server.denied or server.trouble,
        )  # fmt: skip
        if best is None:
            return common
        return msgspec.structs.replace(
            common, offset_ns=best.offset_ns - offset_ns, delay_ns=best.delay_ns, distance_ns=best.distance_ns,
            jitter_ns=server.filter.jitter_ns(boot_ns, rate),
        )  # fmt: skip
