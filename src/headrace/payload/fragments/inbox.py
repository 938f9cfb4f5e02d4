"""Inbox: the folder `.headrace-receive` in the directory of a receiver, where its state lies.

    receiver.json      the id of this receiver, and how far it has read which queue
    done.log           the transfers that were finished, one line each; the oldest are forgotten
    lock               held while a receiver runs: one for each directory
    *.part, *.journal  files on their way (partial.py, journal.py)

Everything here may be lost with no other harm than that files are received again. Positions are saved several times a
second, after what was read up to there; fragments that are read again are recognised by the journal.
"""

import fcntl
import os
from pathlib import Path

import msgspec

from headrace.errors import TransferError
from headrace.payload.fragments.names import STATE_FOLDER

DONE_MAX = 10_000


class _State(msgspec.Struct):
    receiver: str
    positions: dict[str, int] = {}  # by the uuid of the queue and the feed
    seen: dict[str, int] = {}  # by origin


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
        self._path, self._done_path = self.folder / "receiver.json", self.folder / "done.log"
        self._state = self._load()
        self.done = self._load_done()

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

    def note_done(self, transfer: str, name: str) -> None:
        """The transfer has its name, and is not received again."""
        self.done[transfer] = name
        with self._done_path.open("ab") as log:
            log.write(msgspec.json.encode([transfer, name]) + b"\n")

    def forget_done(self, transfer: str) -> None:
        """Receive it again: its file was removed, and the sender sends it once more."""
        self.done.pop(transfer, None)

    def close(self) -> None:
        os.close(self._lock)

    def _load(self) -> _State:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_State)
        except (OSError, msgspec.DecodeError):
            return _State(os.urandom(8).hex())

    def _load_done(self) -> dict[str, str]:
        """The names of finished transfers; lines that are cut off are left out."""
        if not self._done_path.exists():
            return {}
        lines = self._done_path.read_bytes().splitlines()
        done: dict[str, str] = {}
        for line in lines[-DONE_MAX:]:
            try:
                transfer, name = msgspec.json.decode(line, type=tuple[str, str])
            except msgspec.DecodeError:
                continue
            done[transfer] = name
        if len(lines) > DONE_MAX:
            beside = self._done_path.with_suffix(".new")
            beside.write_bytes(b"".join(msgspec.json.encode(pair) + b"\n" for pair in done.items()))
            beside.replace(self._done_path)
        return done
