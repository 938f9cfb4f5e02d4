"""RemoteQueue: the queue of a site; get one from `headrace.connect`.

It implements `AnyQueue` (queue/interface.py) by calls to the site, with the same arguments, results and errors as a
local queue; `Queue` explains each method. Operations that need the files (resize, check, delete) raise
QueueError. docs/remote.md lists the other differences.
"""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Unpack

from headrace.channel.qos import ChannelOptions
from headrace.errors import ChannelNameError, OptionError
from headrace.kernel import _kernel as kernel
from headrace.log import records
from headrace.log.append import Duplicate, Receipt
from headrace.log.columns import PutColumns, Texts, payload_column
from headrace.log.config import QueueConfig
from headrace.log.cursor import check_cursor_name, check_name
from headrace.log.in_thread import in_thread, put_in_thread
from headrace.log.log import Wanted
from headrace.log.read import Read, Start
from headrace.log.reading import Reading
from headrace.log.seams import Timeout
from headrace.log.statistics import Statistics
from headrace.log.weights import Weights
from headrace.payload.fragments.large import bytes_of, may_cut, put_cut
from headrace.product.batch import Batch
from headrace.product.feed import check_feed
from headrace.product.put import PutFacts
from headrace.queue.interface import needs_files
from headrace.queue.member_stream import MemberStream, wait_for, wait_for_async
from headrace.queue.members import Member, parse_wanted
from headrace.relay.messages.page import records_of
from headrace.remote.client.arguments import (
    checked_selection,
    plain_options,
    selection_text,
    start_text,
    timeout_of,
)
from headrace.remote.client.channel import RemoteChannel
from headrace.remote.client.connection import Connection
from headrace.remote.client.cursor import RemoteCursor
from headrace.remote.client.follower import ReadTerms, RemoteFollower, follow_from, read_all
from headrace.remote.client.members import RemoteSource
from headrace.remote.client.puts import Put, Puts, many_put, one_put, receipt_of
from headrace.remote.client.share import RemoteShare
from headrace.remote.client.station import RemoteStation, options_of
from headrace.remote.client.waiting import AWAITING, BLOCKING, Wait, finish
from headrace.remote.protocol.calls import (
    Flush,
    GetBounds,
    GetStatistics,
    Identify,
    ListNames,
    ListStations,
    OpenCursor,
    OpenStation,
    PutBatch,
    Resolve,
    WantedBy,
    Weigh,
)
from headrace.remote.protocol.channel_calls import ListChannels, OpenChannel
from headrace.remote.protocol.products import batch_of
from headrace.remote.protocol.replies import (
    Bounds,
    Details,
    Done,
    Identity,
    NameList,
    Number,
    PutOutcome,
    Weighed,
)
from headrace.remote.protocol.share_calls import ListShares, OpenShare
from headrace.remote.protocol.share_replies import ShareOpened
from headrace.selection import Selection
from headrace.selection.values import slices_of, slices_text
from headrace.share.interface import ShareOptions
from headrace.share.share import MAIN
from headrace.station.leases import is_failure
from headrace.station.terms import Given, StationOptions, check_station_name
from headrace.timing.replay.replay import Replay
from headrace.timing.replay.source import CHUNK_BYTES, CHUNK_PRODUCTS, By
from headrace.timing.replay.window import replay_queue

_ALIVE_S = 1.0  # in which a site that is alive replies


