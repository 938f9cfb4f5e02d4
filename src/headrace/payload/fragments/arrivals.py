"""Arrivals: the transfers that a receiver knows, and what becomes of each.

    manifest ──► refused, or a partial file ──► complete ──► synced ──► its name        (or withdrawn)

Nothing that a sender says is believed: names stay inside the directory, sizes are bounded, hashes are compared, and
nobody else speaks of a file on its way.

Files that are complete get their names at the end of a batch, up to 64 at once: all are synced at the same time, so
that a disk commits them together, and then each folder once. No file has its name before it was synced.
"""

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.errors import FabricMessageError, HeadraceError, NameRefusedError
from headrace.log.config import QueueConfig
from headrace.payload.fragments import names, partial
from headrace.payload.fragments.inbox import Inbox
from headrace.payload.fragments.journal import Entry
from headrace.payload.fragments.manifest import Manifest, decode_manifest
from headrace.payload.fragments.mark import Mark
from headrace.payload.fragments.partial import Partial
from headrace.payload.fragments.receipt import TransferState
from headrace.payload.fragments.receiving import Received, ReceiverStatistics, Receiving
from headrace.payload.fragments.reports import Reports
from headrace.product.product import Product
from headrace.units import format_size

OPEN_MAX = 1024  # files on their way at once
_COMPLETE_MAX = 64  # files that wait to be synced together
_SYNC_THREADS = 16  # they wait for the disk
_MOVED_S = 10.0  # without a fragment, after which a file may come from another origin


