"""Types of the compiled kernel, written by hand; `_kernel.pyx` says what is where.

`State`, `Entry` and `SegmentHeader` exist for the type checker only: at run time they are plain dicts. Columns of
numbers are contiguous and have exactly the width that their type names.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias, TypedDict, final, type_check_only

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, Unpack

_U8: TypeAlias = Buffer | npt.NDArray[np.uint8]
_U16: TypeAlias = Buffer | npt.NDArray[np.uint16]
_U64: TypeAlias = Buffer | npt.NDArray[np.uint64]

FAILPOINTS: Final[dict[str, int]]
FAULTS: Final[dict[int, str]]
TROUBLE: Final[dict[str, int]]
CONTROL_BYTES: Final[int]

@type_check_only
class State(TypedDict):
    """The shared numbers of the control file; docs/format.md explains each."""

    version: int
    state: int
    uuid: bytes
    boot: bytes
    size_bytes: int
    age_ns: int
    segment_bytes: int
    durability: int
    signature_kind: int
    clean: int
    origin: int
    head: int
    tail: int
    oldest: int
    segment_oldest: int
    segment_newest: int
    next_file: int
    spare_file: int
    bytes_total: int
    data_end: int
    pending_file: int
    dedup_table: int
    dedup_bytes: int
    feeds_end: int
    origins_end: int
    synced_names: int
    synced: int
    synced_file: int
    inserted_products: int
    inserted_bytes: int
    duplicates: int
    evicted_products: int
    evicted_bytes: int
    deleted_products: int
    held_products: int
    sync_failed: int
    unlinked_pinned: int
    recoveries: int

@type_check_only
class _Change(TypedDict, total=False):
    """The shared numbers that Python may set."""

    size_bytes: int
    age_ns: int
    segment_bytes: int
    state: int
    clean: int
    boot: bytes
    tail: int
    head: int
    oldest: int
    segment_oldest: int
    segment_newest: int
    next_file: int
    spare_file: int
    synced: int
    synced_file: int
    synced_names: int
    sync_failed: int
    pending_file: int
    origin: int
    feeds_end: int
    origins_end: int
    deleted_products: int

@type_check_only
class Entry(TypedDict):
    """One segment in the directory."""

    number: int
    first: int
    end: int
    file: int
    size: int
    payload_bytes: int
    newest_ns: int
    newest_boot_ns: int
    deleted_products: int
    deleted_bytes: int

@type_check_only
class SegmentHeader(TypedDict):
    """What a segment file says of itself; `sound` tells whether its checksum fits."""

    version: int
    uuid: bytes
    file: int
    size: int
    number: int
    first: int
    sound: bool

class KernelError(Exception):
    code: int
    file: int
    def __init__(self, code: int, file: int = 0) -> None: ...

class Held:
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Log:
    @property
    def feeds(self) -> dict[str, int]: ...
    @property
    def origins(self) -> dict[str, int]: ...
    @property
    def names(self) -> list[str]: ...
    def __init__(self, queue_fd: int, segments_fd: int) -> None: ...

    # names
    def learn_names(self) -> int: ...
    def add_name(self, kind: int, text: str) -> int: ...
    def add_name_locked(self, kind: int, text: str) -> int: ...
    def feed_totals(self) -> list[tuple[str, int, int, int]]: ...

    # append
    def put(
        self,
        payload: Buffer,
        feed: str,
        ident: str,
        created_ns: int,
        priority: int,
        expires_ns: int,
        properties: bytes | None,
        slice: int,
        signature: bytes | None,
        origin: str | None,
        origin_sequence: int,
        previous: int,
        now_ns: int,
        boot_ns: int,
    ) -> int: ...
    def put_plain(self, payload: Buffer, feed: str, ident: str, priority: int) -> int: ...
    def put_many(
        self,
        payloads: Sequence[Buffer],
        feeds: str | list[str],
        idents: str | list[str],
        created_ns: _U64 | None,
        priorities: _U8,
        expires_ns: _U64 | None,
        properties: bytes | list[bytes] | None,
        slices: _U16 | None,
        signatures: Sequence[bytes | None] | None,
        origins: str | list[str] | None,
        origin_sequences: _U64 | None,
        previous: _U64 | None,
        now_ns: int,
        boot_ns: int,
    ) -> tuple[int, int, list[int] | None]: ...

    # read
    def rows(self) -> Rows: ...
    def take(
        self, start: int, limit: int, bytes_limit: int, stop: int, row_filter: RowFilter | None, now_ns: int
    ) -> tuple[int, Rows]: ...
    def first_from(self, sequence: int) -> int: ...
    def first_since(self, time_ns: int) -> int: ...
    def wait_once(self, sequence: int, timeout_s: float) -> None: ...
    def wake_all(self) -> None: ...
    def sweep(self) -> None: ...

    # locks
    def held(self) -> Held: ...
    def held_for_sync(self, patient: bool = True) -> Held: ...

    # the shared state
    def segment_end(self, sequence: int) -> int: ...
    @property
    def trouble_file(self) -> int: ...
    @property
    def head(self) -> int: ...
    @property
    def tail(self) -> int: ...
    @property
    def oldest(self) -> int: ...
    @property
    def state(self) -> State: ...
    def set_state(self, **fields: Unpack[_Change]) -> None: ...
    def publish(self, tail: int) -> None: ...
    def entry(self, number: int) -> Entry: ...
    def set_entry(
        self,
        number: int,
        first: int,
        end: int,
        file: int,
        size: int,
        payload_bytes: int,
        newest_ns: int,
        newest_boot_ns: int,
        deleted_products: int,
        deleted_bytes: int,
    ) -> None: ...
    def samples(self) -> list[tuple[int, int, int, int]]: ...
    def attachments(self) -> list[tuple[int, int, int, int, int]]: ...
    def set_attachment(self, place: int, pid: int, started: int, roles: int, attached_ns: int) -> None: ...

@final
class RowFilter:
    def __new__(
        cls,
        feeds: _U8 | None = None,
        origins: _U8 | None = None,
        priorities: int = 255,
        slices: _U8 | None = None,
    ) -> Self: ...

@final
class Rows:
    def __new__(cls, log: Log) -> Self: ...
    @property
    def next(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def damage(self) -> tuple[int, int] | None: ...
    @property
    def passed_over(self) -> tuple[int, int, int, int, int]: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def pick(self, start: int, limit: int, bytes_limit: int, stop: int, row_filter: RowFilter | None) -> int: ...
    def keep(self, mask: _U8, begin: int) -> None: ...
    def cut(self, limit: int) -> None: ...
    def verify(self, begin: int, now_ns: int) -> None: ...
    def view(self, place: int) -> memoryview: ...
    def ident(self, place: int) -> str: ...
    def properties(self, place: int) -> _Bytes: ...
    def record(self, place: int) -> _Bytes: ...
    def gather_idents(self, begin: int = 0) -> tuple[_Bytes, _Bytes]: ...
    def gather_payloads(self, wide: bool) -> tuple[_Bytes, _Bytes]: ...
    def gather_properties(self) -> tuple[_Bytes, _Bytes, _Bytes, _Bytes, _Bytes]: ...

_Bytes: TypeAlias = bytes  # inside Rows, `bytes` is a number

@final
class View:
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Mapped:
    def __new__(cls, fd: int, size: int) -> Self: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def holed(self) -> bool: ...

# system
def arm_failpoint(name: str, passes: int = 1) -> None: ...
def reach_failpoint(name: str) -> None: ...

# log
def reset_locks(log: Log) -> None: ...
def take_back(log: Log) -> None: ...
def apply_limits(log: Log, boot_ns: int) -> None: ...
def forget_spare(log: Log) -> None: ...
def begin_segment(log: Log, first: int) -> None: ...
def rebuild_dedup(log: Log) -> None: ...
def mark_rows(log: Log, sequences: _U64, flag: int) -> int: ...
def recount_names(log: Log, file_bytes: int) -> None: ...
def recount_last(log: Log) -> None: ...
def format_control(
    fd: int,
    state: int,
    uuid: bytes,
    boot: bytes,
    size_bytes: int,
    age_ns: int,
    segment_bytes: int,
    durability: int,
    signature_kind: int,
    secret: bytes,
    first_sequence: int,
) -> None: ...
def checksum(data: Buffer) -> int: ...
def read_control_start(start: bytes) -> tuple[bytes, int, bytes]: ...

# survey; `data` is a whole segment file, writable
def read_segment_header(data: Buffer) -> SegmentHeader | None: ...
def survey_rows(
    log: Log | None, data: Buffer, first: int, count: int, verify: bool
) -> tuple[int, list[tuple[int, int]], int, int, int, int]: ...
def count_records(log: Log, data: Buffer, first: int) -> int: ...
def forgotten_rows(log: Log, data: Buffer, first: int, count: int) -> list[int]: ...
def rebuild_rows(log: Log, data: Buffer, first: int, count: int) -> tuple[int, int]: ...
def segment_header(log: Log, file: int, size: int, number: int, first: int) -> bytes: ...
def write_header(log: Log, file: int, size: int, number: int, first: int) -> None: ...
