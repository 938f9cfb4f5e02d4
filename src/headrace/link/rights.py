"""Rights: what each principal may do with which feeds, by the rules of a site.

A rule names principals, by the common name of their certificate or by their user name, and the feeds for each right:

    receive   read products, live, from the log and through cursors of its own
    publish   put products and, as a site, send them under its own name
    station   have stations of its own: not blocking, and within its quota
    manage    all stations and cursors, blocking ones and those of others; channels and groups of nodes
    consume   by names, not feeds: stations of the site or of others that it may take products from, and groups
              of processing nodes (CHANNEL/GROUP) that it may join; it must be able to receive what they hand out
    relay     a flag: what the rule lets it publish, it may also publish in the name of other origins; and it speaks
              for the sites that may publish nothing else here (`may_speak_for`)

Rules add rights, whatever their order. A rule with `deny` takes away what it names, and wins over every rule that adds.
What no rule allows is denied: a principal that no rule names may do nothing. Without any rule, everything is open to
every principal that can connect.

`who = ["*"]` is for every principal, with a name or without. Nobody can tell who sends in the name of everybody.
Therefore such a rule never lets a site speak that no rule names, and the origin of what it lets in is not held against
anything, within the feeds of that rule.

Programs at the socket of the queue are the principal `@local`, which no rule can name: it may do everything.

Not here: how Zenoh enforces the rights at the links (access.py), and passwords and certificates (credentials.py).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from headrace.errors import OptionError
from headrace.link.keys import AT_SOCKET, expressions, overlap
from headrace.product.feed import FeedPattern
from headrace.product.put import check_origin
from headrace.selection.pattern import canonical_pattern

EVERYBODY = "*"
RIGHTS = ("receive", "publish", "station", "manage")
_ALL = "**"
_ANY = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may do what with which feeds. A relay speaks for others: only for sites that you trust."""

    who: tuple[str, ...]
    receive: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    relay: bool = False
    station: tuple[str, ...] = ()
    manage: tuple[str, ...] = ()
    deny: bool = False
    consume: tuple[str, ...] = ()  # names of stations, and CHANNEL/GROUP; "*": all

    def __post_init__(self) -> None:
        if not self.who:
            raise OptionError("an access rule has no names", f'list the names it applies to, or "{EVERYBODY}"')
        if not (self.consume or any(getattr(self, right) for right in RIGHTS)):
            raise OptionError(
                f"the access rule for {', '.join(self.who)} has no feeds",
                "add receive, publish, station, manage or consume",
            )
        if self.relay and self.deny:
            raise OptionError(f"the access rule for {', '.join(self.who)} denies relay", "leave out relay")
        for name in self.who:
            _check_name(name)
        object.__setattr__(self, "who", tuple(dict.fromkeys(self.who)))
        for right in RIGHTS:
            object.__setattr__(self, right, tuple(_patterns(getattr(self, right))))
        object.__setattr__(self, "consume", tuple(dict.fromkeys(self.consume)))

    def is_for(self, name: str | None) -> bool:
        return EVERYBODY in self.who or name in self.who


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
        yield from (_ALL,) if pattern is None else pattern.alternatives


class Feeds:
    """The feeds of one right: those that match an `allowed` pattern and no `denied` one."""

    __slots__ = ("_allowed", "_denied", "allowed", "denied")

    def __init__(self, allowed: Iterable[str] = (), denied: Iterable[str] = ()) -> None:
        self.allowed, self.denied = tuple(dict.fromkeys(allowed)), tuple(dict.fromkeys(denied))
        self._allowed = [FeedPattern(text) for text in self.allowed]
        self._denied = [FeedPattern(text) for text in self.denied]

    def __contains__(self, feed: str) -> bool:
        if any(pattern.matches(feed) for pattern in self._denied):
            return False
        return any(pattern.matches(feed) for pattern in self._allowed)

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Feeds) and (self.allowed, self.denied) == (other.allowed, other.denied)

    def __hash__(self) -> int:
        return hash((self.allowed, self.denied))

    def __repr__(self) -> str:
        return f"Feeds({self.allowed!r}, {self.denied!r})"

    @property
    def is_all(self) -> bool:
        return not self.denied and _ALL in self.allowed

    @property
    def test(self) -> Callable[[str], bool] | None:
        """Whether a feed is one of these, as readers take it (`log/read.py: Allowed`); None: all feeds are."""
        return None if self.is_all else self.__contains__

    def includes(self, pattern: str) -> bool:
        """Whether every feed that matches `pattern` is one of these."""
        if any(overlap(denied, pattern) for denied in self.denied):
            return False
        given = [expression for text in self.allowed for expression in expressions(text)]
        return all(any(each.includes(wanted) for each in given) for wanted in expressions(pattern))

    def covers(self, other: "Feeds") -> bool:
        """Whether all of the other feeds are among these."""
        return all(
            Feeds(self.allowed).includes(pattern)
            and all(Feeds(other.denied).includes(denied) for denied in self.denied if overlap(denied, pattern))
            for pattern in other.allowed
        )

    def meets(self, pattern: str) -> bool:
        """Whether some feed that matches `pattern` may be one of these; False only if certainly none is."""
        denied = [expression for text in self.denied for expression in expressions(text)]
        given = [expression for text in self.allowed for expression in expressions(text)]
        return any(
            each.intersects(part) and not any(no.includes(part) or no.includes(each) for no in denied)
            for each in given
            for part in expressions(pattern)
        )


