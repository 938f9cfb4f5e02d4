"""Types of the compiled kernel, written by hand; `_kernel.pyx` says what is where.

`State`, `Entry` and `SegmentHeader` exist for the type checker only: at run time they are plain dicts. Columns of
numbers are contiguous and have exactly the width that their type names.
"""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypedDict, final, type_check_only

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, Unpack

from headrace.product.expansion import DictionarySource
from headrace.product.product import Product

_U8: TypeAlias = Buffer | npt.NDArray[np.uint8]
_U16: TypeAlias = Buffer | npt.NDArray[np.uint16]
_U32: TypeAlias = Buffer | npt.NDArray[np.uint32]
_U64: TypeAlias = Buffer | npt.NDArray[np.uint64]

FAILPOINTS: Final[dict[str, int]]
FAULTS: Final[dict[int, str]]
CODES: Final[dict[str, int]]
# layout.pxi explains each of these
FORMAT_VERSION: Final[int]
SEGMENT_VERSION: Final[int]
RECORD_PLAIN: Final[int]
RECORD_WITH_OPTIONS: Final[int]
RECORD_MAGIC: Final[int]
RECORD_HEADER: Final[int]
SEGMENT_HEADER: Final[int]
ROW_BYTES: Final[int]
NAME_BYTES: Final[int]
ORIGINS_MAX: Final[int]
NAMES_MAX: Final[int]
NAMES_STEP: Final[int]
SEGMENTS_MAX: Final[int]
ATTACHMENTS_MAX: Final[int]
SAMPLES: Final[int]
FEED_BYTES_MAX: Final[int]
ORIGIN_BYTES_MAX: Final[int]
IDENT_BYTES_MAX: Final[int]
PRIORITIES: Final[int]
PRIORITY_DEFAULT: Final[int]
SLICES: Final[int]
NO_SLICE: Final[int]

NAME_FEED: Final[int]
NAME_ORIGIN: Final[int]

PROPERTY_INT: Final[int]
PROPERTY_FLOAT: Final[int]
PROPERTY_STR: Final[int]
PROPERTY_BOOL: Final[int]

ROLE_READER: Final[int]
ROLE_WRITER: Final[int]

RECORD_KIND: Final[int]
RECORD_EXPIRES: Final[int]
RECORD_REVISION: Final[int]

ROW_DELETED: Final[int]
ROW_DAMAGED: Final[int]
ROW_EXPIRES: Final[int]
ROW_SIGNED: Final[int]
ROW_CONTINUES: Final[int]
ROW_REVISION: Final[int]
ROW_OPTIONS: Final[int]
ROW_UNPROVEN: Final[int]
ROW_HIDDEN: Final[int]

OPTION_BOUND: Final[int]
OPTION_REPLAY: Final[int]
OPTION_HOPS: Final[int]
OPTION_SIGNED: Final[int]
OPTION_COMPRESSION: Final[int]
OPTION_FRAGMENT: Final[int]
OPTIONS_BYTES_MAX: Final[int]
EXPANDED_BYTES_MAX: Final[int]

CLOCK_NONE: Final[int]
CLOCK_SYSTEM: Final[int]
CLOCK_NTP: Final[int]

SIGNATURE_NONE: Final[int]
SIGNATURE_BLAKE3: Final[int]
SIGNATURE_XXH3: Final[int]
SIGNATURE_MD5: Final[int]
SIGNATURE_GIVEN: Final[int]
SIGNATURE_OF_IDENTITY: Final[int]
SIGNATURE_HASH: Final[int]
PROOF_NONE: Final[int]
PROOF_SOUND: Final[int]
PROOF_OPEN: Final[int]
PROOF_WRONG: Final[int]

DURABLE_MEMORY: Final[int]
DURABLE_PROCESS: Final[int]
DURABLE_DISK: Final[int]

STATE_READY: Final[int]
STATE_RECOVERING: Final[int]

CONTROL_BYTES: Final[int]
CONTROL_BYTES_1: Final[int]
SEQUENCE_LEAP: Final[int]

CHAIN_VERSION: Final[int]
MEMBERS_MAX: Final[int]
CONSUMERS_MAX: Final[int]
SLOTS_MAX: Final[int]
SLOTS_STEP: Final[int]
PARKED_MAX: Final[int]
WINDOW: Final[int]
CONSUMER_BYTES: Final[int]
CONSUMER_LOCKS_AT: Final[int]

