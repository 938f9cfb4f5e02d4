"""Log: one opened queue directory, without stations and channels.

It checks arguments, calls the kernel, and explains the kernel's errors. It holds no data of its own: everything shared
is in the mapped files (directory.py lists them), and everything fast is in the kernel. Appending is in append.py.
`queue/queue.py` joins the log with stations and channels; nothing else opens one.

A Log is safe to use from several threads, and after a fork in both processes.
"""

import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import HeadraceError, OptionError, QueueAccessError, QueueClosedError, StartAheadError
from headrace.kernel import _kernel as kernel
from headrace.log.attach import Presence, attach, hold_presence, is_last
from headrace.log.check import Finding, Progress, check_queue
from headrace.log.clock_words import ClockWords, read_clock, write_clock
from headrace.log.config import QueueConfig, check_age, check_size, read_config, write_config
from headrace.log.cursor import Cursor, CursorFile, CursorState, check_cursor_name
from headrace.log.dictionaries import Dictionaries
from headrace.log.explain import explain, explain_os_error
from headrace.log.flush import Flusher, commit, flush
from headrace.log.follow import Follower
from headrace.log.place import check_place
from headrace.log.read import NO_LIMIT, Allowed, Read, Reader, Start, check_limit, resolve_start
from headrace.log.reading import Reading
from headrace.log.seams import Assigner, Clock, Disk, Gate, Packed, Packer, Resident, Storage, Timeout
from headrace.log.statistics import Statistics, gather
from headrace.log.weights import RowCounts, Weights, count_rows, weigh
from headrace.product.batch import Batch
from headrace.selection import Selection
from headrace.selection.functions import Functions
from headrace.units import parse_age, parse_size

Wanted = Selection | str | None
_SIGNATURES = 4096  # looked up in one go, while appends wait
_NO_ORIGIN = 0xFFFF  # the number of none

_opened: "weakref.WeakSet[Log]" = weakref.WeakSet()  # for fork


