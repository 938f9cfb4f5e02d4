"""Lockout: which networks may not connect, because too many of their logins failed.

    failures   1 … 20   21   22   23  …        31 and more
    locked     no       1 s  2 s  4 s …        15 min          from the latest failure on

A client of Headrace tries a password four times before it believes that it is wrong.

Loopback is never locked for more than a second: all users of the machine share it, and none may keep out the others.
What has not failed for an hour is forgotten. Pure arithmetic; the caller has the clock and the sockets (door.py).

A connection that ended without a link is a failure if this side closed it, as Zenoh does when a password is wrong. If
the other side closed it, that may also be a question whether the site is there: of those, QUESTIONS are one failure,
and each link of the network takes back some.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.link.syn_filter import LOOPBACKS, Network

FREE = 20
LOCKED_S, LOCKED_S_MAX, LOCKED_S_LOOPBACK = 1.0, 900.0, 1.0
FORGET_S = 3600.0
QUESTIONS = 4
_QUESTIONS_OF_A_LINK = 4
_RECENT_S = 60.0
_NETWORKS_MAX = 4096  # that are remembered


@dataclass(slots=True)
class Record:
    """What is known of one network; times are monotonic seconds."""

    failures: int = 0
    questions: int = 0
    latest: float = 0.0
    until: float = 0.0  # it is locked


class Lockout:
    """One thread uses it."""

    def __init__(self) -> None:
        self._records: OrderedDict[Network, Record] = OrderedDict()
        self.failures = 0  # since the start

    def fail(self, network: Network, count: int, now: float) -> Record:
        """Some logins have failed."""
        record = self._of(network, now)
        record.failures, record.latest = record.failures + count, now
        self.failures += count
        if record.failures > FREE:
            doublings = min(record.failures - FREE - 1, 10)
            most = LOCKED_S_LOOPBACK if _is_shared(network) else LOCKED_S_MAX
            record.until = now + min(LOCKED_S * 2**doublings, most)
        return record

    def question(self, network: Network, now: float) -> Record | None:
        """The other side has closed a connection that was no link; a record if that makes one more failure."""
        record = self._of(network, now)
        record.questions += 1
        if record.questions < QUESTIONS:
            return None
        record.questions = 0
        return self.fail(network, 1, now)

    def link(self, network: Network) -> None:
        """A login has succeeded. It does not take back failures: whoever has one password may guess others."""
        if network in self._records:
            record = self._records[network]
            record.questions = max(0, record.questions - _QUESTIONS_OF_A_LINK)

    def locked(self, now: float) -> dict[Network, Record]:
        """Those that are locked now."""
        return {network: record for network, record in self._records.items() if record.until > now}

    def guessers(self, now: float) -> dict[Network, Record]:
        """Those that are locked, or were a short while ago."""
        return {
            network: record for network, record in self._records.items()
            if record.failures > FREE and (record.until > now or now - record.latest < _RECENT_S)
        }  # fmt: skip

    def _of(self, network: Network, now: float) -> Record:
        for old in list(self._forgotten(now)):
            del self._records[old]
        record = self._records.setdefault(network, Record(latest=now))
        self._records.move_to_end(network)
        return record

    def _forgotten(self, now: float) -> Iterator[Network]:
        """The oldest ones whose time is over, or that are too many."""
        for place, (network, record) in enumerate(self._records.items()):
            if now - record.latest < FORGET_S and len(self._records) - place <= _NETWORKS_MAX:
                return
            yield network


def _is_shared(network: Network) -> bool:
    return network in LOOPBACKS
