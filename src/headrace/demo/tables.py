"""What the oracle says of a pipeline: of its tables, files, alerts and dead letters.

    table metar     each bulletin once: as many rows as it has reports, no two the same
    dead letters    each garbled bulletin once, with its bytes
    files radar     each radar product in one file, with its bytes
    table hourly    each station and hour that is over, once, with the number of its reports in the METAR table
    alerts          one for each row of the METAR table with a gust above the threshold

Nothing here is told by the pipeline: what was sent is the feeder's notes, or comes from the generator again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.dataset as ds
from blake3 import blake3

from headrace.demo.actors import sighting_of
from headrace.demo.plan import ALERT_FEED, GARBLED, Plan
from headrace.demo.rules import GUST, METAR_FEED, RADAR_SELECT, watermark_min
from headrace.pipeline.actions.disk import RESERVED
from headrace.queue import Queue
from headrace.selection import Selection
from headrace.testing import Verdict
from headrace.testing.verdict import SIGNATURE_BYTES, Sighting, judge

_HOUR = timedelta(hours=1)
_ALERTS_MAX = 1_000_000
_KEY = ["sequence", "feed", "ident", "signature", "report"]
_METAR_COLUMNS = [*_KEY, "station", "observed", "wind_gust"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tables:
    """By name, in the order of the list above."""

    verdicts: dict[str, Verdict]
    reports: int  # rows of the METAR table
    hourly: list[Row]  # for the plot

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts.values())


def tables_of(plan: Plan, second: Queue, sent: list[Sighting]) -> Tables:
    """After the pipeline has come to the end of the queue."""
    folder = plan.pipeline / "tables"
    rows, hourly = _rows(folder / "metar", _METAR_COLUMNS), _rows(folder / "hourly")
    alerts = second.read("oldest", ALERT_FEED, limit=_ALERTS_MAX)
    told = [_hour_name(row["hour"], row["station"], row["reports"]) for row in hourly]
    verdicts = {
        "table metar": judge(sent, _bulletins(plan, rows), _is_whole, "feed"),
        "dead letters": judge(sent, _letters(folder / "dead_letters"), _is_garbled, "feed"),
        "files radar": judge(sent, _files(plan.pipeline / "files"), Selection(RADAR_SELECT).wants_names, "feed"),
        "table hourly": judge(_marks(_hours_over(plan, rows)), _marks(told)),
        "alerts": judge(_marks(_gusts(rows)), _marks(product.ident for product in alerts)),
    }
    return Tables(verdicts, len(rows), hourly)


def _is_whole(feed: str, ident: str) -> bool:
    return feed == METAR_FEED and not ident.endswith(GARBLED)


def _is_garbled(feed: str, ident: str) -> bool:
    return feed == METAR_FEED and ident.endswith(GARBLED)


def _rows(table: Path, columns: list[str] | None = None) -> list[Row]:
    """A table that never got a row is not there."""
    if not table.exists():
        return []
    found: list[Row] = ds.dataset(table, format="parquet").to_table(columns=columns).to_pylist()
    return found


def _bulletins(plan: Plan, rows: list[Row]) -> list[Sighting]:
    """Those in the METAR table, as the queue has them: none if a report is missing, two if there is one too many."""
    sent = {sighting_of(draft.feed, draft.ident, draft.payload): draft.payload for draft in plan.metar_drafts()}
    known = {sighting.signature: (sighting.size, payload.count(b"=")) for sighting, payload in sent.items()}
    found = Counter((row["sequence"], row["feed"], row["ident"], row["signature"]) for row in rows)
    distinct = Counter((sequence, *names) for sequence, *names, _ in {tuple(row[c] for c in _KEY) for row in rows})
    seen: list[Sighting] = []
    for bulletin in sorted(found):
        _, feed, ident, signature = bulletin
        size, reports = known.get(signature, (0, 0))
        times = 0 if distinct[bulletin] < reports else 1 + (found[bulletin] > reports)
        seen += times * [Sighting(feed, ident, size, signature)]
    return seen


def _letters(table: Path) -> list[Sighting]:
    """Those of the rule `metar`; `hourly` has the same again."""
    letters = [row for row in _rows(table) if row["rule"] == "metar"]
    letters.sort(key=lambda row: row["sequence"])
    return [sighting_of(row["feed"], row["ident"], row["payload"]) for row in letters]


def _files(folder: Path) -> Iterator[Sighting]:
    """Paths as the rule makes them: feed, sequence, ident."""
    found = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(RESERVED))
    for file in sorted(found, key=lambda file: file.name):
        ident = unquote(file.name.partition(" ")[2])
        yield sighting_of(file.parent.relative_to(folder).as_posix(), ident, file.read_bytes())


def _hours_over(plan: Plan, rows: list[Row]) -> list[str]:
    """What the hourly table should have, from the METAR table."""
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
    """Things that are known by a name alone, for the oracle."""
    return [Sighting("", name, 0, blake3(name.encode()).digest(length=SIGNATURE_BYTES)) for name in sorted(names)]
