"""The configuration of a queue, chosen at creation and kept in `queue.json`.

Everything that changes while the queue is in use is in the control file instead; only `Queue.resize` rewrites
`queue.json`. The limits of each option stand here, with the checks that enforce them.
"""

import re
import socket
from pathlib import Path
from typing import Literal, get_args

import msgspec

from headrace.errors import NotAQueueError, OptionError
from headrace.log.documents import Document
from headrace.log.seams import Disk
from headrace.units import format_size

FORMAT = 1
CONFIG_FILE = "queue.json"
Durability = Literal["memory", "process", "disk"]
Dedup = Literal["none", "blake3", "xxh3", "md5"]
DURABILITIES: tuple[str, ...] = get_args(Durability)  # in the order of the kernel's numbers
SIGNATURES: tuple[str, ...] = get_args(Dedup)

SIZE_MIN = 1 << 20
SIZE_MAX = 1 << 40
SEGMENT_MIN = 1 << 16
SEGMENT_MAX = 1 << 30
PAYLOAD_MAX = (1 << 32) - 1


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `Queue.create` was given."""

    format: int
    uuid: str
    size: int  # bytes of all segments
    age_s: float | None  # older products are evicted; None: only the size counts
    durability: Durability
    dedup: Dedup
    origin: str  # id of the site whose products are created here

    @property
    def segment_bytes(self) -> int:
        """A queue has about 64 segments, so that each eviction is small compared to what it holds."""
        return max(SEGMENT_MIN, min(SEGMENT_MAX, self.size // 64)) // 4096 * 4096

    @property
    def payload_bytes_max(self) -> int:
        """A payload is at most a quarter of the queue."""
        return min(self.size // 4, PAYLOAD_MAX)

    @property
    def age_ns(self) -> int:
        return int((self.age_s or 0) * 1e9)


def check_size(size: int) -> int:
    """Return `size` if a queue can have it."""
    if not SIZE_MIN <= size <= SIZE_MAX:
        raise OptionError(
            f"size {size} ({format_size(size)}) is out of range",
            f"choose between {format_size(SIZE_MIN)} and {format_size(SIZE_MAX)}",
        )
    return size


def check_age(age_s: float | None) -> float | None:
    """Return `age_s` if a queue can have it as its limit."""
    if age_s is not None and not 0.001 <= age_s <= 10 * 366 * 86400:
        raise OptionError(f"age {age_s} s is out of range", 'choose between 1 ms and ten years, such as "1h"')
    return age_s


def check_durability(durability: str) -> Durability:
    """Return `durability` if there is such a level."""
    if durability not in DURABILITIES:
        raise OptionError(f"durability {durability!r} is unknown", f"choose one of {', '.join(DURABILITIES)}")
    return durability  # type: ignore[return-value]


def check_dedup(dedup: str) -> Dedup:
    """Return `dedup` if there is such a signature."""
    if dedup not in SIGNATURES:
        raise OptionError(f"dedup {dedup!r} is unknown", f"choose one of {', '.join(SIGNATURES)}")
    return dedup  # type: ignore[return-value]


def default_origin() -> str:
    """The name of the host, without characters that a site id may not have."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().split(".")[0])[:63].lstrip("._-")
    return name or "site"


_DOCUMENT = Document(QueueConfig, FORMAT, field="format", remedy="restore it from a backup or write it by hand")


def write_config(directory: Path, config: QueueConfig) -> None:
    """Replace the file as a whole. It survives a power failure from then on."""
    _DOCUMENT.write(directory / CONFIG_FILE, config, Disk())


def read_config(directory: Path) -> QueueConfig:
    """The configuration of the queue in `directory`; an error names the file and the remedy."""
    config = _DOCUMENT.read(directory / CONFIG_FILE)
    if config is None:
        raise NotAQueueError(
            f"{directory} has no {CONFIG_FILE}: it is not a queue",
            "create one elsewhere with: headrace queue create",
        )
    return config
