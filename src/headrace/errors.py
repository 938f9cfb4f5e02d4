"""Every error that Headrace raises, in one tree.

    HeadraceError
    ├── InvalidError (ValueError)         an argument, an option or a file is invalid
    │   ├── FeedError                     feed name or feed pattern
    │   ├── IdentError
    │   ├── PayloadError                  not bytes
    │   ├── PayloadTooLargeError
    │   ├── BatchTooLargeError
    │   ├── PropertyError
    │   ├── SelectionError
    │   ├── CursorNameError
    │   ├── StationNameError
    │   ├── ChannelNameError
    │   ├── TermsError                    options of a channel or station contradict each other; `conflicts` lists all
    │   ├── ConfigError                   a site's configuration or a rule file is invalid; `problems` lists all
    │   ├── RuleError                     a template, an SQL text or an imported line of a rule is invalid
    │   └── OptionError                   size, age, priority, durability, start … out of range
    │       └── StartAheadError           a start is a time in the future; `ahead_s` says how far
    ├── QueueError
    │   ├── QueueExistsError
    │   ├── QueueMissingError
    │   ├── NotAQueueError                the path is something else
    │   ├── QueueVersionError             written by a newer Headrace
    │   ├── QueueDamagedError             a file is missing, cut short or altered
    │   ├── ProductDamagedError           one product is damaged; `sequence` names it, others are readable
    │   ├── ProductsLostError             products were evicted before they were read; `first` and `last` name them
    │   ├── QueueAccessError              the operating system denies access
    │   ├── QueueBusyError                other processes have the queue open
    │   ├── QueueMovedError               its directory was moved, deleted or replaced while it was open
    │   ├── BookmarkError                 a bookmark belongs to another queue, is in use, or was not written
    │   ├── QueueClosedError
    │   ├── DiskFullError                 nothing was stored; recovers when there is space again
    │   ├── NamesFullError
    │   ├── BlockedError                  a blocking station was full until the timeout; nothing was stored
    │   ├── RejectedError                 `max_queue` products wait already; nothing was stored
    │   ├── CursorMissingError
    │   ├── DictionaryError               a dictionary is missing or invalid, or cannot be trained
    │   ├── StationError
    │   │   ├── StationMissingError
    │   │   ├── StationExistsError        it exists, with other terms
    │   │   ├── ConsumersFullError        it has `consumers_max` consumers already
    │   │   └── LeaseLostError            the products are not, or no longer, leased to this consumer
    │   ├── ChannelError
    │   │   ├── ChannelMissingError
    │   │   ├── ChannelExistsError        it exists, with other terms
    │   │   ├── ChannelInUseError         it has stations
    │   │   ├── ChannelEndedError         its stop time has passed; nothing was stored
    │   │   ├── FunctionMissingError      this process lacks the function that assigns slices; nothing was stored
    │   │   └── SuppliersFullError        it has `suppliers_max` suppliers already
    │   └── ShareError                    something about a group of processing nodes
    │       ├── ShareMissingError         there is no such group, or its channel has no slices
    │       ├── ShareExistsError          it exists, with other terms
    │       ├── SeatsFullError            it has 4,096 nodes already
    │       ├── SeatLostError             the node was not heard of for too long; it may join again
    │       └── BalancerDeposedError      another balancer leads
    ├── ReplayError                       a run of a replay is unknown, or another process replays it
    ├── FabricError                       something about the network of sites
    │   ├── FabricMessageError            a message from another site is invalid
    │   ├── SiteUnreachableError          a site does not reply; recovers when it is back
    │   ├── AccessDeniedError             a site's rules do not allow it
    │   └── QuotaError                    a principal uses all that the site grants to one; the message names the quota
    ├── MemberAbsentError (TimeoutError)  no such member joined until the timeout
    ├── LateError                         products arrived after later ones were released; `batch` has them
    ├── SinkError                         where processing nodes store results
    │   ├── SinkFencedError               a later owner has claimed slices; nothing was stored; `slices` names them
    │   ├── SinkUnavailableError          no space, no lock, no connection; recovers when the cause is removed
    │   └── SinkRefusedError              the result of one product cannot be stored; nothing was stored
    ├── TransferError                     something about a file on its way (`headrace send`, `headrace receive`)
    │   ├── NameRefusedError              a name that would lead out of the directory of the receiver, or is invalid
    │   ├── SourceChangedError            the file changed while it was sent; send it again
    │   ├── FragmentError                 a program took a fragment for a whole product; join fragments
    │   └── TransferIncompleteError       not every receiver, or not every fragment, until the timeout
    ├── PipelineError                     something about the pipeline
    │   ├── TargetError                   an action cannot write; recovers when the cause is removed
    │   └── DataLossError                 products were evicted before the pipeline read them
    ├── MissingExtraError (ImportError)   a library is not installed that this part of Headrace needs
    ├── RecordsDamagedError (ValueError)  bytes that are not valid records; `offset` says where
    └── OracleError                       a saved oracle is unreadable

Each message names the thing at fault and ends with what to do; `hint` holds that last part alone. Expected outcomes (a
duplicate, nothing to read, a lost range) are return values, not errors. An error that recovers by itself once its cause
is gone says so in its docstring.
"""

