"""Queue: the face of the log.

A directory that any number of processes on one machine write to and read from at once. This file checks what callers
give, turns it into what the kernel takes, and answers in the words of the rest of Headrace. It keeps no data of its
own: everything shared lies in the mapped files (directory.py says which), everything fast in the kernel.

A Queue may be used from several threads, and after a fork by both processes.
"""

import contextlib
import os
import shutil
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from headrace.errors import BatchTooLargeError, HeadraceError, NotAQueueError, OptionError, QueueClosedError
from headrace.kernel import _kernel as kernel
from headrace.log import columns, puts, records
from headrace.log.attachment import READER, WRITER, Presence
from headrace.log.check import Finding, Progress, check_queue
from headrace.log.clock import Clock
from headrace.log.config import (
    CONFIG_FILE,
    FORMAT,
    QueueConfig,
    check_age,
    check_dedup,
    check_durability,
    check_origin,
    check_size,
    default_origin,
    read_config,
    write_config,
)
from headrace.log.creation import create_directory
from headrace.log.cursor import Cursor, CursorFile, CursorState, check_cursor_name
from headrace.log.directory import alone_at, attach, check_path, hold_presence, is_last
from headrace.log.explain import explain, explain_os_error
from headrace.log.flusher import Flusher, commit, flush
from headrace.log.follower import Follower
from headrace.log.reader import NO_LIMIT, Read, Reader
from headrace.log.receipt import Duplicate, Receipt
from headrace.log.repair import repair_queue
from headrace.log.start import Start, resolve_start
from headrace.log.statistics import Statistics, gather
from headrace.log.storage import Disk, Storage
from headrace.log.weights import Weights, weigh
from headrace.product.batch import Batch
from headrace.product.product import PRIORITY_DEFAULT
from headrace.product.properties import PropertyValue
from headrace.queue.demand import wanted_by
from headrace.queue.onward import begin_wait, lines_of
from headrace.selection import Selection
from headrace.units import parse_age, parse_size

if TYPE_CHECKING:
    from headrace.channel.channel import Channel
    from headrace.station import Station
    from headrace.station.lines import Lines, Wait

Wanted = Selection | str | None
When = int | str | datetime

_MARK_DELETED = 1
_opened: "weakref.WeakSet[Queue]" = weakref.WeakSet()  # for fork


