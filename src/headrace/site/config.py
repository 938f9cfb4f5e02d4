"""SiteConfig: the configuration of a site, as plain data.

One struct for each table of the TOML file, with the keys in the order of docs/site.md. A field carries the kind of its
value, and its default is the one in force (toml/layout.py). A SiteConfig from `load_config` is valid as a whole: paths
are absolute, `site.name` is set, and `queue` has the terms of the queue if it exists.

Not here: reading the file (loading.py), contradictions (contradictions.py), and what the values mean at run time
(terms.py).
"""

from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from headrace.link.endpoint import LOCAL
from headrace.link.login import PASSWORD_FILE, USER
from headrace.link.rights import EVERYBODY
from headrace.link.scouting import Scouting
from headrace.log.config import DEDUPS, DURABILITIES, HASHES, Dedup, Durability, Hash
from headrace.payload.compression.link import ZSTD
from headrace.selection import Selection
from headrace.selection.table_keys import CLAUSES, SELECTION
from headrace.site.channels import TIME, ChannelTable
from headrace.site.kinds import (
    DICTIONARY_FILE,
    ENDPOINTS,
    LISTENING,
    PATTERNS,
    PUBLIC_FILE,
    PUBLIC_KEY,
    QUEUE_AGE,
    RATE,
    REVOKED_FILE,
    SIGN_KEY,
    SITE_NAME,
    SITE_NAMES,
    SIZE,
    STATIONS,
    TIME_SERVERS,
    WHO,
)
from headrace.timing.clock.terms import POLL_S, POLL_S_MAX, POLL_S_MIN, SOURCES, Source
from headrace.toml.kinds import FILE, FLAG, FOLDER, NAME, OUTPUT_FILE, START, age, choice, count, positive, size
from headrace.toml.layout import Layout, Table
from headrace.units import format_time

Mode = Literal["router", "peer", "client"]
Redundancy = Literal["all", "failover"]
Verify = Literal["require", "accept", "off"]
Level = Literal["debug", "info", "warning", "error"]
LISTEN = (LOCAL,)


class SiteTable(msgspec.Struct, frozen=True, kw_only=True, rename={"beat_s": "beat"}):
    """[site]: its place in the fabric."""

    queue: Annotated[Path, FOLDER]
    name: Annotated[str, SITE_NAME] = ""  # the origin of the queue; never empty after loading
    listen: Annotated[tuple[str, ...], LISTENING] = LISTEN  # a client has none
    connect: Annotated[tuple[str, ...], ENDPOINTS] = ()
    mode: Annotated[Mode, choice(*get_args(Mode))] = "router"
    scouting: Annotated[Scouting, choice(*get_args(Scouting))] = "answer"  # by multicast
    gossip: Annotated[bool, FLAG] = False
    compression: Annotated[bool, FLAG] = False
    shared_memory: Annotated[bool, FLAG] = False
    beat_s: Annotated[float, age(0.01, 60, "500ms")] = 0.5


class QueueTable(msgspec.Struct, frozen=True, kw_only=True, rename={"age_s": "age"}):
    """[queue]: the terms on which the queue is created, if it does not exist."""

    size: Annotated[int, SIZE] = 1 << 30
    age_s: Annotated[float | None, QUEUE_AGE] = None
    durability: Annotated[Durability, choice(*DURABILITIES)] = "process"
    dedup: Annotated[Dedup, choice(*DEDUPS)] = "identity"
    hash: Annotated[Hash, choice(*HASHES)] = "blake3"
    mode: Annotated[str, choice("0600", "0640", "0660", "0644")] = "0640"
    group: Annotated[str | None, NAME] = None  # that owns its files; None: that of the process


class ClockTable(msgspec.Struct, frozen=True, kw_only=True, rename={"poll_s": "poll"}):
    """[clock]: where the time of the site comes from."""

    source: Annotated[Source, choice(*SOURCES)] = "auto"
    servers: Annotated[tuple[str, ...], TIME_SERVERS] = ()
    poll_s: Annotated[float, age(POLL_S_MIN, POLL_S_MAX, "64s")] = POLL_S


