"""Sites that know each other by certificate, in processes of their own, and sessions that have certificates too.

with realm(folder) as made:
    hub = made.site("hub", Allow("evil", publish=["wx/text/**"]), requests=['select = "wx/**"'])
    evil = made.session("evil", hub)          # a session with the certificate of `evil`, and no other terms
    user = made.connect("alice", hub)         # a remote queue, as a program with the certificate of `alice` has it
    hub.allow(Deny("evil", publish=["**"]))   # other rules, by a reload
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zenoh

import headrace
from headrace import Queue
from headrace.link.certificates import make_authority, make_certificate
from headrace.link.session import SessionTerms, open_session
from headrace.queue import AnyQueue
from headrace.relay.messages.description import Description
from headrace.relay.messages.query import Describe
from headrace.relay.site_client import SiteClient
from support.daemon import Daemon
from support.fleet import free_port
from support.links import LOOPBACK, tls

_LOADED = ".toml is loaded"


class Allow:
    """One [[allow]], such as `Allow("evil", "other", publish=["wx/**"], relay=True)`."""

    table = "allow"

    def __init__(self, *who: str, **terms: Any) -> None:
        self.who, self.terms = who, terms

    def __str__(self) -> str:
        lines = (f"{key} = {msgspec.json.encode(value).decode()}" for key, value in self.terms.items())
        return "\n".join([f"[[{self.table}]]", f"who = {msgspec.json.encode(list(self.who)).decode()}", *lines, ""])


class Deny(Allow):
    """One [[deny]], such as `Deny("evil", receive=["wx/secret/**"])`."""

    table = "deny"


class SecureSite:
    """`headrace serve` with a certificate and rules. Its queue is open here too."""

    def __init__(self, folder: Path, name: str, head: str, rules: Sequence[Allow], port: int) -> None:
        self.name, self.endpoint = name, f"tls/127.0.0.1:{port}"
        self.file, self._head = folder / f"{name}.toml", head
        self._folder = folder
        self._write(rules)
        self.daemon = Daemon(self.file)
        self._queue: Queue | None = None

    def _write(self, rules: Sequence[Allow]) -> None:
        self._rules = tuple(rules)
        self.file.write_text(self._head + "\n" + "\n".join(map(str, rules)))

    @property
    def queue(self) -> Queue:
        if self._queue is None:
            self._queue = Queue.open(self._folder / f"{self.name}.queue")
        return self._queue

    @property
    def log(self) -> str:
        """What the site has logged."""
        return self.daemon.log.read_text()

    @property
    def threads(self) -> list[str]:
        """The names of the threads of its process, as the system shortens them."""
        tasks = Path(f"/proc/{self.daemon.process.pid}/task")
        return [(task / "comm").read_text().strip() for task in tasks.iterdir()]

    def idents(self, feed: str | None = None) -> list[str]:
        """Of the products that its queue holds."""
        if self.queue.next == self.queue.oldest:
            return []
        held = self.queue.read_batch("oldest", limit=100_000)
        return [product.ident for product in held if feed in (None, product.feed)]

    def allow(self, *rules: Allow) -> None:
        """Replace all its rules, and wait until they are in force."""
        self._write(rules)
        self.daemon.reload(_LOADED)

    def add(self, tables: str) -> None:
        """Add tables to its file, and wait until they are in force."""
        self._head += f"\n{tables}"
        self.allow(*self._rules)

    def restart(self) -> None:
        self.daemon.stop()
        self.daemon.kill()  # closes the pipe, too
        self.daemon = Daemon(self.file)
        self.daemon.wait_until_ready()

    def close(self) -> None:
        self.daemon.kill()
        if self._queue is not None:
            assert self._queue.check() == []
            self._queue.close()


class Realm:
    """An authority, and all that have a certificate of it. Names get their certificate when they are first used."""

    def __init__(self, folder: Path, parts: ExitStack) -> None:
        self.folder, self._parts = folder, parts
        self.certs = folder / "certs"
        make_authority(self.certs)
        self._named: set[str] = set()
        self._own_sessions: dict[str, zenoh.Session] = {}

    def certify(self, *names: str) -> None:
        for name in names:
            if name not in self._named:
                make_certificate(self.certs, name, LOOPBACK)
                self._named.add(name)

    def site(
        self, name: str, *rules: Allow, requests: Sequence[str] = (), near: Sequence[SecureSite] = (), lines: str = "",
        queue: str = "", more: str = "", size: str = "16MiB", before: Sequence[str] = (),
    ) -> SecureSite:  # fmt: skip
        """Start a site; it is ready on return.

        `requests` are the lines of each [[request]]; `near` are sites to connect to; `lines` are further ones of
        [site], `queue` those of [queue], and `more` are further tables. It listens on `before` and on a port with TLS.
        """
        self.certify(name)
        port = free_port()
        connect = msgspec.json.encode([site.endpoint for site in near]).decode()
        listen = msgspec.json.encode([*before, f"tls/127.0.0.1:{port}"]).decode()
        head = (
            f'[site]\nqueue = "{name}.queue"\nname = "{name}"\nlisten = {listen}\nconnect = {connect}\n'
            f'beat = "100ms"\nscouting = "off"\n{lines}\n[queue]\nsize = "{size}"\n{queue}\n'
            f'[tls]\nauthority = "certs/authority.crt"\ncertificate = "certs/{name}.crt"\nkey = "certs/{name}.key"\n'
            f"{more}\n" + "".join(f"[[request]]\n{request}\n" for request in requests)
        )
        site = SecureSite(self.folder, name, head, rules, port)
        self._parts.callback(site.close)
        site.daemon.wait_until_ready()
        return site

    def session(self, name: str, *sites: SecureSite, **terms: Any) -> zenoh.Session:
        """A session with the certificate of `name`, linked to these sites; it may send anything."""
        self.certify(name)
        mode = terms.pop("mode", "client")
        session = open_session(
            SessionTerms(mode, connect=tuple(site.endpoint for site in sites), tls=tls(self.certs, name), **terms)
        )
        self._parts.callback(session.close)  # type: ignore[no-untyped-call]
        return session

    def connect(self, name: str, site: SecureSite, **options: Any) -> AnyQueue:
        """The queue of a site, as a program with the certificate of `name` uses it."""
        self.certify(name)
        queue = headrace.connect(f"{site.endpoint}?site={site.name}", tls=tls(self.certs, name), **options)
        self._parts.callback(queue.close)
        return queue

    def describe(self, site: SecureSite) -> Description:
        """What a site says about itself to its own certificate: everything."""
        if site.name not in self._own_sessions:
            self._own_sessions[site.name] = self.session(site.name, site)
        client = SiteClient(self._own_sessions[site.name], site.name, site.name)
        described: Description = client.query(Describe(), Description)
        return described


@contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    with ExitStack() as parts:
        yield Realm(folder, parts)
