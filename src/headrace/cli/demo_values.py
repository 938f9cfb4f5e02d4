"""The result of a demonstration as JSON, for programs."""

from typing import Any

from headrace.cli.verify import verdict_values
from headrace.demo.nodes import Sharing
from headrace.demo.outcome import Delivery, Outcome, TableVerdicts
from headrace.demo.pacing import Smoothing
from headrace.demo.plan import KILLED_WORKER, PACED, SLICES, WATCHERS, WORKERS, Plan
from headrace.demo.run import LinkCut, WorkerKill


def values_of(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """The plan, what happened, and every verdict."""
    delivery = outcome.delivery
    watchers = [
        {
            "name": watcher.name,
            "select": watcher.select,
            "bytes": delivery.reports[watcher.name].bytes,
            "latency_p50_s": delivery.reports[watcher.name].latency_p50_s,
            "latency_p99_s": delivery.reports[watcher.name].latency_p99_s,
            **verdict_values(delivery.watchers[watcher.name]),
        }
        for watcher in WATCHERS
    ]
    return {
        "seed": plan.seed,
        "seconds": plan.seconds,
        "products": delivery.first.inserted_products,
        "bytes": delivery.first.inserted_bytes,
        "duplicates": delivery.first.duplicates,
        "arrived": delivery.arrived,
        "cut": None if delivery.cut is None else _cut_values(delivery.cut),
        "watchers": watchers,
        "station": _station_values(delivery),
        "nodes": _node_values(outcome.sharing),
        "pacer": _pacer_values(outcome.smoothing),
        "pipeline": None if outcome.tables is None else _table_values(outcome.tables),
    }


def _station_values(delivery: Delivery) -> dict[str, Any]:
    """The station, with its verdict but without order: shared work has none."""
    counts = delivery.station
    verdict = {name: value for name, value in verdict_values(delivery.workers).items() if "order" not in name}
    workers = [
        {
            "name": worker,
            "pid": delivery.pids[worker],
            "products": delivery.reports[worker].products,
            "killed": worker == KILLED_WORKER and delivery.kill is not None,
        }
        for worker in WORKERS
    ]
    return {
        "name": counts.name,
        "select": counts.selection,
        "waiting": counts.waiting,
        "leased": counts.leased,
        "acknowledged": counts.acknowledged,
        "restored": counts.restored,
        "redelivered": counts.redelivered,
        "workers": workers,
        "kill": None if delivery.kill is None else _kill_values(delivery.kill),
        **verdict,
    }


def _node_values(sharing: Sharing) -> dict[str, Any]:
    """The nodes that shared a stream, and the verdict on them."""
    verdict = {name: value for name, value in verdict_values(sharing.verdict).items() if "order" not in name}
    session = sharing.session
    moved = None if session is None else {"slices": session.slices, "of": SLICES, "took_s": sharing.moved_s}
    return {"products": sharing.products, "joined": moved, **verdict}


def _pacer_values(smoothing: Smoothing) -> dict[str, Any]:
    """One stream, as it arrived and after a pacer."""
    before_s, after_s = smoothing.medians_s()
    products = smoothing.after.shape[1] + 1
    return {"select": PACED, "products": products, "jitter_before_s": before_s, "jitter_after_s": after_s}


def _table_values(tables: TableVerdicts) -> dict[str, Any]:
    verdicts = [
        {"name": name, **{key: value for key, value in verdict_values(verdict).items() if "order" not in key}}
        for name, verdict in tables.verdicts.items()
    ]
    return {"ok": tables.ok, "reports": tables.reports, "verdicts": verdicts}


def _kill_values(kill: WorkerKill) -> dict[str, Any]:
    return {"pid": kill.pid, "after_s": kill.after_s, "held": kill.held, "back_after_s": kill.back_after_s}


def _cut_values(cut: LinkCut) -> dict[str, Any]:
    return {
        "after_s": cut.after_s, "lasted_s": cut.lasted_s, "missing": cut.missing,
        "caught_up_after_s": cut.caught_up_after_s,
    }  # fmt: skip
