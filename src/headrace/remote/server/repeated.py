"""Repeated puts: what an earlier run of the site has stored, and could not say.

A site remembers the calls that it has executed, as long as it runs. If it dies after it has stored a product and before
its reply has arrived, the client repeats the call at the next run. A queue that recognises duplicates recognises the
product by its signature. A queue without duplicates does not; so such a call says from where on in the queue its
products may be (`since`), and they are looked for there, by signatures that no other put has. A batch is stored as a
whole, so its first product stands for all of them.
"""

import numpy as np

from headrace.log.log import Log
from headrace.selection import Selection

_ROWS = 10_000
_BYTES = 1 << 40  # heads have no payloads


def stored_at(log: Log, signature: bytes | None, since: int) -> int | None:
    """The sequence of the product that has this signature, at `since` or behind it; None if there is none."""
    if signature is None or not since:
        return None
    read = log.reader(Selection(), _ROWS, _BYTES, heads=True)
    position, end = max(since, log.oldest), log.next
    while position < end:
        batch = read(position)
        found = np.flatnonzero(batch.columns["signature"] == np.void(signature))
        if len(found):
            return int(batch.sequences[found[0]])
        position = batch.next
    return None