class Arrivals:
    """All transfers of one receiver, for one thread. OSError: the disk is full; what was done is not done again."""

    def __init__(
        self, root: Path, inbox: Inbox, config: QueueConfig, files: dict[str, Receiving], reports: Reports,
        statistics: ReceiverStatistics, *, existing: str, size_max: int | None,
        on_received: Callable[[Received], None],
    ) -> None:  # fmt: skip
        self._root, self._inbox, self._config, self._reports = root, inbox, config, reports
        self._existing, self._size_max, self._on_received = existing, size_max, on_received
        self.files = files  # on their way, by transfer
        self.unknown: dict[str, tuple[int, str]] = {}  # fragments without a manifest: sequence and ident of the first
        self.rewind_to: int | None = None  # fragments from there on came before their manifest
        self.moved_s = time.monotonic()  # when something came last
        self._complete: dict[str, Receiving] = {}  # of the files, those that wait for their names
        self._refused: dict[str, TransferState] = {}
        self._products: dict[str, None] = {}  # transfers that are no files
        self._superseded: dict[str, None] = {}
        self._syncs = ThreadPoolExecutor(_SYNC_THREADS, "headrace-sync")
        self.statistics = statistics

    def resume(self, begun: partial.Begun) -> None:
        """Go on with what was begun before this process."""
        if begun.has_name:
            manifest, done = begun.manifest, self._inbox.done
            if manifest.transfer not in done or not done.is_of_run(manifest):
                done.note(manifest.transfer, manifest.name, manifest.run, self._named(manifest))
            partial.forget(self._inbox.folder, manifest.transfer)
        elif begun.manifest.transfer not in self.files:
            self._begin(begun.manifest, begun.origin)

    def _named(self, manifest: Manifest) -> os.stat_result | None:
        """The file of a receiver that was killed before it recorded the name, if it seems to be that."""
        found = self._found(manifest.name)
        is_it = found is not None and (found.st_size, found.st_mtime_ns) == (manifest.size, manifest.mtime_ns)
        return found if is_it else None

    def close(self) -> None:
        self._syncs.shutdown()
        for receiving in self.files.values():
            receiving.partial.close()

    # --- fragments --------------------------------------------------------------------------------

    def wanted(self, product: Product, mark: Mark) -> Receiving | None:
        """The file that this fragment belongs to, if it is missing there."""
        receiving = self.files.get(mark.transfer)
        if receiving is None:
            known_as = (self._inbox.done, self._refused, self._products, self._superseded)
            if not any(mark.transfer in known for known in known_as):
                if len(self.unknown) < OPEN_MAX:
                    self.unknown.setdefault(mark.transfer, (product.sequence, product.ident))
                self._reports.note(product.origin, TransferState(mark.transfer, "unknown"))
            return None
        if receiving.origin != product.origin or mark.count != receiving.partial.manifest.count:
            self.statistics.invalid += 1
            return None
        receiving.is_due = True
        if receiving.partial.held[mark.number]:
            self.statistics.repeated += 1
            return None
        return receiving

    def record(self, receiving: Receiving, written: list[Entry]) -> None:
        """These fragments were written."""
        receiving.partial.record(written)
        size = sum(receiving.partial.manifest.length_of(number) for number, _ in written)
        self.statistics.bytes += size
        self._reports.note_written(size)
        receiving.moved_s = receiving.written_s = self.moved_s = time.monotonic()
        receiving.asks, receiving.problem, self.statistics.waits_for = 0, "", ""
        self._note_complete(receiving)

    # --- manifests --------------------------------------------------------------------------------

    def take_manifest(self, product: Product, mark: Mark) -> None:
        """A manifest has come: begin, continue, refuse or drop its transfer."""
        try:
            manifest = decode_manifest(product.part)
            if manifest.transfer != mark.transfer or manifest.count != mark.count:
                raise FabricMessageError("the manifest does not belong to its product", "it is refused")
        except HeadraceError as error:
            self.statistics.invalid += 1
            if mark.transfer not in self.files and mark.transfer not in self._inbox.done:
                self._refuse(mark.transfer, product.ident, 0, product.origin, error.problem)
            return
        if manifest.kind == "product":
            self._note_product(mark.transfer)
        elif manifest.withdrawn:
            self._withdraw(manifest, product.origin)
        elif manifest.transfer in self._refused:
            self._reports.note(product.origin, self._refused[manifest.transfer])
        elif manifest.transfer in self._inbox.done and self._is_still_done(manifest):
            if not self._inbox.done.is_of_run(manifest):  # an earlier version was sent again
                self._supersede(manifest, product.origin)
            self._reports.note(product.origin, TransferState(manifest.transfer, "done"))
        else:
            self._inbox.done.forget(manifest.transfer)
            self._supersede(manifest, product.origin)
            self._accept(manifest, product.origin)

    def _is_still_done(self, manifest: Manifest) -> bool:
        """Whether the directory has what this sender sends: not if it was removed, altered or replaced since."""
        done, transfer = self._inbox.done, manifest.transfer
        return done.is_of_run(manifest) or done.is_still(transfer, self._found(done.name_of(transfer)))

    def _found(self, name: str) -> os.stat_result | None:
        """What has this name now."""
        try:
            with names.folder_of(self._root, name) as (folder, last):
                return names.found(folder, last)
        except NameRefusedError:  # its folder is something else now
            return None

    def _accept(self, manifest: Manifest, origin: str) -> None:
        if self._is_foreign(manifest, origin):
            self.statistics.invalid += 1
            return
        try:
            self._check(manifest)
            if manifest.kind == "directory":
                made = names.make_folder(self._root, manifest.name, manifest.mode)
                self._inbox.done.note(manifest.transfer, manifest.name, manifest.run, made)
                self._note_finished(manifest, manifest.name, origin)
                return
            self._begin(manifest, origin)
        except HeadraceError as error:
            self._refuse(manifest.transfer, manifest.name, manifest.size, origin, error.problem)

    def _is_foreign(self, manifest: Manifest, origin: str) -> bool:
        """Whether somebody else speaks of a file on its way. Its sender may go on at another site after a while."""
        receiving = self.files.get(manifest.transfer)
        if receiving is None:
            return False
        return not _may_speak_of(receiving, origin) or not receiving.partial.manifest.describes_same(manifest)

    def _supersede(self, manifest: Manifest, origin: str) -> None:
        """Drop what has come of an earlier version of this file: its sender has another version now."""
        self._superseded.pop(manifest.transfer, None)
        for transfer, receiving in list(self.files.items()):
            older = receiving.partial.manifest
            is_older = transfer != manifest.transfer and (older.source, older.name) == (manifest.source, manifest.name)
            if not is_older or not manifest.source or not _may_speak_of(receiving, origin):
                continue
            if transfer not in self._complete:
                if len(self._superseded) >= OPEN_MAX:
                    self._superseded.pop(next(iter(self._superseded)))
                self._superseded[transfer] = None
                self.statistics.superseded += 1
                self._drop(receiving, "superseded", "its sender sends a newer version; what had come is removed")

    def _check(self, manifest: Manifest) -> None:
        """Raise if the file will not be received: better now than when all of it has come."""
        if manifest.transfer in self.files:
            return
        if self._size_max is not None and manifest.size > self._size_max:
            raise NameRefusedError(
                f"{manifest.name!r} has {format_size(manifest.size)}, and the limit is {format_size(self._size_max)}",
                "receive with a larger --size-max",
            )
        fragment_bytes_max = self._config.payload_bytes_max
        if min(manifest.fragment_bytes, manifest.size) > fragment_bytes_max:
            raise NameRefusedError(
                f"{manifest.name!r} comes in fragments of {format_size(manifest.fragment_bytes)}, and the queue of the "
                f"receiver takes {format_size(fragment_bytes_max)} at most",
                "receive from a larger queue, or send through a smaller one",
            )
        if len(self.files) >= OPEN_MAX:
            raise NameRefusedError(f"{OPEN_MAX} files are on their way already", "wait until some are finished")
        if manifest.kind == "file":
            with names.folder_of(self._root, manifest.name) as (folder, last):
                partial.allowed_name(folder, last, self._existing)

    def _begin(self, manifest: Manifest, origin: str) -> None:
        """Begin or continue a file, with what this manifest says."""
        receiving = self.files.get(manifest.transfer)
        if receiving is None:
            receiving = Receiving(self._partial(manifest, origin), origin)
            self.files[manifest.transfer] = receiving
            self.moved_s = time.monotonic()
            if manifest.transfer in self.unknown:
                first, _ = self.unknown.pop(manifest.transfer)
                self.rewind_to = first if self.rewind_to is None else min(first, self.rewind_to)
        elif manifest.has_hashes and not receiving.partial.manifest.has_hashes:
            receiving.partial.compare(manifest)
            self.statistics.bad += receiving.partial.bad
        receiving.origin, receiving.run = origin, manifest.run
        receiving.is_due = True
        self._note_complete(receiving)

    def _partial(self, manifest: Manifest, origin: str) -> Partial:
        try:
            return Partial(self._inbox.folder, manifest, origin)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            partial.remove(self._inbox.folder, manifest.transfer)
            raise NameRefusedError(
                f"{manifest.name!r} has {format_size(manifest.size)}, more than a file of the receiver may have: "
                "raise its limit (ulimit -f), or receive on a file system that takes such files",
                "",
            ) from None

    def _note_complete(self, receiving: Receiving) -> None:
        if receiving.partial.is_complete:
            self._complete[receiving.partial.manifest.transfer] = receiving
            if len(self._complete) >= _COMPLETE_MAX:
                self.name_complete()

    # --- the end of a transfer --------------------------------------------------------------------

    def name_complete(self) -> None:
        """Sync the files that are complete, all at once, and give them their names."""
        failed: OSError | None = None
        syncs = [(each, self._syncs.submit(each.partial.sync)) for each in self._complete.values() if not each.name]
        for receiving, sync in syncs:
            try:
                sync.result()
            except OSError as error:
                self._begin_again(receiving)
                failed = error
        for receiving in [each for each in self._complete.values() if not each.name]:
            self._name(receiving)
        for name in {os.path.dirname(each.name): each.name for each in self._complete.values()}.values():
            names.sync_folder(self._root, name)
        for receiving in list(self._complete.values()):
            self._finish(receiving)
        if failed is not None:
            raise failed

    def _begin_again(self, receiving: Receiving) -> None:
        """A sync failed: the system may have dropped what it did not write, and would not fail a second time."""
        transfer = receiving.partial.manifest.transfer
        del self._complete[transfer], self.files[transfer]
        receiving.partial.discard()
        self._reports.note(receiving.origin, TransferState(transfer, "unknown"))

    def _name(self, receiving: Receiving) -> None:
        """Give a synced file its name, unless it must not have it."""
        manifest = receiving.partial.manifest
        try:
            receiving.name = receiving.partial.take_name(self._root, self._existing)
        except NameRefusedError as error:
            del self._complete[manifest.transfer], self.files[manifest.transfer]
            receiving.partial.discard()
            self._refuse(manifest.transfer, manifest.name, manifest.size, receiving.origin, error.problem)

    def _finish(self, receiving: Receiving) -> None:
        """Its name is on the disk."""
        manifest = receiving.partial.manifest
        self._inbox.done.note(manifest.transfer, receiving.name, receiving.run, receiving.partial.was)
        self._note_finished(manifest, receiving.name, receiving.origin)
        del self._complete[manifest.transfer], self.files[manifest.transfer]
        receiving.partial.close()
        partial.forget(self._inbox.folder, manifest.transfer)

    def _note_finished(self, manifest: Manifest, name: str, origin: str) -> None:
        self._reports.note(origin, TransferState(manifest.transfer, "done"))
        self.statistics.finished += 1
        self.statistics.finished_bytes += manifest.size
        self.moved_s = time.monotonic()
        self._on_received(Received(name, manifest.size, "done", root=manifest.root.hex()))

    def _refuse(self, transfer: str, name: str, size: int, origin: str, problem: str) -> None:
        if transfer not in self._refused:
            self.statistics.refused += 1
            if len(self._refused) >= OPEN_MAX:
                self._refused.pop(next(iter(self._refused)))
            self._refused[transfer] = TransferState(transfer, "refused", problem=problem[:2000])
            self._on_received(Received(name, size, "refused", problem))
        self._reports.note(origin, self._refused[transfer])

    def _note_product(self, transfer: str) -> None:
        """A large product that was put as fragments: not for us (join.py)."""
        self.unknown.pop(transfer, None)
        if len(self._products) >= OPEN_MAX:
            self._products.pop(next(iter(self._products)))
        self._products[transfer] = None

    def _withdraw(self, manifest: Manifest, origin: str) -> None:
        receiving = self.files.get(manifest.transfer)
        if receiving is not None and receiving.origin == origin:
            self._drop(receiving, "withdrawn", manifest.withdrawn)

    def _drop(self, receiving: Receiving, state: str, why: str) -> None:
        manifest = receiving.partial.manifest
        del self.files[manifest.transfer]
        self._complete.pop(manifest.transfer, None)
        receiving.partial.discard()
        self._on_received(Received(manifest.name, manifest.size, state, why))


def _may_speak_of(receiving: Receiving, origin: str) -> bool:
    """Whether a file is of this origin, or its own origin has been silent for a while."""
    return origin == receiving.origin or time.monotonic() - receiving.written_s > _MOVED_S
