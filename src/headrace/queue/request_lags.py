"""RequestLags: how far each request of a site is behind, and what it did not get, for `headrace lag`.

The site writes `site/requests.json` beside its queue when something has changed, and every few seconds in any case. So
programs on the same machine learn it without a connection, and notice that no site runs any more. The file is replaced
as a whole and survives the death of processes, not a power failure: nothing depends on it except diagnosis.
"""

import time
from pathlib import Path

import msgspec

from headrace.decoding import Decoder
from headrace.errors import QueueDamagedError
from headrace.files import read_regular
from headrace.log.documents import UNREADABLE, replace_file
from headrace.product.cause import Cause

FRESH_S = 15.0  # an older file is from a site that no longer runs
_AT_LEAST_S = 5.0
_FILE = Path("site") / "requests.json"


class RequestLag(msgspec.Struct, frozen=True):
    """One request at one site that serves it, or stands by."""

    request: str
    site: str
    state: str
    behind: int | None  # sequences of that site that are not examined yet; None: it does not reply, so nobody knows
    left_out: dict[Cause, int]
    problem: str = ""  # why nothing comes at the moment


class RequestLags(msgspec.Struct, frozen=True):
    """All requests of a site at one moment."""

    saved_ns: int
    lags: list[RequestLag] = []


_DECODER: Decoder[RequestLags] = Decoder(RequestLags, encoding="json")


def read_lags(queue: Path, now_ns: int) -> list[RequestLag]:
    """What the site of a queue has written; empty if none runs. QueueDamagedError or OSError."""
    path = queue / _FILE
    try:
        found = _DECODER.decode(read_regular(path))
    except FileNotFoundError:
        return []
    except UNREADABLE as error:
        raise QueueDamagedError(f"{path} is invalid: {error}", "delete it; the site writes a new one") from None
    return found.lags if abs(now_ns - found.saved_ns) < FRESH_S * 1e9 else []


class LagFile:
    """Written by one thread of the site."""

    def __init__(self, queue: Path) -> None:
        self._path = queue / _FILE
        self._written: list[RequestLag] | None = None
        self._at = 0.0

    def save(self, lags: list[RequestLag]) -> None:
        """Write the lags, unless nothing has changed for a moment. OSError if the disk refuses."""
        if lags == self._written and time.monotonic() - self._at < _AT_LEAST_S:
            return
        replace_file(self._path, msgspec.json.encode(RequestLags(time.time_ns(), lags)), None)
        self._written, self._at = lags, time.monotonic()

    def remove(self) -> None:
        """The site ends."""
        self._path.unlink(missing_ok=True)