from typing import TYPE_CHECKING

from headrace.text import shown_on_one_column

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_EXCERPT_WIDTH = 100  # characters shown of a long text
_EXCERPT_BEFORE = 60  # of them before the caret


def excerpt_of(text: str, place: int) -> str:
    """Two lines: the text around `place` (from 0), and a caret below it.

    wx/radar/** priority 9
                         ^
    """
    begin = max(0, place - _EXCERPT_BEFORE) if len(text) > _EXCERPT_WIDTH else 0
    shown = text[begin : begin + _EXCERPT_WIDTH]
    left = "…" if begin else ""
    right = "…" if begin + _EXCERPT_WIDTH < len(text) else ""
    return f"  {left}{shown_on_one_column(shown)}{right}\n  {' ' * (len(left) + place - begin)}^"


class HeadraceError(Exception):
    """Base of all. `problem` says what is wrong, `hint` what to do."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.problem = problem
        self.hint = hint


class InvalidError(HeadraceError, ValueError):
    """An argument, an option or the content of a file is invalid."""


class FeedError(InvalidError):
    """A feed name or pattern breaks the rules of `headrace.product.feed`."""


class IdentError(InvalidError):
    """An ident is not text or longer than 1024 bytes."""


class PayloadError(InvalidError):
    """A payload is not bytes-like."""


class PayloadTooLargeError(InvalidError):
    """A payload exceeds a quarter of the queue."""


class BatchTooLargeError(InvalidError):
    """A batch does not fit into the queue as one piece."""


class PropertyError(InvalidError):
    """A property has a bad name, type or size."""


class SelectionError(InvalidError):
    """A selection is invalid; `column` (from 1) says where in its text, `excerpt` shows it."""

    def __init__(self, problem: str, hint: str = "", *, column: int | None = None, excerpt: str = "") -> None:
        super().__init__(problem, hint)
        self.column = column
        self.excerpt = excerpt

    @classmethod
    def at(cls, problem: str, hint: str, text: str, place: int) -> "SelectionError":
        """The error that points at `place` (from 0) in `text`."""
        return cls(problem, hint, column=place + 1, excerpt=excerpt_of(text, place))

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.excerpt}" if self.excerpt else super().__str__()


class CursorNameError(InvalidError):
    """A cursor name is empty, too long, or there are too many cursors."""


class StationNameError(InvalidError):
    """A station name is empty, too long, or has invalid characters."""


class ChannelNameError(InvalidError):
    """A channel name is empty, too long, or there are too many channels."""


class TermsError(InvalidError):
    """The options of a channel or station contradict each other; `conflicts` has every reason."""

    def __init__(self, problem: str, hint: str = "", conflicts: tuple[object, ...] = ()) -> None:
        super().__init__(problem, hint)
        self.conflicts = conflicts


class ConfigError(InvalidError):
    """The configuration of a site, or a rule file, is invalid; `problems` has every reason."""

    def __init__(self, problem: str, hint: str = "", problems: tuple[object, ...] = ()) -> None:
        super().__init__(problem, hint)
        self.problems = problems


class RuleError(InvalidError):
    """A text within a rule is invalid, or a row lacks a value for a template; `column` (from 1) says where."""

    def __init__(self, problem: str, hint: str = "", *, column: int | None = None, excerpt: str = "") -> None:
        super().__init__(problem, hint)
        self.column = column
        self.excerpt = excerpt


class OptionError(InvalidError):
    """An option is unknown or out of range."""


class StartAheadError(OptionError):
    """The time at which to start is in the future, by `ahead_s` seconds of the queue's clock."""

    def __init__(self, problem: str, hint: str = "", ahead_s: float = 0.0) -> None:
        super().__init__(problem, hint)
        self.ahead_s = ahead_s


