"""Rules as plain data: what a rule file says, once it has been read and checked.

One struct for each table of the file, with the keys in the order of docs/rules.md. A field carries the kind of its
value (kinds.py, toml/kinds.py), and its default is the one in force. Structs that came from `load_rules` have been
checked as a whole: paths are absolute, defaults that depend on other keys are filled in, every template can be filled
in from what the rule has. They can be pickled, and sent to executors.

    rule ──select──► products ──decode──► decoded ──sql──► rows ──► actions

The rows of a rule are the products themselves, or what `decode` makes of them, or what `sql` makes of either; every
action of the rule takes those rows.

Not here: reading (reading.py), and what contradicts what (conflicts.py).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from headrace.pipeline.rules import kinds
from headrace.pipeline.rules.kinds import COLUMN, COLUMNS, COMMAND, CONDITION, CONTENT, FEED, IDENT
from headrace.product.product import PRIORITY_DEFAULT, PRIORITY_MAX
from headrace.selection import Selection
from headrace.selection.table_keys import CLAUSES
from headrace.toml.kinds import FLAG, FOLDER, OUTPUT_FOLDER, START, Listed, age, choice, count, size
from headrace.toml.layout import Layout, Table

FileMode = Literal["append", "each", "overwrite"]
TableFormat = Literal["parquet", "delta"]
Removed = Literal["wmo", "controls"]
Framing = Literal["none", "lines", "length"]
OnLoss = Literal["fail", "count", "hold"]
Trigger = Literal["available-now"] | float
PAYLOAD, JSON, NOTHING = "payload", "json", "none"  # contents that are no columns

_PRIORITY = count(0, PRIORITY_MAX)
_REMOVED = Listed("list of " + " and ".join(f'`"{each}"`' for each in get_args(Removed)), choice(*get_args(Removed)))
_TIMEOUT = age(0.1, 86400, "60s")
_PAUSE = age(0.01, 3600, "1s")


class PipelineTerms(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from"}):
    """[pipeline]: where products come from, and where everything goes."""

    name: Annotated[str | None, kinds.NAME] = None  # never None once it is loaded
    queue: Annotated[Path | None, kinds.QUEUE] = None
    site: Annotated[str | None, kinds.SITE] = None
    start: Annotated[Literal["now", "oldest"] | float, START] = "oldest"  # a number: so many seconds back
    trigger: Annotated[Trigger, kinds.TRIGGER] = 0.5  # seconds between batches
    max_products: Annotated[int, count(1, 1_000_000_000)] = 500_000  # in one batch
    max_bytes: Annotated[int, size(1 << 10, 1 << 40, "256MiB")] = 256 << 20
    on_loss: Annotated[OnLoss, choice(*get_args(OnLoss))] = "fail"
    checkpoint: Annotated[Path | None, OUTPUT_FOLDER] = None  # nor this one, nor the next two
    tables: Annotated[Path | None, OUTPUT_FOLDER] = None
    files: Annotated[Path | None, OUTPUT_FOLDER] = None
    dead_letters: Annotated[str, kinds.TABLE_PATH] = "dead_letters"


class FileAction(msgspec.Struct, frozen=True, kw_only=True):
    """[rule.file]: rows written to files."""

    path: Annotated[str, kinds.PATH]  # a template
    folder: Annotated[Path | None, OUTPUT_FOLDER] = None  # never None once it is loaded
    mode: Annotated[FileMode, choice(*get_args(FileMode))] = "append"
    content: Annotated[str | None, CONTENT] = None  # never None once it is loaded
    remove: Annotated[tuple[Removed, ...], _REMOVED] = ()


class TableAction(msgspec.Struct, frozen=True, kw_only=True):
    """[rule.table]: rows added to a table, each exactly once."""

    path: Annotated[str, kinds.TABLE_PATH]  # below [pipeline] tables, or absolute; absolute once it is loaded
    format: Annotated[TableFormat, choice(*get_args(TableFormat))] = "parquet"
    partition_by: Annotated[tuple[str, ...], COLUMNS] = ()


class PublishAction(msgspec.Struct, frozen=True, kw_only=True):
    """[rule.publish]: rows put as products, each exactly once."""

    feed: Annotated[str, FEED]  # a template
    ident: Annotated[str, IDENT] = "{ident|}"  # a template
    content: Annotated[str | None, CONTENT] = None
    priority: Annotated[int, _PRIORITY] = PRIORITY_DEFAULT
    queue: Annotated[Path | None, kinds.QUEUE] = None  # that of the pipeline, if neither is given
    site: Annotated[str | None, kinds.SITE] = None


class ExecAction(msgspec.Struct, frozen=True, kw_only=True, rename={"timeout_s": "timeout", "pause_s": "pause"}):
    """[rule.exec]: a program run once for each row."""

    command: Annotated[tuple[str, ...], COMMAND]  # templates
    content: Annotated[str | None, CONTENT] = None  # to its standard input
    remove: Annotated[tuple[Removed, ...], _REMOVED] = ()
    folder: Annotated[Path | None, FOLDER] = None  # in which it runs; that of the rules, once it is loaded
    timeout_s: Annotated[float, _TIMEOUT] = 60.0
    tries: Annotated[int, count(1, 100)] = 3
    pause_s: Annotated[float, _PAUSE] = 1.0  # before the second try; twice as long before each further one


class PipeAction(
    msgspec.Struct, frozen=True, kw_only=True, rename={"timeout_s": "timeout", "pause_s": "pause", "idle_s": "idle"}
):
    """[rule.pipe]: a program that stays, and is given rows as they come."""

    command: Annotated[tuple[str, ...], COMMAND]  # templates; each command line that occurs is a program of its own
    content: Annotated[str | None, CONTENT] = None
    remove: Annotated[tuple[Removed, ...], _REMOVED] = ()
    framing: Annotated[Framing, choice(*get_args(Framing))] = "none"
    folder: Annotated[Path | None, FOLDER] = None
    timeout_s: Annotated[float, _TIMEOUT] = 60.0  # to take one row
    tries: Annotated[int, count(1, 100)] = 3
    pause_s: Annotated[float, _PAUSE] = 1.0
    idle_s: Annotated[float, age(1, 86400, "10min")] = 600.0  # then its input is closed
    programs: Annotated[int, count(1, 256)] = 8  # that run at once; the one that waited longest is closed


class AlertAction(msgspec.Struct, frozen=True, kw_only=True):
    """[rule.alert]: a product for each row on which a condition holds."""

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
    """[[rule]]: a selection, what is made of it, and what is done with that."""

    name: Annotated[str, kinds.NAME]
    select: Annotated[Selection, kinds.SELECTION]  # with the clauses that were given as keys
    decode: Annotated[str | None, kinds.DECODER] = None
    schema: Annotated[str | None, kinds.SCHEMA] = None  # of what a decoder of one's own makes
    sql: Annotated[str | None, kinds.SQL] = None
    watermark_s: Annotated[float | None, age(0, 30 * 86400, "10min")] = None
    watermark_column: Annotated[str | None, COLUMN] = None  # known if there is a watermark, once it is loaded
    watermark_ahead_s: Annotated[float, age(0, 3650 * 86400, "1d")] = 86400.0
    enabled: Annotated[bool, FLAG] = True
    file: tuple[FileAction, ...] = ()
    table: tuple[TableAction, ...] = ()
    publish: tuple[PublishAction, ...] = ()
    exec: tuple[ExecAction, ...] = ()
    pipe: tuple[PipeAction, ...] = ()
    alert: tuple[AlertAction, ...] = ()

    def actions(self) -> Iterator[tuple[str, int, Action]]:
        """Every action, with the name of its table and its place among those of that name."""
        for name in ACTIONS:
            for place, action in enumerate(getattr(self, name)):
                yield name, place, action


class RuleFile(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    path: Path
    pipeline: PipelineTerms
    rules: tuple[Rule, ...]
    spark: tuple[tuple[str, str], ...] = ()  # settings of Spark's, by their full names

    @property
    def enabled(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.enabled)


class SparkSettings(msgspec.Struct, frozen=True):
    """[spark]: whatever Spark knows; `executor.memory = "2g"` is its `spark.executor.memory`."""


LAYOUT = Layout(
    tables={
        "pipeline": Table(PipelineTerms),
        "rule": Table(Rule, True, CLAUSES, {name: Table(struct) for name, struct in ACTIONS.items()}),
        "spark": Table(SparkSettings),
    },
    example="docs/rules.md has one to begin with; headrace pipeline import makes one of a pqact.conf",
    examples={
        "name": '"metar"', "select": '"wx/text/metar"', "path": '"{feed}/{created:%Y%m%d}.txt"', "feed": '"wx/derived"',
        "command": '["decoder", "{ident}"]', "when": '"gust > 25"',
    },
    elsewhere={
        ("rule", "feed"): "write the feed pattern as select",
        ("rule", "pattern"): "write it as ident, or as part of select",
        ("rule", "action"): "actions are tables: [rule.file], [rule.table], [rule.publish] …",
        ("rule", "path"): "it belongs below [rule.file] or [rule.table]",
        ("rule", "window"): "write sql = \"select … group by window(observed, '1 hour')\" and watermark",
        ("rule.exec", "args"): "write them into command, a list",
        ("rule.publish", "payload"): "write content",
        ("pipeline", "master"): "give it on the command line: headrace pipeline run --master spark://…",
    },
)  # fmt: skip