_REQUEST_KEYS = {"selection": "select", "start": "from", "start_time_ns": "start_time"}


class Request(msgspec.Struct, frozen=True, kw_only=True, rename=_REQUEST_KEYS):
    """[[request]]: what is wanted from other sites."""

    selection: Annotated[Selection, SELECTION]  # with the clauses that were given as keys
    name: Annotated[str, NAME] = ""  # "request 1" by default; never empty after loading
    start: Annotated[Literal["now", "oldest"] | float, START] = "now"  # a number: seconds back
    start_time_ns: Annotated[int | None, TIME] = None  # nothing is requested before
    sites: Annotated[tuple[str, ...], SITE_NAMES] = ()  # none: any
    redundancy: Annotated[Redundancy, choice(*get_args(Redundancy))] = "all"
    compress: Annotated[str | None, choice(ZSTD)] = None

    @property
    def begin_at(self) -> str:
        """Where it begins, as `Queue.resolve` takes it: `now` of a request with a start time is that time."""
        if self.start == "now":
            return "next" if self.start_time_ns is None else format_time(self.start_time_ns)
        return str(START.write(self.start))


class Allow(msgspec.Struct, frozen=True, kw_only=True):
    """[[allow]]: what other sites and users may do here, by feed pattern."""

    who: Annotated[tuple[str, ...], WHO]  # ("*",): everybody
    receive: Annotated[tuple[str, ...], PATTERNS] = ()
    publish: Annotated[tuple[str, ...], PATTERNS] = ()
    station: Annotated[tuple[str, ...], PATTERNS] = ()
    manage: Annotated[tuple[str, ...], PATTERNS] = ()
    consume: Annotated[tuple[str, ...], STATIONS] = ()
    relay: Annotated[bool, FLAG] = False


class Deny(msgspec.Struct, frozen=True, kw_only=True):
    """[[deny]]: what they may not do, whatever [[allow]] says."""

    who: Annotated[tuple[str, ...], WHO]
    receive: Annotated[tuple[str, ...], PATTERNS] = ()
    publish: Annotated[tuple[str, ...], PATTERNS] = ()
    station: Annotated[tuple[str, ...], PATTERNS] = ()
    manage: Annotated[tuple[str, ...], PATTERNS] = ()
    consume: Annotated[tuple[str, ...], STATIONS] = ()


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """[[quota]]: how much each of them may use here (link/quotas.py); None: as everybody, or the default."""

    who: Annotated[tuple[str, ...], WHO] = (EVERYBODY,)
    sessions: Annotated[int | None, count(1, 1_000_000)] = None
    streams: Annotated[int | None, count(1, 1_000_000)] = None
    stations: Annotated[int | None, count(1, 1_000_000)] = None
    cursors: Annotated[int | None, count(1, 1_000_000)] = None
    feeds: Annotated[int | None, count(1, 1_000_000)] = None
    origins: Annotated[int | None, count(1, 1_000_000)] = None
    dictionaries: Annotated[int | None, count(1, 1_000_000)] = None
    consumers: Annotated[int | None, count(1, 1_000_000)] = None
    calls_per_s: Annotated[float | None, positive("5000")] = None
    bytes_per_s: Annotated[float | None, RATE] = None
    waiting_bytes: Annotated[int | None, size(1 << 16, 1 << 50, "256MiB")] = None
    selection_s: Annotated[float | None, positive("0.5")] = None


class SignTable(msgspec.Struct, frozen=True, kw_only=True):
    """[sign]: by which key this site signs its products, and which keys count no more."""

    key: Annotated[Path | None, SIGN_KEY] = None  # None: they are not signed
    revoked: Annotated[Path | None, REVOKED_FILE] = None


