"""Terms: what the configuration of a site means for its queue, its session and its requests.

From the plain data of config.py to what `link`, `relay` and `queue` take; the only place that knows both. They are not
one: a struct of config.py is a table of the file, and may be incomplete while every problem of the file is collected,
whereas a Request, a Rule or TlsTerms is valid by construction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from headrace.errors import OptionError
from headrace.link.credentials import TlsTerms, UserTerms, secret_text
from headrace.link.endpoint import LOCAL, UNIX, Endpoint, parse_endpoint
from headrace.link.local import local_endpoint
from headrace.link.quotas import Quotas, QuotaTable
from headrace.link.rights import EVERYBODY, Rule
from headrace.link.session import HEAD_BYTES, RECORD_BYTES_MAX, SessionTerms
from headrace.queue import Queue
from headrace.relay.receive.receiver import Request
from headrace.relay.signing import keyring
from headrace.relay.signing.keyring import OriginKey
from headrace.relay.signing.terms import SigningTerms
from headrace.relay.signing.verify import VerifyRule
from headrace.selection.functions import Function
from headrace.site.config import KeyTable, Quota, SiteConfig
from headrace.timing.clock.terms import ClockTerms

_RECORD_HEAD_BYTES = 1 << 17  # of a record besides its payload
_PARTS_BYTES = 20 << 20  # the parts of a client's put, and pages
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # all addresses of this machine, and one of them


def open_queue(config: SiteConfig, functions: Mapping[str, Function]) -> Queue:
    """The queue of the site, created on the terms of [queue] if it does not exist; selections may name `functions`."""
    path, terms = config.site.queue, config.queue
    if (path / "queue.json").exists():
        return Queue.open(path, functions=functions)
    return Queue.create(
        path, size=terms.size, age=terms.age_s, durability=terms.durability, dedup=terms.dedup, hash=terms.hash,
        origin=config.site.name, functions=functions, mode=terms.mode, group=terms.group,
    )  # fmt: skip


def clock_terms(config: SiteConfig) -> ClockTerms:
    return ClockTerms(config.clock.source, config.clock.servers, config.clock.poll_s)


def requests_of(config: SiteConfig, now_ns: int) -> list[Request]:
    """The requests that are active at this time."""
    return [
        Request(
            request.name, request.selection, request.begin_at, request.sites, request.redundancy, request.compress or ""
        )
        for request in config.request
        if (request.start_time_ns or 0) <= now_ns
    ]


def next_start_ns(config: SiteConfig, now_ns: int) -> int | None:
    """When the next request becomes active; None if all are."""
    starts = [each.start_time_ns or 0 for each in config.request]
    return min((each for each in starts if each > now_ns), default=None)


def session_terms(config: SiteConfig) -> SessionTerms:
    """The session by which [site], [tls], [users] and [[allow]] take part in the fabric."""
    site, tls, users = config.site, config.tls, config.users
    user = None
    if users is not None and users.name is not None and users.password_file is not None:
        user = UserTerms(users.name, secret_text(users.password_file, "the password file").strip())
    return SessionTerms(
        site.mode, _listening(config) if site.mode != "client" else (), site.connect, site.scouting, site.gossip,
        mesh=site.gossip,
        compression=site.compression,
        shared_memory=site.shared_memory,
        tls=None if tls is None or tls.authority is None else TlsTerms(
            tls.authority, tls.certificate, tls.key, tls.mutual
        ),
        user=user,
        users_file=None if users is None else users.dictionary_file,
        rules=rules_of(config),
        names=tuple(dict.fromkeys((config.site.name, principal_of(config) or config.site.name))),
        message_bytes_max=_message_bytes_max(config),
    )  # fmt: skip


def _message_bytes_max(config: SiteConfig) -> int:
    """With rules, not all who connect are trusted with memory: nothing comes in that the queue could not store.

    Zenoh puts a message together before it looks at the rules, once for each priority of each link.
    """
    if not rules_of(config):
        return RECORD_BYTES_MAX + HEAD_BYTES
    record = config.queue.size // 4 + _RECORD_HEAD_BYTES
    return min(max(record, _PARTS_BYTES), RECORD_BYTES_MAX) + HEAD_BYTES


def _listening(config: SiteConfig) -> tuple[str, ...]:
    return tuple(local_endpoint(config.site.queue) if text == LOCAL else text for text in config.site.listen)


def rules_of(config: SiteConfig) -> tuple[Rule, ...]:
    """The access rules of the configuration. If there are any, the site's own credentials may read everything, so that
    `headrace sites site.toml` works.
    """
    rules = [
        *(
            Rule(rule.who, rule.receive, rule.publish, rule.relay, rule.station, rule.manage, consume=rule.consume)
            for rule in config.allow
        ),
        *(
            Rule(
                rule.who,
                rule.receive,
                rule.publish,
                station=rule.station,
                manage=rule.manage,
                deny=True,
                consume=rule.consume,
            )
            for rule in config.deny
        ),
    ]
    return (*rules, Rule((principal_of(config) or config.site.name,), ("**",))) if rules else ()


def signing_of(config: SiteConfig) -> SigningTerms:
    """What [sign], [[key]] and [[verify]] mean, with the content of their files."""
    sign = config.sign
    private = None if sign.key is None else keyring.read_private(sign.key).private_bytes_raw()
    revoked = frozenset[int]() if sign.revoked is None else keyring.read_revoked(sign.revoked)
    rules = tuple(VerifyRule(each.feeds, each.mode) for each in config.verify)
    return SigningTerms(private, tuple(_origin_key(each) for each in config.key), revoked, rules)


def _origin_key(table: KeyTable) -> OriginKey:
    if table.public is not None:
        public, from_ns, until_ns = keyring.parse_public(table.public), 0, keyring.FOREVER
    else:
        assert table.file is not None  # contradictions.py
        public, from_ns, until_ns = keyring.read_public(table.file)
    given = (table.from_ns if table.from_ns is not None else from_ns,
             table.until_ns if table.until_ns is not None else until_ns)  # fmt: skip
    return keyring.OriginKey(table.origin, public, *given)


def quotas_of(config: SiteConfig) -> QuotaTable:
    """What each principal may use: for each key, its own [[quota]], or that of everybody, or the default."""
    everybody = _with(Quotas(), [each for each in config.quota if EVERYBODY in each.who])
    names = dict.fromkeys(name for each in config.quota for name in each.who if name != EVERYBODY)
    named = {name: _with(everybody, [each for each in config.quota if name in each.who]) for name in names}
    return QuotaTable(everybody, named)


def _with(quotas: Quotas, tables: Iterable[Quota]) -> Quotas:
    given = {
        key.name: value for table in tables for key in fields(Quotas) if (value := getattr(table, key.name)) is not None
    }
    return replace(quotas, **given)


def principal_of(config: SiteConfig) -> str | None:
    """The name by which the rules of other sites know this one: that of its user or of its certificate.

    None without credentials: then it has the rights of everybody, and a name that it cannot prove is admitted nowhere.
    """
    users, tls = config.users, config.tls
    if users is not None and users.name:
        return users.name
    return config.site.name if tls is not None and tls.certificate is not None else None


def visiting_terms(config: SiteConfig) -> SessionTerms:
    """The session of a client that has the configuration of the site; OptionError if there is nothing to connect to.

    It connects to the endpoints on which the site listens, those first where it may do most: the socket of the queue,
    then others with the certificate or the user name of the site, then other sockets; and at last to those that the
    site connects to.
    """
    terms = session_terms(config)
    own = local_endpoint(config.site.queue) if LOCAL in config.site.listen else ""
    near = sorted((parse_endpoint(text, listen=True) for text in terms.listen), key=lambda each: _order(each, own))
    places = [str(_reachable(endpoint)) for endpoint in near if endpoint.port or endpoint.protocol == UNIX]
    if not places and not terms.connect:
        raise OptionError(
            f"site {config.site.name} has no endpoint that is known in advance",
            "give its endpoint instead of its configuration",
        )
    return SessionTerms("client", connect=(*places, *terms.connect), tls=terms.tls, user=terms.user)


def _order(endpoint: Endpoint, own: str) -> int:
    return 0 if str(endpoint) == own else 2 if endpoint.protocol == UNIX else 1


def _reachable(endpoint: Endpoint) -> Endpoint:
    return Endpoint(endpoint.protocol, _LOCAL.get(endpoint.host, endpoint.host), endpoint.port)
