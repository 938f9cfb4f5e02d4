"""Source: from which log products came. Apart from the queries, which need Zenoh: `headrace hop` reads it without."""

import msgspec

from headrace.relay.messages.page import QueueId, Sequence64, SiteName


class Source(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Products came from the log of `site`, where they have sequences from `first` to `last`."""

    site: SiteName
    queue: QueueId
    first: Sequence64
    last: Sequence64
