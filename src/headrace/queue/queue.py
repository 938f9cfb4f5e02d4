"""Queue: the public interface of one queue directory; what `Queue.create`, `Queue.open` and `headrace.connect` return.

A facade over the log (products, cursors), its stations and its channels, and nothing more: each method calls the part
that does the work. `queue/interface.py` has the Protocols that this class and a remote queue share.

A Queue is safe to use from several threads, and after a fork in both processes.
"""

import os
import uuid
import weakref
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from headrace.channel.assigner import ChannelAssigner
from headrace.channel.channel import Channel, list_channels, open_channel
from headrace.channel.compression import LEVEL_DEFAULT
from headrace.channel.document import ChannelFiles
from headrace.channel.qos import ChannelOptions
from headrace.channel.subtree import Subtree
from headrace.errors import (
    BlockedError,
    HeadraceError,
    NotAQueueError,
    OptionError,
    PayloadTooLargeError,
    QueueExistsError,
)
from headrace.kernel import _kernel as kernel
from headrace.log import append
from headrace.log.append import Duplicate, Receipt
from headrace.log.attach import alone_at
from headrace.log.check import Finding, Progress
from headrace.log.columns import PutColumns, Texts
from headrace.log.config import (
    CONFIG_FILE,
    FORMAT,
    QueueConfig,
    check_age,
    check_dedup,
    check_durability,
    check_hash,
    check_same_terms,
    check_size,
    default_origin,
)
from headrace.log.cursor import Cursor
from headrace.log.directory import check_path, create_directory
from headrace.log.explain import explain, explain_os_error
from headrace.log.follow import Follower
from headrace.log.in_thread import in_thread, put_in_thread
from headrace.log.log import Log, Wanted
from headrace.log.read import Start
from headrace.log.reading import Reading
from headrace.log.repair import repair_queue
from headrace.log.rights import MODE, Rights, parse_mode
from headrace.log.seams import Clock, Storage, Timeout
from headrace.log.statistics import Statistics, table_of_queue
from headrace.log.weights import Weights
from headrace.payload.compression.packing import ChannelPacker
from headrace.payload.compression.training import SAMPLES_DEFAULT, SIZE_DEFAULT, Training, train
from headrace.payload.fragments.large import bytes_of, may_cut, put_cut
from headrace.product.batch import Batch
from headrace.product.product import PRIORITY_DEFAULT
from headrace.product.put import OtherFacts, PutFacts, check_origin, put_of
from headrace.queue.demand import wanted_by
from headrace.queue.member_stream import LocalSource, MemberStream, check_local_role, wait_for, wait_for_async
from headrace.queue.members import Member, parse_wanted
from headrace.queue.programs import Programs
from headrace.queue.request_files import RequestFiles
from headrace.selection import Selection
from headrace.selection.functions import Function, Functions
from headrace.share.file import ShareFiles
from headrace.share.groups import groups_of, list_shares, open_share
from headrace.share.interface import ShareOptions
from headrace.share.share import MAIN, Share
from headrace.station.gates import StationGates
from headrace.station.leases import is_failure
from headrace.station.opening import open_station
from headrace.station.station import Station
from headrace.station.stations import StationFiles, Stations
from headrace.station.terms import Given, StationOptions
from headrace.timing.clock.state import ClockState, state_of
from headrace.timing.replay.replay import Replay
from headrace.timing.replay.source import CHUNK_BYTES, CHUNK_PRODUCTS, By
from headrace.timing.replay.window import replay_queue
from headrace.units import parse_age, parse_size

_QUICK_BYTES = 1 << 16  # a product up to this size is signed and stored in less time than a thread takes to start
_RESIDENTS = (StationFiles(), ChannelFiles(), ShareFiles(), RequestFiles())


