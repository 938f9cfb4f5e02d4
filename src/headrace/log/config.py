"""The configuration of a queue, chosen at creation and kept in `queue.json`.

Everything that changes while the queue is in use is in the control file instead; only `Queue.resize` rewrites
`queue.json`. The limits of each option stand here, with the checks that enforce them.
"""

import os
import re
import uuid
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from headrace.errors import NotAQueueError, OptionError, QueueExistsError
from headrace.kernel import _kernel as kernel
from headrace.log.documents import Document
from headrace.log.seams import Disk
from headrace.units import format_size

FORMAT = 2
CONFIG_FILE = "queue.json"
Durability = Literal["memory", "process", "disk"]
Dedup = Literal["identity", "payload", "none"]
Hash = Literal["blake3", "xxh3", "md5"]
DURABILITIES: tuple[str, ...] = get_args(Durability)  # in the order of the kernel's numbers
DEDUPS: tuple[str, ...] = get_args(Dedup)
HASHES: tuple[str, ...] = get_args(Hash)
SIGNATURE_KINDS = frozenset(  # that a queue can compute
    {
        kernel.SIGNATURE_NONE,
        *kernel.HASHES.values(),
        *(kernel.SIGNATURE_OF_IDENTITY | h for h in kernel.HASHES.values()),
    }
)

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
    dedup: Dedup  # what makes two products one: feed, ident and payload; the payload alone; nothing
    hash: Hash  # by which the queue computes signatures
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
    def put_bytes_max(self) -> int:
        """A larger payload is put as fragments; all of them together are at most half of the queue."""
        return self.size // 2

    @property
    def signature_kind(self) -> int:
        """How the kernel makes the signature of a product that comes without one."""
        if self.dedup == "none":
            return kernel.SIGNATURE_NONE
        return kernel.HASHES[self.hash] | (kernel.SIGNATURE_OF_IDENTITY if self.dedup == "identity" else 0)

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
    """Return `dedup` if there is such a rule."""
    if dedup in HASHES:
        raise OptionError(f"dedup {dedup!r} is a hash, not a rule", f'give dedup="identity" and hash="{dedup}"')
    if dedup not in DEDUPS:
        raise OptionError(f"dedup {dedup!r} is unknown", f"choose one of {', '.join(DEDUPS)}")
    return dedup  # type: ignore[return-value]


def check_hash(hash: str) -> Hash:
    """Return `hash` if there is such a hash."""
    if hash not in HASHES:
        raise OptionError(f"hash {hash!r} is unknown", f"choose one of {', '.join(HASHES)}")
    return hash  # type: ignore[return-value]


def default_origin() -> str:
    """The name of the host, without characters that a site id may not have."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", os.uname().nodename.split(".")[0])[:63].lstrip("._-")
    return name or "site"


def _name_the_rule(found: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had no rule besides the payload alone, and called the hash `dedup`."""
    dedup = found.get("dedup")
    if dedup == "none":
        return {**found, "hash": "blake3"}
    return {**found, "dedup": "payload", "hash": dedup}


_DOCUMENT = Document(
    QueueConfig, FORMAT, field="format", upgrades={1: _name_the_rule},
    remedy="restore it from a backup or write it by hand",
)  # fmt: skip


def write_config(directory: Path, config: QueueConfig) -> None:
    """Replace the file as a whole. It survives a power failure from then on."""
    _DOCUMENT.write(directory / CONFIG_FILE, config, Disk())


def upgrade_config(directory: Path, config: QueueConfig) -> None:
    """Write what `read_config` made of the file of an older format, so that the file says it. Only while alone."""
    if not _DOCUMENT.is_current(directory / CONFIG_FILE):
        write_config(directory, config)


def check_same_terms(path: Path, wanted: QueueConfig, but: tuple[str, ...] = ()) -> None:
    """QueueExistsError if the queue at `path` has other terms. Size and age may differ: `resize` changes them."""
    found = read_config(path)
    differ = [
        f"{term} {getattr(found, term)}, not {getattr(wanted, term)}"
        for term in ("durability", "dedup", "hash", "origin")
        if term not in but and getattr(found, term) != getattr(wanted, term)
    ]
    if differ:
        raise QueueExistsError(f"{path} is a queue with {'; '.join(differ)}", "open it, or choose another path")


def read_config(directory: Path) -> QueueConfig:
    """The configuration of the queue in `directory`; an error names the file and the remedy."""
    config = _DOCUMENT.read(directory / CONFIG_FILE)
    if config is None and not directory.exists():
        raise NotAQueueError(
            f"there is no queue at {directory}", f"check the path, or create it: headrace queue create {directory}"
        )
    if config is None:
        raise NotAQueueError(
            f"{directory} has no {CONFIG_FILE}: it is not a queue",
            "create one elsewhere with: headrace queue create",
        )
    try:
        uuid.UUID(config.uuid)
        check_size(config.size)
        check_age(config.age_s)
    except ValueError as error:
        raise _DOCUMENT.damaged(directory / CONFIG_FILE, str(error)) from None
    return config
