"""Problems: what an operator should look at, as plain data. One list for the log, `headrace sites` and --check.

    site_problems   of one running site, from its own parts: it is in the site's description
    map_problems    of a whole map: those of every site, and what only the map shows

A problem either lasts (a link that is down, a request without a site), or it has happened (a product was lost): then
its age says when. Kinds:

    link          an endpoint in `connect` without a link
    request       a request that no site serves
    forbidden     a request whose products the [[allow]] rules of its own site keep out
    unreachable   a site that serves a request, or stands by, does not reply
    lost          a range of sequences that no site could supply
    unseen        a range that one of several sites evicted before it could be compared with what has arrived
    left out      products that another site has and did not send, by cause
    position      the log of another site ended before the position of a request, which began there again
    too large     products of this site that no message can carry
    expired       products that had expired when they arrived, by the clock of this site
    refused       products or messages that this site can never take
    full          the queue takes no products now, or soon: the disk is full, or a blocking station is
    disk          the disk refused a flush, or the queue is gone
    stream        the site does not send, because its queue cannot be read
    progress      the progress of the requests cannot be saved
    thread        a thread has outlived an error that nobody expected (guard.py)
    function      a function of a selection has failed; a station or a channel names one that this site does not have
    rights        a request asks for more than a site lets this one receive
    clock         the time of the site is not known to a bound; a time server lies, or does not reply
    quota         a principal has used up one of its quotas
    ignored       sites from which nothing is requested, because there are too many
    silent        a site does not reply to the program that draws the map
    away          a site from which others request is absent
    name          several sites have one name
    island        sites take a request from each other only (relay/islands.py)
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from headrace.errors import QueueError
from headrace.guard import FAILURES
from headrace.link.rights import Feeds, Rule, may_come_in
from headrace.product.cause import CHOSEN, REFUSED_HERE, Cause, LostBy, by_cause
from headrace.queue import Queue
from headrace.queue.queue import assigning_functions, log_of, named_functions
from headrace.relay.examine import TooLarge
from headrace.relay.messages.description import PROBLEMS_MAX, Problem
from headrace.relay.receive.counts import Arrivals, UpstreamStatistics
from headrace.relay.receive.places import UPSTREAMS_MAX
from headrace.relay.receive.receiver import SITES_MAX, Receiver, Request
from headrace.relay.send import Streams
from headrace.site.map import Map, Node
from headrace.units import format_count, format_size

_RANGES = 3  # lost ranges in a text
_FAILURES_MAX = 20  # of threads


class Found(msgspec.Struct, frozen=True):
    """A problem, and the site that has it; empty if it is the map's own."""

    site: str
    problem: Problem


# --- of one site ----------------------------------------------------------------------------------


def site_problems(
    queue: Queue,
    streams: Streams,
    receiver: Receiver,
    too_large: TooLarge,
    links: Sequence[Problem],
    now: float,
    rules: Sequence[Rule] = (),
) -> tuple[Problem, ...]:
    """The problems of a running site; `links` are those of its endpoints, `now` is in monotonic seconds."""
    found = [*links, *_queue_problems(queue, receiver, too_large, now), *_stream_problems(streams)]
    found += [_ignored(site, count) for site, count in receiver.turned_away.items()]
    served, forbidden = {name for name, _ in receiver.upstreams()}, set[str]()
    for request in receiver.requests:
        is_forbidden = not may_come_in(rules, request.selection.feed or "**")
        if is_forbidden:
            found.append(_forbidden(request))
            forbidden.add(request.name)
        is_served = is_forbidden or request.name in served  # one cause is enough
        found += _request_problems(request, receiver.tally.arrivals(request.name), is_served, now)
    requested = {request.name: request.selection.feed or "**" for request in receiver.requests}
    for name, upstream in receiver.upstreams():
        if name in requested and name not in forbidden:
            found += _narrowed(name, upstream.site, requested[name], upstream.known.feeds)
    active = {(name, upstream.site) for name, upstream in receiver.upstreams()}
    for (name, site), counts in receiver.tally.upstreams().items():
        if name in requested:
            is_active = (name, site) in active and name not in forbidden  # or its own rules are why nothing comes
            found += _upstream_problems(name, site, counts, is_active, now)
    return tuple(found[:PROBLEMS_MAX])


