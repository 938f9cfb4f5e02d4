"""Outcome: the verdict of the oracle on a demonstration, as plain data.

The oracle compares what was put at the first site with what each watcher received at the second. Between sites the
order of each feed is guaranteed, so that order is checked. The oracle also compares it with what all workers of the
station together acknowledged; shared work has no order, so none is checked. And it checks the output of the pipeline:

    table metar     each bulletin once: as many rows as it has reports, no two of them equal
    dead letters    each garbled bulletin once, with its bytes
    files radar     each radar product in one file, with its bytes
    table hourly    each station and closed hour once, with the number of its reports in the METAR table
    alerts          one for each row of the METAR table with a gust above the threshold

No expectation comes from the pipeline itself: what was sent is in the records of the feeder, or is generated again.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.dataset as ds
from blake3 import blake3

from headrace.demo.nodes import Sharing, sharing_of
from headrace.demo.pacing import Smoothing, smoothing_of
from headrace.demo.pipeline import GUST, METAR_FEED, RADAR_SELECT, watermark_min
from headrace.demo.plan import ALERT_FEED, GARBLED, STATION_SELECT, STREAM, WATCHERS, WORKERS, Plan
from headrace.demo.processes import Acknowledged, Report, load_acknowledged, load_sightings, sighting_of
from headrace.demo.run import FEEDER, PIPELINE, DemoRun, LinkCut, WorkerKill
from headrace.log.statistics import Statistics
from headrace.pipeline.actions.disk import RESERVED
from headrace.queue import Queue
from headrace.selection import Selection
from headrace.station import StationStatistics
from headrace.testing import Verdict
from headrace.testing.verdict import SIGNATURE_BYTES, Sighting, judge

_HOUR = timedelta(hours=1)
_KEY = ["sequence", "feed", "ident", "signature", "report"]
_METAR_COLUMNS = [*_KEY, "station", "observed", "wind_gust"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableVerdicts:
    """The verdicts on the output of the pipeline, by name, in the order of the list above."""

    verdicts: dict[str, Verdict]
    reports: int  # rows of the METAR table
    hourly: list[Row]  # for the plot

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts.values())


@dataclass(frozen=True, slots=True)
class Delivery:
    """What happened at the sites, to the watchers and to the workers, and what the oracle says about it."""

    first: Statistics
    arrived: int  # at the second site
    station: StationStatistics
    reports: dict[str, Report]  # the last one of every process
    kill: WorkerKill | None
    cut: LinkCut | None
    pids: dict[str, int]
    watchers: dict[str, Verdict]
    workers: Verdict  # on all workers together

    @property
    def ok(self) -> bool:
        """Nothing was lost, duplicated or altered, and the station has no backlog."""
        left = self.station.waiting + self.station.leased + self.station.behind
        return all(verdict.ok for verdict in (*self.watchers.values(), self.workers)) and not left


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdicts on deliveries and nodes, on the tables unless the run had no pipeline, and one stream's jitter."""

    delivery: Delivery
    sharing: Sharing
    tables: TableVerdicts | None
    smoothing: Smoothing

    @property
    def ok(self) -> bool:
        return self.delivery.ok and self.sharing.verdict.ok and (self.tables is None or self.tables.ok)


def delivery_of(plan: Plan, run: DemoRun) -> Delivery:
    """Judge what watchers received and workers acknowledged, when they are done."""
    sent = load_sightings(plan.records_of(FEEDER))
    acknowledged: list[Acknowledged] = []
    for worker in WORKERS:
        acknowledged += load_acknowledged(plan.records_of(worker))
    acknowledged.sort(key=lambda record: record[0])
    return Delivery(
        run.first.statistics(),
        run.arrived,
        run.station.statistics(),
        dict(run.latest),
        run.kill,
        run.cut,
        run.pids(),
        {
            watcher.name: judge(
                sent, load_sightings(plan.records_of(watcher.name)), Selection.of(watcher.select).wants_names, "feed"
            )
            for watcher in WATCHERS
        },
        judge(sent, [sighting for _, sighting in acknowledged], Selection(STATION_SELECT).wants_names, "feed"),
    )


def shared_of(plan: Plan, run: DemoRun) -> Sharing:
    """Judge what the nodes have done, when they have left."""
    assert run.shared is not None
    return sharing_of(plan, run.second, run.second.share(STREAM, create=False), *run.shared)


def outcome_of(plan: Plan, run: DemoRun, delivery: Delivery, sharing: Sharing) -> Outcome:
    """Judge a run that has ended."""
    if PIPELINE not in run.latest:
        return Outcome(delivery, sharing, None, smoothing_of(plan))
    tables = tables_of(plan, run.second, load_sightings(plan.records_of(FEEDER)))
    return Outcome(delivery, sharing, tables, smoothing_of(plan))


# --- the output of the pipeline --------------------------------------------------------------------


