"""Actions: what the state machine of an upstream asks its driver to do.

`Upstream.run` is a generator. It yields one action at a time; the driver performs it and sends back the outcome that
the action names, or throws Unreachable (the site does not reply) or FabricError (the reply is invalid) into the
generator. Nothing else crosses the seam, so a driver may have a Zenoh session and threads (driver.py) or be a
simulation with a network and a clock of its own (tests/relay/simulation.py), and may run any number of upstreams.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.log.records import Names
from headrace.relay.messages.inventory import Identities
from headrace.relay.messages.page import Keep, Page
from headrace.relay.messages.query import Query

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """A live page (with its feed), or a beat (without)."""

    feed: str | None
    attachment: bytes
    payload: bytes
    arrived_ns: int
    is_compressed: bool = False  # for the link; the driver undoes that


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a short query to a site's log. Outcome: the reply, a `kind`."""

    site: str
    query: Query
    kind: type[Any]


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Query a site's log for pages behind `after`. Outcome: a handle for NextPage.

    In a `hurry`, something is missing from the live path, and the pages do not give way to live traffic.
    """

    site: str
    selection: str
    after: int
    names: Names
    hurry: bool = False
    products: int | None = None  # about so many; None: as many as suit the link


@dataclass(frozen=True, slots=True)
class NextPage:
    """Wait for the next page of a reply. Outcome: the page, or None if the reply is complete."""

    reply: Any


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe to this stream instead of any other; its messages go into the live buffer, if that is open."""

    stream: str
    feeds: str  # pattern


@dataclass(frozen=True, slots=True)
class OpenLive:
    """Keep live messages from now on."""


@dataclass(frozen=True, slots=True)
class ShutLive:
    """Forget the live messages that wait, and drop further ones: the log has them."""


@dataclass(frozen=True, slots=True)
class TakeLive:
    """Wait for live messages. Outcome: one beat, or the pages before the next beat; empty after the timeout."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Store:
    """Put the products of a page into the queue; `keep` says which, None means all.

    The driver leaves out, and counts, those that were not asked for or that the sender may not bring.

    The driver resumes the upstream only after the queue has them. If it stops instead, it must not resume it at all.
    """

    page: Page
    keep: Keep | None


@dataclass(frozen=True, slots=True)
class Admit:
    """Outcome, an array of booleans: for each product of a page, whether it counts as brought by its sender.

    One that its sender may not bring, or that is refuted, says nothing about the products of its origin.
    """

    page: Page


@dataclass(frozen=True, slots=True)
class Recognise:
    """Outcome: for each product, whether it has arrived here, in the form of an array of booleans."""

    products: Identities


@dataclass(frozen=True, slots=True)
class FindMissing:
    """Look into our own queue. Outcome: the part of the range, in the site's sequences, of which something is missing.

    A range whose first sequence is greater than its last is empty. Only our products from `since` on count: those
    before are of an earlier queue of the site, which had the same sequences.
    """

    first: int
    last: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class ListHolders:
    """Outcome: the names of the other sites that are present, and that may bring the origin's products."""


@dataclass(frozen=True, slots=True)
class SaveProgress:
    """Save how far all upstreams are, before anything is taken from a queue that was not known.

    Outcome: the sequence that the next product of our queue gets.
    """


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this long, or until the site appears."""

    seconds: float


Action = (
    Ask | ReadLog | NextPage | Subscribe | OpenLive | ShutLive | TakeLive | Store | Admit | Recognise | FindMissing
    | ListHolders | SaveProgress | Pause
)  # fmt: skip
Steps = Generator[Action, Any, Result]