class Queue:
    """A bounded, shared, crash-safe log of products; get one from `Queue.create` or `Queue.open`."""

    def __init__(
        self, path: str | os.PathLike[str], *, functions: Mapping[str, Function] | None = None,
        clock: Clock | None = None, storage: Storage | None = None, read_only: bool = False,
    ) -> None:  # fmt: skip
        named = Functions(functions)
        self._log = Log(Path(path), _RESIDENTS, clock=clock, storage=storage, functions=named, read_only=read_only)
        saved_by = None if self._log.config.durability == "memory" else self._log.storage
        self._stations = Stations(self._log.kernel, self._log.path, saved_by, clock, named)
        self._log.gate = StationGates(self._stations)
        log = weakref.proxy(self._log)  # no cycle: a closed queue is freed at once, with its files
        packer = ChannelPacker(self._log.dictionaries, lambda packs: log.set_packs(packs))
        self._log.packer = packer
        self._assigner = ChannelAssigner(self._log.kernel, self._log.path, named, packer.set_channels)
        self._log.assigner = self._assigner
        self.path = self._log.path

    @property
    def config(self) -> QueueConfig:
        """The current configuration, which another process may have changed by `resize`."""
        return self._log.config

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, size: int | str = "1GiB", age: float | str | timedelta | None = None,
        durability: str = "process", dedup: str = "identity", hash: str = "blake3", origin: str | None = None,
        exist_ok: bool = False, functions: Mapping[str, Function] | None = None, clock: Clock | None = None,
        storage: Storage | None = None, mode: int | str = MODE, group: str | None = None,
    ) -> "Queue":  # fmt: skip
        """Create a queue and open it.

        It holds up to `size` bytes and, with `age`, nothing older than that; the oldest products are evicted first.
        `durability` is `memory`, `process` or `disk` (docs/guarantees.md). `dedup` says which products are duplicates:
        those with equal feed, ident and payload (`identity`; a product without an ident is none), with equal payloads
        (`payload`, as in LDM), or `none`. `hash` computes the signatures: `blake3`, `xxh3` (trusted sources only) or
        `md5`. `origin` is the id of this site. `functions` are those that selections may name, in this process.

        `mode` is that of all its files, now and later, whatever the umask is: 0o640, the owner puts and reads, and its
        group reads. `group` owns the files; by default, that of this process.

        QueueExistsError if there is a queue. With `exist_ok` that one is opened, with the size and age that it has;
        QueueExistsError if its other terms differ.
        """
        config = QueueConfig(
            format=FORMAT,
            uuid=str(uuid.uuid4()),
            size=check_size(parse_size(size)),
            age_s=check_age(None if age is None else parse_age(age)),
            durability=check_durability(durability),
            dedup=check_dedup(dedup),
            hash=check_hash(hash),
            origin=check_origin(default_origin() if origin is None else origin),
        )
        try:
            create_directory(Path(path).absolute(), config, Rights(parse_mode(mode), group))
        except QueueExistsError:
            if not exist_ok or not (Path(path) / CONFIG_FILE).exists():
                raise
            check_same_terms(Path(path), config, ("origin",) if origin is None else ())
        return cls(path, functions=functions, clock=clock, storage=storage)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, functions: Mapping[str, Function] | None = None,
        clock: Clock | None = None, storage: Storage | None = None, read_only: bool = False,
    ) -> "Queue":  # fmt: skip
        """Open an existing queue, and recover what dead processes may have left.

        `functions` are those that selections may name, such as {"strong_wind": strong_wind}, in this process. A process
        that may read the files and not write them opens it for reading only, as `read_only` does: it reads and follows,
        and everything that changes the queue raises QueueAccessError. It is in no list of those who are attached.
        """
        return cls(path, functions=functions, clock=clock, storage=storage, read_only=read_only)

    @property
    def is_read_only(self) -> bool:
        """Whether this process only reads here, by its choice or by the rights of the files."""
        return self._log.is_read_only

    # --- put --------------------------------------------------------------------------------------

    def put(
        self, payload: Any, *, feed: str, ident: str = "", timeout: Timeout = None, slice: int | None = None,
        **facts: Unpack[OtherFacts],
    ) -> int | Duplicate:  # fmt: skip
        """Store one product; its sequence, or the Duplicate of the one that is held.

        After return, readers see the product, and it is as safe as the queue's durability promises. The facts:

            created          when the product was made; by default, now
            priority         0 (can wait) to 7 (most urgent); 4 by default
            expiry           a time, or an age from now such as "10min"; readers skip the product from then on
            properties       a mapping of names to int, float, str or bool
            slice            the slice of the stream that it belongs to
            signature        16 bytes that replace the signature that the queue computes
            origin, origin_sequence, previous    of a product that was created at another site
            options          what Headrace itself reads: `Options(hops=0)` keeps the product at this site

        `timeout` is how long to wait for a blocking station that is full; by default, forever.

        A payload above a quarter of the queue, up to half of it, is stored as fragments (docs/send.md), and the
        sequence is that of their manifest. PayloadTooLargeError beyond that.
        """
        log = self._log
        if log.is_plain and (not facts or len(facts) == 1):
            try:  # the shortest path; if the kernel refuses, `append` finds out why
                outcome = log.kernel.put_plain(payload, feed, ident, facts, slice)
                if outcome:
                    return outcome if outcome > 0 else Duplicate(-outcome)
            except append.REFUSALS:
                pass
        given: PutFacts = facts if slice is None else {**facts, "slice": slice}  # type: ignore[assignment]
        try:
            return append.put(log, payload, feed, ident, put_of(given), timeout)
        except PayloadTooLargeError:
            if not may_cut(bytes_of(payload), log.config, given):
                raise
        return put_cut(self, payload, feed, ident, timeout, given)

    def put_many(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """Store many products as one: readers see all of them or none, even if the process is killed meanwhile.

        Every argument is one value for all, or a column (list, NumPy, Arrow) with one for each payload; the facts are
        those of `put`. Times in columns are nanoseconds since 1970. Duplicates are left out, and the receipt names
        them. `timeout` is as for `put`; a batch is stored as a whole once the blocking station has room.
        """
        log = self._log
        if (
            (not facts or (len(facts) == 1 and "slice" in facts)) and log.is_plain and payloads.__class__ is list
            and feed.__class__ is str and ident.__class__ is str and feed in log.kernel.feeds
        ):  # fmt: skip
            try:  # as in `put`: the shortest path
                slices: Any = facts.get("slice")
                first, stored, outcomes = log.kernel.put_many_plain(payloads, feed, ident, PRIORITY_DEFAULT, slices)
                return Receipt(len(payloads), stored, first, None if outcomes is None else tuple(outcomes))
            except append.REFUSALS:
                pass
        return append.put_many(log, payloads, feed=feed, ident=ident, timeout=timeout, **facts)

    async def put_async(
        self, payload: Any, *, feed: str, ident: str = "", timeout: Timeout = None, **facts: Unpack[PutFacts]
    ) -> int | Duplicate:
        """As `put`, for a program with an event loop, which goes on while the put waits for a blocking station.

        A small product that need not wait is stored at once; anything else happens in a thread. If the task is
        cancelled, the product may be stored within the next second, or not at all.
        """
        put = partial(self.put, payload, feed=feed, ident=ident, **facts)
        if payload.__class__ is bytes and len(payload) <= _QUICK_BYTES and not self._log.is_disk:
            try:
                return put(timeout=0)
            except BlockedError:
                pass
        return await put_in_thread(lambda seconds: put(timeout=seconds), timeout)

    async def put_many_async(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """As `put_many`, in a thread, for a program with an event loop. A cancellation is as for `put_async`."""
        put = partial(self.put_many, payloads, feed=feed, ident=ident, **facts)
        return await put_in_thread(lambda seconds: put(timeout=seconds), timeout)

    def put_batch(self, batch: Batch, keep: Any = None, timeout: Timeout = None) -> Receipt:
        """Store products of another queue or site as they are, as one: with their origin, sequence there and signature.

        `keep` has a true value for each product to store; the receipt covers only those, in their order. A product
        without a signature gets this queue's, and one in a channel with slices a slice of this channel. Products of
        this queue's own origin that come back are stored like others, unless they are duplicates: leave them out by
        `keep`. `timeout` is as for `put`.
        """
        return append.put_batch(self._log, batch, keep, timeout)

    def train_dictionary(
        self, feed: str, *, products: int = SAMPLES_DEFAULT, size: int | str = SIZE_DEFAULT,
        level: int = LEVEL_DEFAULT,
    ) -> Training:  # fmt: skip
        """Train a dictionary with the newest products of a feed, and store it with the queue.

        Name it in the terms of a channel: `channel.change(compress="zstd", dictionary=training.dictionary.name)`. It
        has at most `size` bytes. DictionaryError if the products are too few, or have nothing in common.
        """
        if products < 1:
            raise OptionError(f"products {products} is out of range", "give the number of products to train with")
        subtree = Subtree.of(feed).pattern
        selection, span = Selection(feed=subtree), products
        start = max(self.oldest, self.next - span)
        while start > self.oldest and self._log.count(start, self.next, selection).products < products:
            span *= 2
            start = max(self.oldest, self.next - span)
        payloads = (product.payload for product in self.read(start, selection, limit=products))
        training = train(payloads, subtree, size=parse_size(size), level=level)
        self._log.dictionaries.add(training.dictionary)
        return training

    def flush(self) -> None:
        """Return when everything put so far survives a power failure."""
        self._log.flush()

    # --- read -------------------------------------------------------------------------------------

    def read(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int | None = None, stop: int | None = None
    ) -> Reading:
        """All products from `start` on that match the selection, up to the end of the queue as it is now.

        Iterate it for products, or its `batches()`. It reads as you iterate, so memory stays bounded. `start` is a
        sequence, "oldest", "next", a time (datetime or ISO 8601) or an age ("1h"). `limit` ends it after that many
        products, `stop` before that sequence. If products are evicted before they are read, iterating raises
        ProductsLostError, and a batch has their range in `lost`.
        """
        return self._log.read(start, selection, limit=limit, stop=stop)

    def read_batch(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", stop: int | None = None,
    ) -> Batch:  # fmt: skip
        """One batch: the products from `start` on that match the selection, as many as the limits allow.

        If products were evicted before this read, `batch.lost` is the exact range; `batch.next` is where to read on.
        The product that crosses `bytes_limit` is the last one, so that one product always fits. `start` and `stop` are
        as for `read`.
        """
        return self._log.read_batch(start, selection, limit=limit, bytes_limit=bytes_limit, stop=stop)

    def follow(
        self, start: Start = "next", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: Timeout = None,
    ) -> Follower:  # fmt: skip
        """Batches from `start` on, as they arrive, for `for` and `async for`.

        It sleeps until there are products. Iteration ends after `timeout` without a matching product. From a time in
        the future, it begins with the first product that is inserted then, and the timeout counts from there.
        """
        return self._log.follow(start, selection, limit=limit, bytes_limit=bytes_limit, timeout=timeout)

    def replay(
        self, start: Start = "oldest", stop: Start | None = "next", selection: Wanted = None, *, speed: float | str = 1,
        by: By = "inserted",
    ) -> Replay:  # fmt: skip
        """The products from `start` up to `stop` again, in batches, each when it is due (docs/replay.md).

        Places are as for `read`; the end of the queue as it is now is the default `stop`. With `stop=None`, live
        products follow those of the window, without gap or repetition. `speed` is a factor, "10x", or "max". The
        spacing is that of the times `by` which products were inserted here, or created at their origins. Products that
        have expired since are included. Iterate it by `for` or `async for`; meanwhile, any thread may call its `pause`,
        `resume`, `seek`, `speed`, `progress` and `stop`.
        """
        follow = partial(self._log.follow, limit=CHUNK_PRODUCTS, bytes_limit=CHUNK_BYTES, timeout=0, expired=True)
        wanted = Selection.of(selection)
        holds_memory = wanted.every == 1  # a chunk that is read again would count again
        return replay_queue(
            self._log.resolve, follow, start, stop, wanted, speed=speed, by=by, holds_memory=holds_memory
        )

    def weigh(self, start: int, stop: int, selection: Wanted = None, limit: int | None = None) -> Weights:
        """How the bytes of the products from `start` up to `stop` are distributed, to divide them among workers.

        With a `limit`, the range ends after so many products.
        """
        return self._log.weigh(start, stop, selection, limit)

    def resolve(self, start: Start) -> int:
        """The sequence that `start` means now."""
        return self._log.resolve(start)

    @property
    def oldest(self) -> int:
        """The oldest sequence held."""
        return self._log.oldest

    @property
    def next(self) -> int:
        """The sequence that the next product will have."""
        return self._log.next

    @property
    def origins(self) -> list[str]:
        """The sites whose products the queue has stored, its own included."""
        return self._log.origins

    # --- cursors, stations, channels --------------------------------------------------------------

    def cursor(self, name: str, start: Start = "oldest") -> Cursor:
        """The durable position called `name`; a new one starts at `start`."""
        return self._log.cursor(name, start)

    def cursors(self) -> list[str]:
        """The names of all cursors."""
        return self._log.cursors()

    def station(
        self, name: str, selection: Given = ..., *, start: Start = "next", create: bool = True,
        **terms: Unpack[StationOptions],
    ) -> Station:  # fmt: skip
        """The station called `name`: a selection and a position that consumers share.

        A station that exists is opened; StationExistsError if it has other terms than those given. Otherwise it is
        created on the terms given, and begins at `start`; without a selection it receives everything. With
        `create=False` it must exist. docs/stations.md explains the terms: blocking, capacity, prescale, order,
        discard, restore, deliveries_max, hung_after, durable, after, group, distribution, timeout, start_time,
        stop_time, batch_max, pacing, consumers_max, max_queue.
        """
        self._log.check_writable()
        given = {"selection": selection, **terms}
        return open_station(self._log, self._stations, name, given, start=start, create=create)

    def stations(self) -> list[str]:
        """The names of all stations."""
        self._log.check_open()
        return sorted(terms.name for terms in self._stations.document.stations)

    def channel(self, name: str, feed: str | None = None, **terms: Unpack[ChannelOptions]) -> Channel:
        """The channel called `name`: a feed subtree with terms that its stations inherit (docs/channels.md)."""
        self._log.check_writable()
        return open_channel(self._log, self._stations, partial(groups_of, self._log), name, feed, **terms)

    def channels(self) -> list[str]:
        """The names of all channels."""
        self._log.check_open()
        return list_channels(self.path)

    def share(self, stream: str, group: str = MAIN, *, create: bool = True, **terms: Unpack[ShareOptions]) -> Share:
        """A group of processing nodes that share the slices of a channel (docs/slices.md).

        A group that exists is opened; ShareExistsError if it has other terms than those given. Otherwise it is made,
        unless `create` is off, and begins at `start`, the oldest product. Programs use it through
        `headrace.slices.ProcessingNode`.
        """
        self._log.check_writable()
        return open_share(self._log, stream, group, create=create, **terms)

    def shares(self) -> list[tuple[str, str]]:
        """All groups of processing nodes, as channel and name."""
        self._log.check_open()
        return list_shares(self._log)

    # --- change -----------------------------------------------------------------------------------

    def delete(self, selection: Selection | str) -> int:
        """Mark every held product that matches the selection as deleted; how many there were.

        Readers skip them from now on, and an equal product can be put again. Their space is reclaimed with the
        segment.
        """
        return self._log.delete(selection)

    def resize(self, *, size: int | str | None = None, age: float | str | timedelta | None = None) -> None:
        """Change the limits; what no longer fits is evicted at once, the oldest first. `age=0` removes that limit."""
        self._log.resize(size=size, age=age)

    # --- inspect and repair -----------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """State and counters of the queue at this moment."""
        return self._log.statistics()

    @property
    def is_alive(self) -> bool:
        """Whether the queue can be used: it is open, and where it was opened. At another site: the site replies."""
        with suppress(HeadraceError):
            self._log.check_open()
            return True
        return False

    def wait_alive(self, timeout: Timeout = None) -> bool:
        """For a queue at another site: wait for its return. Here it is `is_alive`; waiting would not help."""
        return self.is_alive

    # --- members ----------------------------------------------------------------------------------

    def members(self, role: str | None = None, *, timeout: Timeout = None) -> MemberStream:
        """Suppliers and consumers of this queue, as events: who is there, then who joins and leaves, and why.

        With a `role`, only those. Iterate it by `for` or `async for`; iteration ends after `timeout` without an event.
        A queue that is opened by its directory does not know sites and clients: connect to its site for them.
        """
        check_local_role(role)
        self._log.check_open()
        source = LocalSource(self._log, Programs(self.path, self._stations))
        return MemberStream(source, role, None if timeout is None else parse_age(timeout, "timeout"))

    def wait_for(self, member: str, timeout: Timeout = None) -> Member:
        """Wait until there is such a member, `supplier:CHANNEL` or `consumer:STATION`, with `*` for any name.

        MemberAbsentError, which is a TimeoutError, if there is none within `timeout`.
        """
        wanted = parse_wanted(member)
        return wait_for(self.members(wanted.role), wanted, None if timeout is None else parse_age(timeout, "timeout"))

    async def wait_for_async(self, member: str, timeout: Timeout = None) -> Member:
        """As `wait_for`, for a program with an event loop."""
        wanted = parse_wanted(member)
        seconds = None if timeout is None else parse_age(timeout, "timeout")
        return await wait_for_async(self.members(wanted.role), wanted, seconds)

    # --- demand -----------------------------------------------------------------------------------

    def wanted(self, feed: str) -> bool:
        """Whether products of this feed have readers. False only if a site runs here and there are none anywhere.

        For programs whose products are expensive to make. It takes about as long as a put; call it now and then, not
        for each product.
        """
        return bool(self.wanted_by(feed))

    def wanted_by(self, feed: str) -> list[str]:
        """What wants products of this feed, in words: subscribers elsewhere, stations, reading processes, cursors."""
        self._log.check_open()
        now_ns = self._log.now_ns()
        return wanted_by(self.path, self._log, self._stations.document, feed, now_ns)

    def clock(self) -> ClockState:
        """How right the time of this queue is: its source, its offset and its bound, and what each server says."""
        return state_of(self.path, self._log.read_clock())

    def check(self, progress: Progress | None = None) -> list[Finding]:
        """Walk all files and list every inconsistency. May run while others write."""
        return self._log.check(progress)

    @classmethod
    def repair(cls, path: str | os.PathLike[str]) -> list[str]:
        """Repair a damaged queue that no process has open, keeping every intact product; what was done, in words."""
        try:
            return repair_queue(Path(path).absolute(), _RESIDENTS)
        except OSError as error:
            raise explain_os_error(error, Path(path)) from error
        except kernel.KernelError as error:
            raise explain(error, Path(path)) from None

    @classmethod
    def remove(cls, path: str | os.PathLike[str]) -> None:
        """Delete a queue that no process has open, with everything in it."""
        import shutil  # loads four compressors, and only this needs it

        directory = Path(path).absolute()
        check_path(directory)
        if not (directory / CONFIG_FILE).is_file():
            raise NotAQueueError(f"{directory} has no {CONFIG_FILE}: it is not a queue", "remove it by other means")
        with alone_at(directory):
            shutil.rmtree(directory)

    # --- close ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and detach; a failed flush is raised after detaching. Batches and views taken before stay valid.

        Consumers are detached, and the products they hold go back.
        """
        self._close(failed=False)

    def _close(self, failed: bool) -> None:
        try:
            self._stations.detach_all(failed)
        finally:
            self._log.close()

    async def __aenter__(self) -> "Queue":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(lambda: self._close(failed=is_failure(error)), "close")

    def __enter__(self) -> "Queue":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(failed=is_failure(error))

    def __repr__(self) -> str:
        return f"<Queue {self.path} {self._log.extent}>"

    def _repr_html_(self) -> str:
        from headrace.notebook import shown  # notebook.py says why it is imported here

        return shown(f"Queue {self.path}", lambda: table_of_queue(self.path, self.statistics(), self.config))


def stations_of(queue: Queue) -> Stations:
    """The stations behind a queue, as `log_of`."""
    return queue._stations


def named_functions(queue: Queue) -> list[tuple[str, str]]:
    """The stations whose selections name a function, and that name."""
    chosen = [(terms.name, Selection.parse(terms.selection).function) for terms in queue._stations.document.stations]
    return [(station, name) for station, name in chosen if isinstance(name, str)]


def assigning_functions(queue: Queue) -> list[tuple[str, str]]:
    """The channels whose slices a function assigns, and its name."""
    return queue._assigner.functions()


def log_of(queue: Queue) -> Log:
    """The log behind a queue, for the parts of Headrace that need more than users do: relay, remote and pipeline."""
    return queue._log
