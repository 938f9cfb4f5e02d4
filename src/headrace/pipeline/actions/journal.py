"""Journal: the last batch that an action has done, so that a batch which comes again is known.

One small file for each action in the rule's folder of state, replaced whole. That folder belongs to the checkpoint:
with a new checkpoint batches are counted from 0 again, and so they are here. `life` is a name for one such count; it
is part of the names of files in tables, so that batch 7 of one checkpoint never meets batch 7 of another."""

import secrets
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import PipelineError
from headrace.pipeline.actions.action import Counts
from headrace.pipeline.actions.disk import disk_error, write_first, write_whole


class Entry(msgspec.Struct, frozen=True):
    """What the file says."""

    batch: int
    action: str  # a digest: another action in the same place has done nothing yet
    rows: int
    files: int
    failed: int


class Journal:
    """The journal of one action."""

    def __init__(self, path: Path, action: Any) -> None:
        self.path = path
        self._action = digest(msgspec.json.encode(action, enc_hook=str))

    def done(self, batch_id: int) -> Counts | None:
        """What was done with this batch, if it was; PipelineError: later ones were done already."""
        entry = read_entry(self.path)
        if entry is None or entry.action != self._action or entry.batch < batch_id:
            return None
        if entry.batch > batch_id:
            raise PipelineError(
                f"batch {batch_id} comes, and {self.path} says that batch {entry.batch} was done:"
                " the checkpoint has been changed",
                f"remove {self.path.parent} if the pipeline is to begin anew",
            )
        return Counts(entry.rows, entry.files, entry.failed, is_repeated=True)

    def mark(self, batch_id: int, counts: Counts) -> None:
        """The batch is done, from now on."""
        entry = Entry(batch_id, self._action, counts.rows, counts.files, counts.failed)
        write_whole(self.path, msgspec.json.encode(entry))


def read_entry(path: Path) -> Entry | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Entry)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise PipelineError(f"{path} is damaged: {error}", "remove it; the last batch may then be done twice") from None
    except OSError as error:
        raise disk_error(error, path, "read") from error


def life(state: Path) -> str:
    """The name of this count of batches; made when it is asked for first. A rule may have two queries that ask."""
    path = state / "life"
    try:
        if not path.exists():
            write_first(path, secrets.token_hex(4).encode())
        return path.read_text()
    except OSError as error:
        raise disk_error(error, path) from error


def digest(*parts: bytes | str) -> str:
    """A short name for these."""
    made = blake2b(digest_size=8)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(len(data).to_bytes(8) + data)
    return made.hexdigest()
