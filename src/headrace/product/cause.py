"""Cause: why a product did not reach a reader, a consumer or a site that asked for it. The one list of these words.

Every place that leaves out a product counts it under one of these names: readers and stations in their statistics, a
relay in the heads of its pages, a receiving site for each request. docs/guarantees.md has the same table for operators.

Not here: who counts, and where the counts are shown.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Literal, TypeVar

LostBy = Literal["evicted", "evicted unseen", "damaged", "too large"]  # named as a range of sequences
Cause = Literal[
    "filtered", "duplicate", "expired", "too old", "not permitted", "deleted", "damaged", "too large", "evicted",
    "evicted unseen", "refused", "refused by rights", "not asked for", "wrong signature", "not signed",
    "invalid signature", "replayed", "discarded", "returned", "not passed on",
]  # fmt: skip

MEANING: dict[Cause, str] = {
    "filtered": "the selection does not match it",
    "duplicate": "the queue holds it already",
    "expired": "its expiry has passed, by the clock of the site that left it out",
    "too old": "it is older than the `age` clause of the selection, by the clock of the site that left it out",
    "not permitted": "no access rule allows the site that asked to receive its feed, as sites of earlier versions tell",
    "deleted": "it was deleted at the site that left it out",
    "damaged": "it does not match its checksum at the site that left it out, or was damaged before a repair",
    "too large": "its record does not fit into one message between sites",
    "evicted": "the queue no longer held it when it was asked for",
    "evicted unseen": (
        "one of several sites of a request evicted it before it could be compared with what has arrived; another site "
        "may have sent it"
    ),
    "refused": "the receiving queue can never take it: its payload is too large there, for example",
    "refused by rights": (
        "no access rule of the receiving site allows the site that sent it to publish its feed, or to bring products "
        "of its origin"
    ),
    "not asked for": "the request that it came for does not select it",
    "wrong signature": "it came with a signature that is not that of its content: somebody has altered one of the two",
    "not signed": "its origin has not signed it with a key that is known here, and the receiving site requires that",
    "invalid signature": "the signature of its origin is of another content, or its key is revoked or out of date",
    "replayed": "its origin has signed it long ago, and it may have been here before",
    "discarded": "the policy of a station or channel dropped it, or a consumer discarded it",
    "returned": "it was put at the receiving site itself, and came back",
    "not passed on": "its options say that sites do not pass it on, or not any further",
}

# What somebody has chosen is no problem: the origin by deleting or by a limit of hops, the requesting site by an `age`
# clause.
CHOSEN: tuple[Cause, ...] = ("deleted", "too old", "not passed on")
# What the receiving site refused of what another one sent: that site should not have sent it.
REFUSED_HERE: tuple[Cause, ...] = (
    "refused by rights", "not asked for", "wrong signature", "not signed", "invalid signature", "replayed"
)  # fmt: skip


Word = TypeVar("Word", bound=str)


def by_cause(counts: Mapping[Word, int], at_most: Collection[str] = ()) -> str:
    """As text for people, the most frequent cause first: `30 expired, 1 too large`; some are upper limits."""
    return ", ".join(
        f"{'at most ' if cause in at_most else ''}{count:,} {cause}"
        for cause, count in Counter(counts).most_common()
        if count
    )
