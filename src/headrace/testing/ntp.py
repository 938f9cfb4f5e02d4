"""Servers of NTP that are simulated: honest ones, and ones that lie.

`SimulatedServer` replies to one request with what is given; it has no socket and no clock of its own. `UdpServer`
(ntp_udp.py) serves one on a loopback address.
"""

from dataclasses import dataclass

from headrace.timing.clock.packet import Reply, encode_reply


@dataclass(frozen=True, slots=True)
class SimulatedServer:
    """How a server behaves. An honest one is off by at most what it states."""

    off_ns: int = 0  # how far its clock is from the truth
    drift_ppb: int = 0  # how far that moves
    stated_ns: int = 1_000_000  # the error that it states: its root dispersion
    root_delay_ns: int = 0
    stratum: int = 1
    leap: int = 0
    holds_ns: int = 20_000  # the request, until it replies
    hides_ns: int = 0  # by how much longer it claims to have held it, so that its delay looks shorter

    @property
    def is_honest(self) -> bool:
        return abs(self.off_ns) <= self.stated_ns and not self.drift_ppb and not self.hides_ns

    def reply(self, request: bytes, truth_ns: int, since_ns: int = 0) -> bytes:
        """The reply to a request that arrives at `truth_ns`; `since_ns` is how long the drift has gone on."""
        here_ns = truth_ns + self.off_ns + since_ns * self.drift_ppb // 1_000_000_000
        return encode_reply(
            request,
            Reply(
                here_ns - self.hides_ns // 2, here_ns + self.holds_ns + self.hides_ns // 2, self.stratum, self.leap,
                self.root_delay_ns, self.stated_ns, 1_000, b"TEST",
            ),
        )  # fmt: skip
