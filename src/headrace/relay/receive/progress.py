"""RequestProgress: how far everything that was ever asked for has got at each site, kept over restarts.

It goes by what is asked (`asked_text`), not by the name of a request or its place among others. A base says that
everything of this selection up to there has arrived, and nothing about any other selection: one that was never asked
of a site begins at its `from`, one that was taken out and is put back goes on at its base. Of those that nobody asks
for any more the latest ones are kept.

A file beside the queue, written as a whole about once a second and at the end. What it speaks of is made durable
before, so that after a power failure it is never ahead of the queue. It may be a second behind; therefore it says where
the queue was, and what has arrived since then is found in the queue itself (`arrived_since`). That holds while the
machine has not been started anew, which may leave holes in what was not durable, and for the same requests. A site
that has ended in good order says so: whatever was put since has not come through a request.

Files of version 1 went by the names of requests, which may be anybody's by now. On the first start after an upgrade
each request goes on at the lowest base that any of them had at the site: what was requested before is repeated in part
and not skipped. A request from the oldest begins there again.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from headrace.errors import FabricError
from headrace.log.directory import boot_id
from headrace.log.seams import Disk
from headrace.selection import Selection

VERSION = 2
KEPT_MAX = 100  # selections that nobody asks for any more

Known = tuple[bytes, int]  # the id of a site's queue, and the base there

log = logging.getLogger("headrace.fabric")


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything up to `base` in the queue with this id has arrived."""

    queue: str
    base: int


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int = VERSION
    boot: str = ""  # the start of the machine in which this was noted
    next: int = 0  # of our queue, when this was noted
    ended: bool = False  # and nothing has arrived since
    asking: list[str] = []  # what the requests in force ask for
    reached: dict[str, dict[str, Reached]] = {}  # by what is asked, and site; what was in force last is last


class _FileByNames(msgspec.Struct, forbid_unknown_fields=True):
    """Version 1."""

    version: int = 1
    next: int = 0
    ended: bool = False
    requests: dict[str, dict[str, Reached]] = {}


class _Any(msgspec.Struct):
    version: int


def asked_text(selection: Selection, *, relayed: bool) -> str:
    """What is asked of a site: of all that it has, or of what was put there."""
    return f"{'relayed' if relayed else 'put there'}: {selection}"


class RequestProgress:
    """One for each site; `known` for anybody, the rest by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _File()
        self._earlier: dict[str, Reached] = {}  # by site, from a file that goes by names
        self._saved = b""
        if path.exists():
            try:
                self._read(path.read_bytes())
            except (ValueError, OSError) as error:
                raise FabricError(
                    f"{path} cannot be read: {error}",
                    "move it away; each request then begins again at its `from`. Where that is \"now\", what was put "
                    "elsewhere since this site last received is not asked for: give such a request an age or "
                    "\"oldest\" before, and what is here already is dropped as a duplicate",
                ) from None  # fmt: skip

    def _read(self, data: bytes) -> None:
        version = msgspec.json.decode(data, type=_Any).version
        if version == 1:
            log.warning("%s goes by names: requests go on at the lowest base of each site, and repeat some", self._path)
            self._earlier = _lowest(msgspec.json.decode(data, type=_FileByNames).requests)
        elif version == VERSION:
            self._file = msgspec.json.decode(data, type=_File)
        else:
            raise FabricError(
                f"{self._path} has version {version}; this Headrace knows versions up to {VERSION}", "upgrade Headrace"
            )

    def known(self, asked: str, site: str) -> Known | None:
        reached = self._file.reached.get(asked, {}).get(site)
        return None if reached is None else (bytes.fromhex(reached.queue), reached.base)

    def since(self, asking: list[str]) -> int:
        """From here on products may have arrived in our queue, for just these requests, that are not noted.

        0: there are none, or nobody can tell.
        """
        file = self._file
        return 0 if file.ended or file.boot != _boot() or file.asking != asking else file.next

    def adopt(self, asked: str, may_come_from: Callable[[str], bool]) -> None:
        """Before `begin`: what a file by names has of these sites counts for this request."""
        for site, reached in self._earlier.items():
            if may_come_from(site):
                self._file.reached.setdefault(asked, {})[site] = reached

    def begin(self, asking: list[str], next_sequence: int) -> None:
        """From now on products may arrive, from this sequence of our queue on, and for these requests."""
        reached, self._earlier = self._file.reached, {}
        kept = [asked for asked in reached if asked not in asking][-KEPT_MAX:]
        self._file = _File(
            boot=_boot(), next=next_sequence, asking=asking,
            reached={asked: reached.get(asked, {}) for asked in (*kept, *asking)},
        )  # fmt: skip

    def note(self, next_sequence: int, stands: Iterable[tuple[str, str, Known]]) -> None:
        """What is asked of which site, and how far it is there; the next sequence of our queue is from before that.

        If several requests ask a site for the same, the one that is behind counts.
        """
        self._file.next = next_sequence
        slowest: dict[tuple[str, str], Reached] = {}
        for asked, site, (queue, base) in stands:
            other = slowest.get((asked, site))
            if other is None or other.queue != queue.hex() or other.base > base:
                slowest[asked, site] = Reached(queue.hex(), base)
        for (asked, site), reached in slowest.items():
            self._file.reached[asked][site] = reached

    def end(self) -> None:
        """Nothing arrives any more."""
        self._file.ended = True

    def save(self, flush: Callable[[], None]) -> None:
        """After return the file survives a power failure; `flush` sees to it that what it speaks of does, and first."""
        data = msgspec.json.format(msgspec.json.encode(self._file))
        if data == self._saved:
            return
        flush()
        folder = self._path.parent
        if not self._saved:
            folder.mkdir(parents=True, exist_ok=True)
            Disk().sync_directory(folder.parent)
        part = self._path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        Disk().sync_directory(folder)
        self._saved = data


def _boot() -> str:
    return boot_id().hex()


def _lowest(requests: Mapping[str, Mapping[str, Reached]]) -> dict[str, Reached]:
    """By site: the lowest base that any request had there, in the queue that the first of them had met."""
    lowest: dict[str, Reached] = {}
    for sites in requests.values():
        for site, reached in sites.items():
            other = lowest.setdefault(site, reached)
            if reached.queue == other.queue and reached.base < other.base:
                lowest[site] = reached
    return lowest
