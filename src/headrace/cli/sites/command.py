"""`headrace sites`: the options, and the way into the fabric."""

from typing import TYPE_CHECKING

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.opening import credentials
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.errors import OptionError

if TYPE_CHECKING:
    from headrace.link.session import SessionTerms
    from headrace.site.map import Map


@click.command()
@click.argument("where", metavar="WHERE")
@click.option("--flows", "all_flows", is_flag=True, help="Show the flow of every feed, not only the largest.")
@click.option("--dot", "as_dot", is_flag=True, help="Write a graph for Graphviz: sites, links, round trips, loss.")
@click.option(
    "--check", is_flag=True, help="Exit code 1 if a site is silent, missed or not served, or a name is double."
)
@json_option
def sites(where: str, all_flows: bool, as_dot: bool, check: bool, as_json: bool) -> int:
    """Show all sites of the fabric: links, round trips, loss, feeds offered and wanted, requests, latencies.

    WHERE is the endpoint of any site, such as tcp/host:7447, or the configuration of one, whose endpoints, certificate
    and user name are used then. Counts are since the start of each site; latencies are between the clocks of two sites.

    \b
    Example:
      headrace sites tcp/127.0.0.1:7447
      headrace sites site.toml --json --check
      headrace sites site.toml --dot | dot -Tsvg > sites.svg
    """
    if as_dot and as_json:
        raise OptionError("--dot and --json contradict each other", "leave one of them out")
    drawn = draw(where)
    if as_json:
        echo_json(drawn)
    elif as_dot:
        from headrace.cli.sites.dot import dot_lines

        click.echo("\n".join(dot_lines(drawn)))
    else:
        from headrace.cli.sites.tables import show_map

        show_map(drawn, all_flows)
    return NEGATIVE if check and not is_well(drawn) else OK


def draw(where: str) -> "Map":
    """The map as it is seen from there."""
    from headrace.link.credentials import principal_of
    from headrace.link.session import open_session
    from headrace.site.map import gather

    terms = terms_for(where)
    session = open_session(terms)
    try:
        return gather(session, principal_of(terms.tls, terms.user))
    finally:
        session.close()  # type: ignore[no-untyped-call]


def terms_for(where: str) -> "SessionTerms":
    """How to get in: by an endpoint, or as the site that a file describes."""
    from headrace.link.session import SessionTerms
    from headrace.remote.client.connect import is_endpoint

    if is_endpoint(where):
        tls, user = credentials()
        return SessionTerms("client", connect=(where,), tls=tls, user=user)
    from headrace.site.loading import load_config
    from headrace.site.terms import visiting_terms

    return visiting_terms(load_config(where))


def is_well(drawn: "Map") -> bool:
    """There are sites, each with a name of its own, every one of them answers, and every request is served."""
    upstreams = [upstream for place in drawn.nodes if place.told for upstream in place.told.upstreams]
    states = {place.state for place in drawn.nodes} | {upstream.state for upstream in upstreams}
    names = {place.name for place in drawn.nodes}
    return bool(names) and len(names) == len(drawn.nodes) and not states & {"silent", "away", "unreachable"}
