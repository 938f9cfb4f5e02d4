"""`headrace sites`: the map of the fabric, which sites_map.py renders, or its changes, which sites_follow.py writes.

`headrace hop`: the way of one product.
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import msgspec

from headrace.cli.failure import NEGATIVE, OK, show_warnings
from headrace.cli.group import Command, QueueArgument
from headrace.cli.options import AGE, CONNECT_S_MAX, json_option, open_local_queue, queue_argument
from headrace.cli.output import echo_json, show_table
from headrace.cli.place import Place, find_place
from headrace.errors import OptionError, QueueError
from headrace.link.address import SITE, parse_address

if TYPE_CHECKING:
    import zenoh

    from headrace.link.session import SessionTerms
    from headrace.remote.client.find import Found
    from headrace.site.map import Map

_WHY_LOCAL = "a site does not tell its clients through which site a product came"
_HOP_HEADER = ("sequence", "feed", "ident", "origin", "came through")


@click.command(cls=Command)
@click.argument("where", cls=QueueArgument, completes="site", metavar="SITE|ENDPOINT|SITE.TOML")
@click.option("--flows", "all_flows", is_flag=True, help="Show the flow of every feed, not only the largest.")
@click.option("--dot", "as_dot", is_flag=True, help="Write a graph for Graphviz: sites, links, round trips, loss.")
@click.option("--check", is_flag=True, help="Exit code 1 if there is a problem, as listed below the tables.")
@click.option(
    "--since",
    "since_s",
    type=AGE,
    default="1h",
    show_default=True,
    metavar="AGE",
    help="For --check: something that happened longer ago, such as a lost product, does not count.",
)
@click.option("--follow", is_flag=True, help="Write a line for each site that joins, leaves or changes, until Ctrl-C.")
@click.option(
    "--programs", is_flag=True, help="With --follow: also the clients, suppliers and consumers of the site at WHERE."
)
@click.option("--timeout", type=AGE, help="With --follow: end when nothing has happened for this long, such as 5s.")
@json_option
def sites(
    where: str, all_flows: bool, as_dot: bool, check: bool, since_s: float, follow: bool, programs: bool,
    timeout: float | None, as_json: bool,
) -> int:  # fmt: skip
    """Show all sites of the fabric: links, round trips, loss, feeds offered and wanted, requests, latencies.

    Give any site by its name, such as site:denver, or its endpoint, such as tcp/host:7447; a context; or the
    configuration of a site, whose endpoints, certificate and user name are then used. Counts start with each site. A
    latency is measured between the clocks of two sites. `offset` is the clock of the site minus that of its system,
    `bound` how far it may be from the truth (`headrace clock`). `users` are the programs that are connected to the
    queue now.

    Problems, with what to do about each, are listed last: a link that is down and why, a request that no site serves,
    products that were lost or left out, a full disk, a silent site. In JSON, `problems` has the same list.

    --follow starts with the sites that are present. A site stopped (it said so), was lost (it did not), or was
    restarted; it is unreachable if this command has lost its own connection, which it then waits for. Ctrl-C ends it
    (exit code 130).

    \b
    Example:
      headrace sites site:denver
      headrace sites tcp/denver:7447
      headrace sites site:denver --follow --programs
      headrace sites site.toml --json --check
      headrace sites site.toml --dot | dot -Tsvg > sites.svg
    """
    if as_dot and as_json:
        raise OptionError("--dot and --json contradict each other", "leave one of them out")
    if follow:
        if as_dot or check or all_flows:
            raise OptionError("--follow shows changes, and no map", "leave out --dot, --check and --flows")
        from headrace.cli.sites_follow import follow_members

        follow_members(find_site(find_place(where)), None if programs else "site", timeout, as_json)
        return OK
    if programs or timeout is not None:
        raise OptionError("--programs and --timeout are for --follow", "add --follow")
    from headrace.site.problems import map_problems

    sites_map = read_map(where)
    problems = map_problems(sites_map)
    if as_json:
        echo_json({**msgspec.structs.asdict(sites_map), "problems": problems})
    elif as_dot:
        from headrace.cli.sites_map import dot_lines

        click.echo("\n".join(dot_lines(sites_map)))
    else:
        from headrace.cli.sites_map import show_map

        show_map(sites_map, problems, all_flows)
    return NEGATIVE if check and any(found.problem.age_s <= since_s for found in problems) else OK


def read_map(where: str) -> "Map":
    """The map as that site sees it."""
    from headrace.site.map import gather

    session, principal = _visit(find_place(where))
    try:
        return gather(session, principal)
    finally:
        session.close()  # type: ignore[no-untyped-call]


def _visit(place: Place) -> "tuple[zenoh.Session, str | None]":
    """A session, and the name by which sites know it."""
    from headrace.link.bearer import principal_at
    from headrace.link.session import open_session

    show_warnings()
    if place.where.startswith(SITE):
        found = find_site(place)
        return found.session, found.principal
    terms = session_terms(place)
    session = open_session(terms)
    return session, principal_at(session, terms.tls, terms.user)


def session_terms(place: Place) -> "SessionTerms":
    """How to connect: to an endpoint, or as the site that a file describes."""
    from headrace.link.session import SessionTerms
    from headrace.remote.client.connect import REFUSED_S

    if place.is_remote:
        tls, user = place.credentials()
        endpoint = parse_address(place.where).endpoint
        assert endpoint is not None  # `_visit` looks for names
        return SessionTerms("client", connect=(endpoint,), tls=tls, user=user, refused_s=REFUSED_S)
    if os.path.isdir(place.where):
        of_context = f", from the context {place.context}" if place.context else ""
        raise OptionError(
            f"{place.where}{of_context} is a directory, and not the file of a site",
            "headrace sites takes the file of a site, such as site.toml, a site, such as site:denver, an endpoint, "
            "such as tcp/host:7447, or the context of one of these",
        )
    from headrace.site.loading import load_config
    from headrace.site.terms import visiting_terms

    return replace(visiting_terms(load_config(place.where)), refused_s=REFUSED_S)


def find_site(place: Place) -> "Found":
    """The site that is meant, and a session in which it is present."""
    from headrace.remote.client.connect import REFUSED_S, find
    from headrace.remote.client.find import find_at

    show_warnings()
    if place.is_remote:
        return find(place.where, CONNECT_S_MAX, *place.credentials(), REFUSED_S)
    terms = session_terms(place)
    from headrace.site.loading import load_config

    return find_at(terms, load_config(place.where).site.name)


@click.command(cls=Command)
@queue_argument
@click.argument("sequences", nargs=-1, required=True, type=click.IntRange(min=1), metavar="SEQUENCE...")
@json_option
def hop(queue_path: str, sequences: tuple[int, ...], as_json: bool) -> None:
    """Show through which site each product came into QUEUE, a directory.

    The origin is the site at which a product was put; the hop is the site that sent it here. The two differ if the
    product was relayed, or came from another holder while its origin was away. `headrace watch` shows sequences.

    \b
    Example:
      headrace hop wx.queue 17
      headrace hop wx.queue 17 18 19 --json
    """
    from headrace.relay.hops import read_hops, site_of

    with open_local_queue(queue_path, _WHY_LOCAL) as queue:
        hops, found = read_hops(queue.path), []
        for sequence in sequences:
            batch = queue.read_batch(sequence, limit=1) if queue.oldest <= sequence < queue.next else None
            if not batch or batch[0].sequence != sequence:
                holds = (
                    f"it holds {queue.oldest} to {queue.next - 1}"
                    if queue.oldest < queue.next
                    else "the queue is empty"
                )
                raise QueueError(f"{queue_path} does not hold product {sequence}", holds)
            product = batch[0]
            found.append((sequence, product.feed, product.ident, product.origin, site_of(hops, sequence)))
    if as_json:
        for sequence, feed, ident, origin, site in found:
            echo_json({"sequence": sequence, "feed": feed, "ident": ident, "origin": origin, "hop": site})
    else:
        rows = [(*row, site or "put here") for *row, site in found]
        show_table("hops", _HOP_HEADER, rows, right=(0,))