def _queue_problems(queue: Queue, receiver: Receiver, too_large: TooLarge, now: float) -> Iterator[Problem]:
    try:
        log_of(queue).check_open()
    except QueueError as error:
        yield Problem("disk", str(queue.path), error.problem, error.hint)
        return
    if receiver.unsaved:
        yield Problem(
            "progress", str(queue.path), f"progress is not saved: {receiver.unsaved}",
            "until it is, a restart repeats products; make the directory writable, or free some space",
        )  # fmt: skip
    yield from _disk_problems(queue)
    yield from _function_problems(queue)
    if too_large.products:
        products = format_count(too_large.products, "product")
        yield Problem(
            "too large", str(queue.path), f"{products} put here cannot be sent to other sites: {too_large.latest}",
            "put such products in parts; readers and stations of this queue receive them",
            _age(too_large.latest_at, now),
        )  # fmt: skip


def thread_problems(now: float) -> tuple[Problem, ...]:
    """What the threads of this process have outlived."""
    remedy = "the thread goes on; the log has the first of each kind with its traceback: please report it"
    failures = FAILURES.all()[:_FAILURES_MAX]
    return tuple(
        Problem("thread", f"{each.where} {each.cause}", str(each), remedy, _age(each.at, now)) for each in failures
    )


def _function_problems(queue: Queue) -> Iterator[Problem]:
    functions = log_of(queue).functions
    for name, (count, latest) in functions.failures().items():
        yield Problem(
            "function", name, f"function {name} failed for {format_count(count, 'product')}, which it thereby did not "
            f"select; the last time with {latest}", "the log of the site has the first failure: correct the function",
        )  # fmt: skip
    for station, name in named_functions(queue):
        if name not in functions:
            yield Problem(
                "function", station, f"station {station} selects by function {name}, which this site does not have: "
                "it delivers nothing here",
                "name the function in [functions], and restart the site; or change the station",
            )  # fmt: skip
    for channel, name in assigning_functions(queue):
        if name not in functions:
            yield Problem(
                "function", channel, f"channel {channel} assigns slices by function {name}, which this site does not "
                "have: it stores none of the channel's products that clients and other sites send",
                "name the function in [functions], and restart the site; or delete the channel",
            )  # fmt: skip


def _stream_problems(streams: Streams) -> Iterator[Problem]:
    for stream in streams.all():
        if stream.problem:
            yield Problem(
                "stream", stream.name, f"stream {stream.name} does not advance: {stream.problem}",
                "other sites receive nothing new by it: check the queue, and restart the site",
            )  # fmt: skip


def _ignored(listed_by: str, count: int) -> Problem:
    """Upstreams that found no place."""
    remedy = "name the sites of your requests (`sites`), or their origins (an `origin` clause in `select`)"
    if not listed_by:
        most = f"at most {UPSTREAMS_MAX:,} upstreams (requests times sites), of at most {SITES_MAX:,} sites"
        return Problem("ignored", "", f"there is no place for {format_count(count, 'more upstream')}: {most}", remedy)
    return Problem(
        "ignored", listed_by, f"site {listed_by} lists too many origins that are away; {count:,} of them are ignored",
        f"check who puts products under these origins there; {remedy}",
    )  # fmt: skip


def _disk_problems(queue: Queue) -> Iterator[Problem]:
    log = log_of(queue)
    try:
        status = os.statvfs(queue.path)
    except OSError as error:
        yield Problem(
            "disk", str(queue.path), f"{queue.path} is not accessible: {error.strerror}",
            "bring it back to where it was, and restart the site",
        )  # fmt: skip
        return
    needed, free = log.kernel.state["segment_bytes"], status.f_bavail * status.f_frsize
    if free < needed and log.kernel.state["bytes_total"] + needed <= log.kernel.state["size_bytes"]:
        yield Problem(
            "full", str(queue.path), f"the disk has {format_size(free)} left for {queue.path}",
            f"free some space: the next segment of the queue needs {format_size(needed)}, and puts fail without it",
        )  # fmt: skip
    if log.flush_failure is not None:
        yield Problem(
            "disk", str(queue.path), f"the disk refused to flush {queue.path}: {log.flush_failure}",
            "products since then may not survive a power failure: check the disk, and restart the programs that put",
        )  # fmt: skip


def _forbidden(request: Request) -> Problem:
    feed = request.selection.feed or "**"
    return Problem(
        "forbidden", request.name,
        f"request {request.name} gets nothing: no [[allow]] rule of this site lets another one publish {feed}",
        f'add publish = ["{feed}"] to a rule that names the site which serves the request, not to one for "*"',
    )  # fmt: skip


def _age(at: float, now: float) -> float:
    """Of something that has happened: never 0, which means that it lasts."""
    return max(0.001, now - at)


