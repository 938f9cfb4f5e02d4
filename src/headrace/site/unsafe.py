"""Unsafe combinations: what a configuration may say, and what gives somebody more than its author probably means.

Each is a warning with a remedy. `headrace config check` shows it (`--strict` makes it an error), and a site logs it
when it starts. A combination that is never meant is a contradiction (contradictions.py) and refused.
"""

import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.errors import FabricError
from headrace.link.credentials import common_name, read_certificate
from headrace.link.endpoint import SECURE, is_loopback
from headrace.link.rights import EVERYBODY, Feeds, may_speak_for, named, sender_rights
from headrace.link.users import read_users
from headrace.site.config import Allow, Deny, Quota, SiteConfig
from headrace.site.contradictions import Contradiction
from headrace.site.terms import rules_of
from headrace.toml.document import KeyPath
from headrace.units import format_count

EXPIRES_SOON = timedelta(days=30)
_ALL = "**"


def unsafe(config: SiteConfig) -> Iterator[Contradiction]:
    """Every unsafe combination of a configuration that is valid."""
    yield from _about_rules(config)
    yield from _about_plain_links(config)
    yield from _about_reach(config)
    yield from _about_names(config)
    yield from _about_own_name(config)
    yield from _about_duplicates(config)
    yield from _about_signatures(config)
    yield from _about_secret_files(config)
    yield from _about_expiry(config)


# --- rules ----------------------------------------------------------------------------------------


def _about_rules(config: SiteConfig) -> Iterator[Contradiction]:
    for place, rule in enumerate(config.allow):
        path = ("allow", place)
        if EVERYBODY in rule.who:
            yield from _about_everybody(path, rule)
        if rule.relay and _ALL in rule.publish:
            yield Contradiction(
                ((*path, "relay"), (*path, "publish")),
                f"{', '.join(rule.who)} may publish everything in the name of every site",
                "limit publish to the feeds that it passes on",
            )
        elif rule.relay and EVERYBODY in rule.who:
            yield Contradiction(
                ((*path, "relay"),), "everybody may publish in the name of every site", "name the relays"
            )
        if rule.relay:
            yield from _about_silence(config, place, rule)


def _about_silence(config: SiteConfig, place: int, relay: Allow) -> Iterator[Contradiction]:
    """Sites for which a relay cannot speak, because they may publish what it may not."""
    rules = rules_of(config)
    for who in relay.who:
        others = [site for site in named(rules) if site != who and sender_rights(rules, site).publish]
        missing = [site for site in others if who != EVERYBODY and not may_speak_for(rules, who, site)]
        if missing:
            feeds = dict.fromkeys(feed for site in missing for feed in sender_rights(rules, site).publish.allowed)
            yield Contradiction(
                (("allow", place, "relay"), ("allow", place, "publish")),
                f"{who} cannot speak for {', '.join(missing)}, which may publish feeds that it may not",
                f"link to {'that site' if len(missing) == 1 else 'those sites'} without it; or, if you trust it with "
                f"them, add {', '.join(feeds)} to its publish",
            )


def _about_everybody(path: KeyPath, rule: Allow) -> Iterator[Contradiction]:
    told = {
        "publish": "put products here, of any origin",
        "station": "have stations here, all as one user",
        "consume": "take products from stations of the site",
        "manage": "stop producers, and remove the stations and cursors of all",
    }
    for right, may in told.items():
        if getattr(rule, right, ()):
            yield Contradiction(((*path, right),), f"everybody may {may}", "name those who may")


# --- links ----------------------------------------------------------------------------------------


def _about_plain_links(config: SiteConfig) -> Iterator[Contradiction]:
    """What crosses a network in the clear, and who cannot be named there."""
    names = any(EVERYBODY not in rule.who for rule in config.allow)
    for key, endpoints in (("listen", config.site.listen), ("connect", config.site.connect)):
        for place, endpoint in enumerate(endpoints):
            if _is_secure(endpoint) or is_loopback(endpoint):
                continue
            path: tuple[KeyPath, ...] = (("site", key, place), ("site", key))
            if config.users is not None:
                yield Contradiction(
                    path, f"{endpoint!r} is not encrypted: others on the way can read and change what users send",
                    "use tls/, with [tls] mutual = false if users have no certificates",
                )  # fmt: skip
            elif names:
                yield Contradiction(
                    path, f"{endpoint!r} is without certificates: nobody who links there can prove a name of the rules",
                    "use tls/ with [tls] mutual = true",
                )  # fmt: skip


def _about_reach(config: SiteConfig) -> Iterator[Contradiction]:
    is_open = [endpoint for endpoint in config.site.listen if not is_loopback(endpoint)]
    if is_open and not config.allow:
        yield Contradiction(
            (("site", "listen"), ("allow",)),
            f"{is_open[0]!r} is open to other machines, and without [[allow]] whoever is admitted may do everything",
            "say with [[allow]] who may do what",
        )
    tls, users = config.tls, config.users
    has_users = users is not None and users.dictionary_file is not None
    if is_open and tls is not None and not tls.mutual and not has_users:
        yield Contradiction(
            (("tls", "mutual"),),
            "clients need neither a certificate nor a password: all are admitted, with the rights of everybody",
            "use mutual = true, or give [users] dictionary_file",
        )
    if config.site.scouting == "link" and (tls is None or tls.certificate is None):
        yield Contradiction(
            (("site", "scouting"),),
            "this site links to whoever answers in the local network, and checks no certificate",
            'give [tls], or name the neighbours in connect and use scouting = "answer"',
        )


