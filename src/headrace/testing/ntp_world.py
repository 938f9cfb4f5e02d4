"""A simulated machine and network: a crystal that is off and wanders, servers near and far, honest or not.

The real filter, election and discipline run on it, with real packets, in simulated time. A test that looks at the clock
(`World.show`) also checks it: an AssertionError says that it went back, or that the truth was not within its bound.
"""

import random
from dataclasses import dataclass
from math import cos, tau

from headrace.log.clock_words import NTP, ClockWords
from headrace.testing.ntp import SimulatedServer
from headrace.timing.clock.association import Association
from headrace.timing.clock.discipline import Estimate, Steered, steer
from headrace.timing.clock.ntp import Ntp

SECOND = 1_000_000_000
EPOCH_NS = 1_795_000_000 * SECOND
WANDER_PPB = 4_000
NO_WORDS = ClockWords(0, 0)


@dataclass
class Link:
    """The way to a server and back."""

    out_ns: int
    back_ns: int
    jitter_ns: int
    loss: float = 0.0


@dataclass
class World:
    """The truth as a function of boot time, and the clock that is disciplined."""

    chance: random.Random
    off_ppb: int = 0
    system_off_ns: int = 0  # of the clock that was shown before
    boot_ns: int = 5 * SECOND
    words: ClockWords = NO_WORDS
    shown_ns: int = 0
    steps: int = 0
    wander_s: float = 3000.0

    def truth(self, boot_ns: int) -> int:
        """Time passes at the rate of the crystal, which wanders."""
        passed = (boot_ns - 5 * SECOND) / SECOND
        wander_ns = WANDER_PPB * self.wander_s / tau * (1 - cos(tau * passed / self.wander_s))
        return EPOCH_NS + boot_ns + round(passed * self.off_ppb + wander_ns)

    def show(self) -> int:
        """What the clock shows now; asserts that it never goes back and that the bound holds."""
        if not self.words.boot_ns:
            shown_ns = self.truth(self.boot_ns) + self.system_off_ns
        else:
            shown_ns = self.words.at(self.boot_ns)
            error_ns, bound_ns = shown_ns - self.truth(self.boot_ns), self.words.bound_at(self.boot_ns)
            assert abs(error_ns) <= bound_ns, f"{error_ns:,} ns off at {self.boot_ns:,}, stated {bound_ns:,}"
        assert shown_ns >= self.shown_ns, f"{self.shown_ns - shown_ns} ns back at {self.boot_ns:,}"
        self.shown_ns = shown_ns
        return shown_ns

    def run(self, seconds: float, looks: int = 4) -> None:
        """Let time pass, and look at the clock on the way."""
        end_ns = self.boot_ns + int(seconds * SECOND)
        for boot_ns in sorted(self.chance.randrange(self.boot_ns, end_ns + 1) for _ in range(looks)):
            self.boot_ns = boot_ns
            self.show()
        self.boot_ns = end_ns
        self.show()

    def steer(self, estimate: Estimate) -> Steered:
        """Correct the clock."""
        steered = steer(self.show(), estimate, NTP, self.truth(self.boot_ns) + self.system_off_ns)
        self.words, self.steps = steered.words, self.steps + bool(steered.stepped_ns)
        self.show()
        return steered

    @property
    def error_ns(self) -> int:
        """How far the clock is from the truth now."""
        return self.words.at(self.boot_ns) - self.truth(self.boot_ns)

    def poll(self, ntp: Ntp, servers: list[tuple[SimulatedServer | None, Link]]) -> None:
        """Ask every server once, one after the other, and steer by what they say together."""
        for association, (server, link) in zip(ntp.servers, servers, strict=True):
            self.exchange(ntp, association, server, link)
        ntp.elect(self.boot_ns)
        estimate = ntp.estimate(self.boot_ns)
        if estimate is not None:
            self.steer(estimate)

    def exchange(self, ntp: Ntp, association: Association, server: SimulatedServer | None, link: Link) -> None:
        """One request, and its reply if there is one, over the link; now and then the reply comes twice."""
        request = association.request(self.boot_ns, self.chance.randbytes(8))
        if server is None or self.chance.random() < link.loss:
            return
        self.boot_ns += link.out_ns + self._jitter(link)
        reply = server.reply(request, self.truth(self.boot_ns), self.boot_ns)
        self.boot_ns += server.holds_ns + link.back_ns + self._jitter(link)
        association.receive(reply, self.boot_ns, ntp.frequency.rate)
        if self.chance.random() < 0.1:
            association.receive(reply, self.boot_ns + 1000, ntp.frequency.rate)  # the network repeats it

    def _jitter(self, link: Link) -> int:
        return int(self.chance.expovariate(1.0) * link.jitter_ns)