def _request_problems(request: Request, arrivals: Arrivals, is_served: bool, now: float) -> Iterator[Problem]:
    name = request.name
    if not is_served:
        yield Problem(
            "request", name, f"request {name} is served by no site",
            "check the links, its `select` and `sites`, and that the other site has an [[allow]] rule for this one",
        )  # fmt: skip
    if arrivals.waiting:
        yield Problem(
            "full", name, f"products of request {name} wait: {arrivals.waiting}",
            "nothing is lost as long as the other site holds them: make room",
        )  # fmt: skip
    if arrivals.refused:
        products = format_count(arrivals.refused, "product")
        yield Problem(
            "refused", name, f"the queue refused {products} of request {name}",
            "the log has the reason of each, up to its limit ([log] per_second); a payload is at most a quarter of the "
            "queue: headrace queue resize",
            _age(arrivals.refused_at, now),
        )  # fmt: skip
    if arrivals.expired:
        products = format_count(arrivals.expired, "product")
        yield Problem(
            "expired", name, f"{products} of request {name} had expired on arrival, by the clock of this site",
            "compare the clocks of the sites; look for a slow link", _age(arrivals.expired_at, now),
        )  # fmt: skip


def _upstream_problems(
    request: str, site: str, counts: UpstreamStatistics, is_active: bool, now: float
) -> Iterator[Problem]:
    subject = f"{request} at {site}"
    if is_active and counts.failing:
        yield Problem(
            "unreachable", subject,
            f"request {request} gets nothing from site {site}: {counts.failing}{_waiting(counts.waiting)}",
            "check that it runs, the links to it, and that it has an [[allow]] rule with `receive` for this site",
        )  # fmt: skip
    if counts.lost:
        yield from _lost(request, site, counts, now)
    others = Counter[Cause](counts.left_out)
    others.subtract(counts.lost_by)
    left = {cause: count for cause, count in others.items() if count > 0 and cause not in (*CHOSEN, *REFUSED_HERE)}
    if left:
        remedies = dict.fromkeys(_REMEDIES.get(cause, "look at the log of that site") for cause in left)
        yield Problem(
            "left out", subject, f"site {site} left out products of request {request}: {by_cause(left)}",
            "; ".join(remedies), _age(max(counts.left_out_at[cause] for cause in left), now),
        )  # fmt: skip
    refused = {cause: others[cause] for cause in REFUSED_HERE if others[cause]}
    if refused:
        yield Problem(
            "refused", subject, f"products of site {site} for request {request} were refused: {by_cause(refused)}",
            "; ".join(_REMEDIES[cause] for cause in refused),
            _age(max(counts.left_out_at[cause] for cause in refused), now),
        )  # fmt: skip
    if counts.begun_again:
        times = "once" if counts.begun_again == 1 else f"{counts.begun_again} times"
        yield Problem(
            "position", subject, f"the log of site {site} ended before the position of request {request} ({times}): it "
            "was read again from its oldest product on",
            "the queue there was restored from a backup; or somebody spoke for that site: see who may relay",
            _age(counts.begun_again_at, now),
        )  # fmt: skip
    if counts.refused:
        yield Problem(
            "refused", subject, f"{format_count(counts.refused, 'invalid message')} from site {site} refused",
            "the log has the reason; restrict in [[allow]] who may publish", _age(counts.refused_at, now),
        )  # fmt: skip


def _narrowed(request: str, site: str, wanted: str, feeds: tuple[str, ...] | None) -> Iterator[Problem]:
    """The site does not let us receive all that the request asks for. It tells nothing about the rest."""
    if feeds is not None and not _includes(feeds, wanted):
        yield Problem(
            "rights", f"{request} at {site}",
            f"request {request} asks site {site} for {wanted}, which lets this site receive "
            + (", ".join(feeds[:_RANGES]) + (", …" if len(feeds) > _RANGES else "") if feeds else "nothing"),
            "narrow the request, or ask that site for an [[allow]] rule",
        )  # fmt: skip


@lru_cache(maxsize=1024)
def _includes(feeds: tuple[str, ...], wanted: str) -> bool:
    return Feeds(feeds).includes(wanted)


