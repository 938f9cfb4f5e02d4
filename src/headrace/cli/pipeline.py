"""`headrace pipeline`: rules on Spark: run, status, check, import, prepare; compact is in pipeline_compact.py.

Spark is imported by the commands that need it, when they run.
"""

import logging
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from headrace.cli.failure import NEGATIVE, OK, show_problems, warn
from headrace.cli.group import Group
from headrace.cli.options import FEED, json_option
from headrace.cli.output import echo_json, show_table
from headrace.cli.pipeline_compact import compact
from headrace.cli.trials import show_sql_trial, show_trials
from headrace.errors import OptionError, PipelineError
from headrace.text import visible
from headrace.units import format_count, format_latency, format_size

if TYPE_CHECKING:
    from headrace.pipeline.rules.rule import RuleFile
    from headrace.pipeline.run.status import RuleStatus
    from headrace.product import Product

_LOOK_S = 2.0
_STALE_S = 10.0
_HEADER = ("rule", "state", "batches", "rows", "dead letters", "last batch", "products/s", "behind", "oldest", "lost")


@click.group(cls=Group)
def pipeline() -> None:
    """Decode, file, store and publish products by rules, on Spark.

    \b
    Example:
      headrace pipeline check rules.toml
      headrace pipeline run rules.toml &
      headrace pipeline status rules.toml
    """


pipeline.add_command(compact)