_UNNAMED = ""  # stands for any site that no rule names
EVERY_FEED = Feeds([_ALL])


@dataclass(frozen=True, slots=True)
class Names:
    """Names of stations and groups that a principal may consume from; "*" stands for all."""

    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.allowed)

    def covers(self, other: "Names") -> bool:
        allowed = _ANY in self.allowed or other.allowed <= self.allowed
        return allowed and self.denied <= other.denied

    def __contains__(self, name: str) -> bool:
        return bool(self.allowed & {name, _ANY}) and not self.denied & {name, _ANY}


@dataclass(frozen=True, slots=True)
class Rights:
    """What one principal may do. `relay`: the feeds that it may publish in the name of any origin."""

    receive: Feeds
    publish: Feeds
    station: Feeds
    manage: Feeds
    relay: Feeds
    consume: Names = Names()

    @property
    def is_empty(self) -> bool:
        return not (self.receive or self.publish or self.station or self.manage or self.consume)

    def covers(self, other: "Rights") -> bool:
        """Whether this principal may do all that the other may, but for the origins of products."""
        return all(getattr(self, right).covers(getattr(other, right)) for right in (*RIGHTS, "consume"))

    def may_send(self, feed: str, origin: str, sender: str | None) -> bool:
        """Whether a product of this feed and origin may come from `sender`, whose rights these are."""
        return feed in self.publish and (origin == sender or feed in self.relay)

    @classmethod
    def of(cls, rules: Iterable[Rule], *, relays: Callable[[Rule], bool]) -> Self:
        """The union of some rules, less what those with `deny` take away."""
        rules = tuple(rules)
        feeds = {right: Feeds(_texts(rules, right, deny=False), _texts(rules, right, deny=True)) for right in RIGHTS}
        relay = Feeds(_texts(filter(relays, rules), "publish", deny=False), feeds["publish"].denied)
        consume = (
            frozenset(name for rule in rules if rule.deny == deny for name in rule.consume) for deny in (False, True)
        )
        return cls(**feeds, relay=relay, consume=Names(*consume))


_EVERYTHING = Rights(EVERY_FEED, EVERY_FEED, EVERY_FEED, EVERY_FEED, EVERY_FEED, Names(frozenset([_ANY])))


def _texts(rules: Iterable[Rule], right: str, *, deny: bool) -> Iterator[str]:
    return (text for rule in rules if rule.deny == deny for text in getattr(rule, right))


def rights_of(rules: Sequence[Rule], name: str | None) -> Rights:
    """The rights of a principal (None: one without a name) that calls or queries; all without any rule."""
    return _rights_of(tuple(rules), name)


@lru_cache(maxsize=1024)
def _rights_of(rules: tuple[Rule, ...], name: str | None) -> Rights:
    if not rules or name == AT_SOCKET:
        return _EVERYTHING
    return Rights.of((rule for rule in rules if rule.is_for(name)), relays=_frees_origin)


def _frees_origin(rule: Rule) -> bool:
    return rule.relay or EVERYBODY in rule.who


def sender_rights(rules: Sequence[Rule], site: str) -> Rights:
    """The rights of what arrives in the name of a site.

    A site that no rule names can only be heard through relays. They bring what they may publish themselves, and of that
    the products whose origin is the site itself: to hear others through it, name it in a rule with relay.
    """
    return _sender_rights(tuple(rules), site)


@lru_cache(maxsize=1024)
def _sender_rights(rules: tuple[Rule, ...], site: str) -> Rights:
    if not rules:
        return _EVERYTHING
    if is_named(rules, site):
        return Rights.of((rule for rule in rules if rule.is_for(site)), relays=lambda rule: rule.relay)
    through = (rule for rule in rules if rule.relay or (rule.deny and rule.is_for(site)))
    return Rights.of(through, relays=lambda rule: False)


def may_speak_for(rules: Sequence[Rule], relay: str, site: str = _UNNAMED) -> bool:
    """Whether a relay may send messages in the name of a site; by default, of one that no rule names.

    What comes in the name of a site moves positions in its log, also without a product, and nobody can tell over which
    link it came. So the relay may only speak for a site if it may itself bring all that the site may publish.
    """
    feeds = sender_rights(rules, relay).relay
    return bool(feeds) and feeds.covers(sender_rights(rules, site).publish)


def may_ask_for(rules: Sequence[Rule], relay: str, name: str) -> bool:
    """Whether a relay may pass on queries and calls of another principal.

    The key of a query has the name, and whoever passes it on could have written it. So the relay may only do that for
    a principal that may do nothing else here than it may itself.
    """
    return rights_of(rules, relay).covers(rights_of(rules, name))


def named(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The names in the rules that add rights."""
    names = (name for rule in rules if not rule.deny for name in rule.who if name != EVERYBODY)
    return tuple(dict.fromkeys(names))


def is_named(rules: Sequence[Rule], site: str) -> bool:
    """Whether a rule that adds rights names this very site."""
    return any(site in rule.who for rule in rules if not rule.deny)


def is_principal(rules: Sequence[Rule], name: str | None) -> bool:
    """Whether who calls or queries has a name of its own here; all others share what is for those without a name."""
    return name is not None and (name == AT_SOCKET or is_named(rules, name))


def may_come_in(rules: Sequence[Rule], feed: str) -> bool:
    """Whether any site may publish products of a feed pattern here; no request for it gets anything otherwise."""
    return not rules or any(
        sender_rights(rules, name).publish.meets(feed) for rule in rules for name in rule.who if name != EVERYBODY
    )
