"""Access: who may receive and who may publish which feeds.

A rule names principals, by the common name of their certificate or by their user name, and the feeds that they may
receive and publish. Rules only add: what no rule allows is denied. A principal that no rule names is denied everything,
even beats and the tokens of sites. Without any rule, everything is allowed to every principal that can connect.

Zenoh enforces the rules at the link through which a message comes in or goes out (`access_settings`):

    may receive   live pages of its feeds, beats, tokens, queries to logs, calls
    may publish   live pages of its feeds and beats under its own name as a site, its token, replies, calls
    relay         all that for other sites too, within its feeds

A query does not say who sends it, and Zenoh would not vouch for it. Therefore a principal queries under its own name,
`headrace/log/<site>/<name>`, and Zenoh admits no other name. The serving site takes the name from the key
(`principal_in`) and gives what `receivable` allows; a key without a name has the rights of everybody.

Not here: which products of a log a principal receives (`headrace.relay.serve` calls `receivable`), and passwords and
certificates (`headrace.link.credentials`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import OptionError
from headrace.link.keys import ROOT, overlap
from headrace.product.feed import FeedPattern
from headrace.product.put import check_origin
from headrace.selection.pattern import canonical_pattern

EVERYBODY = "*"
_LIVE, _BEAT, _LOG, _CALL = (f"{ROOT}/{kind}" for kind in ("live", "beat", "log", "call"))
_TOKENS = (f"{ROOT}/site/**", f"{ROOT}/client/**")


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may receive and publish what. A relay forwards what others publish and query: only for sites you trust."""

    who: tuple[str, ...]
    receive: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    relay: bool = False

    def __post_init__(self) -> None:
        if not self.who:
            raise OptionError("an access rule has no names", f'list the names it applies to, or "{EVERYBODY}"')
        if not (self.receive or self.publish):
            raise OptionError(f"the access rule for {', '.join(self.who)} allows nothing", "add receive or publish")
        for name in self.who:
            _check_name(name)
        object.__setattr__(self, "who", tuple(dict.fromkeys(self.who)))
        for field in ("receive", "publish"):
            object.__setattr__(self, field, tuple(_patterns(getattr(self, field))))


def _check_name(name: str) -> None:
    if name == EVERYBODY:
        return
    try:
        check_origin(name)
    except OptionError as error:
        hint = f'{error.hint}, or "{EVERYBODY}" for everybody'
        raise OptionError(f"an access rule has the name {name!r}, which is not a valid name", hint) from None


def _patterns(texts: Iterable[str]) -> Iterator[str]:
    """Canonical patterns; alternatives one by one, because each is a key of its own."""
    for text in texts:
        pattern = canonical_pattern(text)
        yield from ("**",) if pattern is None else pattern.alternatives


# --- the principal of a query, and its rights ---------------------------------------------------------


def principal_key(key: str, name: str | None) -> str:
    """The key of a log or of calls under which principal `name` queries; Zenoh admits only that principal there."""
    return key if name is None else f"{key}/{name}"


def principal_in(key: str) -> str | None:
    """The principal in the key of a query; None if the key has no name. Trustworthy only if the site has rules."""
    levels = key.split("/")
    return levels[3] if len(levels) == 4 else None


def receivable(rules: Sequence[Rule], name: str | None) -> tuple[FeedPattern, ...]:
    """The feeds that a principal may receive; all if there are no rules."""
    return _feeds(rules, name, "receive")


def feed_test(patterns: Sequence[FeedPattern]) -> Callable[[str], bool] | None:
    """Whether a feed matches one of the patterns, as readers take it (`log/read.py: Allowed`); None: all do."""
    if any(pattern.text == "**" for pattern in patterns):
        return None
    return lambda feed: any(pattern.matches(feed) for pattern in patterns)


def publishable(rules: Sequence[Rule], name: str | None) -> tuple[FeedPattern, ...]:
    """The feeds that a principal may publish; all if there are no rules."""
    return _feeds(rules, name, "publish")


def may_come_in(rules: Sequence[Rule], feed: str) -> bool:
    """Whether any principal may publish products of a feed pattern here; no request for it gets anything otherwise."""
    return not rules or any(overlap(pattern, feed) for rule in rules for pattern in rule.publish)


def _feeds(rules: Sequence[Rule], name: str | None, field: str) -> tuple[FeedPattern, ...]:
    if not rules:
        return (FeedPattern("**"),)
    of_name = [rule for rule in rules if EVERYBODY in rule.who or name in rule.who]
    texts = dict.fromkeys(text for rule in of_name for text in getattr(rule, field))
    return tuple(FeedPattern(text) for text in texts)