class QueueError(HeadraceError):
    """Something about a queue, not about the call."""


class QueueExistsError(QueueError):
    """Something exists at the path already."""


class QueueMissingError(QueueError):
    """Nothing exists at the path."""


class NotAQueueError(QueueError):
    """The path holds something that is not a queue."""


class QueueVersionError(QueueError):
    """The queue has a format that this version does not know."""


class QueueDamagedError(QueueError):
    """A file of the queue is missing, cut short or altered."""


class ProductDamagedError(QueueDamagedError):
    """One product does not match its checksum; `sequence` names it, and `next` is where to read on."""

    def __init__(self, problem: str, hint: str, sequence: int) -> None:
        super().__init__(problem, hint)
        self.sequence = sequence
        self.next = sequence + 1


class ProductsLostError(QueueError):
    """Products `first` to `last` were evicted before they were read; `next` is where to read on."""

    def __init__(self, problem: str, hint: str, first: int, last: int) -> None:
        super().__init__(problem, hint)
        self.first, self.last = first, last
        self.next = last + 1


class QueueAccessError(QueueError):
    """The operating system denies access to a file."""


class QueueBusyError(QueueError):
    """Other processes have the queue open, and the operation needs it exclusively."""


class QueueClosedError(QueueError):
    """The queue object was closed."""


class QueueMovedError(QueueError):
    """The directory was moved, deleted or replaced while the queue was open. Recovers if it is moved back."""


class BookmarkError(QueueError):
    """A bookmark belongs to another queue, is used by another process, is damaged, or was not written."""


class DiskFullError(QueueError):
    """The file system has no space for another segment. Nothing was stored. Recovers when there is space again."""


class NamesFullError(QueueError):
    """The queue has the largest possible number of feeds or origins."""


class BlockedError(QueueError):
    """A put waited for a blocking station until its timeout; nothing was stored. Recovers when consumers catch up.

    `waits_for` names the stations and how full they are.
    """

    def __init__(self, problem: str, hint: str = "", waits_for: str = "") -> None:
        super().__init__(problem, hint)
        self.waits_for = waits_for


class CursorMissingError(QueueError):
    """The queue has no cursor of that name."""


class StationError(QueueError):
    """Something about a station, not about the call."""


class StationMissingError(StationError):
    """The queue has no station of that name."""


class StationExistsError(StationError):
    """A station of that name exists already, with other terms."""


class ConsumersFullError(StationError):
    """The station has as many consumers as it admits. Recovers when one of them leaves."""


class LeaseLostError(StationError):
    """The products are not, or no longer, leased to this consumer, so it cannot acknowledge them."""


class RejectedError(QueueError):
    """`max_queue` products wait already; nothing was stored. Recovers when consumers catch up."""


class DictionaryError(QueueError):
    """A dictionary of compressed products is missing or invalid, or cannot be trained."""


class ChannelError(QueueError):
    """Something about a channel, not about the call."""


class ChannelMissingError(ChannelError):
    """The queue has no channel of that name."""


class ChannelExistsError(ChannelError):
    """A channel of that name exists already, with other terms."""


class ChannelInUseError(ChannelError):
    """The channel has stations; remove them first."""


class ChannelEndedError(ChannelError):
    """The channel's stop time has passed; nothing was stored."""


class FunctionMissingError(ChannelError):
    """A channel assigns slices by a function of a user that this process does not know; nothing was stored."""