class Queue:
    """A bounded, shared, crash-safe log of products; get one from `Queue.create` or `Queue.open`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        storage: Storage | None = None,
    ):
        self.path = Path(path).absolute()
        self._clock = clock
        self._storage = storage or Disk()
        attached = attach(self.path, self._storage)
        self._config = attached.config
        self._log = attached.log
        self._presence_fd = attached.presence
        self._child_fd = -1
        self._presence = Presence(self._log)
        self._cursors = CursorFile(self.path / "cursors")
        self._flusher: Flusher | None = None
        self._stations: Lines | None = None
        self._writing = False
        self._plain = False  # a put without extras may go straight to the kernel
        self._disk = self._config.durability == "disk"
        self._closed = False
        _opened.add(self)

    @property
    def config(self) -> QueueConfig:
        """The terms in force, which another process may have changed by `resize`."""
        state = self._log.state
        return msgspec.structs.replace(self._config, size=state["size_bytes"], age_s=state["age_ns"] / 1e9 or None)

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, size: int | str = "1GiB", age: float | str | timedelta | None = None,
        durability: str = "process", dedup: str = "blake3", origin: str | None = None,
        clock: Clock | None = None, storage: Storage | None = None,
    ) -> "Queue":  # fmt: skip
        """Make a queue and open it.

        It holds up to `size` bytes and, with `age`, nothing older than that; the oldest goes first. `durability` is
        `memory`, `process` or `disk` (docs/guarantees.md), `dedup` names the signature by which duplicates are known:
        `blake3`, `xxh3` (trusted sources only), `md5`, or `none`. `origin` is the id of this site.
        """
        config = QueueConfig(
            format=FORMAT,
            uuid=str(uuid.uuid4()),
            size=check_size(parse_size(size)),
            age_s=check_age(None if age is None else parse_age(age)),
            durability=check_durability(durability),
            dedup=check_dedup(dedup),
            origin=check_origin(default_origin() if origin is None else origin),
        )
        create_directory(Path(path).absolute(), config)
        return cls(path, clock=clock, storage=storage)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        storage: Storage | None = None,
    ) -> "Queue":
        """Open a queue that exists, settling what dead processes may have left."""
        return cls(path, clock=clock, storage=storage)

    # --- put --------------------------------------------------------------------------------------

    def put(
        self, payload: Any, *, feed: str, ident: str = "", created: When | None = None,
        priority: int = PRIORITY_DEFAULT, expiry: When | None = None,
        properties: Mapping[str, PropertyValue] | None = None, slice: int | None = None,
        signature: bytes | None = None, origin: str | None = None, origin_sequence: int = 0, previous: int = 0,
        timeout: float | str | timedelta | None = None,
    ) -> int | Duplicate:  # fmt: skip
        """Store one product; its sequence, or the Duplicate of the one that is held.

        After return the product is safe to the degree of the queue's durability and readers can see it. `expiry` is a
        time, or an age from now such as "10min". `signature`, 16 bytes, replaces the one that the queue computes.
        `origin`, `origin_sequence` and `previous` belong to products that were created at another site. `timeout` is
        how long to wait for a blocking station whose cue is full: for ever, if nothing is said.
        """
        wait: Wait | None = None
        while True:
            try:
                if (
                    self._plain and created is None and expiry is None and properties is None and slice is None
                    and signature is None and origin is None and not origin_sequence and 0 <= priority <= 7
                ):  # fmt: skip
                    outcome = self._log.put_plain(payload, feed, ident, priority)
                    return outcome if outcome > 0 else Duplicate(-outcome)
                outcome = self._put_in_full(
                    payload, feed, ident, created, priority, expiry, properties, slice, signature, origin,
                    origin_sequence, previous,
                )  # fmt: skip
                break
            except (LookupError, TypeError, ValueError, OverflowError, BufferError, kernel.KernelError) as error:
                self._check_open()
                if isinstance(error, kernel.KernelError) and error.code in puts.GATES:
                    wait = self._make_way(error, timeout, wait)
                elif not puts.learn_feed(self._log, feed, error, self.path):
                    raise puts.explain_put(
                        error, self.path, self.config.payload_bytes_max, payload, feed, ident, priority
                    ) from None
        if self._disk:  # a duplicate too is acknowledged only when the copy that is held is safe
            self._commit(abs(outcome))
        return outcome if outcome > 0 else Duplicate(-outcome)

    def _put_in_full(
        self, payload: Any, feed: str, ident: str, created: Any, priority: Any, expiry: Any, properties: Any,
        slice: Any, signature: Any, origin: Any, origin_sequence: Any, previous: Any,
    ) -> int:  # fmt: skip
        """A put with everything that may go with it; the kernel's answer."""
        if not self._writing:
            self._begin_writing()
        now_ns, boot_ns = self._now()
        return self._log.put(
            payload, feed, ident, puts.time_of(created, "created"), puts.check_priority(priority),
            puts.expiry_of(expiry, now_ns), puts.properties_of(properties), puts.slice_of(slice),
            puts.signature_of(signature), puts.origin_of(self._log, origin, origin_sequence),
            puts.sequence_of(origin_sequence), puts.sequence_of(previous), now_ns, boot_ns,
        )  # fmt: skip

    def put_many(
        self, payloads: Any, *, feed: columns.Texts, ident: columns.Texts = "", created: Any = None,
        priority: columns.Numbers = PRIORITY_DEFAULT, expiry: Any = None, properties: Any = None, slice: Any = None,
        signature: Any = None, origin: Any = None, origin_sequence: Any = None, previous: Any = None,
        timeout: float | str | timedelta | None = None,
    ) -> Receipt:  # fmt: skip
        """Store many products as one: readers see all of them or none, whatever happens in between.

        Every argument is one value for all, or a column (list, NumPy, Arrow) with one for each payload. Times in
        columns are nanoseconds since 1970. Duplicates are left out and told by the receipt. `timeout` is as for
        `put`; a batch goes in as a whole once the cue is not full.
        """
        log = self._log
        plain = (
            self._plain and payloads.__class__ is list and feed.__class__ is str and ident.__class__ is str
            and priority.__class__ is int and 0 <= priority <= 7 and created is expiry is properties is slice is None
            and signature is origin is origin_sequence is previous is None and feed in log.feeds
        )  # fmt: skip
        held: Any = payloads
        arguments: Any = None
        if not plain:
            held, arguments = self._columns(payloads, feed, ident, created, priority, expiry, properties, slice,
                                            signature, origin, origin_sequence, previous)  # fmt: skip
        wait: Wait | None = None
        try:
            while True:
                try:
                    if plain:
                        first, stored, outcomes = log.put_many_plain(held, feed, ident, priority)
                    else:
                        first, stored, outcomes = log.put_many(held, *arguments)
                    break
                except kernel.KernelError as error:
                    self._check_open()
                    if error.code not in puts.GATES:
                        raise
                    wait = self._make_way(error, timeout, wait)
        except (TypeError, ValueError, KeyError, kernel.KernelError, BufferError) as error:
            self._check_open()
            if isinstance(error, kernel.KernelError) and error.code == kernel.TROUBLE["batch_too_large"]:
                raise BatchTooLargeError(
                    f"a batch of {len(held)} products does not fit into {self.config.size} bytes as one piece",
                    "put it in several calls, or resize the queue",
                ) from None
            raise puts.explain_many(error, self.path, self.config.payload_bytes_max, held, ident) from None
        if self._disk and held:
            self._commit(max([first + stored - 1, *map(abs, outcomes or ())]))
        return Receipt(len(held), stored, first, None if outcomes is None else tuple(outcomes))

    def put_batch(self, batch: Batch, keep: Any = None, timeout: float | str | timedelta | None = None) -> Receipt:
        """Store products of another queue or site as they are, as one: with their origin, sequence there and signature.

        `keep` has a true value for each product that is wanted; the receipt speaks of those alone, in their order. A
        product without a signature gets this queue's. Products of this queue's own origin that come back are stored
        like others, unless they are duplicates: leave them out by `keep`. `timeout` is as for `put`.
        """
        self._check_open()
        if not self._writing:
            self._begin_writing()
        rows, mask = records.rows_of(batch), records.mask_of(keep, len(batch))
        wait: Wait | None = None
        while True:
            try:
                first, stored, outcomes = self._log.put_records(rows, mask, *self._now())
                break
            except kernel.KernelError as error:
                self._check_open()
                if error.code not in puts.GATES:
                    raise records.explain_records(error, self.path, batch, self.config) from None
                wait = self._make_way(error, timeout, wait)
        products = stored if outcomes is None else len(outcomes)
        if self._disk and products:
            self._commit(max([first + stored - 1, *map(abs, outcomes or ())]))
        return Receipt(products, stored, first, None if outcomes is None else tuple(outcomes))

    def _now(self) -> tuple[int, int]:
        """The time and the time since the start of the machine by the clock that was given; else zeros."""
        return (self._clock.now_ns(), self._clock.elapsed_ns()) if self._clock is not None else (0, 0)

    def _columns(self, payloads: Any, *columns_given: Any) -> tuple[Any, tuple[Any, ...]]:
        """The payloads of a `put_many`, and its other arguments as the kernel takes them."""
        self._check_open()
        if not self._writing:
            self._begin_writing()
        held = columns.payload_column(payloads) if type(payloads) is not list else payloads
        return held, (*puts.many_columns(self._log, len(held), *columns_given), *self._now())

    def _make_way(self, error: kernel.KernelError, timeout: Any, wait: "Wait | None") -> "Wait":
        """Deal with what stations refused an append for, or wait for it; what is left of the time."""
        wait = wait or begin_wait(timeout)
        self.lines().make_way(error, wait)
        return wait

    def _begin_writing(self) -> None:
        """Before the first put of this process: say so, and see to it that somebody flushes."""
        self._check_open()
        if not self._presence.roles & WRITER:
            self._presence.add_role(WRITER)
            self._log.set_state(clean=0)
            if self._config.durability != "memory":
                self._storage.sync_file(self.path / "control")
        if self._config.durability == "process":
            self.keep_positions()
        self._writing = True
        self._plain = self._clock is None and not self._disk

    def make_durable(self, sequence: int) -> None:
        """Under durability `disk`, return when `sequence` is on the disk; at once elsewhere."""
        if self._disk:
            self._commit(sequence)

    def _commit(self, sequence: int) -> None:
        """Return when `sequence` is on the disk; one flush serves all who wait."""
        try:
            commit(self.path, self._log, self._storage, sequence)
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def flush(self) -> None:
        """Make everything that was put so far survive a power failure."""
        self._check_open()
        try:
            flush(self.path, self._log, self._storage)
            self._storage.sync_file(self.path / "cursors")
            self._save_stations()
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    # --- read -------------------------------------------------------------------------------------

    def read(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", stop: int | None = None,
    ) -> Batch:  # fmt: skip
        """The products from `start` on that the selection wants, as many as there are and the limits allow.

        `start` is a sequence, "oldest", "next", a time (datetime or ISO 8601) or an age ("1h"). If eviction was
        faster than the reader, `batch.lost` is the exact range; `batch.next` is where to go on. The limit of bytes is
        reached by the product that crosses it, so that one product always fits. Nothing from sequence `stop` on is
        looked at.
        """
        return self.reader(selection, limit, bytes_limit)(self.resolve(start), stop)

    def follow(
        self, start: Start = "next", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: float | str | timedelta | None = None,
    ) -> Follower:  # fmt: skip
        """Batches from `start` on, as they come: for `for`, and for `async for`.

        It sleeps until there is something. Iteration ends when `timeout` has passed without a wanted product.
        """
        read = self.reader(selection, limit, bytes_limit)
        return Follower(
            self._log,
            read,
            self.resolve(start),
            None if timeout is None else parse_age(timeout, "timeout"),
        )

    def reader(self, selection: Wanted, limit: int, bytes_limit: int | str) -> Read:
        """A function that reads from one position on, up to another one if there is one.

        It goes on counting for `every`, and is for one thread at a time.
        """
        self._check_open()
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise OptionError(
                f"limit {limit!r} is not a positive number",
                "give how many products you want at most",
            )
        bytes_max = max(1, parse_size(bytes_limit, "bytes_limit"))
        if not self._presence.roles & READER:
            self._presence.add_role(READER)
        reader = Reader(self._log, self.path, Selection.of(selection))

        def read(position: int, stop: int | None = None) -> Batch:
            self._check_open()
            now_ns = self._clock.now_ns() if self._clock else 0
            return reader.read(position, limit, bytes_max, now_ns, NO_LIMIT if stop is None else stop)

        return read

    def weigh(self, start: int, stop: int, selection: Wanted = None) -> Weights:
        """How the bytes of the products from `start` up to `stop` are spread, for whoever shares them out."""
        self._check_open()
        return weigh(self._log, Selection.of(selection), start, stop)

    def resolve(self, start: Start) -> int:
        """The sequence that `start` means now."""
        self._check_open()
        return resolve_start(self._log, start, self._clock)

    @property
    def oldest(self) -> int:
        """The oldest sequence held."""
        return self._log.oldest

    @property
    def next(self) -> int:
        """The sequence that the next product will have."""
        return self._log.head

    @property
    def origins(self) -> list[str]:
        """The sites whose products the queue has had, its own among them."""
        self._log.learn_names()
        return list(self._log.origins)

    # --- cursors ----------------------------------------------------------------------------------

    def cursor(self, name: str, start: Start = "oldest") -> Cursor:
        """The durable position called `name`; a new one begins at `start`."""
        self._check_open()
        check_cursor_name(name)
        with self.locked():
            slot = self._cursors.names().get(name)
            if slot is None:
                state = CursorState(self.resolve(start), time.time_ns(), 0, None)
                slot = self._cursors.add(name, state)
        self.sync_cursors()
        return Cursor(self, self._cursors, slot, name)

    def cursors(self) -> list[str]:
        """The names of all cursors."""
        self._check_open()
        return sorted(self._cursors.names())

    # --- stations and channels --------------------------------------------------------------------

    def station(self, name: str, selection: Any = ..., *, start: Start = "next", **terms: Any) -> "Station":
        """The station called `name`: a selection and a position that consumers share.

        Without terms it must exist. With terms it is made, or opened if it exists on these terms; a new one begins at
        `start`. docs/stations.md explains the terms: blocking, cue, prescale, order, discard, restore, deliveries_max,
        hung_after, durable, after, group, distribution, timeout, start_time, stop_time, batch_max, pacing,
        consumers_max, max_queue.
        """
        from headrace.station.station import open_station

        self._check_open()
        return open_station(self, self.lines(), name, start, {"selection": selection, **terms})

    def stations(self) -> list[str]:
        """The names of all stations."""
        self._check_open()
        return sorted(terms.name for terms in self.lines().stations.stations)

    def lines(self) -> "Lines":
        """The stations as this opening of the queue knows them; not for users."""
        if self._stations is None:
            storage = None if self._config.durability == "memory" else self._storage
            self._stations = lines_of(self._log, self.path, storage, self._clock)
        return self._stations

    def keep_positions(self) -> None:
        """See to it that what was put, and where consumers are, reaches the disk once a second."""
        if self._flusher is None and self._config.durability != "memory":
            self._flusher = Flusher(self.path, self._log, self._storage, self._mind_stations, self._save_stations)

    def _mind_stations(self) -> None:
        """Before anything is evicted: know which stations keep it."""
        if self._log.state["stations"] != self._log.gates_number:
            self.lines().make_gates()

    def _save_stations(self) -> None:
        """Make the positions of stations survive a power failure."""
        if self._log.state["stations"]:
            self.lines().save(self._storage)

    def channel(self, name: str, feed: str | None = None, **terms: Any) -> "Channel":
        """The channel called `name`: a feed subtree with terms that its stations inherit (docs/channels.md)."""
        from headrace.channel.channel import open_channel

        self._check_open()
        return open_channel(self, name, feed, **terms)

    def channels(self) -> list[str]:
        """The names of all channels."""
        from headrace.channel.channel import list_channels

        self._check_open()
        return list_channels(self)

    def sync_cursors(self) -> None:
        """Under durability `disk`, make saved positions survive a power failure; the flusher does elsewhere."""
        if self._disk:
            self._storage.sync_file(self.path / "cursors")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the queue's lock: nobody puts meanwhile. For short changes of shared state."""
        self._check_open()
        with self._log.held():
            yield

    # --- change -----------------------------------------------------------------------------------

    def delete(self, selection: Selection | str) -> int:
        """Mark every held product that the selection wants as deleted; how many there were.

        Readers pass over them from now on, and an equal product may be put again. Their space returns with the
        segment.
        """
        if selection is None:
            raise OptionError("delete needs a selection", 'to delete everything, say so: delete("**")')
        deleted, position = 0, self.oldest
        read = self.reader(selection, 100_000, "64MiB")
        end = self.next
        while position < end:
            batch = read(position)
            wanted = np.ascontiguousarray(batch.sequences[batch.sequences < end])
            with self.locked():
                deleted_now = kernel.mark_rows(self._log, wanted, _MARK_DELETED)
                self._log.set_state(deleted_products=self._log.state["deleted_products"] + deleted_now)
            deleted += deleted_now
            position = batch.next
        if self._disk and deleted:
            for file in sorted((self.path / "segments").iterdir()):
                with contextlib.suppress(FileNotFoundError):
                    self._storage.sync_file(file)
        return deleted

    def resize(self, *, size: int | str | None = None, age: float | str | timedelta | None = None) -> None:
        """Change the limits; what no longer fits is evicted at once, the oldest first. `age=0` lifts that limit."""
        self._check_open()
        config = self.config
        if size is not None:
            config = msgspec.structs.replace(config, size=check_size(parse_size(size)))
        if age is not None:
            config = msgspec.structs.replace(config, age_s=check_age(parse_age(age) or None))
        self._mind_stations()
        try:
            with self.locked():
                kernel.forget_spare(self._log)
                write_config(self.path, config)
                self._log.set_state(size_bytes=config.size, age_ns=config.age_ns, segment_bytes=config.segment_bytes)
                kernel.apply_limits(self._log, self._clock.elapsed_ns() if self._clock else 0)
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        except kernel.KernelError as error:
            raise explain(error, self.path) from None

    # --- tell and mend ----------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Everything that the queue can tell of itself."""
        self._check_open()
        rows = self._log.rows()
        rows.pick(self._log.oldest, 1, 1, (1 << 63) - 1, None)
        oldest = Batch(rows, self._log.names)
        oldest_ns = int(oldest.columns["inserted_ns"][0]) if len(oldest) else None
        now_ns = self._clock.now_ns() if self._clock else time.time_ns()
        failure = self._flusher.failure if self._flusher else None
        return gather(self._log, self._cursors, oldest_ns, now_ns, failure)

    def wanted(self, feed: str) -> bool:
        """Does anybody want products of this feed? False only if a site runs here and nobody does, here or elsewhere.

        For programs whose products cost something to make. It takes about as long as a put; ask now and then, not for
        each product.
        """
        return bool(self.wanted_by(feed))

    def wanted_by(self, feed: str) -> list[str]:
        """Who wants products of this feed, in words: listeners elsewhere, stations, readers, cursors."""
        self._check_open()
        now_ns = self._clock.now_ns() if self._clock else time.time_ns()
        return wanted_by(self.path, self._log, self._cursors, feed, now_ns)

    def check(self, progress: Progress | None = None) -> list[Finding]:
        """Walk everything and list every inconsistency; may run beside writers."""
        self._check_open()
        return check_queue(self.path, read_config(self.path), self._log, self._cursors, progress)

    @classmethod
    def repair(cls, path: str | os.PathLike[str]) -> list[str]:
        """Mend a damaged queue that nobody has open, keeping every product that is whole; what was done."""
        try:
            return repair_queue(Path(path).absolute())
        except OSError as error:
            raise explain_os_error(error, Path(path)) from error
        except kernel.KernelError as error:
            raise explain(error, Path(path)) from None

    @classmethod
    def remove(cls, path: str | os.PathLike[str]) -> None:
        """Delete a queue that nobody has open, with everything in it."""
        directory = Path(path).absolute()
        check_path(directory)
        if not (directory / CONFIG_FILE).is_file():
            raise NotAQueueError(f"{directory} has no {CONFIG_FILE}, it is not a queue", "remove it by other means")
        with alone_at(directory):
            shutil.rmtree(directory)

    # --- life -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and let go, also if the flush fails, which is told then. Batches and views taken before stay valid."""
        if self._closed:
            return
        self._closed = True
        self._writing = self._plain = False
        _opened.discard(self)
        if self._flusher is not None:
            self._flusher.close()
        failure: HeadraceError | None = None
        kept = self._flusher is not None or self._presence.roles & WRITER
        if kept and self._config.durability != "memory" and self.path.exists():
            try:
                flush(self.path, self._log, self._storage)
                self._storage.sync_file(self.path / "cursors")
                self._save_stations()
            except OSError as error:
                failure = explain_os_error(error, self.path)
            except HeadraceError as error:
                failure = error
        self._presence.leave()
        kernel.set_gates(self._log, 0, [])  # they hold lines, which hold the log
        with self._log.held():  # no other thread of ours is inside when we cease to be present
            self._leave_clean()
            os.close(self._presence_fd)
        if failure is not None:
            raise failure

    def _leave_clean(self) -> None:
        """The last one out notes that everything is on the disk, if it is."""
        if self._config.durability == "memory" or not is_last(self._presence_fd):
            return
        state = self._log.state
        if state["synced"] == state["tail"] and not state["clean"]:
            with contextlib.suppress(OSError):  # then the next start of the machine only leaps without need
                self._log.set_state(clean=1)
                self._storage.sync_file(self.path / "control")

    def _check_open(self) -> None:
        if self._closed:
            raise QueueClosedError(f"{self.path} was closed in this process", "open it again: Queue.open(path)")

    def __enter__(self) -> "Queue":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<Queue {self.path} {'closed' if self._closed else f'{self.oldest}-{self.next - 1}'}>"

    # --- fork -------------------------------------------------------------------------------------
    #
    # The kernel sees to mappings and pins. What is left is presence: parent and child must not share one flock, or the
    # end of one would be taken for the end of both. So the child's is taken before it is born.

    def before_fork(self) -> None:
        try:
            self._child_fd = hold_presence(self.path)
        except OSError:  # the queue was removed under us: there is nothing to be present at
            self._child_fd = os.dup(self._presence_fd)

    def after_fork_in_parent(self) -> None:
        os.close(self._child_fd)

    def after_fork_in_child(self) -> None:
        """The child has its own place among the attached and, later, its own flusher."""
        os.close(self._presence_fd)
        self._presence_fd = self._child_fd
        self._flusher = None
        self._writing = self._plain = False
        self._presence = Presence(self._log)


def _at_fork(step: str) -> Callable[[], None]:
    def every_open_queue() -> None:
        for queue in list(_opened):
            getattr(queue, step)()

    return every_open_queue


os.register_at_fork(
    before=_at_fork("before_fork"),
    after_in_parent=_at_fork("after_fork_in_parent"),
    after_in_child=_at_fork("after_fork_in_child"),
)