@pipeline.command(short_help="Run rules on Spark.")
@click.argument("file", metavar="RULES.TOML", type=click.Path(path_type=Path))
@click.option("--master", default="local[*]", show_default=True, help="The Spark master: local[*], spark://host:7077 …")
@click.option("--ship", is_flag=True, help="Ship this Python environment to executors; packed once, then cached.")
@click.option("--once", is_flag=True, help="Process the products that the queue holds, and end.")
@json_option
def run(file: Path, master: str, ship: bool, once: bool, as_json: bool) -> int:
    """Run the rules in RULES.TOML (or a Python module with `rules()`) until SIGTERM or Ctrl-C.

    Each rule continues where it stopped. After a failure that may be temporary (an unreachable site, a full disk) a
    rule is retried; with --once, three times. Exit code 1 if a rule has failed; the other rules continue without it.
    To stop it once the rules are running is no failure: exit code 0.

    \b
    Example:
      headrace pipeline run rules.toml
      headrace pipeline run rules.toml --once --json
      headrace pipeline run rules.toml --master spark://host:7077 --ship
    """
    import msgspec

    from headrace.pipeline.rules.load import load_rules
    from headrace.pipeline.run.job import Job
    from headrace.pipeline.source.session import spark_session
    from headrace.pipeline.spark.failures import JAVA_GONE
    from headrace.pipeline.spark.session import is_prepared
    from headrace.site.logs import VisibleFormatter

    warnings = logging.StreamHandler(sys.stderr)
    warnings.setFormatter(VisibleFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[warnings])
    if ship and master.startswith("local"):
        raise click.UsageError(f"--ship is for the executors of a cluster, and {master} has none")
    rules = load_rules(file)
    if once:
        rules = msgspec.structs.replace(
            rules, pipeline=msgspec.structs.replace(rules.pipeline, trigger="available-now")
        )
    environment = _packed() if ship else None
    hint = "" if is_prepared(master) else "; faster after: headrace pipeline prepare"
    click.echo(f"starting Spark ({master}){hint}", err=True)
    spark = spark_session(f"headrace {file.stem}", master, dict(rules.spark), environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark has set a handler of its own
    job = Job(rules, spark)
    try:
        job.start()
        _set_at_signals(job.ending)
        if not as_json:
            verb = "is" if len(job.statuses) == 1 else "are"
            click.echo(f"{format_count(len(job.statuses), 'rule')} of {file} {verb} running", err=True)
        shown: dict[str, list[str]] = {}
        while not job.wait(_LOOK_S):
            if not as_json:
                for status in job.statuses:
                    shown[status.rule] = _show_changes(status, shown.get(status.rule, []))
    finally:
        job.stop()
        with suppress(*JAVA_GONE):
            spark.stop()
    if as_json:
        echo_json({"rules": job.statuses, "ok": not job.has_failed})
    else:
        show_rules(job.statuses)
    return NEGATIVE if job.has_failed else OK


def _show_changes(status: "RuleStatus", shown: list[str]) -> list[str]:
    """Write the lines about a rule that are not in `shown` yet. Return all its lines."""
    lines = [state_line(status), *([failure_line(status)] if status.failure else [])]
    for line in lines:
        if line not in shown:
            click.echo(visible(line), err=True)
    return lines


def _packed() -> Path:
    """The packed environment for executors; shows progress, since packing takes a while."""
    from headrace.pipeline.spark.packing import packed_environment

    started = shown = time.monotonic()

    def show_progress(done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - shown >= _LOOK_S:
            shown = time.monotonic()
            click.echo(f"packing the environment: {format_size(done)} of {format_size(total)}", err=True)

    packed = packed_environment(show_progress)
    how = f"packed in {time.monotonic() - started:.0f} s" if packed.is_new else "is in the cache"
    click.echo(f"environment for executors {how} ({format_size(packed.bytes)}): {packed.path}", err=True)
    return packed.path


def _set_at_signals(ended: threading.Event) -> None:
    """From now on SIGTERM and Ctrl-C end the job in order. Before, they end the start."""

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


@pipeline.command(short_help="Show the progress of each rule.")
@click.argument("file", metavar="RULES.TOML", type=click.Path(path_type=Path))
@json_option
def status(file: Path, as_json: bool) -> int:
    """Show what each rule of RULES.TOML has done, how fast it is, and how far behind.

    Exit code 1 if a rule has failed, or if the running job has not written its status for ten seconds. A rule that is
    being retried has not failed.

    \b
    Example:
      headrace pipeline status rules.toml
    """
    from headrace.pipeline.rules.load import load_rules
    from headrace.pipeline.run.status import load_status

    found = load_status(load_rules(file).pipeline)
    if found is None:
        raise PipelineError(f"the rules of {file} have never run", f"headrace pipeline run {file}")
    age_s = time.time() - found.updated_ns / 1e9
    failed = any(rule.state == "failed" for rule in found.rules)
    running = any(rule.state in ("starting", "running", "retrying") for rule in found.rules)
    if as_json:
        echo_json({"path": found.path, "age_s": age_s, "rules": found.rules})
    else:
        show_rules(found.rules)
        click.echo(f"updated {format_latency(age_s)} ago" if running else "not running")
    return NEGATIVE if failed or (running and age_s > _STALE_S) else OK


def show_rules(rules: "list[RuleStatus]") -> None:
    rows = [
        (rule.rule, rule.state, f"{rule.batches:,}", f"{rule.rows:,}", f"{rule.dead_letters:,}",
         f"{rule.batch_s:.2f} s", f"{rule.products_per_s:,.0f}", f"{rule.behind:,}",
         format_latency(rule.behind_s) if rule.behind else "-", f"{rule.lost:,}")
        for rule in rules
    ]  # fmt: skip
    show_table("rules", _HEADER, rows, right=range(2, len(_HEADER)))
    for rule in rules:
        for line in cause_lines(rule):
            click.echo(visible(line))
        if rule.removed:
            click.echo(f"rule {rule.rule}: {format_count(rule.removed, 'row')} removed from tables after keep")
        if rule.failure:
            click.echo(visible(failure_line(rule)), err=True)


def cause_lines(rule: "RuleStatus") -> list[str]:
    """Where the dead letters of a rule come from: why products were refused, most frequent first; its actions."""
    from headrace.pipeline.decoders.decoder import NO_PRODUCT

    causes = sorted(rule.causes.items(), key=lambda each: -each[1])
    words = {True: "refused", False: "not decoded"}
    lines = [
        f"rule {rule.rule}: {format_count(count, 'product')} {words[cause == NO_PRODUCT]}: {cause}"
        for cause, count in causes
    ]
    if rule.failed:
        rows = format_count(rule.failed, "row")
        lines.append(f"rule {rule.rule}: {rows} refused by its actions: `error` of the dead letters has the reasons")
    return lines


def state_line(rule: "RuleStatus") -> str:
    batches = "batch" if rule.batches == 1 else "batches"
    return (
        f"{rule.rule}: {rule.state}, {format_count(rule.rows, 'row')} in {rule.batches:,} {batches}, "
        f"{rule.products_per_s:,.0f}/s, {_behind(rule)}, {format_count(rule.dead_letters, 'dead letter')}"
    )


def _behind(rule: "RuleStatus") -> str:
    age = f" (oldest: {format_latency(rule.behind_s)})" if rule.behind else ""
    lost = f", {rule.lost:,} lost" if rule.lost else ""
    return f"{rule.behind:,} behind{age}{lost}"


def failure_line(rule: "RuleStatus") -> str:
    how = {"failed": "has failed", "retrying": "is being retried"}.get(rule.state, f"is {rule.state}")
    return f"rule {rule.rule} {how}: {rule.failure}"


@pipeline.command(short_help="List every problem in rules, and try samples on them.")
@click.argument("file", metavar="RULES.TOML", type=click.Path(path_type=Path))
@click.option("--sample", "samples", multiple=True, metavar="PATH",
              help="A payload, products as `watch --json` writes them, or a queue (the newest ones).")  # fmt: skip
@click.option("--feed", type=FEED, default="sample", show_default=True, help="The feed of a sample that is a payload.")
@click.option("--ident", help="The ident of such a sample. [default: the name of the file]")
@json_option
def check(file: Path, samples: tuple[str, ...], feed: str, ident: str | None, as_json: bool) -> int:
    """List every problem in RULES.TOML, each with its line and its remedy, and try samples on its rules.

    Of a queue, the samples are the newest 20 products that rules select. Samples are decoded, and their rows are shown,
    and rules that select none of them are named. If a rule with SQL selects a sample, Spark is started, and the rows
    that the SQL makes are shown. Nothing is changed. Exit code 2 if there is a problem, 1 if the SQL fails on a sample.

    \b
    Example:
      headrace pipeline check rules.toml
      headrace pipeline check rules.toml --sample wx.queue
      headrace pipeline check rules.toml --sample report.txt --feed wx/text/metar --ident 'SAUS70 KWBC 060000'
    """
    from headrace.cli.samples import samples_of
    from headrace.pipeline.rules.conflicts import ldm_warnings
    from headrace.pipeline.rules.load import check_rules, load_rules
    from headrace.pipeline.rules.trial import try_rules

    problems = check_rules(file)
    rules = None if problems else load_rules(file)
    warnings = [] if rules is None else list(ldm_warnings(rules))
    for warning in warnings:
        warn(warning)
    if rules is None or not samples:
        return show_problems(str(file), problems, len(warnings), as_json)
    wanted = [rule.select for rule in rules.enabled]
    tried = [sample for path in samples for sample in samples_of(path, feed, ident, {}, wanted)]
    products = [sample.product for sample in tried]
    trials = try_rules(rules, products)
    if as_json:
        for trial in trials:
            echo_json({"sample": tried[trial.place].source, "trial": trial})
    else:
        show_trials([sample.source for sample in tried], trials)
    return OK if _try_sql(rules, products, as_json) else NEGATIVE


def _try_sql(rules: "RuleFile", products: "list[Product]", as_json: bool) -> bool:
    """Run the SQL of the rules that select some of these products. Whether none failed."""
    from headrace.pipeline.run.sql_trial import rules_with_sql, try_sql
    from headrace.pipeline.source.session import spark_session

    chosen = rules_with_sql(rules, products)
    if not chosen:
        return True
    click.echo("starting Spark for the SQL of the rules", err=True)
    spark = spark_session("headrace check", "local[2]", dict(rules.spark))
    spark.sparkContext.setLogLevel("OFF")  # a failure is shown in one line
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    try:
        trials = list(try_sql(spark, rules.path.parent, chosen))
    finally:
        spark.stop()
    for trial in trials:
        if as_json:
            echo_json({"sql": trial})
        else:
            show_sql_trial(trial)
    return all(trial.error is None for trial in trials)


@pipeline.command("import", short_help="Translate a pqact.conf of LDM into rules.")
@click.argument("file", metavar="PQACT.CONF", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--queue", default="wx.queue", show_default=True, help="The queue that the rules read.")
@click.option("--feed", "feeds", multiple=True, metavar="TYPE=FEED",
              help="The feed for a feed type of LDM, such as NEXRAD3=wx/radar/nexrad3; may be repeated.")  # fmt: skip
@json_option
def import_rules(file: Path, queue: str, feeds: tuple[str, ...], as_json: bool) -> int:
    """Translate PQACT.CONF, and the files that it includes, into rules on standard output, with remarks on standard
    error.

    Exit code 1 if an entry has no translation.

    \b
    Example:
      headrace pipeline import etc/pqact.conf > rules.toml
      headrace pipeline check rules.toml
    """
    from headrace.pipeline.rules.pqact.translation import translate

    mapping = dict(_pair(text) for text in feeds)
    text = file.read_text("utf-8", "surrogateescape")
    made = translate(text, queue=queue, feeds=mapping, source=file.name, path=file)
    if as_json:
        echo_json({"rules": made.rules, "discards": made.discards, "toml": made.toml, "remarks": made.remarks})
    else:
        click.echo(made.toml, nl=False)
        for remark in made.remarks:
            click.echo(visible(str(remark)), err=True)
        discards = f" ({made.discards:,} of them only to discard)" if made.discards else ""
        click.echo(f"{format_count(made.rules, 'rule')}{discards}, {len(made.untranslated):,} not translated", err=True)
    return NEGATIVE if made.untranslated else OK


def _pair(text: str) -> tuple[str, str]:
    name, equals, feed = text.partition("=")
    if not equals or not name or not feed:
        raise OptionError(f"--feed {text!r} is not TYPE=FEED", "write it like NEXRAD3=wx/radar/nexrad3")
    return name, feed


@pipeline.command(short_help="Make Spark start in half the time.")
@json_option
def prepare(as_json: bool) -> int:
    """Let Java archive the classes that a pipeline needs, so that Spark starts in about half the time.

    Run it once for each environment and Java, and again after an update of either. It takes a minute and about 200 MB
    in the environment's share/headrace. It only affects the start of pipelines with --master local.

    \b
    Example:
      headrace pipeline prepare
    """
    from headrace.pipeline.run.warm_up import prepare as write_archives

    started = time.monotonic()

    def show_step(step: str) -> None:
        click.echo(f"{time.monotonic() - started:3.0f} s  {step}", err=True)

    prepared = write_archives(show_step)
    took = time.monotonic() - started
    if as_json:
        echo_json({"home": str(prepared.home), "bytes": prepared.bytes, "seconds": took})
    else:
        click.echo(f"prepared in {took:.0f} s ({format_size(prepared.bytes)}): {prepared.home}")
    return OK
