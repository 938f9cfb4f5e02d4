"""RemoteCursor: a named, durable position in the queue of a site; get one from `RemoteQueue.cursor`.

Reading, following and committing are a Cursor's own; only where the position is kept differs.
"""

from typing import TYPE_CHECKING

from headrace.log.cursor import Cursor, CursorState
from headrace.product.batch import Lost
from headrace.remote.client.connection import Connection
from headrace.remote.protocol.calls import LoadCursor, RemoveCursor, SaveCursor
from headrace.remote.protocol.replies import CursorTold, Done

if TYPE_CHECKING:
    from headrace.remote.client.queue import RemoteQueue


class RemoteCursor(Cursor):
    """As a Cursor; every look at its position is a call."""

    def __init__(self, queue: "RemoteQueue", connection: Connection, name: str) -> None:
        self._queue, self._connection, self.name = queue, connection, name

    @property
    def state(self) -> CursorState:
        told, _ = self._connection.ask(LoadCursor(self.name), CursorTold)
        lost = Lost(told.lost_first, told.lost_last) if told.lost_last else None
        return CursorState(told.position, told.saved_ns, told.lost_products, lost, told.generation)

    def _save(self, position: int, lost: Lost | None) -> None:
        first, last = (lost.first, lost.last) if lost is not None else (0, 0)
        self._connection.once(SaveCursor(self.name, position, first, last), Done)

    def remove(self) -> None:
        self._connection.once(RemoveCursor(self.name), Done)
