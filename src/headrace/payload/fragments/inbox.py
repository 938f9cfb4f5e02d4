"""Inbox: the folder `.headrace-receive` in the directory of a receiver, where its state lies.

    receiver.json      the id of this receiver, and how far it has read which queue
    done.log           the transfers that were finished (finished.py)
    lock               held while a receiver runs: one for each directory
    *.part, *.journal  files on their way (partial.py, journal.py)

Everything here may be lost with no other harm than that files are received again. Positions are saved several times a
second, after what was read up to there; fragments that are read again are recognised by the journal.
"""

import fcntl
import os
from pathlib import Path

import msgspec

from headrace.decoding import Decoder
from headrace.errors import TransferError
from headrace.files import read_regular
from headrace.log.documents import UNREADABLE
from headrace.payload.fragments.finished import Finished
from headrace.payload.fragments.names import STATE_FOLDER


class _State(msgspec.Struct):
    receiver: str
    positions: dict[str, int] = {}  # by the uuid of the queue and the feed
    seen: dict[str, int] = {}  # by origin


_DECODER: Decoder[_State] = Decoder(_State, encoding="json")


class Inbox:
    """The state of one receiver; end it with `close`."""

    def __init__(self, root: Path) -> None:
        """Open or create it; TransferError if another receiver uses the directory."""
        self.folder = root / STATE_FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise TransferError(f"another receiver uses {root}", "end it, or receive into another directory") from None
        self._path = self.folder / "receiver.json"
        self._state = self._load()
        self.done = Finished(self.folder / "done.log")

    @property
    def receiver(self) -> str:
        """The id by which senders know this receiver."""
        return self._state.receiver

    @property
    def seen(self) -> dict[str, int]:
        """The last sequence that was read of each origin."""
        return self._state.seen

    def position(self, queue: str) -> int | None:
        """Where to go on in a queue; None: it was never read."""
        return self._state.positions.get(queue)

    def save(self, queue: str, position: int) -> None:
        """Everything before `position` is dealt with."""
        self._state.positions[queue] = position
        beside = self._path.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(self._state))
        beside.replace(self._path)

    def close(self) -> None:
        os.close(self._lock)

    def _load(self) -> _State:
        try:
            return _DECODER.decode(read_regular(self._path))
        except (OSError, *UNREADABLE):
            return _State(os.urandom(8).hex())
