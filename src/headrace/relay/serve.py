"""The log path, serving side: replies to what other sites query of this site's log.

    Server   takes queries from Zenoh and replies, with a few threads
    Pager    reads the log for one `Read` query, page by page

Queries arrive on a thread of Zenoh's, which must not wait. They wait for a thread of our own, where principals are
served in turn (link/fair.py): one query of each, and of a query for pages, one page. So a principal that asks without
pause, or reads a whole log, makes the others wait for no more than a page. A query that finds too many of its own
waiting is refused as busy, and the client retries.

A page covers a range of the log whether or not it has products for the client. Its head says what was left out of that
range (examine.py). Nothing says anything about feeds that the client may not receive: not whether they exist, nor how
many products they have, nor from where these came. What is asked for in vain gets the reply of what does not exist.
Sequences belong to the whole log, so a client sees that the log grows.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import zenoh

from headrace.errors import FabricError, HeadraceError, OptionError, SelectionError
from headrace.guard import FAILURES, guarded
from headrace.link.access import principal_in
from headrace.link.declarations import Declarations
from headrace.link.fair import Busy, FairThreads
from headrace.link.keys import AT_SOCKET, log_key
from headrace.link.rights import Feeds, Rule, rights_of
from headrace.payload.compression.link import ENCODING, is_asked, shrunk
from headrace.product.batch import Lost
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.audience import Audience
from headrace.relay.dictionaries import give_dictionary
from headrace.relay.examine import Examined, Examiner, TooLarge
from headrace.relay.holdings import Held, Origins, held_of
from headrace.relay.inventory import list_held, locate
from headrace.relay.messages.beat import INTERVAL_S
from headrace.relay.messages.description import Description, visible_to
from headrace.relay.messages.inventory import InventoryReply
from headrace.relay.messages.page import VERSION, Pack, PageHead, encode_head, queue_id, records_of, sequence_bytes
from headrace.relay.messages.query import (
    PATTERNS_MAX,
    Describe,
    DictionaryReply,
    GetDictionary,
    Identify,
    IdentifyReply,
    Inventory,
    Listen,
    ListenReply,
    Locate,
    LocateReply,
    Measure,
    MeasureReply,
    Query,
    Read,
    Resolve,
    ResolveReply,
    Trace,
    TraceReply,
    decode_query,
    encode,
    selection_in,
)
from headrace.relay.messages.source import Source
from headrace.relay.plain import Plain
from headrace.relay.site_client import round_trips
from headrace.relay.stream import stream_name
from headrace.selection import Selection

log = logging.getLogger("headrace.fabric")

_THREADS = 4  # of which one principal has three at most
_MEASURES = 2  # threads that measure round trips, which takes seconds

OpenStream = Callable[[Selection, bool, Audience], str]
Narrow = Callable[[int, int], tuple[int, int]]
FindSources = Callable[[int, int], tuple[tuple[Source, ...], tuple[int, int]]]
MakeDescription = Callable[["Server", Feeds], Description]
ShortQuery = Identify | Resolve | Inventory | Locate | Trace | Listen | GetDictionary | Describe | Measure
ShortReply = (
    IdentifyReply | ResolveReply | InventoryReply | LocateReply | TraceReply | ListenReply | DictionaryReply
    | MeasureReply | Description
)  # fmt: skip


@dataclass(slots=True)
class _Asked:
    """A query, and what is left of it. `who` takes a turn: a principal; empty: all without a name share one."""

    received: zenoh.Query
    key: str
    who: str
    query: Query | None = None  # decoded, for threads of its own
    pages: Iterator[tuple[bytes, bytes]] | None = None  # that are not sent yet


class Server:
    """Replies until `close`. `listen` returns the stream of a selection, `describe` describes the whole site."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, queue: Queue, site: str, listen: OpenStream,
        describe: MakeDescription, rules: Sequence[Rule] = (), *, started_ns: int = 0, beat_s: float = INTERVAL_S,
        too_large: TooLarge | None = None, narrow: Narrow | None = None, find_sources: FindSources | None = None,
        pack: Pack = records_of,
    ) -> None:  # fmt: skip
        """`started_ns` and `beat_s` are those of the site's streams.

        `narrow` leaves out of a range, at both ends, what came from other sites; `find_sources` says from which.
        """
        self._session, self._queue, self._site, self._listen = session, queue, site, listen
        self._describe, self._rules, self._too_large, self._narrow = describe, rules, too_large, narrow
        self._find_sources, self._origins, self._pack = find_sources, Origins(queue), pack
        keys = (f"{log_key(site)}/**", f"{log_key(site)}/{AT_SOCKET}/*")
        self.started_ns, self._beat_s = started_ns or log_of(queue).now_ns(), beat_s
        self.answered = self.refused = 0
        self._threads = FairThreads(_THREADS, "headrace-log")
        self._measuring = FairThreads(_MEASURES, "headrace-measure")
        self._queryables = [declarations.add(partial(self._declare, key)) for key in keys]

    def _declare(self, key: str) -> Any:
        return self._session.declare_queryable(key, guarded(self._take), complete=True)

    def _take(self, query: zenoh.Query) -> None:
        """Runs on Zenoh's thread."""
        key = str(query.key_expr)
        who = principal_in(key, self._rules) or ""
        try:
            self._threads.check_room(who)
            self._threads.submit(who, self._reply, _Asked(query, key, who))
        except Busy:
            self._refuse(query, b"busy")
            query.drop()  # type: ignore[no-untyped-call]

    def _reply(self, asked: "_Asked") -> None:
        """One turn: a reply, or one page."""
        is_over = True
        try:
            is_over = self._turn(asked)
            self.answered += is_over
        except Busy:
            self._refuse(asked.received, b"busy")
        except zenoh.ZError:  # the client has gone
            self.refused += 1
        except (FabricError, OptionError, SelectionError) as error:  # about the query
            self._refuse(asked.received, str(error).encode(errors="replace"))
        except (HeadraceError, OSError) as error:  # about this site's files
            log.error("a query failed: %s", error)
            self._refuse(asked.received, b"the site failed; read its log")
        except Exception as error:  # noqa: BLE001 whatever it is, the next query must be served
            FAILURES.note(threading.current_thread().name, error)
            self._refuse(asked.received, b"the site failed; read its log")
        finally:
            if is_over:
                asked.received.drop()  # type: ignore[no-untyped-call]

    def _turn(self, asked: "_Asked") -> bool:
        """Whether that was the last one; otherwise another thread may have the next one already."""
        received, key = asked.received, asked.key
        if asked.pages is not None:
            page = next(asked.pages, None)
            if page is None:
                return True
            _send_page(received, key, *page, compresses=is_asked(received.parameters))
            self._threads.submit(asked.who, self._reply, asked)
            return False
        query = asked.query or decode_query(received.payload.to_bytes() if received.payload else b"")
        if isinstance(query, Measure) and asked.query is None:
            asked.query = query
            self._measuring.check_room(asked.who)
            self._measuring.submit(asked.who, self._reply, asked)
            return False
        audience = self._audience(key)
        if isinstance(query, Read):
            narrow = self._narrow if audience.hears_all else None
            pager = Pager(self._queue, self._site, audience.feeds, self._too_large, narrow, self._pack)
            asked.pages = pager.pages(query)
            return self._turn(asked)
        received.reply(key, encode(self._short_reply(query, audience, is_asked(received.parameters))))
        return True

    def _refuse(self, query: zenoh.Query, why: bytes) -> None:
        self.refused += 1
        with suppress(zenoh.ZError):  # the client has gone
            query.reply_err(why)

    def _audience(self, key: str) -> Audience:
        """Who asks; without rules everybody may receive everything, and no name is vouched for."""
        if not self._rules:
            return Audience()
        name = principal_in(key, self._rules)
        return Audience(name, rights_of(self._rules, name).receive)

    def _short_reply(self, query: ShortQuery, audience: Audience, compresses: bool = False) -> ShortReply:
        feeds = audience.feeds
        if isinstance(query, Resolve):
            return ResolveReply(self._queue.resolve(query.start))
        if isinstance(query, Inventory):
            return list_held(self._queue, query, feeds)
        if isinstance(query, Locate):
            return locate(self._queue, query, feeds)
        if isinstance(query, Trace):
            return self._trace(query, audience)
        if isinstance(query, Listen):
            return ListenReply(self._listen(selection_in(query), compresses, audience))
        if isinstance(query, GetDictionary):
            return DictionaryReply(give_dictionary(self._queue, query.number, feeds))
        if isinstance(query, Describe):
            return self._description(audience)
        if isinstance(query, Measure):
            return MeasureReply(round_trips(self._session, query.site, query.times))
        return self._identity(audience)

    def _trace(self, query: Trace, audience: Audience) -> TraceReply:
        """From where a range came. Of evicted products no feed is known, so it is for those who may know everything."""
        if self._find_sources is None or not audience.hears_all:
            return TraceReply(queue_id(self._queue), (), query.first, query.last)
        sources, rest = self._find_sources(query.first, query.last)
        return TraceReply(queue_id(self._queue), sources, *rest)

    def _description(self, audience: Audience) -> Description:
        whole = self._describe(self, audience.feeds)
        if audience.hears_all:
            return whole
        return visible_to(whole, audience.feeds, held_of(self._queue, audience.feeds), audience.stream(""))

    def _identity(self, audience: Audience) -> IdentifyReply:
        feeds, statistics = audience.feeds, self._queue.statistics()
        if audience.hears_all:
            held = Held(statistics.held_products, statistics.held_bytes)
            known, origins = len(statistics.feeds), tuple(self._queue.origins)
        else:
            held, origins = held_of(self._queue, feeds), self._origins.of(feeds)
            known = sum(each.feed in feeds for each in statistics.feeds)
        return IdentifyReply(
            self._site, queue_id(self._queue), self._queue.oldest, self._queue.next, self.started_ns, *held, known,
            origins, str(self._session.zid()), round(1000 * self._beat_s), feeds.allowed[:PATTERNS_MAX],
            audience.hears_all,
        )  # fmt: skip

    def close(self) -> None:
        for each in self._queryables:
            each.undeclare()
        self._threads.shutdown(cancel=True)
        self._measuring.shutdown(cancel=True)