def _is_secure(endpoint: str) -> bool:
    return endpoint.partition("/")[0] in SECURE


# --- names ----------------------------------------------------------------------------------------


def _about_names(config: SiteConfig) -> Iterator[Contradiction]:
    """Names of rules that no user has, where nothing but users has names."""
    users = config.users
    if users is None or users.dictionary_file is None or (config.tls is not None and config.tls.mutual):
        return
    try:
        known = set(read_users(users.dictionary_file))
    except FabricError:
        return  # a problem of its own
    tables: tuple[tuple[str, Sequence[Allow | Deny | Quota]], ...] = (
        ("allow", config.allow), ("deny", config.deny), ("quota", config.quota),
    )  # fmt: skip
    for table, rules in tables:
        for place, rule in enumerate(rules):
            missing = [name for name in rule.who if name != EVERYBODY and name not in known]
            if missing:
                yield Contradiction(
                    ((table, place, "who"),),
                    f"{users.dictionary_file.name} has no user {', '.join(missing)}: who is added under "
                    f"{'this name' if len(missing) == 1 else 'these names'} later gets the rights of this rule",
                    f"add {'the user' if len(missing) == 1 else 'the users'}, or leave the name out",
                )


def _about_own_name(config: SiteConfig) -> Iterator[Contradiction]:
    """A site speaks under its own name, and others admit only the one that its certificate proves."""
    if config.users is not None or config.tls is None or config.tls.certificate is None:
        return
    proved = common_name(config.tls.certificate)
    if config.site.name not in (None, proved):
        yield Contradiction(
            (("site", "name"),),
            f"the certificate is that of {proved!r}: sites with rules admit nothing in the name of "
            f"{config.site.name!r} from here",
            "use one name for both",
        )


def _about_duplicates(config: SiteConfig) -> Iterator[Contradiction]:
    """With signatures of payloads alone, feeds are not kept apart."""
    if config.queue.dedup == "payload" and any(rule.publish and _ALL not in rule.publish for rule in config.allow):
        yield Contradiction(
            (("queue", "dedup"),),
            "who may publish one feed can keep a product of any other out, by putting its payload first, and learns "
            "whether the queue holds a payload",
            'use dedup = "identity", or a queue of its own for those producers',
        )


def _about_signatures(config: SiteConfig) -> Iterator[Contradiction]:
    """Rules that require signatures, and do less than they say."""
    before: list[str] = []
    for place, rule in enumerate(config.verify):
        hidden = [feed for feed in rule.feeds if Feeds(before).includes(feed)]
        if hidden:
            yield Contradiction(
                (("verify", place, "feeds"),),
                f"an earlier [[verify]] decides about {', '.join(hidden)} already",
                "put this one in front of it",
            )
        before += rule.feeds
    if config.queue.dedup == "none" and any(rule.mode == "require" for rule in config.verify):
        yield Contradiction(
            (("queue", "dedup"), ("verify",)),
            "a queue without duplicate rejection takes signed products in the order of their puts alone: what comes "
            "later, to fill a gap, is refused as replayed",
            'use dedup = "identity"',
        )


# --- files ----------------------------------------------------------------------------------------


def _about_secret_files(config: SiteConfig) -> Iterator[Contradiction]:
    secrets: list[tuple[KeyPath, Path | None]] = []
    if config.tls is not None:
        secrets.append((("tls", "key"), config.tls.key))
    if config.users is not None:
        secrets += [(("users", key), getattr(config.users, key)) for key in ("password_file", "dictionary_file")]
    for path, file in secrets:
        if file is not None and (who := _others(file)):
            yield Contradiction((path,), f"{file} {who}", f"chmod 600 {file}")
    if config.tls is not None and stat.S_IMODE(config.tls.authority.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        yield Contradiction(
            (("tls", "authority"),),
            f"{config.tls.authority} may be changed by others, who can so admit anybody",
            f"chmod go-w {config.tls.authority}",
        )


def _others(file: Path) -> str:
    """What users other than the owner can do with a file; empty if nothing."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return ""
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be changed by others (mode {mode:04o})"
    return f"is readable by others (mode {mode:04o})" if mode & stat.S_IROTH else ""


def _about_expiry(config: SiteConfig) -> Iterator[Contradiction]:
    if config.tls is None:
        return
    now = datetime.now(UTC)
    for key in ("authority", "certificate"):
        file = getattr(config.tls, key)
        if file is None:
            continue
        left = read_certificate(file).not_valid_after_utc - now
        remedy = "create a new one with headrace certs, and reload"
        if left <= timedelta(0):
            yield Contradiction((("tls", key),), f"{file} has expired: links that depend on it are refused", remedy)
        elif left <= EXPIRES_SOON:
            yield Contradiction((("tls", key),), f"{file} expires in {format_count(left.days, 'day')}", remedy)
