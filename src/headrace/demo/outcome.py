"""Outcome: what a demonstration has shown, as plain data, once the play is over.

The oracle compares what was put at the first site with what each watcher saw at the second, in the order that is kept
between sites, that of each feed; and with what the workers of the station have put, all of them together. Work that is
shared has no order of its own, so none is judged. What it says of the pipeline is in tables.py.
"""

from dataclasses import dataclass

from headrace.cli.verdicts import expectation
from headrace.demo.actors import Report, load_sightings
from headrace.demo.events import Cut, Kill
from headrace.demo.plan import STATION_SELECT, WATCHERS, WORKERS, Plan
from headrace.demo.stage import FEEDER, PIPELINE, Stage
from headrace.demo.tables import Tables, tables_of
from headrace.demo.workers import Noted, load_noted
from headrace.log.statistics import Statistics
from headrace.selection import Selection
from headrace.station import StationStatistics
from headrace.testing import Verdict
from headrace.testing.verdict import judge


@dataclass(frozen=True, slots=True)
class Outcome:
    first: Statistics
    arrived: int  # at the second site
    station: StationStatistics
    reports: dict[str, Report]  # the last of every actor
    kill: Kill | None
    cut: Cut | None
    pids: dict[str, int]
    watchers: dict[str, Verdict]
    workers: Verdict  # on all of them together
    tables: Tables | None  # None: there was no pipeline

    @property
    def ok(self) -> bool:
        """Nothing was lost, nothing came twice, and the station has nothing left."""
        left = self.station.waiting + self.station.leased + self.station.behind
        verdicts = (*self.watchers.values(), self.workers, *(() if self.tables is None else (self.tables,)))
        return all(verdict.ok for verdict in verdicts) and not left


def outcome_of(plan: Plan, stage: Stage) -> Outcome:
    """After the play."""
    sent = load_sightings(plan.notes_of(FEEDER))
    put: list[Noted] = [noted for worker in WORKERS for noted in load_noted(plan.notes_of(worker))]
    put.sort(key=lambda noted: noted[0])
    return Outcome(
        stage.first.statistics(),
        stage.arrived,
        stage.station.statistics(),
        dict(stage.latest),
        stage.kill,
        stage.cut,
        stage.pids(),
        {
            watcher.name: judge(
                sent, load_sightings(plan.notes_of(watcher.name)), expectation(Selection.of(watcher.select)), "feed"
            )
            for watcher in WATCHERS
        },
        judge(sent, [sighting for _, sighting in put], expectation(Selection(STATION_SELECT)), "feed"),
        tables_of(plan, stage.second, sent) if PIPELINE in stage.latest else None,
    )