class SuppliersFullError(ChannelError):
    """The channel has as many suppliers as it admits. Recovers when one of them leaves."""


class ShareError(QueueError):
    """A group of processing nodes cannot do this."""


class ShareMissingError(ShareError):
    """The stream has no group of that name, or the channel has no slices."""


class ShareExistsError(ShareError):
    """A group of that name exists already, with other terms."""


class SeatsFullError(ShareError):
    """The group has as many nodes as it admits. Recovers when one of them leaves."""


class SeatLostError(ShareError):
    """The node was not heard of for too long: its slices went to others. It may join again."""


class BalancerDeposedError(ShareError):
    """Another balancer leads the group."""


class ReplayError(HeadraceError):
    """A run of a replay is unknown here, or another process replays it."""


class FabricError(HeadraceError):
    """Something about the network of sites, or between a site and its client."""


class FabricMessageError(FabricError):
    """A message from another site or client is malformed or contradicts itself. It was refused as a whole."""


class SiteUnreachableError(FabricError):
    """A site did not reply until the timeout. It may or may not have acted. Recovers when it is back.

    If a put raised it, `retry(timeout=None)` makes the same put again and returns its outcome: the products are stored
    once, whether or not the first attempt stored them. It is None for other calls: make them again. `has_patience` says
    that the put ended at its own timeout: the site has been silent for less than the `patience` of `connect`.
    """

    retry: "Callable[..., Any] | None" = None
    has_patience: bool = False


class AccessDeniedError(FabricError):
    """The access rules of a site do not allow this client to do that."""


class QuotaError(FabricError):
    """A principal uses all that a site grants to one; the message names the quota. Recovers when it uses less."""


class MemberAbsentError(HeadraceError, TimeoutError):
    """No such site or program joined until the timeout of `wait_for`."""


class LateError(HeadraceError):
    """Products arrived after products that were created later had been released; `batch` has them, not acknowledged."""

    def __init__(self, problem: str, hint: str, batch: "Any") -> None:
        super().__init__(problem, hint)
        self.batch = batch


class RecordsDamagedError(HeadraceError, ValueError):
    """Records from another site are invalid, and none of them was used; `offset` is where the first bad one begins."""

    def __init__(self, problem: str, hint: str, offset: int) -> None:
        super().__init__(problem, hint)
        self.offset = offset


class MissingExtraError(HeadraceError, ImportError):
    """A library is not installed that this part of Headrace needs; the hint is the command that installs it."""


class SinkError(HeadraceError):
    """Something about a sink of processing nodes."""


class SinkFencedError(SinkError):
    """A later owner has claimed `slices` in the sink; nothing was stored."""

    def __init__(self, problem: str, hint: str, slices: tuple[int, ...]) -> None:
        super().__init__(problem, hint)
        self.slices = slices


class SinkUnavailableError(SinkError):
    """The sink cannot be written: no space, no lock, no permission, no connection. Recovers; store again."""


class SinkRefusedError(SinkError):
    """The result of one product, `sequence` of `slice`, can never be stored; nothing was stored."""

    def __init__(self, problem: str, hint: str, slice: int, sequence: int) -> None:
        super().__init__(problem, hint)
        self.slice, self.sequence = slice, sequence


class TransferError(HeadraceError):
    """Something about a file that is sent or received in fragments."""


class NameRefusedError(TransferError):
    """A file name is invalid, or would lead out of the directory of the receiver."""


class SourceChangedError(TransferError):
    """The file changed while it was sent. Recovers when it is sent again."""


class FragmentError(TransferError):
    """The payload of a product is a part of something larger: `headrace.joined` joins the parts."""


class TransferIncompleteError(TransferError):
    """A transfer was not finished until the timeout. What has arrived is kept, and the next run continues."""


class PipelineError(HeadraceError):
    """Something about the pipeline."""


class TargetError(PipelineError):
    """An action cannot write: no space, no permission, no connection. The batch is repeated once it can."""


class DataLossError(PipelineError):
    """Products were evicted before the pipeline read them; the problem names them."""


class OracleError(HeadraceError, ValueError):
    """A saved oracle is unreadable."""
