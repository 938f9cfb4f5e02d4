"""Access: the rights of principals as settings of Zenoh, which enforces them at the link a message comes or goes by.

    may receive   live pages of its feeds and beats, of streams that are its own; tokens, queries to logs, calls
    may publish   live pages of its feeds and beats under its own name as a site, its token, replies, calls
    relay         all that for other sites too, within its feeds: for those that may publish no more than that
    station, manage   calls; the server looks at each

Streams that several principals share, and the tokens by which sites show which feeds they have, tell about all feeds.
So they are for those who may receive everything, and for relays. Anybody else has the streams `<name>:<digest>`. What
others subscribe to is shown only to the site that they subscribe to.

Everybody (`*`) has no name of its own, so it receives and calls, and never publishes as a site or replies.

A query does not say who sends it, and Zenoh would not vouch for it. Therefore a principal queries under its own name,
`headrace/log/<site>/<name>`, and Zenoh admits no other name. The serving site takes the name from the key
(`principal_in`) and gives what the rights allow; a key without a name has the rights of everybody.

Programs at the Unix socket of the queue have all rights, because who can enter its folder may write to the queue. They
query under `headrace/log/<site>/@local/<key>`, with the key that lies beside the socket (local.py), and Zenoh admits
that from Unix sockets only. Both are needed: a site may have links over other sockets too, and a key can be stolen. No
pattern of a rule, not even that of a relay, matches `@local`. They may not publish as a site.

Zenoh adds up what the subjects of one link may do: what one subject denies, another allows. Therefore each name has all
its rules in one policy, and a rule that denies a name what everybody may receive is refused (`check_rules`).

A relay that may speak for the sites that no rule names has `*` in its keys, and rules that deny what it may not: the
names of this site, and of the sites that may publish more than it may bring. Zenoh holds a key with wild cards against
what is allowed, and not against what is denied. So whoever takes a message looks for the very key that it should have
(`keys.is_wild`).

Not here: the rights (rights.py), and which products of a log a principal receives (`headrace.relay.serve`).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from headrace.errors import OptionError
from headrace.link.endpoint import UNIX
from headrace.link.keys import (
    AT_SOCKET,
    LEAVING,
    LISTENS,
    ROOT,
    audience_stream,
    key_at_socket,
    overlap,
    site_of,
)
from headrace.link.rights import (
    EVERYBODY,
    RIGHTS,
    Rights,
    Rule,
    is_named,
    may_ask_for,
    may_speak_for,
    named,
    rights_of,
    sender_rights,
)

_LIVE, _BEAT, _LOG, _CALL = (f"{ROOT}/{kind}" for kind in ("live", "beat", "log", "call"))
_SITES, _CLIENTS = f"{ROOT}/site/**", f"{ROOT}/client"
Grant = dict[str, Any]


# --- the principal of a query ---------------------------------------------------------------------------


def principal_key(key: str, name: str | None) -> str:
    """The key of a log or of calls under which principal `name` queries; Zenoh admits only that principal there."""
    if name is None or not name.startswith(AT_SOCKET):
        return key if name is None else f"{key}/{name}"
    secret = key_at_socket(name, site_of(key))
    return key if secret is None else f"{key}/{AT_SOCKET}/{secret}"


def principal_in(key: str, rules: Sequence[Rule]) -> str | None:
    """The principal in the key of a query; None without a name, or if no rule has it. Trustworthy only with rules.

    Whoever no rule names has the rights of everybody, whatever he calls himself: Zenoh admits those names to all.
    """
    levels = key.split("/")
    if AT_SOCKET in levels:
        return AT_SOCKET if len(levels) == 5 and levels[3] == AT_SOCKET else None
    return levels[3] if len(levels) == 4 and is_named(rules, levels[3]) else None


# --- the rights as Zenoh's settings ---------------------------------------------------------------------


def check_rules(rules: Sequence[Rule]) -> None:
    """Refuse rules that nobody could enforce: whoever is denied something by name calls without his name."""
    for_all = [rule for rule in rules if EVERYBODY in rule.who and not rule.deny]
    for rule in rules:
        if not rule.deny or EVERYBODY in rule.who:
            continue
        for right, what in denied_in_vain(rule, for_all):
            raise OptionError(
                f"a rule denies {', '.join(rule.who)} to {right} {what}, which everybody may {right}",
                f'deny it to "{EVERYBODY}" and allow it by name, or name those who may {right} it',
            )


def denied_in_vain(denial: Any, for_all: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """What a rule denies by name although everybody may do it: the right, and the feed or the name."""
    for right in RIGHTS:
        allowed = [feed for rule in for_all for feed in getattr(rule, right) or ()]
        for feed in getattr(denial, right) or ():
            if any(overlap(feed, each) for each in allowed):
                yield right, feed
    shared = {name for rule in for_all for name in rule.consume or ()}
    for name in denial.consume or ():
        if shared & {name, "*"} or (name == "*" and shared):
            yield "consume", name


def access_settings(rules: Sequence[Rule], own: Collection[str] = (), socket_key: str | None = None) -> dict[str, Any]:
    """Zenoh's `access_control` for these rules; without rules nothing is denied.

    `own` are the names of the site whose rules these are: no other site speaks for it. Who comes by a Unix socket and
    has `socket_key` may do everything; None: nobody.
    """
    if not rules:
        return {"enabled": False}
    check_rules(rules)
    names = dict.fromkeys(name for rule in rules for name in rule.who)
    policies = [_policy(rules, name, own) for name in names]
    if socket_key is not None:
        policies.append(_numbered(AT_SOCKET, _at_socket(socket_key), [{"id": AT_SOCKET, "link_protocols": [UNIX]}]))
    settings: dict[str, Any] = {"enabled": True, "default_permission": "deny"}
    for part in ("rules", "subjects", "policies"):
        settings[part] = [each for policy in policies for each in policy[part]]
    return settings


def _policy(rules: Sequence[Rule], name: str, own: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """What one name may do, in Zenoh's three lists."""
    grants = _everybody(rules) if name == EVERYBODY else _named(rules, name, own)
    return _numbered(name, grants, _subjects(name))


