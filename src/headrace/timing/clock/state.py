"""ClockState: a site's clock at one moment, for people and monitors.

The process that keeps the clock writes it to `site/clock.json` in the directory of the queue, when something has
changed and every few seconds in any case. Programs on the same machine learn it without a connection, and notice that
nobody keeps the clock any more. The words that time stamps are made with are not here: they are in the control file.
"""

import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from headrace.decoding import Decoder
from headrace.errors import QueueDamagedError
from headrace.files import make_folder, read_regular
from headrace.log.clock_words import SOURCES, ClockWords
from headrace.log.documents import UNREADABLE, replace_file
from headrace.timing.clock.terms import SERVERS_MAX

FRESH_S = 15.0  # an older file is from a process that no longer runs
SAVE_S = 5.0
FILE = Path("site") / "clock.json"

Situation = Literal["synchronised", "holdover", "starting", "unsynchronised"]


class ServerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One NTP server."""

    name: str
    verdict: str  # truechimer, outlier, falseticker, undecided, unsynchronised, unreachable, denied, waiting
    address: str = ""
    stratum: int = 0
    reached: str = ""  # the last eight polls, the latest last; 1: answered
    offset_ns: int = 0  # its time minus that of the clock
    delay_ns: int = 0
    distance_ns: int = 0  # how far its time may be off
    jitter_ns: int = 0
    asked: int = 0
    accepted: int = 0
    refused: dict[str, int] = {}  # replies, by cause
    stepped: int = 0  # times that its clock jumped
    trouble: str = ""


class ClockState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clock of a site."""

    wanted: str  # auto, system, ntp
    source: str  # system, ntp, none
    situation: Situation
    why: str = ""  # why it is not synchronised
    offset_ns: int = 0  # UTC by this clock minus the clock of the system
    bound_ns: int | None = None  # the truth is at most this far away; None: unknown
    drift_ppb: int = 0  # how fast the bound grows
    rate_ppb: int = 0  # how much faster than the machine's clock UTC runs
    left_ns: int = 0  # of the correction under way; negative: the clock is ahead, and runs slower
    steps: int = 0  # jumps ahead
    stepped_ns: int = 0  # by the last one
    system_steps: int = 0  # times that somebody set the clock of the system
    contradicted: int = 0  # times that a majority of servers contradicted the bound
    disturbed: int = 0  # times that somebody changed the rate of the system's clock
    servers: Annotated[tuple[ServerState, ...], msgspec.Meta(max_length=SERVERS_MAX)] = ()
    process: int = 0  # that keeps it
    saved_boot_ns: int = 0


_DECODER: Decoder[ClockState] = Decoder(ClockState, encoding="json")


def read_state(queue: Path) -> ClockState | None:
    """What the keeper of a queue's clock has written; None if there is none. QueueDamagedError or OSError."""
    path = queue / FILE
    try:
        found = _DECODER.decode(read_regular(path))
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        raise QueueDamagedError(f"{path} is invalid: {error}", "delete it; the site writes a new one") from None
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - found.saved_boot_ns
    return found if 0 <= age_ns < FRESH_S * 1e9 else None


def state_of(queue: Path, words: ClockWords | None) -> ClockState:
    """The clock of a queue at this moment, kept or not."""
    kept = read_state(queue)
    if kept is not None:
        return kept
    if words is None:
        return ClockState("none", "none", "unsynchronised", "nobody keeps the clock: it is that of the system")
    boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    offset_ns = words.at(boot_ns) - time.time_ns()
    if not words.bound_ns:
        return ClockState("none", "none", "unsynchronised", "nobody keeps the clock", offset_ns)
    source, bound_ns = SOURCES[words.source], words.bound_at(boot_ns)
    return ClockState(
        source, source, "holdover", "nobody keeps the clock", offset_ns, bound_ns, words.drift_ppb, words.then_ppb
    )


def save_state(queue: Path, state: ClockState) -> None:
    """OSError if the disk refuses."""
    make_folder((queue / FILE).parent)
    replace_file(queue / FILE, msgspec.json.encode(state), None)


def remove_state(queue: Path) -> None:
    (queue / FILE).unlink(missing_ok=True)
