"""Fake snapshots, from which tests of `headrace top` make frames."""

from typing import Any

from headrace.cli.top.frame import Snapshot
from headrace.log.statistics import Statistics
from headrace.station import ConsumerStatistics, StationStatistics


def queue_statistics(**changed: Any) -> Statistics:
    zero = dict.fromkeys(Statistics.__struct_fields__, 0)
    lists: dict[str, Any] = {"rates": [], "attached": [], "cursors": [], "feeds": []}
    return Statistics(**{**zero, **lists, "size": 1000, "oldest_age_s": None, "flush_failure": None, **changed})


def station_statistics(name: str, **changed: Any) -> StationStatistics:
    zero = dict.fromkeys(StationStatistics.__struct_fields__, 0)
    terms: dict[str, Any] = {
        "name": name, "chain": 1, "stage": 1, "group": None, "channel": None, "selection": "wx/**", "blocking": False,
        "durable": True, "paused": False, "prescale": 1, "capacity": None, "dropped": {}, "oldest_age_s": None,
        "evicted_at_most": False, "evicted_ago_s": None,
    }  # fmt: skip
    return StationStatistics(**{**zero, **terms, **changed})


def consumer_statistics(station: str, place: int = 0, **changed: Any) -> ConsumerStatistics:
    told: dict[str, Any] = {
        "pid": 100 + place, "attached_ns": 1, "beat_age_s": 0.1, "leased": 0, "delivered": 0, "acknowledged": 0, "alive": True,
    }  # fmt: skip
    return ConsumerStatistics(station=station, place=place, **{**told, **changed})


def snapshot(at_s: float, queue: Statistics | None = None, *more: StationStatistics | ConsumerStatistics) -> Snapshot:
    stations = [each for each in more if isinstance(each, StationStatistics)]
    consumers = [each for each in more if isinstance(each, ConsumerStatistics)]
    return Snapshot("q", 10**18, at_s, queue or queue_statistics(), stations, consumers)