class KeyTable(msgspec.Struct, frozen=True, kw_only=True, rename={"from_ns": "from", "until_ns": "until"}):
    """[[key]]: a public key by which an origin signs. One of `public` and `file`."""

    origin: Annotated[str, SITE_NAME]
    public: Annotated[str | None, PUBLIC_KEY] = None
    file: Annotated[Path | None, PUBLIC_FILE] = None  # a certificate or a key
    from_ns: Annotated[int | None, TIME] = None
    until_ns: Annotated[int | None, TIME] = None


class VerifyTable(msgspec.Struct, frozen=True, kw_only=True):
    """[[verify]]: of which feeds products must be signed by their origin."""

    feeds: Annotated[tuple[str, ...], PATTERNS]
    mode: Annotated[Verify, choice(*get_args(Verify))]


class TlsTable(msgspec.Struct, frozen=True, kw_only=True):
    """[tls]: what this site shows, and which authority it trusts."""

    authority: Annotated[Path, FILE]
    certificate: Annotated[Path | None, FILE] = None
    key: Annotated[Path | None, FILE] = None
    mutual: Annotated[bool, FLAG] = True


class UsersTable(msgspec.Struct, frozen=True, kw_only=True):
    """[users]: names and passwords; passwords are in files of their own."""

    name: Annotated[str | None, USER] = None
    password_file: Annotated[Path | None, PASSWORD_FILE] = None
    dictionary_file: Annotated[Path | None, DICTIONARY_FILE] = None


class LogTable(msgspec.Struct, frozen=True, kw_only=True):
    """[log]: what the site logs, and where."""

    level: Annotated[Level, choice(*get_args(Level))] = "info"
    file: Annotated[Path | None, OUTPUT_FILE] = None  # None: standard error
    per_second: Annotated[int, count(1, 1_000_000)] = 5  # messages of one kind


class SiteConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    site: SiteTable
    queue: QueueTable = QueueTable()
    clock: ClockTable = ClockTable()
    channel: tuple[ChannelTable, ...] = ()
    request: tuple[Request, ...] = ()
    allow: tuple[Allow, ...] = ()
    deny: tuple[Deny, ...] = ()
    quota: tuple[Quota, ...] = ()
    sign: SignTable = SignTable()
    key: tuple[KeyTable, ...] = ()
    verify: tuple[VerifyTable, ...] = ()
    tls: TlsTable | None = None
    users: UsersTable | None = None
    functions: dict[str, str] = {}  # [functions]: "module:function" by name; a table whose keys users choose
    log: LogTable = LogTable()


TABLES: dict[str, type[msgspec.Struct]] = {
    "site": SiteTable, "queue": QueueTable, "clock": ClockTable, "channel": ChannelTable, "request": Request,
    "allow": Allow, "deny": Deny, "quota": Quota, "sign": SignTable, "key": KeyTable,
    "verify": VerifyTable, "tls": TlsTable, "users": UsersTable, "log": LogTable,
}  # fmt: skip
REPEATED = ("channel", "request", "allow", "deny", "quota", "key", "verify")  # [[…]]


class _FreeTable(msgspec.Struct, frozen=True):
    """A table whose keys users choose (site/functions.py)."""


LAYOUT = Layout(
    tables={
        **{
            name: Table(struct, name in REPEATED, CLAUSES if name == "request" else ())
            for name, struct in TABLES.items()
        },
        "functions": Table(_FreeTable),
    },
    example="create one with: headrace config example > site.toml",
    examples={
        "queue": '"wx.queue"',
        "name": '"radar"',
        "feed": '"wx/radar/**"',
        "select": '"wx/radar/**"',
        "who": '"*"',
        "authority": '"authority.pem"',
        "origin": '"denver"',
        "feeds": '["wx/warnings/**"]',
        "mode": '"require"',
    },
    elsewhere={
        ("queue", "origin"): "the origin of the queue is the name of the site: [site] name",
        ("request", "feed"): "write the feed pattern as select",
        ("users", "password"): "write it into a file, and give that file as password_file",
        ("users", "user"): "did you mean 'name'?",
    },
)