SLOT_FREE: Final[int]
SLOT_WAITING: Final[int]
SLOT_LEASED: Final[int]
SLOT_PARKED: Final[int]

BY_ANY: Final[int]
BY_FIFO: Final[int]
BY_LIFO: Final[int]
BY_PRIORITY: Final[int]
BY_DEADLINE: Final[int]

RESTORE_INPUT: Final[int]
RESTORE_OUTPUT: Final[int]
RESTORE_START: Final[int]
RESTORE_GROUP: Final[int]

ROUND_ROBIN: Final[int]
LEAST_LOADED: Final[int]

GET_MAX: Final[int]
FEW: Final[int]

REF_BYTES: Final[int]

DURABILITIES: Final[dict[str, int]]
HASHES: Final[dict[str, int]]
ORDERS: Final[dict[str, int]]
DISCARDS: Final[dict[str, int]]
RESTORES: Final[dict[str, int]]
DISTRIBUTIONS: Final[dict[str, int]]
ROW_FIELDS: Final[dict[str, tuple[int, int]]]  # (offset, bytes)
REF_FIELDS: Final[dict[str, tuple[int, int]]]

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
    stations: int
    requests: int
    slicings: int

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
    signature_kind: int
    stations: int
    requests: int
    slicings: int

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
    """The header of a segment file; `sound` says whether its checksum matches."""

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
    fault: str
    def __init__(self, code: int, file: int = 0, fault: str = "") -> None: ...

@final
class Held:
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Log:
    @property
    def feeds(self) -> dict[str, int]: ...
    @property
    def origins(self) -> dict[str, int]: ...
    @property
    def names(self) -> list[str]: ...
    def __init__(self, queue_fd: int, segments_fd: int, read_only: bool = False) -> None: ...
    @property
    def read_only(self) -> bool: ...

    # place
    def watch_place(self, path: bytes) -> None: ...
    def look_for_place(self, always: bool = True) -> int: ...
    @property
    def queue_fd(self) -> int: ...
    @property
    def payload_bytes_max(self) -> int: ...
    dictionaries: DictionarySource | None

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
        options: bytes | None,
        now_ns: int,
        boot_ns: int,
        assigned: int = 0,
        content: Buffer | None = None,
    ) -> int: ...
    def put_plain(
        self, payload: Buffer, feed: str, ident: str, facts: Mapping[str, Any], slice: int | None = None
    ) -> int: ...
    def put_many_plain(
        self,
        payloads: Sequence[Buffer],
        feed: str,
        ident: str,
        priority: int,
        slices: int | list[int | None] | _U16 | None = None,
    ) -> tuple[int, int, list[int] | None]: ...
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
        options: bytes | list[bytes | None] | None,
        now_ns: int,
        boot_ns: int,
        assigned: int = 0,
        contents: Sequence[Buffer | None] | None = None,
    ) -> tuple[int, int, list[int] | None]: ...
    def put_records(
        self,
        rows: Rows,
        mask: _U8 | None,
        now_ns: int,
        boot_ns: int,
        slices: _U16 | None = None,
        assigned: int = 0,
        passed_on: bool = False,
        packed: dict[int, tuple[bytes, bytes]] | None = None,
    ) -> tuple[int, int, list[int] | None]: ...

    # time
    def now_ns(self) -> int: ...
    def now_and_bound(self) -> tuple[int, int]: ...
    def clock(self) -> dict[str, int] | None: ...
    def set_clock(
        self,
        boot_ns: int,
        utc_ns: int,
        rate_ppb: int,
        then_ppb: int,
        until_boot_ns: int,
        bound_ns: int,
        drift_ppb: int,
        source: int,
        offset_ns: int,
        back: bool = False,
    ) -> None: ...
    def clear_clock(self) -> None: ...

    # read
    def rows(self) -> Rows: ...
    def take(
        self, start: int, limit: int, bytes_limit: int, stop: int, row_filter: RowFilter | None, now_ns: int
    ) -> tuple[int, Rows]: ...
    def first_from(self, sequence: int) -> int: ...
    def count_between(self, start: int, end: int) -> int: ...
    def first_since(self, time_ns: int) -> int: ...
    def wait_once(self, sequence: int, timeout_s: float) -> None: ...
    def wake_all(self) -> None: ...
    @property
    def gates_number(self) -> int: ...
    @property
    def slicings_number(self) -> int: ...
    @property
    def wake_number(self) -> int: ...
    def sweep(self) -> None: ...

    # locks
    def held(self) -> Held: ...
    def held_for_sync(self, patient: bool = True) -> Held: ...

    # the shared state
    def segment_end(self, sequence: int) -> int: ...
    @property
    def failed_file(self) -> int: ...
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
    def __new__(cls, log: Log | None) -> Self: ...
    @property
    def names(self) -> list[str]: ...
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
    def fill(self, begin: int) -> None: ...
    def expire(self, begin: int, now_ns: int) -> None: ...
    def some(self, places: _U32) -> Rows: ...
    def view(self, place: int) -> memoryview: ...
    def product(self, place: int, names: Sequence[str]) -> RowProduct: ...
    def products(self, names: Sequence[str]) -> RowProducts: ...
    def ident(self, place: int) -> str: ...
    def properties(self, place: int) -> _Bytes: ...
    def options(self, place: int) -> _Bytes: ...
    def staying(self) -> bytearray | None: ...
    def record_sizes(self) -> _Bytes: ...
    @property
    def dictionaries(self) -> DictionarySource | None: ...
    def lend(self, dictionaries: DictionarySource | None) -> None: ...
    def record(self, place: int) -> _Bytes: ...
    def gather_records(self, places: _U32 | None = None) -> _Bytes: ...
    def gather_idents(self, begin: int = 0) -> tuple[_Bytes, _Bytes]: ...
    def gather_payloads(self, wide: bool) -> tuple[_Bytes, _Bytes]: ...
    def gather_texts(self, wanted: _U8) -> tuple[tuple[_Bytes, _Bytes] | None, ...]: ...
    def gather_numbers(self) -> dict[str, Any]: ...
    def gather_properties(self) -> tuple[_Bytes, _Bytes, _Bytes, _Bytes, _Bytes]: ...

