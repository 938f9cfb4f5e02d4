"""Outcome: what a demonstration has shown, as plain data, once the play is over.

The oracle compares what was put at the first site with what each watcher saw at the second, in the order that is kept
between sites, that of each feed; and with what the workers of the station have put, all of them together. Work that is
shared has no order of its own, so none is judged.
"""

from dataclasses import dataclass

from headrace.cli.demo.actors import Report, load_sightings
from headrace.cli.demo.events import Cut, Kill
from headrace.cli.demo.plan import STATION_SELECT, WATCHERS, WORKERS, Plan
from headrace.cli.demo.stage import FEEDER, Stage
from headrace.cli.demo.workers import Noted, load_noted
from headrace.cli.verdicts import expectation
from headrace.queue.statistics import Statistics
from headrace.selection import Selection
from headrace.station import StationStatistics
from headrace.testing import Verdict
from headrace.testing.verdict import judge


@dataclass(frozen=True, slots=True)
class Outcome:
    first: Statistics
    second: Statistics
    station: StationStatistics
    reports: dict[str, Report]  # the last of every actor
    kill: Kill | None
    cut: Cut | None
    pids: dict[str, int]
    watchers: dict[str, Verdict]
    workers: Verdict  # on all of them together

    @property
    def ok(self) -> bool:
        """Nothing was lost, nothing came twice, and the station has nothing left."""
        left = self.station.waiting + self.station.leased + self.station.behind
        return all(verdict.ok for verdict in (*self.watchers.values(), self.workers)) and not left


def outcome_of(plan: Plan, stage: Stage) -> Outcome:
    """After the play."""
    sent = load_sightings(plan.notes_of(FEEDER))
    put: list[Noted] = [noted for worker in WORKERS for noted in load_noted(plan.notes_of(worker))]
    put.sort(key=lambda noted: noted[0])
    return Outcome(
        stage.first.statistics(),
        stage.second.statistics(),
        stage.station.statistics(),
        dict(stage.latest),
        stage.kill,
        stage.cut,
        stage.pids(),
        {
            watcher.name: judge(
                sent, load_sightings(plan.notes_of(watcher.name)), expectation(Selection(watcher.select)), "feed"
            )
            for watcher in WATCHERS
        },
        judge(sent, [sighting for _, sighting in put], expectation(Selection(STATION_SELECT)), "feed"),
    )
