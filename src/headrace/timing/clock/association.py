"""Association: everything about one server: when it is polled, what it said, and why replies were refused.

It does no input or output, and takes the time from its caller. The first polls are two seconds apart, so that the
filter fills; later ones are `poll_s` apart. A server that asks to be polled less often (kiss-o'-death RATE) is polled
half as often; one that denies service (DENY, RSTR) is not polled again. At most one request is under way: a reply to
an earlier one, or the same reply once more, is refused.
"""

from collections import Counter, deque
from typing import Literal

from headrace.timing.clock.election import Candidate
from headrace.timing.clock.packet import RefusedError, Reply, decode_reply, encode_request
from headrace.timing.clock.samples import DISPERSION_PPB, PRECISION_NS, STAGES, Rate, Sample, SampleFilter

BURST_S = 2.0
POLL_S_MAX = 4096.0
DISTANCE_NS_MAX = 1_500_000_000  # RFC 5905's MAXDIST: a server that knows no better is not used
_NS = 1_000_000_000
_DENIED = ("kiss DENY", "kiss RSTR")

State = Literal["waiting", "unreachable", "denied", "reachable"]


class Association:
    """One server of an NTP client."""

    def __init__(self, name: str, poll_s: float, burst_s: float = BURST_S) -> None:
        self.name = name
        self.poll_s, self._burst_s = poll_s, min(burst_s, poll_s)
        self.filter = SampleFilter()
        self.refused: Counter[str] = Counter()  # replies, by cause
        self.asked = self.accepted = self.stepped = 0
        self.denied = ""
        self.trouble = ""  # why it was not asked or did not answer, as the system says
        self.last: Reply | None = None
        self._reach: deque[bool] = deque(maxlen=STAGES)
        self._nonce: bytes | None = None
        self._sent_ns = 0
        self._next_ns = 0

    @property
    def due_ns(self) -> int | None:
        """When the next request is due, in boot time; None: never."""
        return None if self.denied else self._next_ns

    @property
    def state(self) -> State:
        if self.denied:
            return "denied"
        if any(self._reach):
            return "reachable"
        return "unreachable" if len(self._reach) >= 3 or self.trouble or self.refused else "waiting"

    @property
    def reached(self) -> str:
        """The last polls, the latest last: `1` was answered."""
        return "".join("01"[answered] for answered in self._reach)

    def request(self, boot_ns: int, nonce: bytes) -> bytes:
        """The request to send now; it counts as unanswered until its reply comes."""
        self.asked += 1
        self._reach.append(False)
        if len(self._reach) == STAGES and not any(self._reach):
            self.filter.clear()  # RFC 5905: an unreachable server has no say
        self._nonce, self._sent_ns = nonce, boot_ns
        pause_s = self._burst_s if self.asked < STAGES else self.poll_s
        self._next_ns = boot_ns + int(pause_s * _NS)
        return encode_request(nonce)

    def failed(self, why: str) -> None:
        """The request could not be sent, or the system says that nobody is there."""
        self.trouble = why

    def receive(self, datagram: bytes, boot_ns: int, rate: Rate) -> Sample | None:
        """The sample of a reply that came at `boot_ns`; None if it is refused, which is counted by cause."""
        try:
            sample, reply = self._examine(datagram, boot_ns)
        except RefusedError as refused:
            self._refuse(refused.cause)
            return None
        self._nonce, self.trouble, self.last = None, "", reply
        self._reach[-1] = True
        self.accepted += 1
        if not self.filter.add(sample, rate):
            self.stepped += 1
        return sample

    def _examine(self, datagram: bytes, boot_ns: int) -> tuple[Sample, Reply]:
        if self._nonce is None:
            raise RefusedError("repeated")
        reply = decode_reply(datagram, self._nonce)
        self._nonce = None  # also if what follows is refused: the exchange is over
        waited_ns, held_ns = boot_ns - self._sent_ns, reply.sent_ns - reply.received_ns
        delay_ns = waited_ns - held_ns
        if delay_ns < -(PRECISION_NS + reply.precision_ns + waited_ns // 1000):
            raise RefusedError("invalid times")  # it says that it held the request for longer than we waited
        delay_ns = max(delay_ns, 0)
        dispersion_ns = PRECISION_NS + reply.precision_ns + waited_ns * DISPERSION_PPB // _NS
        distance_ns = (delay_ns + reply.root_delay_ns) // 2 + 1 + reply.root_dispersion_ns + dispersion_ns
        if distance_ns > DISTANCE_NS_MAX:
            raise RefusedError("too far")
        offset_ns = (reply.received_ns - self._sent_ns + reply.sent_ns - boot_ns) // 2
        return Sample(boot_ns, offset_ns, delay_ns, distance_ns), reply

    def _refuse(self, cause: str) -> None:
        self.refused[cause if len(self.refused) < 32 or cause in self.refused else "other"] += 1
        if cause in _DENIED:
            self.denied = cause.removeprefix("kiss ")
            self.filter.clear()
        elif cause == "kiss RATE":
            self.poll_s = min(2 * self.poll_s, POLL_S_MAX)
            self._next_ns = self._sent_ns + int(self.poll_s * _NS)
            self._burst_s = self.poll_s

    def candidate(self, boot_ns: int, rate: Rate) -> Candidate | None:
        """What it says in an election; None if it has nothing to say."""
        best = self.filter.best(boot_ns, rate)
        if best is None or self.last is None or best.distance_ns > DISTANCE_NS_MAX:
            return None
        return Candidate(self.name, best, self.filter.jitter_ns(boot_ns, rate), self.last.stratum)