def tables_of(plan: Plan, second: Queue, sent: list[Sighting]) -> TableVerdicts:
    """Judge the tables after the pipeline has reached the end of the queue."""
    folder = plan.pipeline / "tables"
    rows, hourly = _rows(folder / "metar", _METAR_COLUMNS), _rows(folder / "hourly")
    alerts = second.read("oldest", ALERT_FEED)
    hours = [_hour_name(row["hour"], row["station"], row["reports"]) for row in hourly]
    verdicts = {
        "table metar": judge(sent, _bulletins(plan, rows), _is_whole, "feed"),
        "dead letters": judge(sent, _letters(folder / "dead_letters"), _is_garbled, "feed"),
        "files radar": judge(sent, _files(plan.pipeline / "files"), Selection(RADAR_SELECT).wants_names, "feed"),
        "table hourly": judge(_marks(_closed_hours(plan, rows)), _marks(hours)),
        "alerts": judge(_marks(_gusts(rows)), _marks(product.ident for product in alerts)),
    }
    return TableVerdicts(verdicts, len(rows), hourly)


def _is_whole(feed: str, ident: str) -> bool:
    return feed == METAR_FEED and not ident.endswith(GARBLED)


def _is_garbled(feed: str, ident: str) -> bool:
    return feed == METAR_FEED and ident.endswith(GARBLED)


def _rows(table: Path, columns: list[str] | None = None) -> list[Row]:
    """The rows; a table that never got a row does not exist."""
    if not table.exists():
        return []
    found: list[Row] = ds.dataset(table, format="parquet").to_table(columns=columns).to_pylist()
    return found


def _bulletins(plan: Plan, rows: list[Row]) -> list[Sighting]:
    """The bulletins in the METAR table, as sightings: none if a report is missing, two if there is one too many."""
    sent = {sighting_of(draft.feed, draft.ident, draft.payload): draft.payload for draft in plan.metar_drafts()}
    known = {signature_of(sighting, payload): (sighting, payload.count(b"=")) for sighting, payload in sent.items()}
    found = Counter((row["sequence"], row["feed"], row["ident"], row["signature"]) for row in rows)
    distinct = Counter((sequence, *names) for sequence, *names, _ in {tuple(row[c] for c in _KEY) for row in rows})
    seen: list[Sighting] = []
    for bulletin in sorted(found):
        _, feed, ident, signature = bulletin
        sighting, reports = known.get(signature, (Sighting(feed, ident, 0, signature), 0))
        times = 0 if distinct[bulletin] < reports else 1 + (found[bulletin] > reports)
        seen += times * [Sighting(feed, ident, sighting.size, sighting.signature)]
    return seen


def signature_of(sighting: Sighting, payload: bytes) -> bytes:
    """The signature that a queue gives to a product with an ident (docs/format.md)."""
    feed, ident = sighting.feed.encode(), sighting.ident.encode()
    return blake3(struct.pack("<4H", len(feed), len(ident), 0, 0) + feed + ident + payload).digest(SIGNATURE_BYTES)


def _letters(table: Path) -> list[Sighting]:
    """The dead letters of the rule `metar`; those of `hourly` are the same."""
    letters = [row for row in _rows(table) if row["rule"] == "metar"]
    letters.sort(key=lambda row: row["sequence"])
    return [sighting_of(row["feed"], row["ident"], row["payload"]) for row in letters]


def _files(folder: Path) -> Iterator[Sighting]:
    """Paths as the rule writes them: feed, sequence, ident."""
    found = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(RESERVED))
    for file in sorted(found, key=lambda file: file.name):
        ident = unquote(file.name.partition(" ")[2])
        yield sighting_of(file.parent.relative_to(folder).as_posix(), ident, file.read_bytes())


def _closed_hours(plan: Plan, rows: list[Row]) -> list[str]:
    """The expected rows of the hourly table, computed from the METAR table."""
    last = max((row["observed"] for row in rows if row["observed"]), default=None)
    if last is None:
        return []
    over = last - timedelta(minutes=watermark_min(plan.seconds))
    counts = Counter((row["observed"].replace(minute=0), row["station"]) for row in rows if row["observed"])
    return [_hour_name(hour, station, count) for (hour, station), count in counts.items() if hour + _HOUR <= over]


def _hour_name(hour: datetime, station: str, reports: int) -> str:
    return f"{hour:%Y-%m-%d %H} {station}: {reports}"


def _gusts(rows: list[Row]) -> list[str]:
    strong = [row for row in rows if row["wind_gust"] is not None and row["wind_gust"] > GUST]
    return [f"{row['station']} {row['sequence']} {row['report']}" for row in strong]


def _marks(names: Iterable[str]) -> list[Sighting]:
    """Sightings for things that have a name and no content."""
    return [Sighting("", name, 0, blake3(name.encode()).digest(length=SIGNATURE_BYTES)) for name in sorted(names)]