class RemoteQueue:
    """A queue at a site. `path` is the endpoint that it was connected to."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._puts = Puts(connection)
        self.path = Path(connection.endpoint)

    @property
    def config(self) -> QueueConfig:
        """The terms in force at the site."""
        return self._connection.ask(Identify(), Identity)[0].config

    @property
    def site(self) -> str:
        """The name of the site."""
        return self._connection.site

    # --- put --------------------------------------------------------------------------------------

    def put(
        self, payload: Any, *, feed: str, ident: str = "", timeout: Timeout = None, **facts: Unpack[PutFacts]
    ) -> int | Duplicate:
        """Store one product. If the reply is lost, the call is repeated; the product is stored once."""
        if self._is_cut(payload, facts):
            return put_cut(self, payload, feed, ident, timeout, facts)
        return finish(self._put(BLOCKING, payload, feed, ident, timeout, facts))

    def put_many(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """Store many products in one call: all or none."""
        return finish(self._put_many(BLOCKING, payloads, feed, ident, timeout, facts))

    async def put_async(
        self, payload: Any, *, feed: str, ident: str = "", timeout: Timeout = None, **facts: Unpack[PutFacts]
    ) -> int | Duplicate:
        """As `put`: the event loop goes on while the call is under way. No thread waits for it.

        If the task is cancelled, the product may be stored within the next seconds, or not at all.
        """
        if self._is_cut(payload, facts):
            return await put_in_thread(lambda s: put_cut(self, payload, feed, ident, s, facts), timeout)
        return await self._put(AWAITING, payload, feed, ident, timeout, facts)

    def _is_cut(self, payload: Any, facts: PutFacts) -> bool:
        """Whether the payload is too large for one product of the queue, and becomes fragments."""
        config, size = self._connection.config, bytes_of(payload)
        return size > config.payload_bytes_max and may_cut(size, config, facts)

    async def put_many_async(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """As `put_many`. A cancellation is as for `put_async`."""
        return await self._put_many(AWAITING, payloads, feed, ident, timeout, facts)

    async def _put(
        self, wait: Wait, payload: Any, feed: str, ident: str, timeout: Timeout, facts: PutFacts
    ) -> int | Duplicate:
        put = one_put(self.path, payload, feed, ident, facts, self._connection.dedup)
        return await self._puts.put_by(wait, put, timeout)

    async def _put_many(
        self, wait: Wait, payloads: Any, feed: Texts, ident: Texts, timeout: Timeout, facts: PutColumns
    ) -> Receipt:
        held = payloads if type(payloads) is list else payload_column(payloads)
        put = many_put(self.path, held, feed, ident, facts, self._connection.dedup)
        return await self._puts.put_by(wait, put, timeout)

    def put_batch(self, batch: Batch, keep: Any = None, timeout: Timeout = None) -> Receipt:
        """Store products of any queue as they are, in one call: all or none."""
        records.rows_of(batch)
        mask = records.mask_of(keep, len(batch))
        needed = kernel.needed_dictionaries(records.rows_of(batch))
        if needed:
            self._connection.dictionaries.give(needed, records.rows_of(batch).dictionaries)
        call = PutBatch(None if mask is None else mask.tobytes())
        try:
            payload = records_of(batch)
        except kernel.KernelError as error:
            raise records.explain_records(error, self.path, batch, self.config) from None
        return self._puts.put(Put(call, payload, PutOutcome, receipt_of), timeout)

    def flush(self) -> None:
        self._connection.ask(Flush(), Done)

    # --- read -------------------------------------------------------------------------------------

    def read(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int | None = None, stop: int | None = None
    ) -> Reading:
        """All products from `start` on, up to the end of the queue as it is now."""
        wanted = checked_selection(selection)
        first, end = self.resolve(start), self.next if stop is None else min(stop, self.next)
        return Reading(partial(self._reader, wanted), lambda: self.oldest, first, end, limit)

    def _reader(self, selection: Selection, limit: int, bytes_limit: int | str) -> Read:
        """One call for each batch; the site keeps the count of `every` between them."""
        terms = ReadTerms.of(selection, limit, bytes_limit)
        number = self._connection.new_follower() if terms.counts else 0

        def read(position: int, stop: int | None = None, most: int | None = None) -> Batch:
            wanted = replace(terms, stop=stop or 0, limit=limit if most is None else min(limit, most))
            reply, records = wanted.read(self._connection, position, number)
            return batch_of(reply, records, self._connection.names)

        return read

    def read_batch(
        self, start: Start = "oldest", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", stop: int | None = None,
    ) -> Batch:  # fmt: skip
        """One batch from `start` on; payloads are views of the messages that brought them."""
        terms = ReadTerms.of(selection, limit, bytes_limit, stop or 0)
        return read_all(self._connection, terms, start_text(start))

    def follow(
        self, start: Start = "next", selection: Wanted = None, *, limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: Timeout = None,
    ) -> RemoteFollower:  # fmt: skip
        """Batches from `start` on, as they arrive. Nothing is lost or arrives twice if the connection breaks."""
        terms = ReadTerms.of(selection, limit, bytes_limit)
        return follow_from(self, self._connection, start, terms, timeout_of(timeout), time.monotonic())

    def replay(
        self, start: Start = "oldest", stop: Start | None = "next", selection: Wanted = None, *, speed: float | str = 1,
        by: By = "inserted",
    ) -> Replay:  # fmt: skip
        """A window again, as `Queue.replay`. If the connection breaks, nothing is lost, and nothing comes twice."""

        def follow(position: int, wanted: Selection) -> RemoteFollower:
            terms = replace(ReadTerms.of(wanted, CHUNK_PRODUCTS, CHUNK_BYTES), expired=True)
            return RemoteFollower(self, self._connection, terms, position, 0.0)

        wanted = checked_selection(selection)
        return replay_queue(self.resolve, follow, start, stop, wanted, speed=speed, by=by, holds_memory=False)

    def resolve(self, start: Start) -> int:
        return self._connection.ask(Resolve(start_text(start)), Number)[0].value

    def weigh(self, start: int, stop: int, selection: Wanted = None, limit: int | None = None) -> Weights:
        call = Weigh(selection_text(selection), start, stop, limit or 0)
        return self._connection.ask(call, Weighed)[0].weights

    @property
    def oldest(self) -> int:
        return self._connection.ask(GetBounds(), Bounds)[0].oldest

    @property
    def next(self) -> int:
        return self._connection.ask(GetBounds(), Bounds)[0].next

    @property
    def origins(self) -> list[str]:
        return self._connection.ask(ListNames("origins"), NameList)[0].values

    # --- cursors and stations ---------------------------------------------------------------------

    def cursor(self, name: str, start: Start = "oldest") -> RemoteCursor:
        check_cursor_name(name)
        self._connection.ask(OpenCursor(name, start_text(start)), Done)
        return RemoteCursor(self, self._connection, name)

    def cursors(self) -> list[str]:
        return self._connection.ask(ListNames("cursors"), NameList)[0].values

    def station(
        self, name: str, selection: Given = ..., *, start: Start = "next", create: bool = True,
        **terms: Unpack[StationOptions],
    ) -> RemoteStation:  # fmt: skip
        """Open or create a station; SelectionError for a selection with a Python function."""
        check_station_name(name)
        call = OpenStation(name, start_text(start), options_of({"selection": selection, **terms}), create)
        self._connection.once(call, Done)
        return RemoteStation(self, self._connection, name)

    def stations(self) -> list[str]:
        return self._connection.ask(ListStations(), NameList)[0].values

    # --- channels ---------------------------------------------------------------------------------

    def channel(self, name: str, feed: str | None = None, **terms: Unpack[ChannelOptions]) -> RemoteChannel:
        """Open or create a channel at the site, as `Queue.channel` does."""
        check_name(name, "channel", ChannelNameError)
        self._connection.once(OpenChannel(name, feed, plain_options(terms)), Done)
        return RemoteChannel(self, self._connection, name)

    def channels(self) -> list[str]:
        return self._connection.ask(ListChannels(), NameList)[0].values

    # --- groups of nodes --------------------------------------------------------------------------

    def share(
        self, stream: str, group: str = MAIN, *, create: bool = True, **terms: Unpack[ShareOptions]
    ) -> RemoteShare:
        """Open or create a group of processing nodes at the site, as `Queue.share` does."""
        check_name(group, "group", OptionError)
        given: dict[str, Any] = {**terms}
        start = start_text(given.pop("start", "oldest"))
        if not isinstance(given.get("only"), str | None):
            given["only"] = slices_text(slices_of(given["only"]))
        call = OpenShare(stream, group, start, plain_options(given), create)
        return RemoteShare(self, self._connection, self._connection.once(call, ShareOpened)[0])

    def shares(self) -> list[tuple[str, str]]:
        """All groups of processing nodes that this client may use, as channel and name."""
        listed = self._connection.ask(ListShares(), NameList)[0].values
        return [(stream, group) for stream, _, group in (each.partition("/") for each in listed)]

    # --- inspect ----------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        told = self._connection.ask(GetStatistics(), Details)[0].statistics
        assert told is not None
        return told

    def wanted(self, feed: str) -> bool:
        """Whether products of this feed have a reader, here or elsewhere; True while that is unknown."""
        return bool(self.wanted_by(feed))

    def wanted_by(self, feed: str) -> list[str]:
        return self._connection.ask(WantedBy(check_feed(feed)), NameList)[0].values

    # --- members ----------------------------------------------------------------------------------

    def members(self, role: str | None = None, *, timeout: Timeout = None) -> MemberStream:
        """The sites of the fabric, and the clients, suppliers and consumers of this one, as events (`Queue.members`).

        They are as this site sees them. What its access rules do not let this client know is left out.
        """
        return MemberStream(RemoteSource(self, self._connection), role, timeout_of(timeout))

    def wait_for(self, member: str, timeout: Timeout = None) -> Member:
        """Wait for a site or a program: `site:denver`, `client:USER`, `supplier:CHANNEL`, `consumer:STATION`.

        A name may be `*`. MemberAbsentError, which is a TimeoutError, if there is none within `timeout`;
        SiteUnreachableError if the site that we are connected to does not reply.
        """
        wanted = parse_wanted(member)
        return wait_for(self.members(wanted.role), wanted, timeout_of(timeout))

    async def wait_for_async(self, member: str, timeout: Timeout = None) -> Member:
        """As `wait_for`, for a program with an event loop."""
        wanted = parse_wanted(member)
        return await wait_for_async(self.members(wanted.role), wanted, timeout_of(timeout))

    # --- needs the files --------------------------------------------------------------------------

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        """QueueError: this needs the files of the queue."""
        self._connection.check_open()
        raise needs_files(str(self.path))

    delete = resize = check = _refuse

    # --- the site ---------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether the site replies, within a second."""
        return self._connection.attempt(Identify(), Identity, limit_s=_ALIVE_S) is not None

    def wait_alive(self, timeout: Timeout = None) -> bool:
        """Wait until the site replies; False if it does not within `timeout`. None waits without limit."""
        seconds = timeout_of(timeout)
        until = None if seconds is None else time.monotonic() + seconds
        turn = 0
        while True:
            left_s = _ALIVE_S if until is None else min(_ALIVE_S, until - time.monotonic())
            if self._connection.attempt(Identify(), Identity, limit_s=left_s) is not None:
                return True
            if until is not None and time.monotonic() >= until:
                return False
            self._connection.pause(turn, until)
            turn += 1

    # --- life -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Disconnect; consumers are detached, and the products they hold go back."""
        self._connection.close()

    async def __aenter__(self) -> "RemoteQueue":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(lambda: self._connection.close(failed=is_failure(error)), "close")

    def __enter__(self) -> "RemoteQueue":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close(failed=is_failure(error))

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close(politely=False)  # no consumer is attached: it would hold a reference

    def _repr_html_(self) -> str:
        """Without a call: a look must not wait for a site that does not reply."""
        from headrace.notebook import facts_table  # notebook.py says why it is imported here

        state = "closed" if self._connection.is_closed else "open"
        return facts_table("Queue of a site", [("site", self.site), ("endpoint", self.path), ("state", state)])

    def __repr__(self) -> str:
        return f"<RemoteQueue of site {self.site!r} at {self.path}{', closed' if self._connection.is_closed else ''}>"
