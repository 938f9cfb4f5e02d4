"""Progress: how far each request has got at each site, kept over restarts.

A file beside the queue, written as a whole about once a second and at the end. It may be a second behind the queue:
what is asked for again is recognised by its signature.
"""

import os
from pathlib import Path

import msgspec

from headrace.errors import FabricError


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything up to `base` in the queue with this id has arrived."""

    queue: str
    base: int


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int = 1
    requests: dict[str, dict[str, Reached]] = {}


class Progress:
    """One for each site; `note` by anybody, `save` by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _File()
        self._saved = b""
        if path.exists():
            try:
                self._file = msgspec.json.decode(path.read_bytes(), type=_File)
            except (msgspec.DecodeError, OSError) as error:
                raise FabricError(
                    f"{path} cannot be read: {error}", "move it away; requests then begin where `from` says"
                ) from None

    def known(self, request: str, site: str) -> tuple[bytes, int] | None:
        reached = self._file.requests.get(request, {}).get(site)
        return None if reached is None else (bytes.fromhex(reached.queue), reached.base)

    def note(self, request: str, site: str, known: tuple[bytes, int]) -> None:
        queue, base = known
        if queue:
            self._file.requests.setdefault(request, {})[site] = Reached(queue.hex(), base)

    def save(self) -> None:
        data = msgspec.json.format(msgspec.json.encode(self._file))
        if data == self._saved:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_bytes(data)
        os.replace(part, self._path)
        self._saved = data