def _lost(request: str, site: str, counts: UpstreamStatistics, now: float) -> Iterator[Problem]:
    """Ranges that are lost, and ranges of which that is unknown, as two problems."""
    subject = f"{request} at {site}"
    known = [each for each in counts.lost if each[2] != "evicted unseen"]
    if known:
        remedies = dict.fromkeys(_REMEDIES[cause] for _, _, cause in known[-_RANGES:])
        yield Problem(
            "lost", subject, f"request {request} lost {_ranges(known)} of site {site}", "; ".join(remedies),
            _age(max(counts.left_out_at[cause] for cause in counts.lost_by if cause != "evicted unseen"), now),
        )  # fmt: skip
    unseen = [each for each in counts.lost if each[2] == "evicted unseen"]
    if unseen:
        yield Problem(
            "unseen", subject,
            f"request {request} may have lost {_ranges(unseen)} of site {site}: it evicted them before they could be "
            "compared with what came from other sites",
            f"what was put at site {site} alone is lost; {_REMEDIES['evicted']}",
            _age(counts.left_out_at["evicted unseen"], now),
        )  # fmt: skip


def _waiting(products: int) -> str:
    if not products:
        return ""
    wait = "waits" if products == 1 else "wait"
    held = f"{format_count(products, 'product')} that other sites hold"
    return f"; {held} {wait} for an earlier one that none of them has"


_REMEDIES: dict[Cause, str] = {
    "evicted": "enlarge the queue of that site: headrace queue resize",
    "damaged": "run there: headrace queue check",
    "too large": "have such products put in parts there",
    "expired": "compare the clocks of the sites; look for a slow link",
    "refused": "enlarge this queue",
    "refused by rights": (
        "the log has feed and origin; if you trust that site with them, permit the feed by `publish` in an [[allow]] "
        "rule that names it, and other origins by `relay = true`"
    ),
    "wrong signature": "compare the versions of Headrace; otherwise somebody has altered products on their way",
    "not signed": "ask the operator of the origin to sign with a key of [[key]], or change [[verify]]",
    "invalid signature": "renew the keys of the origin in [[key]]; otherwise somebody has altered products",
    "replayed": "ask the operator of that site why it sends products again that this site had before",
    "not asked for": "ask the operator of that site why it sends what was not requested",
}


def _ranges(lost: Sequence[tuple[int, int, LostBy]]) -> str:
    shown = [f"{first:,}-{last:,} ({cause})" for first, last, cause in lost[-_RANGES:]]
    more = len(lost) - len(shown)
    return ", ".join([*shown, *([f"{more} earlier ranges"] if more else [])])


# --- of a map -------------------------------------------------------------------------------------


def map_problems(sites_map: Map) -> list[Found]:
    """The problems of all sites of a map, and of the map itself; it has no site at all if the list is not empty."""
    found = [*_name_problems(sites_map.nodes)]
    for island in sites_map.islands:
        found.append(Found("", Problem("island", ", ".join(island.sites), island.problem, island.remedy)))
    for node in sites_map.nodes:
        found += [Found(node.name, problem) for problem in node.description.problems] if node.description else []
        found += _node_problems(node, _shut(sites_map.nodes, node))
    if not any(node.state in ("here", "silent") for node in sites_map.nodes):
        found.append(
            Found(
                "",
                Problem(
                    "silent",
                    "",
                    "no site answers",
                    "check that a site runs at this endpoint, and that its rules name you",
                ),
            )
        )
    return found


def _name_problems(nodes: Iterable[Node]) -> Iterator[Found]:
    for name, times in Counter(node.name for node in nodes).items():
        if times > 1:
            yield Found("", Problem("name", name, f"{times} sites are named {name}", "give each site its own name"))


def _shut(nodes: Iterable[Node], silent: Node) -> list[str]:
    """The sites linked to this one that keep out what they request from it, and with that its replies."""
    return [
        node.name for node in nodes
        if node.description and any(problem.kind == "forbidden" for problem in node.description.problems)
        and any(link.zid == silent.zid for link in node.description.links)
    ]  # fmt: skip


def _node_problems(node: Node, shut: Sequence[str]) -> Iterator[Found]:
    if node.state == "silent" and shut:
        yield Found("", Problem(
            "silent", node.name,
            f"site {node.name} cannot be heard: the [[allow]] rules of site {', '.join(shut)} let no reply of it pass",
            f"correct [[allow]] of site {', '.join(shut)} first, as its own problem says",
        ))  # fmt: skip
    elif node.state == "silent":
        yield Found("", Problem(
            "silent", node.name, f"site {node.name} does not answer: {node.problem}",
            "look at its log; it may be overloaded, or stopped by a debugger",
        ))  # fmt: skip
    if node.state == "away":
        yield Found("", Problem(
            "away", node.name, f"site {node.name} is missing: other sites request products from it",
            "start it, or remove it from their requests",
        ))  # fmt: skip
