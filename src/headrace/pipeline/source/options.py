"""Options: what a Spark user sets by `.option(name, value)`, read strictly.

Spark passes every option as text and accepts names that do not exist. Here an unknown name or an invalid value is an
error that names the option. Names are those of Spark's Kafka source where the meaning is the same. Options of Spark's
own (`SPARKS`), which it passes on to every source and sink, are left to Spark.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError, OptionError
from headrace.link.login import Login
from headrace.pipeline.source.columns import COLUMNS, DEFAULT, FRAGMENT
from headrace.pipeline.source.open_queues import LOGIN_OPTIONS, QueueAddress
from headrace.pipeline.source.ranges import LATEST, Position, created_within, moment_of
from headrace.pipeline.source.slice_sets import GroupName
from headrace.selection import Selection
from headrace.share.share import MAIN
from headrace.units import parse_size

ALL = "*"  # every column
SPARKS = frozenset({
    "queryname", "checkpointlocation", "asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms",
})  # in lower case, as Spark passes them; they configure the query, not its source or sink  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read."""

    address: QueueAddress
    select: str = ""
    starting_offsets: str | None = None  # None: earliest in a batch, latest in a stream
    ending_offsets: str = LATEST  # of a batch
    since_ns: int | None = None  # by time of creation
    until_ns: int | None = None  # not included
    columns: tuple[str, ...] = DEFAULT
    max_products: int | None = None  # in one trigger
    max_bytes: int | None = None
    min_partitions: int | None = None
    partition_bytes: int | None = None  # about, at most
    partition_by: str = "bytes"
    stream: str | None = None  # a channel with slices, and a group of nodes on it: packed by what they have measured
    group: str | None = None
    fail_on_data_loss: bool = True
    station: str | None = None
    blocking: bool = False
    push_filters: bool = False
    fragments: bool = False  # rows of fragments too, marked in a column of their own; else they are left out

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the rows."""
        return (*self.columns, FRAGMENT) if self.fragments else self.columns

    @property
    def selection(self) -> Selection:
        selection = Selection.parse(self.select) if self.select else Selection()
        return created_within(selection, self.since_ns, self.until_ns)

    def start(self, default: str) -> Position:
        """Where to begin."""
        return Position("startingOffsets", self.starting_offsets or default)

    @property
    def measured_by(self) -> GroupName | None:
        """The group whose costs count."""
        return None if self.stream is None else GroupName(self.stream, self.group or MAIN)

    @property
    def end(self) -> Position:
        return Position("endingOffsets", self.ending_offsets)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to put rows as products."""

    address: QueueAddress
    feed: str | None = None  # of all rows; None: the column `feed`
    application: str = ""  # names the writer: the same rows of the same writer are one product
    batch: int | None = None  # number of a micro-batch: the same rows of another batch are other products


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """From Spark's options; OptionError names an option that is unknown or invalid."""
    options = _known(given, _READ)
    _check_read(options)
    read = ReadOptions(_address(options), **options)
    if read.selection.every > 1:
        raise OptionError("option select: `every` counts, and tasks cannot count together", "sample the DataFrame")
    return read


def check_for_batch(options: ReadOptions) -> None:
    """OptionError: an option has no effect in a batch."""
    _check_without_effect(options, ("max_products", "max_bytes", "station", "blocking"), "batch", "spark.readStream")


def check_for_stream(options: ReadOptions) -> None:
    """OptionError: an option has no effect in a stream."""
    _check_without_effect(options, ("ending_offsets", "push_filters"), "stream", "spark.read")


def _check_without_effect(options: ReadOptions, fields: tuple[str, ...], kind: str, other: str) -> None:
    default = ReadOptions(options.address)
    for name, (field, _) in _READ.items():
        if field in fields and getattr(options, field) != getattr(default, field):
            raise OptionError(f"option {name} has no effect in a {kind}", f"leave it out, or read by {other}")


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """From Spark's options; OptionError names an option that is unknown or invalid."""
    options = _known(given, _WRITE)
    return WriteOptions(_address(options), **options)


def _check_read(options: Mapping[str, Any]) -> None:
    if options.get("blocking") and "station" not in options:
        raise OptionError("option blocking requires a station, which holds the products", "give option station too")
    if "group" in options and "stream" not in options:
        raise OptionError("option group requires a stream", "name the channel of the group by option stream")
    if "stream" in options and options.get("partition_by") != "slice":
        raise OptionError("option stream has no effect without slices", 'give option("partitionBy", "slice") too')
    try:
        Selection.parse(options.get("select", "") or "**")
    except HeadraceError as error:
        raise OptionError(f"option select: {error.problem}", error.hint) from None


