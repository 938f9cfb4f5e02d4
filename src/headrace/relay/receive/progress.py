"""RequestProgress: how far everything that was ever requested is at each site, kept over restarts.

Its key is what is asked (`asked_text`), not the name of a request or its position in the configuration. A base says
that everything of this selection up to there has arrived, and nothing about any other selection. A selection that was
never asked of a site begins at its `from`; one that was removed and is added again continues at its base. Of the
selections that no request has any more, the latest KEPT_MAX are kept.

The file, `site/progress.json` beside the queue, is replaced as a whole about once a second and at the end. The products
that it speaks of are made durable first, so after a power failure it is never ahead of the queue. It may be a second
behind; therefore it says where the queue was, and what has arrived since then is found in the queue itself
(arrived.py). That holds for the same requests and until the machine restarts, which may leave holes in what was not
durable. A site that ended in good order says so: what was put since then did not come through a request.

A file that is missing although there was one is not a first start (queue/request_files.py): a site then refuses.

A position (`Known`) also says where the request began and which feeds we may receive there. If the site permits more
feeds later, those are read from where the request began. Files of version 2 say neither; then they are not read. And it
says which feeds are further than the base, since version 4: products come live feed by feed, and without it they would
be read once more. Since version 5 it says from where on nothing was lost or left out (unseen.py); files that do not say
so are taken to have lost something.

Files of version 1 have the names of requests as keys, and a name may mean another request by now. On the first start
after an upgrade each request continues at the lowest base that any of them had at the site: some products are read
again, and none is skipped. A request from the oldest begins there again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.files import make_folder
from headrace.log.directory import boot_id
from headrace.log.documents import Document, replace_file
from headrace.log.seams import Disk
from headrace.queue.request_files import AGAIN
from headrace.relay.receive.track import Known
from headrace.selection import Selection

VERSION = 5
AHEAD_MAX = 10_000  # feeds; of more, what is further than the base may come a second time
KEPT_MAX = 100  # selections that no request has any more

log = logging.getLogger("headrace.fabric")


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything up to `base` in the queue with this id has arrived (Known, in JSON)."""

    queue: str
    base: int
    began: int = 0
    feeds: tuple[str, ...] | None = None
    since: int = 0
    ahead: dict[str, int] = {}
    whole: int = 0

    @classmethod
    def of(cls, known: Known) -> "Reached":
        ahead = dict(known.ahead) if len(known.ahead) <= AHEAD_MAX else {}
        return cls(known.queue.hex(), *known[1:5], ahead, known.whole)

    @property
    def known(self) -> Known:
        return Known(bytes.fromhex(self.queue), self.base, self.began, self.feeds, self.since, self.ahead, self.whole)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int = VERSION
    boot: str = ""  # the run of the machine in which this was saved
    next: int = 0  # of our queue, when this was saved
    ended: bool = False  # nothing has arrived since
    asking: list[str] = []  # what the current requests ask for
    reached: dict[str, dict[str, Reached]] = {}  # by what is asked, and site; the current ones come last
    earlier: dict[str, Reached] | msgspec.UnsetType = msgspec.UNSET  # by site: only while version 1 is upgraded


class _FileByNames(msgspec.Struct, forbid_unknown_fields=True):
    """Version 1."""

    version: int = 1
    next: int = 0
    ended: bool = False
    requests: dict[str, dict[str, Reached]] = {}


def _upgrade_names(found: dict[str, Any]) -> dict[str, Any]:
    """Version 1 as version 2: nothing is known of any selection, only the lowest base at each site."""
    by_names = msgspec.convert(found, _FileByNames)
    return {"earlier": {site: msgspec.to_builtins(reached) for site, reached in _lowest(by_names.requests).items()}}


_DOCUMENT = Document(
    _File, VERSION, field="version", upgrades={1: _upgrade_names, **dict.fromkeys((2, 3, 4), lambda found: found)},
    remedy=f"restore the file. Or move it away and run `headrace queue repair` for the queue; {AGAIN}",
)  # fmt: skip


def asked_text(selection: Selection, *, relayed: bool) -> str:
    """What is asked of a site: a selection of all that it has, or of what was put there."""
    return f"{'relayed' if relayed else 'put there'}: {selection}"


class RequestProgress:
    """The progress of one site. Any thread may call `known`, one thread at a time the rest.

    QueueDamagedError: the file is invalid. QueueVersionError: a newer Headrace wrote it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _DOCUMENT.read(path) or _File()
        self._earlier: Mapping[str, Reached] = {}
        self._saved = b""
        if isinstance(self._file.earlier, dict):
            self._earlier, self._file.earlier = self._file.earlier, msgspec.UNSET
            log.warning("%s has version 1: requests continue at the lowest base of each site", path)

    def known(self, asked: str, site: str) -> Known | None:
        reached = self._file.reached.get(asked, {}).get(site)
        return None if reached is None else reached.known

    @property
    def has_positions(self) -> bool:
        """Whether a request has begun at any site."""
        return any(self._file.reached.values())

    def since(self, asking: list[str]) -> int:
        """From this sequence of our queue on, products may have arrived for just these requests without being noted.

        0: there are none, or it is unknown.
        """
        file = self._file
        return 0 if file.ended or file.boot != _boot() or file.asking != asking else file.next

    def adopt(self, asked: str, may_come_from: Callable[[str], bool]) -> None:
        """Before `begin`: let the bases of a version 1 file at these sites count for this request."""
        for site, reached in self._earlier.items():
            if may_come_from(site):
                self._file.reached.setdefault(asked, {})[site] = reached

    def begin(self, asking: list[str], next_sequence: int) -> None:
        """From now on products may arrive for these requests, from this sequence of our queue on."""
        reached, self._earlier = self._file.reached, {}
        kept = [asked for asked in reached if asked not in asking][-KEPT_MAX:]
        self._file = _File(
            boot=_boot(), next=next_sequence, asking=asking,
            reached={asked: reached.get(asked, {}) for asked in (*kept, *asking)},
        )  # fmt: skip

    def note(self, next_sequence: int, positions: Iterable[tuple[str, str, Known]]) -> None:
        """Note what is asked of which site, and how far it is there; `next_sequence` was read before that.

        If several requests ask a site for the same, the one that is behind counts.
        """
        self._file.next = next_sequence
        slowest: dict[tuple[str, str], Reached] = {}
        for asked, site, known in positions:
            other = slowest.get((asked, site))
            if other is None or other.queue != known.queue.hex() or other.base > known.base:
                slowest[asked, site] = Reached.of(known)
        for (asked, site), reached in slowest.items():
            self._file.reached[asked][site] = reached

    def end(self) -> None:
        """Nothing arrives any more."""
        self._file.ended = True

    def save(self, flush: Callable[[], None]) -> None:
        """After return the file survives a power failure. `flush` makes the products durable, and is called first."""
        data = msgspec.json.format(msgspec.json.encode(self._file))
        if data == self._saved:
            return
        flush()
        folder = self._path.parent
        if not self._saved:
            make_folder(folder)
            Disk().sync_directory(folder.parent)
        replace_file(self._path, data, Disk())
        self._saved = data


def _boot() -> str:
    return boot_id().hex()


def _lowest(requests: Mapping[str, Mapping[str, Reached]]) -> dict[str, Reached]:
    """By site: the lowest base of any request there, in the queue of the first of them."""
    lowest: dict[str, Reached] = {}
    for sites in requests.values():
        for site, reached in sites.items():
            other = lowest.setdefault(site, reached)
            if reached.queue == other.queue and reached.base < other.base:
                lowest[site] = reached
    return lowest
