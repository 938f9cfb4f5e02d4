"""Silence: since when a site does not reply, how long that is accepted, and the error when patience has run out.

A site is silent from the moment at which a reply was due that did not come, until the next reply is read. Calls end
when the site was silent for `patience`; with `on_loss="wait"` they wait for its return. The log says when a silence of
more than a second begins and ends: a link that breaks and is restored sooner is not worth a line.
"""

import logging
import math
import time
from typing import Literal

from headrace.errors import SiteUnreachableError
from headrace.units import format_size

LARGE_BYTES = 1 << 18  # a payload beyond this may not fit into the buffers of a slow link
_BRIEF_S = 1.0  # a silence that ends sooner is not logged
_NOTICED_S = 5.0  # after which a link that has fallen silent is given up (SessionTerms.lease_s)

OnLoss = Literal["raise", "wait"]

log = logging.getLogger("headrace.remote")


class Silence:
    """Of one site, as one client sees it. Moments are those of the monotonic clock."""

    def __init__(self, site: str, endpoint: str, patience_s: float, on_loss: OnLoss) -> None:
        self.patience_s, self.on_loss = patience_s, on_loss
        self._site, self._endpoint = site, endpoint
        self._since: float | None = None
        self._is_logged = False
        self._heard_at = 0.0  # when the last reply was read

    # --- what happens -----------------------------------------------------------------------------

    def note_reply(self) -> None:
        """A reply arrived: the site is not silent, or not any more."""
        self._heard_at = time.monotonic()
        since, self._since = self._since, None
        if since is not None and self._is_logged:
            self._is_logged = False
            silent_s = time.monotonic() - since
            log.warning("site %s at %s replies again, after %.1f s", self._site, self._endpoint, silent_s)

    def note_missing(self, due_s: float | None) -> None:
        """A call got no reply: the site is silent since that was due, as far as that can be known."""
        now = time.monotonic()
        if self._since is None:
            due = now if due_s is None else min(now, due_s)
            self._since = max(self._heard_at, due, now - _NOTICED_S)
        if not self._is_logged and now - self._since >= _BRIEF_S:
            self._is_logged = True
            log.warning("site %s at %s does not reply; retrying", self._site, self._endpoint)

    # --- what follows -----------------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """Whether the last call got no reply."""
        return self._since is not None

    @property
    def since(self) -> float | None:
        """When a reply was due that did not come; None if the last one came."""
        return self._since

    @property
    def lasting_patience_s(self) -> float:
        """How long calls are repeated: `patience`, or without end if the caller wants to wait for the site."""
        return math.inf if self.on_loss == "wait" else self.patience_s

    @property
    def has_patience(self) -> bool:
        """Whether the site replies, or has been silent for less than `patience`."""
        since = self._since
        return since is None or time.monotonic() - since < self.lasting_patience_s

    def ends_at(self, begun: float, until: float | None) -> float | None:
        """When a call that began then has to end: at its timeout `until`, or when the site was silent for `patience`.

        A call that begins while the site is silent has all of `patience`: a program that tries again does not spin.
        """
        since = self._since
        end = None if since is None or self.on_loss == "wait" else max(since, begun) + self.patience_s
        return until if end is None else end if until is None else min(until, end)

    def is_hopeless(self, begun: float, until: float | None) -> bool:
        """Whether a call ends now because the site has been silent for `patience`."""
        end = self.ends_at(begun, until)
        return not self.has_patience and end is not None and time.monotonic() >= end

    def error(self, begun: float | None = None, size: int = 0) -> SiteUnreachableError:
        """For a call of so many bytes that was `begun` then; it says since when the site was not heard."""
        now = time.monotonic()
        heard_at = self._heard_at if begun is None else max(self._heard_at, begun)
        since = min(heard_at or now, self._since or now)
        return SiteUnreachableError(
            f"site {self._site} at {self._endpoint} has not replied for {time.monotonic() - since:.1f} s",
            f"check that it runs and is reachable from here{_and_carries(size)}; "
            "the call may have been executed, or not",
        )


def _and_carries(size: int) -> str:
    return f", and that the link carries {format_size(size)} within seconds" if size > LARGE_BYTES else ""
