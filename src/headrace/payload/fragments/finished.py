"""Finished: the transfers that a receiver has finished, so that none is received again without need.

One line in `done.log` for each: the transfer, the name that its file got, the run of the sender, and what the file was
then (size, time, inode). The answer `done` to the same run of a sender needs no more than this line. To a later run it
is given only if the file of that name is still the one that was written, and no other transfer has taken the name
since. Otherwise the file is received again.

A change in place that keeps size, time and inode is not noticed.
"""

import os
import stat
from pathlib import Path

import msgspec

from headrace.decoding import Decoder
from headrace.files import read_regular
from headrace.log.documents import UNREADABLE
from headrace.payload.fragments.manifest import Manifest

DONE_MAX = 10_000

Identity = tuple[int, int, int]  # size, time and inode; of a directory, the inode


class _Done(msgspec.Struct, frozen=True, array_like=True):
    transfer: str
    name: str
    run: str
    was: Identity | None  # None: unknown


_DECODER: Decoder[_Done] = Decoder(_Done, encoding="json")


def identity_of(found: os.stat_result) -> Identity:
    """What tells a file from another one of its name."""
    if stat.S_ISDIR(found.st_mode):
        return 0, 0, found.st_ino
    return found.st_size, found.st_mtime_ns, found.st_ino


class Finished:
    """The record of one receiver; the oldest lines are forgotten when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[str, _Done] = {}
        self._owners: dict[str, str] = {}  # by name: the last transfer that took it
        lines = read_regular(path).splitlines() if path.exists() else []
        for line in lines[-DONE_MAX:]:
            try:
                self._keep(_DECODER.decode(line))
            except UNREADABLE:  # it was cut off
                continue
        if len(lines) > DONE_MAX:
            beside = path.with_suffix(".new")
            beside.write_bytes(b"".join(msgspec.json.encode(done) + b"\n" for done in self._done.values()))
            beside.replace(path)

    def __contains__(self, transfer: str) -> bool:
        return transfer in self._done

    def name_of(self, transfer: str) -> str:
        """The name that the file got."""
        return self._done[transfer].name

    def is_of_run(self, manifest: Manifest) -> bool:
        """Whether this run of the sender has been told, or will be, that the file is there."""
        return bool(manifest.run) and self._done[manifest.transfer].run == manifest.run

    def is_still(self, transfer: str, found: os.stat_result | None) -> bool:
        """Whether `found`, which has the name of the file now, is what was written."""
        done = self._done[transfer]
        return found is not None and self._owners[done.name] == transfer and identity_of(found) == done.was

    def note(self, transfer: str, name: str, run: str, was: os.stat_result | None) -> None:
        """The transfer has this name."""
        done = _Done(transfer, name, run, None if was is None else identity_of(was))
        self._keep(done)
        with self._path.open("ab") as log:
            log.write(msgspec.json.encode(done) + b"\n")

    def forget(self, transfer: str) -> None:
        """Receive it again."""
        self._done.pop(transfer, None)

    def _keep(self, done: _Done) -> None:
        self._done.pop(done.transfer, None)  # so that it is behind the others
        self._done[done.transfer] = done
        self._owners[done.name] = done.transfer