def _numbered(name: str, grants: Sequence[Grant], subjects: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    numbered = [{"id": f"{name}-{number}", **grant} for number, grant in enumerate(grants)]
    policy = {"rules": [each["id"] for each in numbered], "subjects": [each["id"] for each in subjects]}
    return {"rules": numbered, "subjects": subjects, "policies": [policy] if numbered else []}


def _subjects(name: str) -> list[dict[str, Any]]:
    """The links of a name, known by certificate or by user; Zenoh combines the fields of one subject by `and`."""
    if name == EVERYBODY:
        return [{"id": name}]
    return [{"id": f"{name}-certificate", "cert_common_names": [name]}, {"id": f"{name}-user", "usernames": [name]}]


def _everybody(rules: Sequence[Rule]) -> list[Grant]:
    rights = rights_of(rules, EVERYBODY)
    if rights.is_empty:
        return []
    streams = _streams(rights, None)
    return [
        *_receiving(rights, ["*"], streams),
        *_calling(["*"]),
        *_tokens(_own_tokens([], streams), [], sees_feeds=rights.receive.is_all),
        *_denials(rights),
        *(grant for name in named(rules) for grant in _unasked(name)),
    ]


def _at_socket(key: str) -> list[Grant]:
    """All calls and queries; of live pages and of what others listen to nothing, which such programs do not need."""
    asked = [f"{kind}/*/{AT_SOCKET}" for kind in (_LOG, _CALL)]
    return [
        _allow("ingress", ["query"], [f"{each}/{key}" for each in asked]),
        _allow("egress", ["reply", "declare_queryable"], [f"{each}/*" for each in asked]),
        _allow("ingress", ["liveliness_token"], [f"{_CLIENTS}/*/*", f"{_CLIENTS}/*/{AT_SOCKET}/*"]),
        _allow("egress", ["liveliness_token"], [_SITES]),
        _allow("ingress", ["declare_liveliness_subscriber", "liveliness_query"], [_SITES]),
        _allow(
            "egress", ["declare_liveliness_subscriber", "liveliness_query"],
            [_SITES, f"{_CLIENTS}/**", f"{_CLIENTS}/*/{AT_SOCKET}/*"],
        ),
    ]  # fmt: skip


def _streams(rights: Rights, name: str | None) -> str:
    """The streams that a principal may hear."""
    return "*" if rights.receive.is_all else audience_stream(name, "$*")


def _named(rules: Sequence[Rule], name: str, own: Collection[str]) -> list[Grant]:
    """A name has what everybody has, too; a name that only rules with `deny` name has nothing."""
    rights = sender_rights(rules, name)
    of_name = [rule for rule in rules if rule.is_for(name) and not rule.deny]
    if not any(name in rule.who for rule in of_name):
        return []
    is_relay = any(rule.relay for rule in of_name)
    others, withheld = _others(rules, name, own) if is_relay else ([], [])
    names = ["*"] if "*" in others else [name, *others]
    asked_for, not_asked_for = _asked_for(rules, name, own) if is_relay else ([], [])
    asking = ["*"] if "*" in others else [name, *asked_for]
    streams = "*" if is_relay else _streams(rights, name)
    shown = [*(f"{ROOT}/site/{each}/**" for each in names), *_own_tokens(asking, streams)]
    for_it = [f"{_CLIENTS}/{each}/**" for each in names]  # tokens that are for these sites
    return [
        *_receiving(rights, asking, streams),
        *(_publishing(rights.publish.allowed, name) if rights.publish else []),
        *(grant for each in others for grant in _publishing(rights.relay.allowed, each)),
        *_calling(asking),
        *_tokens(shown, for_it, sees_feeds=is_relay or rights.receive.is_all),
        *_denials(rights),
        *(grant for each in withheld for grant in _silence(each)),
        *(grant for each in not_asked_for if "*" in asking for grant in _unasked(each)),
    ]


def _others(rules: Sequence[Rule], relay: str, own: Collection[str]) -> tuple[list[str], list[str]]:
    """For which others a relay speaks, and for which of these it does not."""
    others = [site for site in named(rules) if site != relay]
    spoken_for = [site for site in others if site not in own and may_speak_for(rules, relay, site)]
    if not may_speak_for(rules, relay):
        return spoken_for, []
    withheld = [site for site in dict.fromkeys((*others, *own)) if site != relay and site not in spoken_for]
    return ["*"], withheld


def _asked_for(rules: Sequence[Rule], relay: str, own: Collection[str]) -> tuple[list[str], list[str]]:
    """The named principals whose queries and calls a relay may pass on, and the others."""
    others = [name for name in dict.fromkeys((*named(rules), *own)) if name != relay]
    passed = [name for name in others if name not in own and may_ask_for(rules, relay, name)]
    return passed, [name for name in others if name not in passed]


def _unasked(name: str) -> list[Grant]:
    """No query or call in this name comes in, and no token of a client of this name."""
    grants = [
        _allow("ingress", ["query"], [f"{_LOG}/*/{name}", f"{_CALL}/*/{name}"]),
        _allow("ingress", ["liveliness_token"], [f"{_CLIENTS}/*/{name}/*"]),
    ]
    return [{**grant, "permission": "deny"} for grant in grants]


def _silence(site: str) -> list[Grant]:
    """Nothing in the name of this site as a site comes in, and no query to it goes out."""
    logs = [f"{_LOG}/{site}/**", f"{_CALL}/{site}/**"]
    grants = [
        _allow("ingress", ["put"], [f"{_LIVE}/{site}/**", f"{_BEAT}/{site}/**"]),
        _allow("ingress", ["reply", "declare_queryable"], logs),
        _allow("egress", ["query"], logs),
        _allow("ingress", ["liveliness_token"], [f"{ROOT}/site/{site}/**"]),
    ]
    return [{**grant, "permission": "deny"} for grant in grants]


def _allow(flow: str, messages: Iterable[str], keys: Iterable[str]) -> Grant:
    """Ingress is from the principal to here, egress from here to the principal."""
    return {"permission": "allow", "flows": [flow], "messages": list(messages), "key_exprs": list(keys)}


def _receiving(rights: Rights, names: Sequence[str], streams: str) -> list[Grant]:
    """Subscriptions to its streams may come in; only beats and pages of the feeds go out."""
    if not rights.receive:
        return []
    live, beats = f"{_LIVE}/*/{streams}/**", f"{_BEAT}/*/{streams}"
    if streams == "*":
        live, beats = f"{_LIVE}/**", f"{_BEAT}/**"
    return [
        _allow("ingress", ["declare_subscriber"], [live, beats]),
        _allow("egress", ["put"], [*(f"{_LIVE}/*/{streams}/{feed}" for feed in rights.receive.allowed), beats]),
        _allow("ingress", ["query"], _query_keys(_LOG, names)),
        _allow("egress", ["reply", "declare_queryable"], [f"{_LOG}/**"]),
    ]


def _publishing(feeds: Sequence[str], site: str) -> list[Grant]:
    """`site` is the one that it may speak for: itself, or as a relay another one or `*`."""
    return [
        _allow("egress", ["declare_subscriber"], [f"{_LIVE}/{site}/**", f"{_BEAT}/{site}/**"]),
        _allow("ingress", ["put"], [*(f"{_LIVE}/{site}/*/{feed}" for feed in feeds), f"{_BEAT}/{site}/**"]),
        _allow("egress", ["query"], [f"{_LOG}/**", f"{_CALL}/**"]),
        _allow("ingress", ["reply", "declare_queryable"], [f"{_LOG}/{site}/**", f"{_CALL}/{site}/**"]),
    ]


def _calling(names: Sequence[str]) -> list[Grant]:
    return [
        _allow("ingress", ["query"], _query_keys(_CALL, names)),
        _allow("egress", ["reply", "declare_queryable"], [f"{_CALL}/**"]),
    ]


def _own_tokens(names: Sequence[str], streams: str) -> list[str]:
    """The tokens of clients: those without a name, those of these names, and those of subscribers."""
    named = [f"{_CLIENTS}/*/{name}/*" for name in names]
    return [f"{_CLIENTS}/*/*", *named, f"{_CLIENTS}/*/{LISTENS}/{streams}/**"]


def _tokens(shown: Sequence[str], for_it: Sequence[str], *, sees_feeds: bool) -> list[Grant]:
    """Tokens both ways: a principal with a rule sees which sites exist, and is seen.

    Only the site whose clients they are sees the tokens of clients. So no member learns the digest of another, which
    it would need to declare the token of a client without a name. The digest of a site's feeds is for those who may
    receive all of them.
    """
    sites = [_SITES] if sees_feeds else [f"{ROOT}/site/*", f"{ROOT}/site/*/*", f"{ROOT}/site/*/*/{LEAVING}"]
    return [
        _allow("ingress", ["liveliness_token"], shown),
        _allow("egress", ["liveliness_token"], [*sites, *for_it]),
        _allow("ingress", ["declare_liveliness_subscriber", "liveliness_query"], [_SITES, *for_it]),
        _allow("egress", ["declare_liveliness_subscriber", "liveliness_query"], [_SITES, f"{_CLIENTS}/**"]),
    ]


def _denials(rights: Rights) -> list[Grant]:
    """Within one policy, what is denied wins."""
    flows = (("egress", rights.receive.denied), ("ingress", rights.publish.denied))
    return [
        {**_allow(flow, ["put"], [f"{_LIVE}/*/*/{feed}" for feed in denied]), "permission": "deny"}
        for flow, denied in flows
        if denied
    ]


def _query_keys(kind: str, names: Sequence[str]) -> list[str]:
    """The keys to query: those without a name are open to all, those with a name to its bearer and to relays."""
    return [f"{kind}/*", *(f"{kind}/*/{name}" for name in names)]
