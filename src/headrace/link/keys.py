"""Keys: under which names things travel between sites.

    headrace/live/<site>/<stream>/<feed>   pages as they come; the feed's levels are the key's
    headrace/beat/<site>/<stream>          how far the stream has got, twice a second
    headrace/log/<site>                    queries: pages of the past, and what a site has
    headrace/call/<site>                   queries: what a remote user of the queue asks for
    headrace/site/<site>/<session>         liveliness token: the site is there, in this session of Zenoh's
    headrace/client/<site>/<digest>        liveliness token: a remote user of the site's queue is there
    headrace/client/<site>/listens/<stream>/<feeds>   and somebody listens to these feeds of a stream

A feed has none of the characters that mean something in a key, and patterns are written the same way, so that feeds and
feed patterns become keys without a change.
"""

ROOT = "headrace"
OWN = "own"  # the stream of everything that a site's own programs have put


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


def client_key(site: str, digest: str) -> str:
    return f"{ROOT}/client/{site}/{digest}"


def listening_key(site: str, stream: str, feeds: str) -> str:
    return f"{ROOT}/client/{site}/listens/{stream}/{feeds}"


def feed_of(key: str) -> str:
    """The feed in the key of a live page; empty if there is none."""
    levels = key.split("/", 4)
    return levels[4] if len(levels) == 5 else ""


def site_of(key: str) -> str:
    """The site in any of these keys."""
    return key.split("/", 3)[2]