# --- the rules as Zenoh's settings --------------------------------------------------------------------


def access_settings(rules: Sequence[Rule]) -> dict[str, Any]:
    """Zenoh's `access_control` for these rules; without rules nothing is denied."""
    if not rules:
        return {"enabled": False}
    grants = [_grants(number, rule, name) for number, rule in enumerate(rules) for name in rule.who]
    settings: dict[str, Any] = {"enabled": True, "default_permission": "deny"}
    for part in ("rules", "subjects", "policies"):
        settings[part] = [each for grant in grants for each in grant[part]]
    return settings


def _grants(position: int, rule: Rule, name: str) -> dict[str, list[dict[str, Any]]]:
    """What one rule grants to one name, in Zenoh's three lists."""
    label = f"{position}-{name}"
    grants = [*_receive_grants(rule, name), *_publish_grants(rule, name), *_common_grants(rule, name)]
    rules = [{"id": f"{label}-{number}", "permission": "allow", **grant} for number, grant in enumerate(grants)]
    subjects = _subjects(label, name)
    policy = {"rules": [each["id"] for each in rules], "subjects": [each["id"] for each in subjects]}
    return {"rules": rules, "subjects": subjects, "policies": [policy]}


def _subjects(label: str, name: str) -> list[dict[str, Any]]:
    """The links of a name, known by certificate or by user; Zenoh combines the fields of one subject by `and`."""
    if name == EVERYBODY:
        return [{"id": label}]
    return [{"id": f"{label}-certificate", "cert_common_names": [name]}, {"id": f"{label}-user", "usernames": [name]}]


def _grant(flow: str, messages: Iterable[str], keys: Iterable[str]) -> dict[str, Any]:
    """Ingress is from the principal to here, egress from here to the principal."""
    return {"flows": [flow], "messages": list(messages), "key_exprs": list(keys)}


def _receive_grants(rule: Rule, name: str) -> list[dict[str, Any]]:
    """Any subscription may come in; only pages of the feeds go out."""
    if not rule.receive:
        return []
    return [
        _grant("ingress", ["declare_subscriber"], [f"{_LIVE}/**", f"{_BEAT}/**"]),
        _grant("egress", ["put"], [*(f"{_LIVE}/*/*/{feed}" for feed in rule.receive), f"{_BEAT}/**"]),
        _grant("ingress", ["query"], _query_keys(_LOG, rule, name)),
        _grant("egress", ["reply", "declare_queryable"], [f"{_LOG}/**"]),
    ]


def _publish_grants(rule: Rule, name: str) -> list[dict[str, Any]]:
    if not rule.publish:
        return []
    site = _sites(rule, name)
    return [
        _grant("egress", ["declare_subscriber"], [f"{_LIVE}/**", f"{_BEAT}/**"]),
        _grant("ingress", ["put"], [*(f"{_LIVE}/{site}/*/{feed}" for feed in rule.publish), f"{_BEAT}/{site}/**"]),
        _grant("egress", ["query"], [f"{_LOG}/**", f"{_CALL}/**"]),
        _grant("ingress", ["reply", "declare_queryable"], [f"{_LOG}/{site}/**", f"{_CALL}/{site}/**"]),
    ]


def _common_grants(rule: Rule, name: str) -> list[dict[str, Any]]:
    """Calls, and tokens both ways: a principal with a rule sees which sites exist, and is seen."""
    shown = [f"{ROOT}/site/{_sites(rule, name)}/**", f"{ROOT}/client/**"]
    return [
        _grant("ingress", ["query"], _query_keys(_CALL, rule, name)),
        _grant("egress", ["reply", "declare_queryable"], [f"{_CALL}/**"]),
        _grant("ingress", ["liveliness_token"], shown),
        _grant("egress", ["liveliness_token"], _TOKENS),
        _grant("ingress", ["declare_liveliness_subscriber", "liveliness_query"], _TOKENS),
        _grant("egress", ["declare_liveliness_subscriber", "liveliness_query"], _TOKENS),
    ]


def _sites(rule: Rule, name: str) -> str:
    """The sites that a principal may speak for: itself; any site only as a relay, or if its name is unknown."""
    return "*" if rule.relay or name == EVERYBODY else name


def _query_keys(kind: str, rule: Rule, name: str) -> list[str]:
    """The keys to query: those without a name are open to all, those with a name to its bearer and to relays."""
    if rule.relay:
        return [f"{kind}/*", f"{kind}/*/*"]
    return [f"{kind}/*"] if name == EVERYBODY else [f"{kind}/*", f"{kind}/*/{name}"]
