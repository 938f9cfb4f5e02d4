"""Headrace moves streams of scientific data products between programs and sites, and loses none.

    from headrace import Queue, Selection

    with Queue.create("wx.queue", size="2GiB", age="1h") as queue:
        queue.put(b"METAR KDEN ...", feed="wx/text/metar", ident="SAUS70 KWBC 060000")
        for product in queue.read("oldest", Selection("wx/**", ident="^SA")):
            print(product.ident, bytes(product.payload))

`connect` opens an existing queue, by its directory or, at another site, by its endpoint; both are used alike. The
errors here are those that programs react to; `headrace.errors` has all of them, in one tree.

`docs/journey.md` follows one product through the code. Names are loaded when they are first used, so that a command
that needs none of them starts at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.channel.channel import Channel
    from headrace.errors import (
        AccessDeniedError,
        BlockedError,
        BookmarkError,
        ChannelEndedError,
        ChannelMissingError,
        ConsumersFullError,
        DiskFullError,
        HeadraceError,
        InvalidError,
        LateError,
        LeaseLostError,
        MemberAbsentError,
        MissingExtraError,
        PayloadError,
        ProductDamagedError,
        ProductsLostError,
        QueueBusyError,
        QueueClosedError,
        QueueDamagedError,
        QueueError,
        QueueExistsError,
        QueueMissingError,
        RejectedError,
        SelectionError,
        SiteUnreachableError,
        StationExistsError,
        StationMissingError,
        SuppliersFullError,
        TermsError,
    )
    from headrace.payload.fragments.join import joined
    from headrace.product import Batch, Lost, Product
    from headrace.queue import Cursor, Duplicate, Queue, Receipt
    from headrace.queue.bookmark_file import FileBookmark
    from headrace.queue.bookmark_sqlite import SqliteBookmark
    from headrace.remote import connect
    from headrace.selection import Selection
    from headrace.station import Consumer, Station
    from headrace.timing import Pacer, ReleaseBuffer

    __version__: str

__all__ = [
    "AccessDeniedError", "Batch", "BlockedError", "BookmarkError", "Channel", "ChannelEndedError",
    "ChannelMissingError", "Consumer", "ConsumersFullError", "Cursor", "DiskFullError", "Duplicate", "FileBookmark",
    "HeadraceError", "InvalidError", "LateError", "LeaseLostError", "Lost", "MemberAbsentError", "MissingExtraError",
    "Pacer", "PayloadError", "Product", "ProductDamagedError", "ProductsLostError", "Queue", "QueueBusyError",
    "QueueClosedError", "QueueDamagedError", "QueueError", "QueueExistsError", "QueueMissingError", "Receipt",
    "RejectedError", "ReleaseBuffer", "Selection", "SelectionError", "SiteUnreachableError", "SqliteBookmark",
    "Station", "StationExistsError", "StationMissingError", "SuppliersFullError", "TermsError", "connect", "joined",
]  # fmt: skip

_HOMES = {
    "Batch": "product", "Channel": "channel.channel", "Consumer": "station", "Cursor": "queue", "Duplicate": "queue",
    "FileBookmark": "queue.bookmark_file", "SqliteBookmark": "queue.bookmark_sqlite",
    "Lost": "product", "Pacer": "timing", "Product": "product", "Queue": "queue", "Receipt": "queue",
    "ReleaseBuffer": "timing", "Selection": "selection", "Station": "station", "connect": "remote",
    "joined": "payload.fragments.join",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headrace")
    if name not in __all__:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(importlib.import_module(f"headrace.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
