"""Losses: what a request has lost, kept over restarts of the site.

    site/losses.json    for each request and site: the latest ranges, their causes, and when that was

Counts begin at zero with each start of a site, but a loss must not disappear from the problems of a site because it was
restarted: somebody has to see it. The file is replaced as a whole when something was lost. It survives the death of
processes, not a power failure; a file that cannot be read is logged, and only older losses are forgotten then.
"""

import logging
import time
from pathlib import Path

import msgspec

from headrace.decoding import Decoder
from headrace.files import make_folder, read_regular
from headrace.log.documents import UNREADABLE, replace_file
from headrace.product.cause import LostBy
from headrace.relay.receive.counts import Tally, UpstreamStatistics

KEPT_S = 7 * 86_400.0
_FILE = Path("site") / "losses.json"

log = logging.getLogger("headrace.fabric")


class Loss(msgspec.Struct, frozen=True):
    """What one request has lost at one site."""

    request: str
    site: str
    ranges: list[tuple[int, int, LostBy]]
    counts: dict[LostBy, int]
    at_ns: dict[LostBy, int]  # the latest of each cause, since 1970


_DECODER: Decoder[list[Loss]] = Decoder(list[Loss], encoding="json")


class LossFile:
    """The file of one queue; one thread of its site writes it."""

    def __init__(self, queue: Path) -> None:
        self._path = queue / _FILE
        self._written: list[Loss] = []

    def restore(self, tally: Tally) -> None:
        """Give new counts the losses of earlier runs of the site; counts that are in use have them already."""
        try:
            self._written = _DECODER.decode(read_regular(self._path))
        except FileNotFoundError:
            return
        except (OSError, *UNREADABLE) as error:
            log.warning("earlier losses are not known: %s: %s", self._path, error)
            return
        known = tally.upstreams()
        for loss in self._written:
            if (loss.request, loss.site) not in known:
                _restore(loss, tally.upstream(loss.request, loss.site))

    def save(self, tally: Tally) -> None:
        """Write the losses if there are new ones, or some were taken back. OSError if the disk refuses."""
        losses = [_loss(*key, counts) for key, counts in sorted(tally.upstreams().items()) if counts.lost]
        if [msgspec.structs.replace(loss, at_ns={}) for loss in losses] == [
            msgspec.structs.replace(loss, at_ns={}) for loss in self._written
        ]:
            return
        make_folder(self._path.parent)
        replace_file(self._path, msgspec.json.encode(losses), None)
        self._written = losses


def _loss(request: str, site: str, counts: UpstreamStatistics) -> Loss:
    now, now_ns = time.monotonic(), time.time_ns()
    at_ns = {cause: now_ns - int((now - counts.left_out_at[cause]) * 1e9) for cause in counts.lost_by}
    return Loss(request, site, list(counts.lost), dict(counts.lost_by), at_ns)


def _restore(loss: Loss, counts: UpstreamStatistics) -> None:
    """As far as it is not too long ago."""
    now, now_ns = time.monotonic(), time.time_ns()
    ages = {cause: max(0, now_ns - at_ns) / 1e9 for cause, at_ns in loss.at_ns.items()}
    kept = {cause: age for cause, age in ages.items() if age < KEPT_S}
    counts.lost = [each for each in loss.ranges if each[2] in kept]
    counts.lost_by = {cause: count for cause, count in loss.counts.items() if cause in kept}
    counts.lost_sequences = sum(counts.lost_by.values())
    counts.left_out = {cause: count for cause, count in counts.lost_by.items()}  # noqa: C416 - of another type
    counts.left_out_at = {cause: now - age for cause, age in kept.items()}