def join_rows(
    parts: list[Rows],
    which: _U32,
    places: _U32,
    names: list[str] | None = None,
    feeds: list[_U32] | None = None,
    origins: list[_U32] | None = None,
) -> Rows: ...
def sleep_precisely(until_ns: int, spin_ns: int) -> int: ...

_Bytes: TypeAlias = bytes  # inside Rows, `bytes` is a number

@final
class RowProduct(Product):
    def __eq__(self, other: object, /) -> bool: ...

def place_of(product: RowProduct) -> tuple[Rows, int]: ...

@final
class RowProducts:
    def __iter__(self) -> Self: ...
    def __next__(self) -> RowProduct: ...

@final
class Weigher:
    def __new__(cls, log: Log, stretch_bytes: int, product_bytes: int) -> Self: ...
    @property
    def next(self) -> int: ...
    @property
    def products(self) -> int: ...
    def run(self, start: int, stop: int, products_max: int, row_filter: RowFilter | None) -> int: ...
    def finish(self, end: int) -> tuple[list[int], list[int], list[int], dict[int, int], dict[int, int]]: ...

@final
class View:
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Mapped:
    def __new__(cls, fd: int, size: int, read_only: bool = False) -> Self: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def wait(self, offset: int, seen: int, timeout_s: float) -> int: ...
    def wake(self, offset: int) -> None: ...
    @property
    def holed(self) -> bool: ...

# system
def arm_failpoint(name: str, passes: int = 1) -> None: ...
def check_payload(payload: Any) -> None: ...
def check_options(block: bytes) -> None: ...
def needed_dictionaries(rows: Rows) -> set[int]: ...
def reach_failpoint(name: str) -> None: ...
def fail_allocation(passes: int) -> bool: ...

# log
def reset_locks(log: Log) -> None: ...
def take_back(log: Log) -> None: ...
def apply_limits(log: Log, boot_ns: int) -> None: ...
def forget_spare(log: Log) -> None: ...
def begin_segment(log: Log, first: int) -> None: ...
def rebuild_dedup(log: Log) -> None: ...
def find_signatures(log: Log, signatures: _U8, kinds: _U8, origins: _U16) -> bytes: ...
def prove(rows: Rows, mask: _U8 | None = None) -> int: ...
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

# wire
WRONG: Final[dict[int, str]]

def read_records(
    data: Buffer,
    feeds: dict[str, int],
    origins: dict[str, int],
    names: list[str],
    check_feed: Callable[[str], object],
    check_origin: Callable[[str], object],
) -> Rows: ...

# place
def gather_placed(rows: Rows, count: int) -> tuple[bytes, bytes]: ...
def place_rows(rows: Rows, places: bytes, next_sequence: int, passed_over: tuple[int, int, int, int, int]) -> None: ...

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

