"""Puts of remote clients in the name of other origins, where [[verify]] requires that the origin has signed them.

A client that may speak for others, because its rule has `relay`, could otherwise bring by a call what it may not bring
as a site. A put of payloads has no place for a signature, so it is refused there; a put of records is verified as a
page is (relay/signing/verify.py). Products of the site itself are signed when they leave it.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from headrace.errors import AccessDeniedError
from headrace.product.batch import Batch
from headrace.relay.signing.verify import CAUSES, Verifier

Keep = npt.NDArray[np.uint8] | None


class SignedPuts:
    """Of one site; without a verifier, nothing is refused."""

    def __init__(self, site: str, verifier: Verifier | None) -> None:
        self._site, self._verifier = site, verifier

    def check(self, products: Iterable[tuple[str, str | None]]) -> None:
        """Of payloads, by feed and origin; AccessDeniedError if one had to be signed."""
        if self._verifier is None:
            return
        for feed, origin in products:
            if origin not in (None, self._site) and self._verifier.mode_of(feed) == "require":
                raise AccessDeniedError(
                    f"products of origin {origin} in feed {feed} must be signed by their origin",
                    "put them as a batch of its records, or let its site send them",
                )

    def check_batch(self, batch: Batch, keep: Keep) -> None:
        """Of records; AccessDeniedError names the first that is not signed as it has to be."""
        refused = None if self._verifier is None else self._verifier.refused(batch)
        if refused is None:
            return
        wrong = np.array([origin != self._site for origin in batch.origins], np.bool_) & (refused != 0)
        for place in np.flatnonzero(wrong if keep is None else wrong & keep.astype(np.bool_)).tolist():
            raise AccessDeniedError(
                f"product {place} of the batch, of origin {batch[place].origin} in feed {batch[place].feed}: "
                f"{CAUSES[int(refused[place])]}",
                "see [[verify]] in the configuration of the site",
            )

    def note(self, batch: Batch, keep: Keep) -> None:
        """The batch was stored."""
        if self._verifier is not None:
            self._verifier.note(batch, None if keep is None else keep.astype(np.bool_))