def _address(options: dict[str, Any]) -> QueueAddress:
    """Take queue, site and login out of the options. Without a login there, that of the environment is used."""
    queue, site = options.pop("queue", None), options.pop("site", None)
    if queue is None and site is None:
        raise OptionError("neither queue nor site is given", 'give option("queue", folder) or option("site", endpoint)')
    login = {field: options.pop(field) for field in LOGIN_OPTIONS if field in options}
    if site is None:
        if login:
            name = LOGIN_OPTIONS[next(iter(login))]
            raise OptionError(f"option {name} has no effect without a site", 'give option("site", endpoint) too')
        return QueueAddress(queue, None)
    names = {field: f"option {name}" for field, name in LOGIN_OPTIONS.items()}
    return QueueAddress(queue, site, Login.of(login, names) if login else Login.from_environment())


def _known(given: Mapping[str, str], known: "_Options") -> dict[str, Any]:
    """The options that are given, by the names of their fields."""
    names = {name.lower(): name for name in known}
    options: dict[str, Any] = {}
    for key, value in given.items():
        if key.lower() in SPARKS:
            continue
        if key.lower() == "path":  # load("wx.queue"), as with files
            key = "queue"
        name = names.get(key.lower())
        if name is None:
            raise OptionError(f"the source headrace has no option {key!r}", _hint(key.lower(), names))
        field, read = known[name]
        options[field] = read(name, value)
    return options


def _hint(key: str, names: Mapping[str, str]) -> str:
    """What to write instead of an unknown option; `names` are the known ones, by their lower case."""
    if key == "password":
        return "write the password into a file, and give that file as option passwordFile"
    near = difflib.get_close_matches(key, names, 1)
    return f"did you mean {names[near[0]]}?" if near else f"options are {', '.join(names.values())}"


# --- values --------------------------------------------------------------------------------------


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise OptionError(f"option {name} is empty", "give it a value, or leave it out")
    return value


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise OptionError(f"option {name}: {value!r} is not a positive number", f"write .option({name!r}, 1000)")
    return int(value)


def _batch(name: str, value: str) -> int:
    if not value.isdecimal():
        raise OptionError(f"option {name}: {value!r} is not the number of a batch", "give the batch_id of foreachBatch")
    return int(value)


def _size(name: str, value: str) -> int:
    return max(1, parse_size(value, f"option {name}"))


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise OptionError(f"option {name}: {value!r} is neither true nor false", "write true or false")
    return value.lower() == "true"


def _position(name: str, value: str) -> str:
    Position(name, value).check()
    return value


def _columns(name: str, value: str) -> tuple[str, ...]:
    if value.strip() == ALL:
        return COLUMNS
    columns = tuple(part.strip() for part in value.split(",") if part.strip())
    unknown = [column for column in columns if column not in COLUMNS]
    if unknown or not columns or len(set(columns)) < len(columns):
        reason = f"unknown: {', '.join(unknown)}" if unknown else "empty, or a column is named twice"
        raise OptionError(
            f"option columns: {value!r} is invalid ({reason})", f"columns are {', '.join(COLUMNS)}, or {ALL} for all"
        )
    return columns


def _choice(*choices: str) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        if value not in choices:
            raise OptionError(f"option {name}: {value!r} is unknown", f"values are {', '.join(choices)}")
        return value

    return read


_Options = dict[str, tuple[str, Callable[[str, str], Any]]]  # Spark's name: the field, and how to read its text

_LOGIN: _Options = {name: (field, _text) for field, name in LOGIN_OPTIONS.items()}
_READ: _Options = {
    "queue": ("queue", _text),
    "site": ("site", _text),
    **_LOGIN,
    "select": ("select", _text),
    "startingOffsets": ("starting_offsets", _position),
    "endingOffsets": ("ending_offsets", _position),
    "startingTimestamp": ("since_ns", moment_of),
    "endingTimestamp": ("until_ns", moment_of),
    "columns": ("columns", _columns),
    "maxProductsPerTrigger": ("max_products", _number),
    "maxBytesPerTrigger": ("max_bytes", _size),
    "minPartitions": ("min_partitions", _number),
    "maxBytesPerPartition": ("partition_bytes", _size),
    "partitionBy": ("partition_by", _choice("bytes", "slice")),
    "stream": ("stream", _text),
    "group": ("group", _text),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "station": ("station", _text),
    "blocking": ("blocking", _flag),
    "pushFilters": ("push_filters", _flag),
    "fragments": ("fragments", _flag),
}
_WRITE: _Options = {
    "queue": ("queue", _text),
    "site": ("site", _text),
    **_LOGIN,
    "feed": ("feed", _text),
    "application": ("application", _text),
    "batch": ("batch", _batch),
}
