"""Rules as plain data: the content of a rule file.

There is one struct for each table of the file, with the keys in the order of docs/rules.md. A field carries the kind of
its value (kinds.py, toml/kinds.py) and its default. Structs from `load_rules` are checked as a whole: paths are
absolute, defaults that depend on other keys are filled in, and every template names columns that the rows have. Fields
that are "never None once loaded" are optional only in the file. Structs can be pickled and sent to executors.

    rule ──select──► products ──decode──► decoded ──sql──► rows ──► actions

The rows of a rule are the products themselves, or the rows that `decode` makes of them, or the result of `sql` on
either. Every action of the rule gets these rows.

Not here: reading a file (load.py), and contradictions between keys (conflicts.py).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from headrace.link.login import PASSWORD_FILE, USER
from headrace.pipeline.rules import kinds
from headrace.pipeline.rules.kinds import COLUMN, COLUMNS, COMMAND, CONDITION, CONTENT, FEED, IDENT
from headrace.product.product import PRIORITY_DEFAULT, PRIORITY_MAX
from headrace.selection import Selection
from headrace.selection.table_keys import CLAUSES
from headrace.toml.kinds import FILE, FLAG, FOLDER, OUTPUT_FOLDER, START, Listed, age, choice, count, size
from headrace.toml.layout import Layout, Table

FileMode = Literal["append", "each", "overwrite"]
TableColumns = Literal["fixed", "grow"]
TableFormat = Literal["parquet", "delta"]
Removed = Literal["wmo", "controls", "non-ascii"]
Metadata = Literal["none", "ldm", "ldm-spipe", "ldm-xpipe"]
Framing = Literal["none", "lines", "length"]
OnLoss = Literal["fail", "count", "hold"]
Trigger = Literal["available-now"] | float
PAYLOAD, JSON, NOTHING = "payload", "json", "none"  # contents that are not columns
METADATA_COLUMNS = ("signature", "created", "feed", "origin_sequence", "ident", "origin")  # that metadata is made of

PROGRAMS = 64  # default limit

_PRIORITY = count(0, PRIORITY_MAX)
_REMOVED = Listed("list of " + ", ".join(f'`"{each}"`' for each in get_args(Removed)), choice(*get_args(Removed)))
_METADATA = choice(*get_args(Metadata))
_TIMEOUT = age(0.1, 86400, "60s")
_PAUSE = age(0.01, 3600, "1s")


class TlsTable(msgspec.Struct, frozen=True, kw_only=True):
    """[pipeline.tls]: the authority that the pipeline trusts, and the certificate that it shows to sites."""

    authority: Annotated[Path, FILE]
    certificate: Annotated[Path | None, FILE] = None
    key: Annotated[Path | None, FILE] = None


class UserTable(msgspec.Struct, frozen=True, kw_only=True):
    """[pipeline.user]: name and password of the pipeline at sites; the password is in a file of its own."""

    name: Annotated[str, USER]
    password_file: Annotated[Path, PASSWORD_FILE]


class PipelineTerms(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from"}):
    """[pipeline]: where products come from, and where the output goes."""

    name: Annotated[str | None, kinds.NAME] = None  # never None once loaded
    queue: Annotated[Path | None, kinds.QUEUE] = None
    site: Annotated[str | None, kinds.SITE] = None
    start: Annotated[Literal["now", "oldest"] | float, START] = "oldest"  # a number: this many seconds ago
    trigger: Annotated[Trigger, kinds.TRIGGER] = 0.5  # seconds between batches
    max_products: Annotated[int, count(1, 1_000_000_000)] = 500_000  # in one batch
    max_bytes: Annotated[int, size(1 << 10, 1 << 40, "256MiB")] = 256 << 20
    programs: Annotated[int, count(1, 1024)] = PROGRAMS  # of pipes, at once; the least recently used one is closed
    on_loss: Annotated[OnLoss, choice(*get_args(OnLoss))] = "fail"
    checkpoint: Annotated[Path | None, OUTPUT_FOLDER] = None  # this and the next two: never None once loaded
    tables: Annotated[Path | None, OUTPUT_FOLDER] = None
    files: Annotated[Path | None, OUTPUT_FOLDER] = None
    dead_letters: Annotated[str, kinds.TABLE_PATH] = "dead_letters"
    tls: TlsTable | None = None
    user: UserTable | None = None


class FileAction(msgspec.Struct, frozen=True, kw_only=True):
    """[rule.file]: write rows to files."""

    path: Annotated[str, kinds.PATH]  # a template
    folder: Annotated[Path | None, OUTPUT_FOLDER] = None  # never None once loaded
    mode: Annotated[FileMode, choice(*get_args(FileMode))] = "append"
    content: Annotated[str | None, CONTENT] = None  # never None once loaded
    remove: Annotated[tuple[Removed, ...], _REMOVED] = ()
    metadata: Annotated[Metadata, _METADATA] = "none"  # before the content


class TableAction(msgspec.Struct, frozen=True, kw_only=True, rename={"compact_s": "compact", "keep_s": "keep"}):
    """[rule.table]: add rows to a table, each exactly once."""

    path: Annotated[str, kinds.TABLE_PATH]  # relative to [pipeline] tables, or absolute; absolute once loaded
    format: Annotated[TableFormat, choice(*get_args(TableFormat))] = "parquet"
    partition_by: Annotated[tuple[str, ...], COLUMNS] = ()
    columns: Annotated[TableColumns, choice(*get_args(TableColumns))] = "fixed"  # whether rows may bring new ones
    compact_s: Annotated[float | None, age(1, 30 * 86400, "1h")] = None  # how often small files are merged
    keep_s: Annotated[float | None, age(3600, 36500 * 86400, "30d")] = None  # rows that are older are removed


class PublishAction(msgspec.Struct, frozen=True, kw_only=True):
    """[rule.publish]: store rows as products, each exactly once."""

    feed: Annotated[str, FEED]  # a template
    ident: Annotated[str, IDENT] = "{ident|}"  # a template
    content: Annotated[str | None, CONTENT] = None
    priority: Annotated[int, _PRIORITY] = PRIORITY_DEFAULT
    queue: Annotated[Path | None, kinds.QUEUE] = None  # if neither is given: the queue of the pipeline
    site: Annotated[str | None, kinds.SITE] = None


class ExecAction(msgspec.Struct, frozen=True, kw_only=True, rename={"timeout_s": "timeout", "pause_s": "pause"}):
    """[rule.exec]: run a program for each row."""

    command: Annotated[tuple[str, ...], COMMAND]  # templates
    content: Annotated[str | None, CONTENT] = None  # for its standard input
    remove: Annotated[tuple[Removed, ...], _REMOVED] = ()
    metadata: Annotated[Metadata, _METADATA] = "none"  # before the content
    folder: Annotated[Path | None, FOLDER] = None  # its working folder; by default that of the rules
    timeout_s: Annotated[float, _TIMEOUT] = 60.0
    tries: Annotated[int, count(1, 100)] = 3
    pause_s: Annotated[float, _PAUSE] = 1.0  # before the second attempt; doubles before each further one


class PipeAction(
    msgspec.Struct, frozen=True, kw_only=True, rename={"timeout_s": "timeout", "pause_s": "pause", "idle_s": "idle"}
):
    """[rule.pipe]: pass rows to a program that keeps running."""

    command: Annotated[tuple[str, ...], COMMAND]  # templates; each distinct command line is a program of its own
    content: Annotated[str | None, CONTENT] = None
    remove: Annotated[tuple[Removed, ...], _REMOVED] = ()
    metadata: Annotated[Metadata, _METADATA] = "none"  # before the content
    framing: Annotated[Framing, choice(*get_args(Framing))] = "none"
    folder: Annotated[Path | None, FOLDER] = None
    timeout_s: Annotated[float, _TIMEOUT] = 60.0  # to read one row
    tries: Annotated[int, count(1, 100)] = 3
    pause_s: Annotated[float, _PAUSE] = 1.0
    idle_s: Annotated[float, age(1, 86400, "10min")] = 600.0  # without rows; then its input is closed


class AlertAction(msgspec.Struct, frozen=True, kw_only=True):
    """[rule.alert]: store a product for each row on which a condition holds."""

    when: Annotated[str, CONDITION]
    feed: Annotated[str, FEED]
    ident: Annotated[str, IDENT] = "{ident|}"
    message: Annotated[str | None, kinds.TEXT] = None  # a template; None: the row as JSON
    priority: Annotated[int, _PRIORITY] = 6


Action = FileAction | TableAction | PublishAction | ExecAction | PipeAction | AlertAction
ACTIONS: dict[str, type[msgspec.Struct]] = {
    "file": FileAction, "table": TableAction, "publish": PublishAction, "exec": ExecAction, "pipe": PipeAction,
    "alert": AlertAction,
}  # fmt: skip
SHORT = {"file": "path", "table": "path", "publish": "feed", "exec": "command", "pipe": "command"}  # file = "…"


class Rule(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"watermark_s": "watermark", "watermark_ahead_s": "watermark_ahead"},
):
    """[[rule]]: which products, how they become rows, and the actions on these rows."""

    name: Annotated[str, kinds.NAME]
    select: Annotated[Selection, kinds.SELECTION]  # including the clauses given as keys
    otherwise: Annotated[bool, FLAG] = False  # only products that no rule above selects (otherwise.py)
    decode: Annotated[str | None, kinds.DECODER] = None
    schema: Annotated[str | None, kinds.SCHEMA] = None  # of the rows of a user's decoder
    sql: Annotated[str | None, kinds.SQL] = None
    watermark_s: Annotated[float | None, age(0, 30 * 86400, "10min")] = None
    watermark_column: Annotated[str | None, COLUMN] = None  # never None once loaded, if there is a watermark
    watermark_ahead_s: Annotated[float, age(0, 3650 * 86400, "1d")] = 86400.0
    enabled: Annotated[bool, FLAG] = True
    discard: Annotated[bool, FLAG] = False  # no action: it keeps products from rules with `otherwise`
    file: tuple[FileAction, ...] = ()
    table: tuple[TableAction, ...] = ()
    publish: tuple[PublishAction, ...] = ()
    exec: tuple[ExecAction, ...] = ()
    pipe: tuple[PipeAction, ...] = ()
    alert: tuple[AlertAction, ...] = ()

    def actions(self) -> Iterator[tuple[str, int, Action]]:
        """Every action, with the name of its table and its number among those of that name."""
        for name in ACTIONS:
            for place, action in enumerate(getattr(self, name)):
                yield name, place, action


class RuleFile(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    path: Path
    pipeline: PipelineTerms
    rules: tuple[Rule, ...]
    spark: tuple[tuple[str, str], ...] = ()  # Spark settings by their full names

    @property
    def enabled(self) -> tuple[Rule, ...]:
        """The rules that run."""
        return tuple(rule for rule in self.rules if rule.enabled and not rule.discard)


class SparkSettings(msgspec.Struct, frozen=True):
    """[spark]: any Spark setting; `executor.memory = "2g"` is `spark.executor.memory`."""


LAYOUT = Layout(
    tables={
        "pipeline": Table(PipelineTerms, inner={"tls": Table(TlsTable), "user": Table(UserTable)}),
        "rule": Table(Rule, True, CLAUSES, {name: Table(struct) for name, struct in ACTIONS.items()}),
        "spark": Table(SparkSettings),
    },
    example="docs/rules.md has an example; headrace pipeline import translates a pqact.conf",
    examples={
        "name": '"metar"', "select": '"wx/text/metar"', "path": '"{feed}/{created:%Y%m%d}.txt"', "feed": '"wx/derived"',
        "command": '["decoder", "{ident}"]', "when": '"gust > 25"', "authority": '"authority.crt"',
        "password_file": '"pipeline.password"',
    },
    elsewhere={
        ("rule", "feed"): "write the feed pattern as select",
        ("rule", "pattern"): "write ident, or a part of select",
        ("rule", "action"): "actions are tables: [rule.file], [rule.table], [rule.publish] …",
        ("rule", "path"): "it belongs below [rule.file] or [rule.table]",
        ("rule", "window"): "write sql = \"select … group by window(observed, '1 hour')\" and watermark",
        ("rule.file", "keep"): "only tables have it; remove old files with a program such as logrotate",
        ("rule.exec", "args"): "write them into command, a list",
        ("rule.pipe", "programs"): "write it into [pipeline]: one limit is for the programs of all pipes",
        ("rule.publish", "payload"): "write content",
        ("pipeline", "password"): "write it into a file, and give that file as password_file of [pipeline.user]",
        ("pipeline.user", "password"): "write it into a file, and give that file as password_file",
        ("pipeline", "master"): "give it on the command line: headrace pipeline run --master spark://…",
    },
)  # fmt: skip
