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
    │   └── NamesFullError
    └── OracleError                       a saved oracle that cannot be read

Each message names the thing and ends with what to do; `hint` holds that last part alone. Outcomes that belong to
normal work (a duplicate, nothing to read, a lost range) are values, not errors.
"""


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
    """A selection cannot be understood."""


class CursorNameError(InvalidError):
    """A cursor name is empty, too long, or there are too many cursors."""


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


class OracleError(HeadraceError, ValueError):
    """A saved oracle cannot be read."""
