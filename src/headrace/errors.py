"""Every error that Headrace raises, in one tree.

    HeadraceError
    ├── InvalidError (ValueError)         a call or a file says something that cannot be
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
    │   ├── TermsError                    options of a channel or station contradict; `conflicts` lists all
    │   ├── ConfigError                   a site's configuration or a rule file cannot be; `complaints` lists all
    │   ├── RuleError                     a template, an SQL text or an imported line of a rule cannot be
    │   └── OptionError                   size, age, priority, durability, start … out of range
    ├── QueueError
    │   ├── QueueExistsError
    │   ├── QueueMissingError
    │   ├── NotAQueueError                the path is something else
    │   ├── QueueVersionError             written by a newer Headrace
    │   ├── QueueDamagedError             a file is missing, cut short or altered
    │   ├── ProductDamagedError           one product is; `sequence` names it, its neighbours can be read
    │   ├── QueueAccessError              the operating system forbids it
    │   ├── QueueBusyError                others are attached and it needs to be alone
    │   ├── QueueClosedError
    │   ├── DiskFullError                 nothing was stored; heals when there is room again
    │   ├── NamesFullError
    │   ├── BlockedError                  a blocking station's capacity was full for too long; nothing was stored
    │   ├── RejectedError                 as many products wait as `max_queue` allows; nothing was stored
    │   ├── StationError
    │   │   ├── StationMissingError
    │   │   ├── StationExistsError        it is there, on other terms
    │   │   └── LeaseLostError            the products are not, or no longer, this consumer's
    │   └── ChannelError
    │       ├── ChannelMissingError
    │       ├── ChannelExistsError        it is there, on other terms
    │       ├── ChannelInUseError         it has stations
    │       ├── ChannelEndedError         its stop time has passed; nothing was stored
    │       └── SuppliersFullError        as many suppliers are there as it admits
    ├── FabricError                       sites cannot reach each other as they should
    │   ├── FabricMessageError            a message of another site cannot be believed
    │   ├── SiteUnreachableError          a site does not answer; heals when it is back
    │   └── AccessDeniedError             a site's rules do not allow it
    ├── PipelineError                     the pipeline cannot go on
    │   ├── TargetError                   where an action writes cannot be written; heals when that is mended
    │   └── DataLossError                 products are gone that it had not read
    ├── RecordsDamagedError (ValueError)  bytes that are not whole records; `offset` tells where
    └── OracleError                       a saved oracle that cannot be read

Each message names the thing and ends with what to do; `hint` holds that last part alone. Outcomes that belong to
normal work (a duplicate, nothing to read, a lost range) are values, not errors.
"""


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
    visible = "".join(char if char.isprintable() else " " for char in shown)
    return f"  {left}{visible}{right}\n  {' ' * (len(left) + place - begin)}^"


class HeadraceError(Exception):
    """Base of all. `problem` says what is wrong, `hint` what to do about it."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.problem = problem
        self.hint = hint


class InvalidError(HeadraceError, ValueError):
    """Something given by the caller cannot be."""


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
    """A selection cannot be understood; `column` (from 1) tells where in its text, `excerpt` shows the place."""

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
    """A station name is empty or too long, or has characters that cannot be."""


class ChannelNameError(InvalidError):
    """A channel name is empty, too long, or there are too many channels."""


class TermsError(InvalidError):
    """The options of a channel or station cannot be agreed on; `conflicts` has every reason."""

    def __init__(self, problem: str, hint: str = "", conflicts: tuple[object, ...] = ()) -> None:
        super().__init__(problem, hint)
        self.conflicts = conflicts


class ConfigError(InvalidError):
    """The configuration of a site, or a rule file, is invalid; `problems` has every reason."""

    def __init__(self, problem: str, hint: str = "", problems: tuple[object, ...] = ()) -> None:
        super().__init__(problem, hint)
        self.problems = problems


class RuleError(InvalidError):
    """A text within a rule cannot be, or cannot be filled in; `column` (from 1) and `excerpt` tell where, if known."""

    def __init__(self, problem: str, hint: str = "", *, column: int | None = None, excerpt: str = "") -> None:
        super().__init__(problem, hint)
        self.column = column
        self.excerpt = excerpt


class OptionError(InvalidError):
    """An option is unknown or out of range."""


class QueueError(HeadraceError):
    """Something about a queue, not about the call."""


class QueueExistsError(QueueError):
    """There is something at the path already."""


class QueueMissingError(QueueError):
    """There is nothing at the path."""


class NotAQueueError(QueueError):
    """The path holds something that is not a queue."""


class QueueVersionError(QueueError):
    """The queue was written in a format that this version does not know."""


class QueueDamagedError(QueueError):
    """A file of the queue is missing, cut short or altered."""


class ProductDamagedError(QueueDamagedError):
    """One product does not fit its checksum; `sequence` names it and `next` is where to go on."""

    def __init__(self, problem: str, hint: str, sequence: int) -> None:
        super().__init__(problem, hint)
        self.sequence = sequence
        self.next = sequence + 1


class QueueAccessError(QueueError):
    """The operating system denies access to a file."""


class QueueBusyError(QueueError):
    """Other processes are attached and the operation needs the queue for itself."""


class QueueClosedError(QueueError):
    """The queue object was closed."""


class DiskFullError(QueueError):
    """The file system has no room for another segment; nothing was stored, held products are intact."""


class NamesFullError(QueueError):
    """The queue knows as many feeds and origins as it can."""


class BlockedError(QueueError):
    """A put waited for a blocking station until its time was over; nothing was stored. Heals when consumers come."""


class StationError(QueueError):
    """Something about a station, not about the call."""


class StationMissingError(StationError):
    """The queue has no station of that name."""


class StationExistsError(StationError):
    """There is a station of that name already, on other terms."""


class LeaseLostError(StationError):
    """Products that are not, or no longer, leased to this consumer cannot be put by it."""


class RejectedError(QueueError):
    """As many products wait as the limit `max_queue` allows; nothing was stored. Heals when consumers catch up."""


class ChannelError(QueueError):
    """Something about a channel, not about the call."""


class ChannelMissingError(ChannelError):
    """The queue has no channel of that name."""


class ChannelExistsError(ChannelError):
    """There is a channel of that name already, on other terms."""


class ChannelInUseError(ChannelError):
    """A channel that has stations cannot be removed."""


class ChannelEndedError(ChannelError):
    """The channel's stop time has passed; nothing was stored."""


class SuppliersFullError(ChannelError):
    """The channel has as many suppliers as it admits. Heals when one of them leaves."""


class FabricError(HeadraceError):
    """Sites, or a site and its user, cannot reach each other as they should."""


class FabricMessageError(FabricError):
    """A message from elsewhere is malformed or contradicts itself. It was refused, and nothing of it was used."""


class SiteUnreachableError(FabricError):
    """A site did not answer for as long as we had patience. What it was asked may have happened, or not."""


class AccessDeniedError(FabricError):
    """The rules of a site do not allow this to whoever asked."""


class RecordsDamagedError(HeadraceError, ValueError):
    """Records from elsewhere cannot be used, none of them; `offset` is where the first bad one begins."""

    def __init__(self, problem: str, hint: str, offset: int) -> None:
        super().__init__(problem, hint)
        self.offset = offset


class PipelineError(HeadraceError):
    """Something about the pipeline."""


class TargetError(PipelineError):
    """What an action writes to cannot be written: no room, no right, no way. The batch is done again when it can."""


class DataLossError(PipelineError):
    """Products that the pipeline has not read are gone; the problem names them."""


class OracleError(HeadraceError, ValueError):
    """A saved oracle cannot be read."""
