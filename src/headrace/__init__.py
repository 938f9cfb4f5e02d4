"""Headrace moves streams of scientific data products between programs and sites, and loses none.

    from headrace import Queue, Selection

    with Queue.create("wx.queue", size="2GiB", age="1h") as queue:
        queue.put(b"METAR KDEN ...", feed="wx/text/metar", ident="SAUS70 KWBC 060000")
        for product in queue.read("oldest", Selection("wx/**", ident="^SA")):
            print(product.ident, bytes(product.payload))

`connect` opens an existing queue, by its directory or, at another site, by its endpoint; both are used alike.

`docs/journey.md` follows one product through the code. Names are loaded when they are first used, so that a command
that needs none of them starts at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.errors import HeadraceError
    from headrace.product import Batch, Lost, Product
    from headrace.queue import Cursor, Duplicate, Queue, Receipt
    from headrace.remote import connect
    from headrace.selection import Selection
    from headrace.station import Consumer, Station

__all__ = [
    "Batch", "Consumer", "Cursor", "Duplicate", "HeadraceError", "Lost", "Product", "Queue", "Receipt", "Selection",
    "Station", "connect",
]  # fmt: skip

_HOMES = {
    "Batch": "product", "Consumer": "station", "Cursor": "queue", "Duplicate": "queue", "HeadraceError": "errors",
    "Lost": "product", "Product": "product", "Queue": "queue", "Receipt": "queue", "Selection": "selection",
    "Station": "station", "connect": "remote",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(importlib.import_module(f"headrace.{_HOMES[name]}"), name)
