"""Trials for people: what rules would do with samples, row by row (`headrace pipeline check --sample`)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from headrace.text import visible
from headrace.units import format_count, format_size

if TYPE_CHECKING:
    from headrace.pipeline.rules.trial import Preview, Trial
    from headrace.pipeline.run.sql_trial import SqlTrial

_ROWS_SHOWN = 10
_REFUSALS_SHOWN = 5  # rules of a file; if there are more, refusals are not listed
_VALUE_MAX = 60


def show_trials(sources: Sequence[str], trials: "Iterable[Trial]") -> None:
    """Each product: the rules that select it, and why others do not, if these are few; then rules without a sample."""
    rules: dict[str, bool] = {}  # whether one of the samples is selected
    for place, each in groupby(trials, attrgetter("place")):
        of_product = list(each)
        for trial in of_product:
            rules[trial.rule] = rules.get(trial.rule, False) or trial.is_taken
            if trial.is_taken:
                _show_taken(sources[place], trial)
            elif len(of_product) <= _REFUSALS_SHOWN:
                click.echo(visible(f"{sources[place]}: not selected by rule {trial.rule} ({trial.refused_by})"))
        if len(of_product) > _REFUSALS_SHOWN and not any(trial.is_taken for trial in of_product):
            click.echo(visible(f"{sources[place]}: not selected by any of the {len(of_product)} rules"))
    unused = [rule for rule, is_used in rules.items() if not is_used]
    if unused:
        verb = "selects" if len(unused) == 1 else "select"
        names = ", ".join(unused[:_ROWS_SHOWN]) + (" …" if len(unused) > _ROWS_SHOWN else "")
        click.echo(visible(f"{format_count(len(unused), 'rule')} {verb} none of the samples: {names}"))


def _show_taken(source: str, trial: "Trial") -> None:
    rows = "" if trial.rows is None else f", {format_count(trial.rows, 'row')}"
    outcome = rows if trial.error is None else f", but decoding failed: {trial.error}"
    click.echo(visible(f"{source}: selected by rule {trial.rule}{outcome}"))
    _show_rows(trial.shown, trial.rows or 0)
    if not trial.has_sql:
        _show_previews(trial.previews)


def show_sql_trial(trial: "SqlTrial") -> None:
    """The SQL of one rule, on all samples that it selects."""
    if trial.error is not None:
        click.echo(visible(f"rule {trial.rule}: its SQL failed: {trial.error}"))
        return
    made = format_count(trial.rows, "row")
    click.echo(visible(f"rule {trial.rule}: its SQL makes {made} of {format_count(trial.before, 'row')}"))
    _show_rows(trial.shown, trial.rows)
    _show_previews(trial.previews)


def _show_rows(rows: Sequence[Mapping[str, Any]], count: int) -> None:
    """The first rows, without columns that are null."""
    for row in rows[:_ROWS_SHOWN]:
        click.echo(
            visible("  " + "  ".join(f"{name}={_short(value)}" for name, value in row.items() if value is not None))
        )
    if rows and count > _ROWS_SHOWN:
        click.echo(f"  … {format_count(count - _ROWS_SHOWN, 'more row')}")


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return f"<{format_size(len(value))}>"
    text = str(value)
    return text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 1]}…"


def _show_previews(previews: "Sequence[Preview]") -> None:
    """The first previews, and every one that says what is wrong."""
    shown = [each for place, each in enumerate(previews) if place < _ROWS_SHOWN or each.error is not None]
    for preview in shown:
        ident = "" if preview.ident is None else f" as {preview.ident}"
        when = "" if preview.when is None else f" if {preview.when}"
        wrong = "" if preview.error is None else f": {preview.error}"
        click.echo(visible(f"  {preview.action} {preview.target}{ident}{when}{wrong}"))
    if len(previews) > len(shown):
        click.echo(f"  … {len(previews) - len(shown):,} more")
