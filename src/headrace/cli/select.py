"""`headrace select`: check a selection, and try it on samples."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from headrace.cli.failure import NEGATIVE, OK, warn
from headrace.cli.group import Group
from headrace.cli.options import FEED, json_option, open_queue
from headrace.cli.output import echo_json, show_table
from headrace.cli.put import properties_of
from headrace.cli.samples import Sample, samples_of
from headrace.product.ldm_feedtypes import ldm_warning
from headrace.selection import Selection
from headrace.selection.where.expression import FIELDS, PROPERTIES
from headrace.text import visible
from headrace.toml.kinds import toml_lines
from headrace.units import format_count

_DECIDED_BY = {
    "feed": "index row", "priority": "index row", "origin": "index row", "slices": "index row", "ident": "ident",
    "not_ident": "ident", "created": "record", "max_age_s": "record", "replay": "record", "tags": "record",
    "where": "record", "xpath": "payload", "function": "payload", "every": "counting",
}  # fmt: skip
_SPELT = {"not_ident": "ident !~", "tags": "tag", "slices": "slice", "max_age_s": "age"}
_QUEUE_PRODUCTS = 1000
_FEED = "sample"


@click.group(cls=Group)
def select() -> None:
    """Check a selection, and try it on samples.

    \b
    Example:
      headrace select check 'wx/radar/** ident ~ "^L2" priority 5..'
    """


@select.command(short_help="Check a selection, and try it on samples.")
@click.argument("text")
@click.option(
    "--sample",
    "paths",
    multiple=True,
    metavar="FILE",
    help="A payload, products as `watch --json` writes them, or a queue (its newest 20).",
)
@click.option("--feed", type=FEED, default=_FEED, help="The feed of a sample that is a payload.")
@click.option("--ident", help="The ident of such a sample. [default: the name of the file]")
@click.option("--property", "pairs", multiple=True, metavar="NAME=VALUE", help="A property of it; may be repeated.")
@click.option("--queue", "queue_path", metavar="QUEUE", help=f"Try the newest {_QUEUE_PRODUCTS:,} products of a queue.")
@json_option
def check(
    text: str, paths: tuple[str, ...], feed: str, ident: str | None, pairs: tuple[str, ...], queue_path: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Check the selection TEXT, and show its canonical form and what each clause reads.

    With --sample or --queue, try it: each sample is shown as wanted, or with the clause that refuses it. A prescale
    (every) is not applied to samples. Exit code 1 if no sample is wanted, 2 if TEXT is invalid; a caret shows where.

    \b
    Clauses, after an optional feed pattern:
      ident ~ "^SA"   ident !~ "TEST"   priority 5..7   origin site1,site2   slice 0-7,12
      tag 7,9   tag run=5   created 2026-01-01..   age < 1h   every 10
      xpath "//alert[@severity='3']"   function strong_wind   where level > 3 AND site = 'KFTG'   (last)

    \b
    Example:
      headrace select check 'wx/** tag run=5 where level > 3' --queue wx.queue
      headrace select check "xpath //alert[@severity='3']" --sample alert.xml
    """
    selection = Selection.parse(text)
    if warning := ldm_warning(selection.feed):
        warn(warning)
    if not as_json:
        _show(selection)
    properties = properties_of(pairs)
    trials = [_trial(selection, sample) for path in paths for sample in samples_of(path, feed, ident, properties)]
    queued = list(_queued(queue_path)) if queue_path is not None else []
    trials += [_trial(selection, sample) for sample in queued]
    known = {name for trial in trials for name in trial["properties"]}
    missing = sorted(_properties_asked(selection) - known) if trials else []
    if as_json:
        echo_json({**_values(selection), "samples": trials, "missing_properties": missing})
    else:
        _show_trials(trials, len(trials) - len(queued), queue_path, missing)
    tried = bool(paths) or queue_path is not None
    return NEGATIVE if tried and not any(trial["wanted"] for trial in trials) else OK


# --- the selection --------------------------------------------------------------------------------


def _clauses(selection: Selection) -> list[tuple[str, str, str]]:
    """Name, text and input of each clause, in the order of evaluation."""
    parts = {name: str(Selection(**{name: value})) for name, value in selection.given().items()}
    return [
        (_SPELT.get(name, name), parts[name].removeprefix(f"{_SPELT.get(name, name)} "), decided_by)
        for name, decided_by in _DECIDED_BY.items()
        if name in parts
    ]


def _values(selection: Selection) -> dict[str, Any]:
    return {
        "selection": str(selection),
        "arguments": selection.to_dict(),
        "toml": "\n".join(toml_lines(selection.to_dict())),
        "clauses": [{"clause": name, "text": text, "decided_by": by} for name, text, by in _clauses(selection)],
    }


def _show(selection: Selection) -> None:
    click.echo(f"selection: {visible(str(selection))}")
    click.echo("TOML:")
    for line in toml_lines(selection.to_dict()) or ["# empty: selects everything"]:
        click.echo(f"  {visible(line)}")
    if clauses := _clauses(selection):
        show_table("clauses, cheapest first", ("clause", "value", "decided by"), clauses)


def _properties_asked(selection: Selection) -> set[str]:
    where = selection.compiled.where
    names = where.names if where is not None else frozenset()
    asked = {name for name, _ in selection.tags or ()}
    return asked | {name.removeprefix(f"{PROPERTIES}.") for name in names if name not in FIELDS}


# --- trials ---------------------------------------------------------------------------------------


def _queued(path: str) -> Iterator[Sample]:
    with open_queue(path) as queue:
        start = max(queue.oldest, queue.next - _QUEUE_PRODUCTS)
        batch = queue.read_batch(start, limit=_QUEUE_PRODUCTS)
        yield from [Sample(f"{path}:{product.sequence}", product, True) for product in batch]


def _trial(selection: Selection, sample: Sample) -> dict[str, Any]:
    product = sample.product
    refused_by = selection.refused_by(product)
    reason = None
    if refused_by == "xpath" and selection.compiled.xpath is not None:
        missing = "the sample has no payload"
        reason = selection.compiled.xpath.refusal(product.payload) if sample.has_payload else missing
    return {
        "source": sample.source, "feed": product.feed, "ident": product.ident, "wanted": refused_by is None,
        "refused_by": refused_by and _SPELT.get(refused_by, refused_by), "reason": reason,
        "properties": sorted(product.properties),
    }  # fmt: skip


def _show_trials(trials: Sequence[dict[str, Any]], listed: int, queue_path: str | None, missing: list[str]) -> None:
    """Samples one by one, products of a queue as totals."""
    for trial in trials[:listed]:
        verdict = "wanted" if trial["wanted"] else f"refused by {trial['refused_by']}"
        reason = f" ({trial['reason']})" if trial["reason"] else ""
        click.echo(visible(f"{verdict}{reason}: {trial['source']}  {trial['feed']}  {trial['ident']}"))
    if queue_path is not None:
        refusals = Counter(trial["refused_by"] for trial in trials[listed:])
        wanted = refusals.pop(None, 0)
        refused = "".join(f", {count:,} refused by {clause}" for clause, count in refusals.most_common())
        newest = format_count(len(trials) - listed, "product")
        click.echo(f"{queue_path}: of the newest {newest}, {wanted:,} wanted{refused}")
    for name in missing:
        click.echo(visible(f"no sample has the property {name!r}, so a condition on it is never true"))
