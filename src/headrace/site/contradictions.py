"""Contradictions: values of a configuration that exclude each other, though each is valid by itself.

Either a value would have no effect, which is never intended, or it would break the promise of another. The check of
strangers is the strictest: a client that can reach the site from another machine must authenticate, or be allowed by
name or by `who = "*"`. Without any rule, nothing is allowed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import NamedTuple

from headrace.errors import FabricError
from headrace.link.access import denied_in_vain
from headrace.link.credentials import TlsTerms, check_tls
from headrace.link.endpoint import SECURE, is_loopback
from headrace.link.quotas import Quotas
from headrace.link.rights import EVERYBODY
from headrace.site.channels import channel_conflicts
from headrace.site.config import Allow, Deny, SiteConfig, TlsTable
from headrace.timing.clock.terms import SERVERS_MAX
from headrace.toml.document import KeyPath


class Contradiction(NamedTuple):
    """Which keys contradict each other; the problem is reported at the first path."""

    paths: tuple[KeyPath, ...]
    problem: str
    hint: str


def contradictions(config: SiteConfig) -> Iterator[Contradiction]:
    """Every contradiction within a configuration."""
    yield from _about_reach(config)
    yield from _about_clock(config)
    yield from _about_tls(config)
    yield from _about_users(config)
    yield from _about_strangers(config)
    yield from _about_allowances(config)
    yield from _about_quotas(config)
    yield from _about_keys(config)
    yield from _about_requests(config)
    for place, key, problem, remedy in channel_conflicts(config.channel):
        yield Contradiction((("channel", place, key),), problem, remedy)


_MODE, _LISTEN, _CONNECT = ("site", "mode"), ("site", "listen"), ("site", "connect")
_SCOUTING = ("site", "scouting")


def _about_reach(config: SiteConfig) -> Iterator[Contradiction]:
    site = config.site
    if site.mode == "client" and site.listen:
        yield Contradiction(
            (_LISTEN, _MODE), "a client does not listen", 'leave listen out, or choose mode "peer" or "router"'
        )
    elif not site.connect and site.scouting != "link" and (site.mode == "client" or not site.listen):
        yield Contradiction(
            (_CONNECT, _LISTEN, _SCOUTING, _MODE),
            "there is no endpoint, and scouting does not link to others: no other site can be reached",
            'give an endpoint to connect to, such as "tcp/upstream.example.org:7447"',
        )
    for place, endpoint in enumerate(site.connect):
        if endpoint in site.listen:
            yield Contradiction(
                ((*_CONNECT, place), _CONNECT, _LISTEN),
                f"{endpoint!r} is this site itself (see listen)",
                "leave it out",
            )


def _about_clock(config: SiteConfig) -> Iterator[Contradiction]:
    clock = config.clock
    source, servers = ("clock", "source"), ("clock", "servers")
    if clock.source == "ntp" and not clock.servers:
        yield Contradiction(
            (source, servers), '"ntp" needs servers', 'give some, such as servers = ["ntp1.example.org"]'
        )
    if clock.source == "system" and clock.servers:
        yield Contradiction((servers, source), '"system" uses no servers', 'leave them out, or choose "auto" or "ntp"')
    if len(clock.servers) > SERVERS_MAX:
        yield Contradiction((servers,), f"there are {len(clock.servers)} servers", f"give at most {SERVERS_MAX}")


# --- who is who -----------------------------------------------------------------------------------


def _about_tls(config: SiteConfig) -> Iterator[Contradiction]:
    tls, site = config.tls, config.site
    for place, endpoint in enumerate(site.listen):
        if _is_secure(endpoint) and (tls is None or tls.certificate is None):
            yield Contradiction(
                ((*_LISTEN, place), _LISTEN, ("tls",)),
                f"{endpoint!r} needs a certificate",
                "give [tls] certificate and key; create them with: headrace certs",
            )
    if tls is None:
        return
    yield from _about_certificates(tls)
    endpoints = (*site.listen, *site.connect)
    if site.scouting != "link" and not any(_is_secure(endpoint) for endpoint in endpoints):
        yield Contradiction(
            (("tls",), _LISTEN, _CONNECT, _SCOUTING),
            "no endpoint uses it: links are neither encrypted nor authenticated",
            "write tls/ or quic/ instead of tcp/ in [site] listen and connect, or leave [tls] out",
        )


def _about_certificates(tls: TlsTable) -> Iterator[Contradiction]:
    if (tls.certificate is None) != (tls.key is None):
        there, missing = ("key", "certificate") if tls.certificate is None else ("certificate", "key")
        yield Contradiction(
            (("tls", there), ("tls", missing)), f"it has no effect without {missing}", f"give {missing} too"
        )
    elif tls.authority is not None:
        yield from _about_their_files(tls)


def _about_their_files(tls: TlsTable) -> Iterator[Contradiction]:
    """The session would fail for the same reason."""
    try:
        check_tls(TlsTerms(tls.authority, tls.certificate, tls.key, tls.mutual))
    except FabricError as error:
        keys = ("authority",) if tls.certificate is None else ("certificate", "key", "authority")
        yield Contradiction(tuple(("tls", key) for key in keys), error.problem, error.hint)


def _about_users(config: SiteConfig) -> Iterator[Contradiction]:
    users = config.users
    if users is None:
        return
    name, password, dictionary = (("users", key) for key in ("name", "password_file", "dictionary_file"))
    if (users.name is None) != (users.password_file is None):
        there, missing = (password, name) if users.name is None else (name, password)
        yield Contradiction((there, missing), f"it has no effect without {missing[1]}", f"give {missing[1]} too")
    elif users.name is None and users.dictionary_file is None:
        yield Contradiction(
            (("users",),), "it is empty", "give name and password_file, or dictionary_file, or leave the table out"
        )
    if users.dictionary_file is not None and not config.site.listen:
        yield Contradiction(
            (dictionary, _LISTEN), "no client can connect to a site that does not listen", "leave it out"
        )
    elif users.name is not None and users.dictionary_file is None and config.site.listen:
        yield Contradiction(
            (name, dictionary, _LISTEN),
            "a site with a user name requires one from every client, and dictionary_file is missing: all are refused",
            "give dictionary_file, or listen = []",
        )


def _about_strangers(config: SiteConfig) -> Iterator[Contradiction]:
    """Without any [[allow]], only clients on this machine, or clients that authenticate, may connect."""
    if config.allow or _knows_users(config):
        return
    remedy = 'say who may do what with [[allow]] (who = "*" for everybody), or require authentication: '
    for place, endpoint in enumerate(config.site.listen):
        if not is_loopback(endpoint) and not (_knows_certificates(config) and _is_secure(endpoint)):
            yield Contradiction(
                ((*_LISTEN, place), _LISTEN, ("tls",), ("users",), ("allow",)),
                f"{endpoint!r} is open to strangers",
                remedy + "[tls] with mutual = true and a tls/ or quic/ endpoint, or [users] dictionary_file; "
                "or listen on 127.0.0.1",
            )
    if config.site.scouting == "link" and not _knows_certificates(config):
        yield Contradiction(
            (_SCOUTING, ("tls",), ("users",), ("allow",)),
            "it links this site to every site that it finds",
            remedy + "[tls] with mutual = true, or [users] dictionary_file",
        )


def _about_allowances(config: SiteConfig) -> Iterator[Contradiction]:
    tables: tuple[tuple[str, Sequence[Allow | Deny]], ...] = (("allow", config.allow), ("deny", config.deny))
    for table, rules in tables:
        for place, rule in enumerate(rules):
            yield from _about_rule(config, (table, place), rule)
    if config.deny and not config.allow:
        yield Contradiction(
            (("deny",), ("allow",)), "everything is denied to everybody", "say with [[allow]] who may do what"
        )
    yield from _about_denials(config)


def _about_denials(config: SiteConfig) -> Iterator[Contradiction]:
    """Whoever is denied something by name calls without his name, with the rights of everybody."""
    for_all = [rule for rule in config.allow if EVERYBODY in (rule.who or ())]
    for place, rule in enumerate(config.deny):
        if EVERYBODY in (rule.who or ()):
            continue
        for right, what in denied_in_vain(rule, for_all):
            yield Contradiction(
                (("deny", place, right), ("allow",)),
                f"everybody may {right} {what}",
                f'deny it to "*" and allow it by name, or name in [[allow]] those who may {right} it',
            )


def _about_quotas(config: SiteConfig) -> Iterator[Contradiction]:
    """One value for each key of each name."""
    first: dict[tuple[str, str], int] = {}
    for place, quota in enumerate(config.quota):
        path = ("quota", place)
        given = [key.name for key in fields(Quotas) if getattr(quota, key.name) is not None]
        if not given:
            yield Contradiction((path,), "it limits nothing", "give a quota, such as stations = 10")
        yield from _about_who(config, path, quota.who)
        for key, name in ((key, name) for key in given for name in quota.who or ()):
            before = first.setdefault((key, name), place)
            if before != place:
                yield Contradiction(
                    ((*path, key), ("quota", before, key)),
                    f"[[quota]] {before + 1} has {key} for {'everybody' if name == EVERYBODY else name} already",
                    "keep one of them",
                )


def _about_keys(config: SiteConfig) -> Iterator[Contradiction]:
    for place, key in enumerate(config.key):
        if (key.public is None) == (key.file is None):
            yield Contradiction(
                (("key", place),), "it needs either public or file", "give the public key, or a file with it"
            )
        if key.from_ns is not None and key.until_ns is not None and key.from_ns >= key.until_ns:
            yield Contradiction(
                (("key", place, "until"), ("key", place, "from")), "it never counts: until is not behind from",
                "exchange the two times",
            )  # fmt: skip
    for place, rule in enumerate(config.verify):
        if rule.mode == "require" and not config.key:
            yield Contradiction(
                (("verify", place, "mode"), ("key",)), "no key is known, so that every product would be refused",
                "give the public keys of the origins in [[key]]",
            )  # fmt: skip


def _about_rule(config: SiteConfig, path: tuple[str, int], rule: Allow | Deny) -> Iterator[Contradiction]:
    if not (rule.receive or rule.publish or rule.station or rule.manage or rule.consume):
        yield Contradiction(
            (path,), "it has no feeds", 'give receive, publish, station or manage, such as receive = ["wx/**"]'
        )
    yield from _about_who(config, path, rule.who)


def _about_who(config: SiteConfig, path: tuple[str, int], who: tuple[str, ...]) -> Iterator[Contradiction]:
    if EVERYBODY in (who or ()):
        if len(who) > 1:
            yield Contradiction(((*path, "who"),), '"*" includes the other names', 'write who = "*", or names')
    elif who == ():
        yield Contradiction(((*path, "who"),), "the list is empty", 'give names, or write who = "*"')
    elif not _knows_users(config) and not _knows_certificates(config):
        yield Contradiction(
            ((*path, "who"), ("tls",), ("users",)),
            "no client can authenticate by that name",
            "give [tls] with mutual = true for names of certificates, or [users] dictionary_file for user names",
        )


def _is_secure(endpoint: str) -> bool:
    """Whether the endpoint uses certificates."""
    return endpoint.partition("/")[0] in SECURE


def _knows_certificates(config: SiteConfig) -> bool:
    return config.tls is not None and config.tls.mutual


def _knows_users(config: SiteConfig) -> bool:
    return config.users is not None and config.users.dictionary_file is not None


# --- requests -------------------------------------------------------------------------------------


def _about_requests(config: SiteConfig) -> Iterator[Contradiction]:
    seen: dict[object, int] = {}
    names: dict[str, int] = {}
    for place, request in enumerate(config.request):
        path = ("request", place)
        if request.redundancy == "failover" and len(request.sites) == 1:
            yield Contradiction(
                ((*path, "redundancy"), (*path, "sites")),
                '"failover" needs a second site, and sites has one',
                'name more sites, or leave sites out, or choose "all"',
            )
        if config.site.name in request.sites:
            yield Contradiction(
                ((*path, "sites"), ("site", "name")), f"{config.site.name!r} is this site itself", "leave it out"
            )
        meaning = (str(request.selection), frozenset(request.sites))
        first = seen.setdefault(meaning, place)
        if first != place:
            yield Contradiction(
                ((*path, "select"), ("request", first)),
                f"{str(request.selection)!r} is requested by [[request]] {first + 1} already",
                "keep one of them",
            )
        first = names.setdefault(request.name, place)
        if first != place:
            yield Contradiction(
                ((*path, "name"), ("request", first, "name")),
                f"{request.name!r} is the name of [[request]] {first + 1} already",
                "choose another",
            )
