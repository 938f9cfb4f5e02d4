"""The terms of a queue, chosen at creation and kept in `queue.json`.

The file is written as a whole and renamed into place; everything that changes while the queue is in use lives in the
control file instead. `headrace queue resize` is the only thing that rewrites it.
"""

import os
import re
import socket
from pathlib import Path
from typing import Literal, get_args

import msgspec

from headrace.errors import NotAQueueError, OptionError, QueueDamagedError, QueueVersionError
from headrace.log.seams import Disk
from headrace.units import format_size

FORMAT = 1
CONFIG_FILE = "queue.json"
Durability = Literal["memory", "process", "disk"]
Dedup = Literal["none", "blake3", "xxh3", "md5"]
DURABILITIES: tuple[str, ...] = get_args(Durability)  # the kernel knows them by their place
SIGNATURES: tuple[str, ...] = get_args(Dedup)

SIZE_MIN = 1 << 20
SIZE_MAX = 1 << 40
SEGMENT_MIN = 1 << 16
SEGMENT_MAX = 1 << 30
PAYLOAD_MAX = (1 << 32) - 1


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `create` was told."""

    format: int
    uuid: str
    size: int  # bytes of all segments
    age_s: float | None  # products older than this are dropped; None = only the size counts
    durability: Durability
    dedup: Dedup
    origin: str  # id of the site whose products are created here

    @property
    def segment_bytes(self) -> int:
        """A queue has 64 segments or so: what it drops at once is small beside what it holds."""
        return max(SEGMENT_MIN, min(SEGMENT_MAX, self.size // 64)) // 4096 * 4096

    @property
    def payload_bytes_max(self) -> int:
        return min(self.size // 4, PAYLOAD_MAX)

    @property
    def age_ns(self) -> int:
        return int((self.age_s or 0) * 1e9)


def check_size(size: int) -> int:
    if not SIZE_MIN <= size <= SIZE_MAX:
        raise OptionError(
            f"size {size} ({format_size(size)}) is out of range",
            f"choose between {format_size(SIZE_MIN)} and {format_size(SIZE_MAX)}",
        )
    return size


def check_age(age_s: float | None) -> float | None:
    if age_s is not None and not 0.001 <= age_s <= 10 * 366 * 86400:
        raise OptionError(f"age {age_s} s is out of range", 'choose between 1 ms and ten years, such as "1h"')
    return age_s


def check_durability(durability: str) -> Durability:
    if durability not in DURABILITIES:
        raise OptionError(f"durability {durability!r} is unknown", f"choose one of {', '.join(DURABILITIES)}")
    return durability  # type: ignore[return-value]


def check_dedup(dedup: str) -> Dedup:
    if dedup not in SIGNATURES:
        raise OptionError(f"dedup {dedup!r} is unknown", f"choose one of {', '.join(SIGNATURES)}")
    return dedup  # type: ignore[return-value]


# made once: threads that use a type for the first time at the same moment would get in each other's way
_ANY = msgspec.json.Decoder(dict[str, object])
_CONFIG = msgspec.json.Decoder(QueueConfig)


def default_origin() -> str:
    """The host's own name, as far as it can be a site id."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().split(".")[0])[:63].lstrip("._-")
    return name or "site"


def write_config(directory: Path, config: QueueConfig) -> None:
    """Replace the file as a whole."""
    text = msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
    part = directory / f"{CONFIG_FILE}.{os.getpid()}.part"
    with part.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(directory / CONFIG_FILE)
    Disk().sync_directory(directory)


def read_config(directory: Path) -> QueueConfig:
    """The terms of the queue in `directory`; an error names the file and the remedy."""
    path = directory / CONFIG_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise NotAQueueError(
            f"{directory} has no {CONFIG_FILE}, it is not a queue",
            "create one elsewhere with: headrace queue create",
        ) from None
    try:
        version = _ANY.decode(text).get("format")
        if isinstance(version, int) and version > FORMAT:
            raise QueueVersionError(
                f"{path} has format {version}; this Headrace knows formats up to {FORMAT}",
                "upgrade Headrace",
            )
        return _CONFIG.decode(text)
    except msgspec.DecodeError as error:
        raise QueueDamagedError(
            f"{path} cannot be read: {error}", "restore it from a backup or write it by hand"
        ) from None