# chains of stations
CHAIN_MAGIC: Final[bytes]
SETTLE: Final[dict[str, int]]

@final
class Chain:
    def __new__(cls, log: Log, fd: int, number: int) -> Self: ...
    @property
    def fd(self) -> int: ...

    # terms
    def set_member(self, number: int, terms: dict[str, int]) -> None: ...
    def remove_member(self, number: int) -> None: ...
    def note_terms(self) -> None: ...
    def use_terms(
        self, seen: int, members: list[int], filters: list[RowFilter | None], until: int, conducts: bool
    ) -> None: ...
    @property
    def terms_number(self) -> int: ...

    # from the log
    @property
    def position(self) -> int: ...
    @property
    def low(self) -> int: ...
    def conduct(self) -> int: ...
    def admit(
        self,
        seen: int,
        start: int,
        end: int,
        sequences: _U64,
        priorities: _U8,
        wanted: _U64,
        expires_ns: _U64,
        inserted_ns: _U64,
    ) -> int: ...
    def skip(self, start: int, lost_last: int) -> None: ...
    def seek(self, position: int) -> None: ...
    def waiting(self, number: int) -> int: ...
    def wait(self, seen: int, timeout_s: float) -> None: ...

    # leases
    def get(
        self, number: int, epoch: int, limit: int, timeout_s: float, now_ns: int, looked: int, terms_seen: int
    ) -> tuple[int, Rows | float]: ...
    def get_plain(self, number: int, epoch: int, limit: int, terms_seen: int) -> Rows | None: ...
    def settle(
        self, number: int, epoch: int, rows: Rows, chosen: _U32 | None, how: int, revisions: _U64 | None
    ) -> int: ...
    def count_passed(self, number: int, expired: int, damaged: int) -> None: ...
    def put_revisions(
        self, rows: Rows, places: _U32, payloads: list[Buffer], now_ns: int, boot_ns: int
    ) -> list[int]: ...

    # consumers
    def attach(self, number: int, member: int, pid: int) -> int: ...
    def detach(self, number: int, epoch: int, failed: bool) -> bool: ...
    def heartbeat(self, number: int, epoch: int) -> bool: ...
    def hung(self, number: int) -> bool: ...
    def recover(self, number: int, epoch: int) -> int: ...
    def left_cleanly(self, number: int, attached_ns: int) -> bool: ...
    def consumers(self) -> list[tuple[int, int, int, int, int, int, int, int, int]]: ...

    # for writers
    def is_surely_full(self, number: int) -> bool: ...
    def may_look(self) -> bool: ...
    def count_rejected(self, number: int) -> None: ...
    def watch_room(self, held: bool) -> int: ...
    def wait_room(self, seen: int, timeout_s: float) -> None: ...

    # parked
    def slots(self, number: int, state: int) -> list[tuple[int, int, int, int]]: ...
    def unpark(self, number: int, sequences: _U64 | None, retry: bool) -> int: ...

    # inspection and repair
    def members(self) -> list[int]: ...
    def member(self, number: int) -> dict[str, int] | None: ...
    def drop_evicted(self) -> None: ...
    def in_hand(self, number: int) -> tuple[int, int]: ...
    @property
    def state(self) -> dict[str, int]: ...
    def save_cell(self) -> None: ...
    def reset(self, trusted: bool, tail: int) -> None: ...
    def check(self) -> list[str]: ...

def find_ready(chains: list[Chain], members: list[int], now_ns: int) -> list[int]: ...
def format_chain(fd: int, uuid: bytes, number: int, position: int) -> None: ...

ASSIGN_GIVEN: Final[int]
ASSIGN_IDENT: Final[int]
ASSIGN_PROPERTY: Final[int]
ASSIGN_MODULO: Final[int]
ASSIGN_GRID: Final[int]
ASSIGN_FUNCTION: Final[int]
ASSIGN_ROUND_ROBIN: Final[int]
ASSIGN_RANDOM: Final[int]

def set_slicings(
    log: Log,
    seen: int,
    slicings: list[tuple[bytes, int, int, Sequence[bytes], int, int, Buffer]],
) -> None: ...
def set_gates(log: Log, seen: int, gates: Sequence[tuple[Chain, int | None, _U8 | None]]) -> None: ...

@final
class LeasedProducts:
    def __new__(
        cls, chain: Chain, number: int, epoch: int, rows: Rows, names: Sequence[str], consumer: object
    ) -> Self: ...
    def give_back(self) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> RowProduct: ...
