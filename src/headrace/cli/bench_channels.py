"""The tables of `headrace bench channels`: the memo's beside ours, and the accounts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from headrace.cli.output import show_table

if TYPE_CHECKING:
    from headrace.bench.carma_memo import MemoRow, MemoTable
    from headrace.bench.channels import ChannelsReport, Result


def show_channels(report: "ChannelsReport") -> None:
    """Tables 1 to 4, the narrow links, and the accounts; at the end what does not add up."""
    click.echo(f"{report.machine}; commit {report.commit}; {report.place}")
    click.echo(f"yardstick: hashlib.md5 of 150 B takes {report.yardstick_us:.2f} µs here")
    click.echo(f"memo: CARMA memorandum 22, {report.memo_machines}")
    results = {result.case.name: result for result in report.results}
    for table in report.memo:
        _show_memo(table, results)
    _show_narrow([result for result in report.results if result.case.narrow])
    _show_accounts(report.results)
    for line in report.not_measured:
        click.echo(f"not comparable: {line}")
    for fault in report.faults:
        click.echo(f"does not add up: {fault}", err=True)


_COSTS = ("consumer", "memo", "site", "memo", "suppliers", "p50", "p99", "max", "memo")


def _show_memo(table: "MemoTable", results: dict[str, "Result"]) -> None:
    title = f"table {table.number}: {table.title} (CPU in % of a core, latency in ms)"
    rows = [(row.what, *_beside(row, results[row.case])) for row in table.rows if row.case in results]
    show_table(title, ("", *_COSTS), rows, range(1, 10))


def _beside(row: "MemoRow", result: "Result") -> Sequence[str]:
    costs, latency = result.costs[row.channel], result.latency[row.channel]
    return (
        f"{costs.consumer_pct:.1f}", f"{row.consumer_pct:g}", f"{costs.site_pct:.1f}", f"{row.server_pct:g}",
        f"{costs.suppliers_pct:.1f}", f"{latency.p50_ms:.1f}", f"{latency.p99_ms:.1f}", f"{latency.max_ms:.1f}",
        "" if row.latency_s is None else f"{row.latency_s * 1000:g}",
    )  # fmt: skip


def _show_narrow(results: Sequence["Result"]) -> None:
    rows = []
    for result in results:
        for system in result.case.systems:
            costs, latency = result.costs[system.channel], result.latency[system.channel]
            rows.append((
                result.case.what, f"{system.bytes_per_s / 1e6:.2f}", f"{(result.link_bytes_per_s or 0.0) / 1e6:.2f}",
                f"{costs.consumer_pct:.1f}", f"{costs.site_pct:.1f}", f"{costs.suppliers_pct:.1f}",
                f"{latency.p50_ms:.0f}", f"{latency.p99_ms:.0f}", f"{latency.max_ms:.0f}",
            ))  # fmt: skip
    names = ("", "demand MB/s", "link MB/s", "consumer", "site", "suppliers", "p50", "p99", "max")
    show_table("a link slower than the demand (CPU in % of a core, latency in ms)", names, rows, range(1, 9))


def _show_accounts(results: Sequence["Result"]) -> None:
    """One row for each station; what its suppliers did comes first."""
    rows = []
    for result in results:
        for accounts in result.accounts:
            supplied = accounts.suppliers
            for station in accounts.stations:
                dropped = ", ".join(f"{count:,} {cause}" for cause, count in station.dropped.items())
                counts = (
                    supplied.ticks, supplied.skipped, supplied.refused, supplied.timed_out, supplied.stored,
                    station.received, station.expired,
                )  # fmt: skip
                rows.append((
                    result.case.what, station.station, *(f"{count:,}" for count in counts), dropped or "0",
                    f"{station.waiting:,}", f"{station.late:,}", "no" if accounts.faults else "yes",
                ))  # fmt: skip
    names = (
        "", "station", "ticks", "skipped", "refused", "timed out", "stored", "received", "expired", "dropped",
        "waiting", "late", "adds up",
    )  # fmt: skip
    show_table("accounts, by the ledgers of all processes", names, rows, range(2, 12))
    click.echo("ticks = skipped + refused + timed out + stored; stored = received + expired + dropped + waiting")
