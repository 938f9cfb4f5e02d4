"""Keys: the names under which messages travel between sites.

    headrace/live/<site>/<stream>/<feed>   live pages; the levels of the feed are levels of the key
    headrace/beat/<site>/<stream>          how far the stream is, twice a second
    headrace/log/<site>                    queries: pages from the log, and what a site holds
    headrace/call/<site>                   queries: calls of a remote user of the queue
    headrace/site/<site>/<session>         liveliness token: the site is present, in this Zenoh session
    headrace/site/<site>/<session>/<digest>  and it offers feeds with this digest, or is about to stop: `leaving`
    headrace/client/<site>/<digest>        liveliness token: a remote user of the site's queue is present
    headrace/client/<site>/<name>/<digest>   the same, under the name of its principal, which nobody else can declare
    headrace/log/<site>/@local/<key>, headrace/call/<site>/@local/<key>   queries of who has the key of its socket
    headrace/client/<site>/listens/<stream>/<feeds>   liveliness token: these feeds of a stream have a subscriber

A stream is `own`, or a digest of a selection. One that is made for a single principal has its name in front,
`<name>:<digest>`, so that access rules can give it to that principal alone.

A feed contains no character that is special in a key, and feed patterns are written like key expressions, so both
become keys unchanged. A pattern with alternatives (`a/**|b`) is not a key: its subscribers use a stream of their own.
"""

import zenoh

ROOT = "headrace"
LEAVING = "leaving"  # instead of a digest
AT_SOCKET = "@local"  # instead of a name: programs at the socket of the queue; in Zenoh, no * or ** matches it
LISTENS = "listens"  # instead of a name
OWN = "own"  # the stream of everything that was put at the site itself
_NAMELESS = "_"  # in place of a name; no name begins like that


def audience_stream(name: str | None, digest: str) -> str:
    """The name of a stream that is for one principal; None: for those without a name."""
    return f"{name or _NAMELESS}:{digest}"


def live_key(site: str, stream: str, feed: str) -> str:
    return f"{ROOT}/live/{site}/{stream}/{feed}"


def beat_key(site: str, stream: str) -> str:
    return f"{ROOT}/beat/{site}/{stream}"


def log_key(site: str) -> str:
    return f"{ROOT}/log/{site}"


def call_key(site: str) -> str:
    return f"{ROOT}/call/{site}"


def site_key(site: str, session: str) -> str:
    return f"{ROOT}/site/{site}/{session}"


def site_state_key(site: str, session: str, state: str) -> str:
    """`state` is a digest of the feeds that a site offers, or LEAVING."""
    return f"{site_key(site, session)}/{state}"


def client_key(site: str, digest: str, name: str | None = None) -> str:
    """`name` is that of the client's certificate or user: nobody else can declare this token."""
    if name is not None and name.startswith(AT_SOCKET):
        name = AT_SOCKET if key_at_socket(name, site) else None
    return f"{ROOT}/client/{site}/{digest}" if name is None else f"{ROOT}/client/{site}/{name}/{digest}"


def name_at_socket(site: str, key: str) -> str:
    """The name of who has the key of a site's socket. Everywhere else it stands for no name."""
    return f"{AT_SOCKET}/{site}/{key}"


def key_at_socket(name: str, site: str) -> str | None:
    """The key in such a name, if it is that of this site."""
    there, _, key = name.removeprefix(f"{AT_SOCKET}/").partition("/")
    return key if name.startswith(AT_SOCKET) and there == site else None


def client_in(key: str) -> tuple[str, str | None] | None:
    """The digest and the name in the key of a client's token; None if it is another kind of token."""
    levels = key.split("/")
    if len(levels) == 5:
        return None if levels[3] == LISTENS else (levels[4], levels[3])
    return (levels[3], None) if len(levels) == 4 else None


def listening_key(site: str, stream: str, feeds: str) -> str:
    return f"{ROOT}/client/{site}/{LISTENS}/{stream}/{feeds}"


def is_wild(key: zenoh.KeyExpr) -> bool:
    """Whether this is a pattern. No site sends under one: it would match the keys of other sites."""
    return "*" in str(key)


def feed_of(key: str) -> str:
    """The feed in the key of a live page; empty if the key has none."""
    levels = key.split("/", 4)
    return levels[4] if len(levels) == 5 else ""


def overlap(one: str, other: str) -> bool:
    """Whether some feed matches both patterns."""
    ours, theirs = expressions(one), expressions(other)
    return any(mine.intersects(yours) for mine in ours for yours in theirs)


def expressions(pattern: str) -> list[zenoh.KeyExpr]:
    """A feed pattern as key expressions, one for each alternative."""
    return [zenoh.KeyExpr.autocanonize(alternative) for alternative in pattern.split("|")]


def site_of(key: str) -> str:
    """The site in any of these keys."""
    return key.split("/", 3)[2]