class Log:
    """A bounded, shared, crash-safe log of products."""

    gate: Gate  # what may make appends wait; the queue that joins the parts sets both before the first put
    assigner: Assigner  # what gives products their slices
    packer: Packer  # what compresses them

    def __init__(
        self, path: Path, residents: Sequence[Resident], *, clock: Clock | None = None, storage: Storage | None = None,
        functions: Functions | None = None, read_only: bool = False,
    ) -> None:  # fmt: skip
        """Open the directory. The first process to attach recovers what dead ones left, residents included.

        A process that may not write to it opens it `read_only`, whether it says so or not.
        """
        self.path = path.absolute()
        self.clock = clock
        self.functions = functions or Functions()  # that selections may name
        self.storage = storage or Disk()
        self._residents = residents
        attached = attach(self.path, self.storage, residents, read_only=read_only)
        self._config = attached.config
        self.kernel = attached.log
        self.is_read_only = attached.read_only
        self.is_disk = self._config.durability == "disk"
        self._presence_fd = attached.presence
        self._child_fd = -1
        self._presence = Presence(self.kernel, self.is_read_only)
        self.cursor_file = CursorFile(self.path / "cursors", read_only=self.is_read_only)
        self.dictionaries = Dictionaries(self.path, self.storage)  # of compressed products
        self.kernel.dictionaries = self.dictionaries
        self.packs = False  # a channel compresses, as far as is known here
        self._flusher: Flusher | None = None
        self._closed = False
        self.is_writing = False  # this process has put something
        self.is_quick = False  # a product without optional facts may go straight to the kernel, unless it is compressed
        self.is_plain = False  # and none is
        _opened.add(self)

    @property
    def config(self) -> QueueConfig:
        """The current configuration, which another process may have changed by `resize`."""
        state = self.kernel.state
        return msgspec.structs.replace(self._config, size=state["size_bytes"], age_s=state["age_ns"] / 1e9 or None)

    # --- write -----------------------------------------------------------------------------------

    def begin_writing(self) -> None:
        """Before the first put of this process: register as a writer, and start the flusher if there must be one."""
        self.check_writable()
        if not self._presence.roles & kernel.ROLE_WRITER:
            self._presence.add_role(kernel.ROLE_WRITER)
            self.kernel.set_state(clean=0)
            if self._config.durability != "memory":
                self.storage.sync_file(self.path / "control")
        if self._config.durability == "process":
            self.keep_positions()
        self.is_writing = True
        self.is_quick = self.clock is None and not self.is_disk
        self.is_plain = self.is_quick and not self.packs

    def set_packs(self, packs: bool) -> None:
        """Whether any channel compresses. Then a put must ask first."""
        self.packs = packs
        self.is_plain = self.is_quick and not packs

    def pack(self, payload: Any, feed: str) -> Packed | None:
        """The product as it is to be stored; None: as it is."""
        return self.packer.pack(payload, feed, self.expanded_bytes_max)

    @property
    def expanded_bytes_max(self) -> int:
        """The largest payload that is stored compressed."""
        return min(self.kernel.payload_bytes_max, kernel.EXPANDED_BYTES_MAX)

    def now(self) -> tuple[int, int]:
        """The time, and the elapsed time, by the clock that was given; zeros if there is none."""
        return (self.clock.now_ns(), self.clock.elapsed_ns()) if self.clock is not None else (0, 0)

    def now_ns(self) -> int:
        """The time of the site: nanoseconds since 1970, UTC."""
        return self.clock.now_ns() if self.clock is not None else self.kernel.now_ns()

    def read_clock(self) -> ClockWords | None:
        """The words of the clock; None if nobody has kept it since the machine started."""
        self.check_open()
        return read_clock(self.kernel)

    def write_clock(self, words: ClockWords) -> None:
        """Correct the clock of the site; ValueError if that would put it back."""
        self.check_writable()
        write_clock(self.kernel, words)

    def clear_clock(self) -> None:
        """From now on the clock of the system counts."""
        self.check_open()
        self.kernel.clear_clock()

    @property
    def flush_failure(self) -> Exception | None:
        """Why the last flush of this process failed; None if it did not."""
        return self._flusher.failure if self._flusher else None

    def make_durable(self, sequence: int) -> None:
        """Under durability `disk`, return when `sequence` is on the disk; otherwise at once."""
        if not self.is_disk:
            return
        try:
            commit(self.path, self.kernel, self.storage, sequence)
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def flush(self) -> None:
        """Return when everything put so far survives a power failure."""
        self.check_writable()
        try:
            flush(self.path, self.kernel, self.storage)
            self.storage.sync_file(self.path / "cursors")
            self._save_gate()
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    # --- read -------------------------------------------------------------------------------------

    def read(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int | None = None, stop: int | None = None
    ) -> Reading:
        """All products from `start` on, up to the end of the queue as it is now. `Queue.read` explains."""
        end = self.next if stop is None else min(stop, self.next)
        selection = Selection.of(selection).bound(self.functions)
        return Reading(partial(self.reader, selection), lambda: self.oldest, self.resolve(start), end, limit)

    def read_batch(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", stop: int | None = None,
    ) -> Batch:  # fmt: skip
        """The products from `start` on that match the selection, as many as the limits allow.

        `start` is a sequence, "oldest", "next", a time (datetime or ISO 8601) or an age ("1h"). If products
        were evicted before this read, `batch.lost` is the exact range; `batch.next` is where to read on. The product
        that crosses `bytes_limit` is the last one, so that one product always fits. Nothing from sequence `stop` on is
        read.
        """
        return self.reader(selection, limit, bytes_limit)(self.resolve(start), stop)

    def follow(
        self, start: Start = "next", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: Timeout = None, allowed: Allowed | None = None,
        expired: bool = False,
    ) -> Follower:  # fmt: skip
        """Batches from `start` on, as they arrive, for `for` and `async for`.

        It sleeps until there are products. Iteration ends after `timeout` without a matching product. From a time in
        the future, it begins with the first product that is inserted then. With `expired`, expired products are
        included.
        """
        read = self.reader(selection, limit, bytes_limit, allowed, expired=expired)
        try:
            position, find_start = self.resolve(start), None
        except StartAheadError:
            position, find_start = self.next, partial(self.resolve, start)
        timeout_s = None if timeout is None else parse_age(timeout, "timeout")
        return Follower(self.kernel, read, partial(self.check_open, always=False), position, timeout_s, find_start)

    def reader(
        self, selection: Wanted, limit: int, bytes_limit: int | str, allowed: Allowed | None = None, *,
        heads: bool = False, brief: bool = False, expired: bool = False,
    ) -> Read:  # fmt: skip
        """A function that reads from a position on, up to a `stop` if one is given.

        It keeps the count for `every` between calls, and is for one thread at a time. `allowed` restricts what it sees
        to some feeds, whatever the selection wants: other feeds are skipped before anything of their products is
        looked at, so that no condition, count or limit of the selection can reveal them. With `heads`, only the columns
        of its batches are valid; a `brief` one does not wait for slow functions of users, and an `expired` one
        includes expired products (`Reader`).
        """
        self.check_open()
        check_limit(limit)
        bytes_max = max(1, parse_size(bytes_limit, "bytes_limit"))
        if not self._presence.roles & kernel.ROLE_READER:
            self._presence.add_role(kernel.ROLE_READER)
        bound = Selection.of(selection).bound(self.functions)
        reader = Reader(self.kernel, self.path, bound, allowed, heads=heads, brief=brief, expired=expired)

        def read(position: int, stop: int | None = None, most: int | None = None) -> Batch:
            self.check_open(always=False)
            now_ns = self.now_ns() if self.clock is not None or bound.max_age_s is not None else 0
            count = limit if most is None else min(limit, most)
            return reader.read(position, count, bytes_max, now_ns, NO_LIMIT if stop is None else stop)

        return read

    def find_signatures(
        self, signatures: npt.NDArray[np.void], kinds: npt.NDArray[np.uint8], origins: Sequence[str]
    ) -> npt.NDArray[np.uint64]:
        """For each signature, of 16 bytes, with its kind and the origin of its product: the sequence here, or 0.

        A put of such a product would be a duplicate. All are 0 if the queue keeps no signatures.
        """
        sequences = [np.zeros(0, np.uint64)]
        data, kinds = np.ascontiguousarray(signatures).view(np.uint8), np.ascontiguousarray(kinds)
        known = self.kernel.origins
        numbers = np.fromiter((known.get(origin, _NO_ORIGIN) for origin in origins), np.uint16, len(kinds))
        for begin in range(0, len(kinds), _SIGNATURES):
            end = begin + _SIGNATURES
            with self.locked():
                found = kernel.find_signatures(
                    self.kernel, data[16 * begin : 16 * end], kinds[begin:end], numbers[begin:end]
                )
            sequences.append(np.frombuffer(found, np.uint64))
        return np.concatenate(sequences)

    def weigh(
        self,
        start: int,
        stop: int,
        selection: Wanted = None,
        limit: int | None = None,
        *,
        allowed: Allowed | None = None,
    ) -> Weights:
        """How the bytes of the products from `start` up to `stop` are distributed, to divide them among workers.

        With a `limit`, the range ends after so many products. `allowed` is as for `reader`.
        """
        self.check_open()
        return weigh(self.kernel, Selection.of(selection), start, stop, allowed, limit)

    def count(self, start: int, stop: int, selection: Wanted = None, *, allowed: Allowed | None = None) -> RowCounts:
        """What index rows alone select from `start` up to `stop`; `allowed` is as for `reader`."""
        self.check_open()
        return count_rows(self.kernel, Selection.of(selection), start, stop, allowed)

    def resolve(self, start: Start) -> int:
        """The sequence that `start` means now."""
        self.check_open()
        return resolve_start(self.kernel, start, self.clock)

    @property
    def oldest(self) -> int:
        """The oldest sequence held."""
        return self.kernel.oldest

    @property
    def next(self) -> int:
        """The sequence that the next product will have."""
        return self.kernel.head

    @property
    def origins(self) -> list[str]:
        """The sites whose products the queue has stored, its own included."""
        self.kernel.learn_names()
        return list(self.kernel.origins)

    # --- cursors ----------------------------------------------------------------------------------

    def cursor(self, name: str, start: Start = "oldest") -> Cursor:
        """The durable position called `name`; a new one starts at `start`."""
        self.check_open()
        check_cursor_name(name)
        if self.is_read_only:
            return self._known_cursor(name)
        with self.locked():
            slot = self.cursor_file.names().get(name)
            if slot is None:
                state = CursorState(self.resolve(start), self.now_ns(), 0, None)
                slot = self.cursor_file.add(name, state)
        self.sync_cursors()
        return Cursor(self, self.cursor_file, slot, name)

    def _known_cursor(self, name: str) -> Cursor:
        """A cursor that exists; without the right to write none is made, and none moves."""
        slot = self.cursor_file.names().get(name)
        if slot is None:
            raise self._read_only_error()
        return Cursor(self, self.cursor_file, slot, name)

    def cursors(self) -> list[str]:
        """The names of all cursors."""
        self.check_open()
        return sorted(self.cursor_file.names())

    def keep_positions(self) -> None:
        """Start the thread that flushes products and positions once a second, unless it runs."""
        if self._flusher is None and self._config.durability != "memory":
            self._flusher = Flusher(self.path, self.kernel, self.storage, self._make_gates, self._save_gate)

    def _make_gates(self) -> None:
        """Before an eviction: learn which products stations keep."""
        if self.kernel.state["stations"] != self.kernel.gates_number:
            self.gate.make_gates()

    def _save_gate(self) -> None:
        """Make the positions of stations survive a power failure, if there are stations."""
        if self.kernel.state["stations"]:
            self.gate.save(self.storage)

    def sync_cursors(self) -> None:
        """Under durability `disk`, make saved positions survive a power failure; otherwise the flusher does."""
        if self.is_disk:
            self.storage.sync_file(self.path / "cursors")

    def locked(self) -> contextlib.AbstractContextManager[bool]:
        """Hold the queue's lock, which makes puts wait. For short changes of shared state.

        The context is the kernel's own: a generator would let an interrupt come between the lock and its release.
        """
        self.check_writable()
        return self.kernel.held()

    # --- change -----------------------------------------------------------------------------------

    def delete(self, selection: Selection | str) -> int:
        """Mark every held product that matches the selection as deleted; how many there were.

        Readers skip them from now on, and an equal product can be put again. Their space is reclaimed with the
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
                deleted_now = kernel.mark_rows(self.kernel, wanted, kernel.ROW_DELETED)
                self.kernel.set_state(deleted_products=self.kernel.state["deleted_products"] + deleted_now)
            deleted += deleted_now
            position = batch.next
        if self.is_disk and deleted:
            for file in sorted((self.path / "segments").iterdir()):
                with contextlib.suppress(FileNotFoundError):
                    self.storage.sync_file(file)
        return deleted

    def resize(self, *, size: int | str | None = None, age: float | str | timedelta | None = None) -> None:
        """Change the limits; what no longer fits is evicted at once, the oldest first. `age=0` removes that limit."""
        self.check_open()
        config = self.config
        if size is not None:
            config = msgspec.structs.replace(config, size=check_size(parse_size(size)))
        if age is not None:
            config = msgspec.structs.replace(config, age_s=check_age(parse_age(age) or None))
        self._make_gates()
        try:
            with self.locked():
                kernel.forget_spare(self.kernel)
                write_config(self.path, config)
                self.kernel.set_state(size_bytes=config.size, age_ns=config.age_ns, segment_bytes=config.segment_bytes)
                kernel.apply_limits(self.kernel, self.clock.elapsed_ns() if self.clock else 0)
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        except kernel.KernelError as error:
            raise explain(error, self.path) from None

    # --- inspect ----------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """State and counters of the queue at this moment."""
        self.check_open()
        rows = self.kernel.rows()
        rows.pick(self.kernel.oldest, 1, 1, (1 << 63) - 1, None)
        oldest = Batch(rows, self.kernel.names)
        oldest_ns = int(oldest.columns["inserted_ns"][0]) if len(oldest) else None
        return gather(self.kernel, self.cursor_file, oldest_ns, self.now_ns(), self.flush_failure)

    def check(self, progress: Progress | None = None) -> list[Finding]:
        """Walk all files and list every inconsistency. May run while others write."""
        self.check_writable()  # it takes the lock for the list of segments
        findings = check_queue(self.path, read_config(self.path), self.kernel, self.cursor_file, progress)
        findings += [Finding(str(file), fault) for file, fault in self.dictionaries.faults()]
        for resident in self._residents:
            findings += [
                Finding(str(self.path / resident.file), told) for told in resident.check(self.kernel, self.path)
            ]
        return findings

    # --- life -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and detach. A failed flush is raised after detaching. Batches and views taken before stay valid."""
        if self._closed:
            return
        self._closed = True
        self.is_writing = self.is_quick = self.is_plain = False
        _opened.discard(self)
        if self._flusher is not None:
            self._flusher.close()
        failure: HeadraceError | None = None
        kept = self._flusher is not None or self._presence.roles & kernel.ROLE_WRITER
        in_place = self.kernel.look_for_place() == 0  # otherwise the path leads nowhere, or to another queue
        if kept and self._config.durability != "memory" and in_place:
            try:
                flush(self.path, self.kernel, self.storage)
                self.storage.sync_file(self.path / "cursors")
                self._save_gate()
            except OSError as error:
                failure = explain_os_error(error, self.path)
            except HeadraceError as error:
                failure = error
        self._presence.leave()
        if not self.is_read_only:
            kernel.set_gates(self.kernel, 0, [])  # they hold chains, which hold the log
        with (
            contextlib.nullcontext() if self.is_read_only else self.kernel.held()
        ):  # no other thread of this process is inside when we detach
            if in_place and not self.is_read_only:
                self._leave_clean()
            os.close(self._presence_fd)
        self._flusher = None  # it holds this log
        if failure is not None:
            raise failure

    def _leave_clean(self) -> None:
        """The last process to detach notes that everything is on the disk, if it is."""
        if self._config.durability == "memory" or not is_last(self._presence_fd):
            return
        state = self.kernel.state
        if state["synced"] == state["tail"] and not state["clean"]:
            with contextlib.suppress(OSError):  # then sequences leap ahead without need after a restart
                self.kernel.set_state(clean=1)
                self.storage.sync_file(self.path / "control")

    def check_writable(self) -> None:
        """As `check_open`; QueueAccessError if the queue is open for reading only."""
        self.check_open()
        if self.is_read_only:
            raise self._read_only_error()

    def _read_only_error(self) -> QueueAccessError:
        return QueueAccessError(
            f"{self.path} is open for reading only",
            "run as a user who may write to its directory; to keep a position without that, use a Bookmark",
        )

    def check_open(self, *, always: bool = True) -> None:
        """QueueClosedError after `close`; QueueMovedError if the queue is no longer where it was opened.

        Unless `always`, the answer may be 0.1 s old: for what is called for each product or batch.
        """
        if self._closed:
            raise QueueClosedError(f"{self.path} was closed in this process", "open it again: Queue.open(path)")
        if self.kernel.look_for_place(always) != 0:
            check_place(self.kernel, self.path, always=always)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    @property
    def extent(self) -> str:
        """The sequences held, for people."""
        return "closed" if self._closed else f"{self.oldest}-{self.next - 1}"

    # --- fork -------------------------------------------------------------------------------------
    #
    # The kernel handles mappings and pins. What is left is the flock that shows presence: if parent and child shared
    # one, the end of one would look like the end of both. So the child's flock is taken before the fork.

    def before_fork(self) -> None:
        self._child_fd = hold_presence(self._presence_fd)

    def after_fork_in_parent(self) -> None:
        os.close(self._child_fd)

    def after_fork_in_child(self) -> None:
        """The child takes a slot of its own and, later, a flusher of its own."""
        os.close(self._presence_fd)
        self._presence_fd = self._child_fd
        self._flusher = None
        self.is_writing = self.is_quick = self.is_plain = False
        self._presence = Presence(self.kernel, self.is_read_only)


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