def _send_page(received: zenoh.Query, key: str, head: bytes, records: bytes, *, compresses: bool) -> None:
    small = shrunk(records) if compresses else None
    if small is None:
        received.reply(key, records, attachment=head)
    else:
        received.reply(key, small, attachment=head, encoding=ENCODING)


class Pager:
    """Serves one `Read` query; `allowed` are the feeds that the client may receive."""

    def __init__(
        self, queue: Queue, site: str, allowed: Feeds, too_large: TooLarge | None = None,
        narrow: Narrow | None = None, pack: Pack = records_of,
    ) -> None:  # fmt: skip
        self._queue, self._site, self._too_large, self._narrow = queue, site, too_large, narrow
        self._allowed = allowed.test
        self._plain = None if allowed.is_all else Plain(queue, allowed, pack)
        self._pack = pack if self._plain is None else self._plain.records

    def pages(self, query: Read) -> Iterator[tuple[bytes, bytes]]:
        """Yield head and records of each page, up to the end of the log or the number that was asked for."""
        selection = selection_in(query)
        examiner = Examiner(
            self._queue, selection, query.after + 1, products=query.products, payload_bytes=query.payload_bytes,
            allowed=self._allowed, too_large=self._too_large, record_bytes=query.record_bytes,
            plain=self._plain,
        )  # fmt: skip
        stream = stream_name(selection)
        is_own = selection.given().get("origin") == Selection(origin=self._site).origin
        for _ in range(query.pages):
            if examiner.position >= self._queue.next:
                yield self._page(stream, Examined(examiner.position - 1, examiner.position - 1))
                return
            examined = examiner.next()
            page = self._page(stream, self._narrowed(examined) if is_own else examined)
            del examined  # while others have their turn, nothing of the queue is held
            yield page
            if examiner.position >= self._queue.next:
                return

    def _narrowed(self, examined: Examined) -> Examined:
        """Of the products that were put here: an evicted range that came from other sites had none of them."""
        if examined.lost is None or examined.lost_by != "evicted" or self._narrow is None:
            return examined
        first, last = self._narrow(examined.lost.first, examined.lost.last)
        return msgspec.structs.replace(examined, lost=Lost(first, last) if first <= last else None)

    def _page(self, stream: str, examined: Examined) -> tuple[bytes, bytes]:
        records, sequences, lost = b"", b"", examined.lost
        if examined.batch is not None and len(examined):
            records = self._pack(examined.batch, examined.rows)
            chosen = examined.batch.sequences
            sequences = sequence_bytes(chosen if examined.rows is None else chosen[examined.rows])
        head = PageHead(
            VERSION, self._site, queue_id(self._queue), stream, examined.after, examined.upto, self._queue.next,
            len(examined), log_of(self._queue).now_ns(), lost.first if lost else 0, lost.last if lost else 0,
            sequences, examined.lost_by, dict(examined.left_out),
        )  # fmt: skip
        return encode_head(head), records
