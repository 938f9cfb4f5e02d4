"""Ntp: several servers, and where the truth is by them. It does no input or output, and takes the time from its caller.

A result is kept until a better one comes, and ages meanwhile: without servers, the bound grows. A result that
contradicts the interval that is known already needs the agreement of more than half of all servers that are configured,
so that the last reachable server of four cannot move the clock by a lie while the others are away. That a majority
contradicts is counted: the frequency of this machine's clock was changed, or the majority lied before. The first
election waits until each server has replied or is known to be away, so that it is not decided by who replies first.
"""

from collections.abc import Sequence

from headrace.timing.clock.association import Association
from headrace.timing.clock.discipline import Estimate
from headrace.timing.clock.election import Elected, elect
from headrace.timing.clock.frequency import Frequency, Point
from headrace.timing.clock.samples import Rate


class Ntp:
    """The truth by several servers."""

    def __init__(self, servers: Sequence[Association]) -> None:
        self.servers = servers
        self.frequency = Frequency()
        self.verdicts: dict[str, str] = {}
        self.contradicted = 0  # times that a majority contradicted the interval that was stated
        self.disturbed = 0  # times that the rate of this machine's clock was changed
        self.elected_ns = 0  # when the servers last agreed, in boot time; 0: never
        self._known: Estimate | None = None
        self._newest_ns = 0

    def estimate(self, boot_ns: int) -> Estimate | None:
        """Where the truth is now; None before the first agreement."""
        return None if self._known is None else self._known.aged(boot_ns, self.frequency.rate)

    def start_from(self, known: Estimate) -> None:
        """Continue from what an earlier run knew."""
        self._known = known
        self.frequency.forget(known.rate)

    def disturb(self, change_ppb: int, since_ns: int, boot_ns: int) -> None:
        """Somebody has changed the rate of this machine's clock at some time since then; positive: it runs faster."""
        known = self.estimate(boot_ns)
        rate = Rate(self.frequency.rate.ppb - change_ppb, self.frequency.rate.drift_ppb)
        self.frequency.forget(rate)
        for server in self.servers:
            server.filter.clear()
        if known is not None:
            moved_ns = abs(change_ppb) * (boot_ns - since_ns) // 1_000_000_000
            self._known = Estimate(
                boot_ns, known.offset_ns, known.low_ns - moved_ns, known.high_ns + moved_ns, self.frequency.rate
            )
            self.disturbed += 1

    def elect(self, boot_ns: int) -> bool:
        """Hold an election; whether there is a new result."""
        rate = self.frequency.rate
        candidates = [each for server in self.servers if (each := server.candidate(boot_ns, rate)) is not None]
        elected = elect(candidates)
        self.verdicts = {str(each.name): "undecided" for each in candidates}
        if elected is None or (self._known is None and any(each.state == "waiting" for each in self.servers)):
            return False
        self.verdicts |= {str(name): verdict for name, verdict in elected.verdicts.items()}
        if not self._accepts(elected, boot_ns):
            return False
        self._accept(elected, boot_ns)
        return True

    def _accepts(self, elected: Elected, boot_ns: int) -> bool:
        known = self.estimate(boot_ns)
        if known is None or (elected.low_ns <= known.high_ns and elected.high_ns >= known.low_ns):
            return True
        if 2 * elected.agreeing <= len(self.servers):
            self.verdicts |= dict.fromkeys(self.verdicts, "undecided")
            return False
        self.contradicted += 1
        self.frequency.forget()
        return True

    def _accept(self, elected: Elected, boot_ns: int) -> None:
        newest_ns = max(server.filter.latest_ns for server in self.servers)
        if newest_ns > self._newest_ns:  # an old sample that has aged teaches nothing about the frequency
            self.frequency.add(Point(boot_ns, elected.offset_ns, elected.low_ns, elected.high_ns))
            self._newest_ns = newest_ns
        self._known = Estimate(boot_ns, elected.offset_ns, elected.low_ns, elected.high_ns, self.frequency.rate)
        self.elected_ns = boot_ns
