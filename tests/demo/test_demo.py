"""headrace demo, as a user runs it."""

import os
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from headrace import Queue
from headrace.cli import demo_show
from headrace.cli.demo_show import new_plot, next_commands
from headrace.demo import outcome
from headrace.demo.outcome import Delivery, TableVerdicts, tables_of
from headrace.demo.plan import GARBLED, WORKERS, Plan
from headrace.demo.plot import figure_of
from headrace.demo.processes import sighting_of
from headrace.demo.run import DemoRun
from support.commandline import Run, children_of, environment, is_alive, objects
from support.waiting import until

CHILDREN = 13  # two sites, the link, feeder, two watchers, three workers, two nodes, a pacer, and Python's own helper
LINES = (
    r"starting two sites, the link between them, 2 watchers, 3 workers, 2 nodes, a pacer \(times: since the first product\)",
    r" +0\.0 s  2,000 products per second are put at site one, and arrive at site two",
    r" +\d\.\d s  worker 2 is killed, holding \d+ products; redelivered after [\d.]+ m?s",
    r" +\d\.\d s  the link is cut; products are still put at site one",
    r" +\d+\.\d s  the link is restored; site two lacks [\d,]+ products",
    r" +\d+\.\d s  site two has caught up, [\d.]+ m?s later; lost 0",
    r" +\d+\.\d s  verdict on deliveries: put [\d,]+, arrived [\d,]+; "
    r"lost 0, duplicated 0, altered 0; without the cut, latency p50 .* m?s, p99 .* m?s",
    r" +\d+\.\d s  a camera across the Atlantic \(simulated\), through a pacer: [\d,]+ products; "
    r"jitter .* \S?s as they arrived, .* \S?s after the pacer",
    r" +\d+\.\d s  verdict on nodes: node-2 joined node-1: \d+ of 64 slices moved in [\d.]+ \S?s; "
    r"node-1 [\d,]+, node-2 [\d,]+; lost 0, duplicated 0, altered 0",
    r"nothing lost, nothing duplicated, nothing altered",
    r"kept in headrace-demo; try:",
    r"  \S+ -m headrace watch headrace-demo/two --from oldest --select 'wx/radar/\*\*' --count 5 --timeout 1s",
    r"  \S+ -m headrace station list headrace-demo/two",
    r"  \S+ -m headrace queue check headrace-demo/two",
)
VERDICTS = ["table metar", "dead letters", "files radar", "table hourly", "alerts"]


def test_the_demo_loses_and_duplicates_nothing_and_leaves_no_file(tmp_path: Path, start) -> None:
    process = start("demo", "--no-pipeline", "--seconds", "3", "--json", env=environment(TMPDIR=str(tmp_path)))
    out, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (0, b"")
    (told,) = objects(out.decode())
    everything, radar = told["watchers"]
    assert told["ok"]
    assert told["products"] == everything["sent"] == everything["received"] > 3000
    assert 0 < radar["sent"] == radar["received"] < everything["sent"]
    assert told["duplicates"] == everything["copies"] > 0
    for watcher in told["watchers"]:
        assert (watcher["lost"], watcher["duplicated"], watcher["out_of_order"]) == (0, 0, 0)
        assert 0 < watcher["latency_p50_s"] <= watcher["latency_p99_s"]
    judge_cut(told)
    judge_station(told["station"])
    nodes = told["nodes"]
    assert (nodes["lost"], nodes["duplicated"], nodes["sent"]) == (0, 0, sum(nodes["products"].values()))
    assert 0 < nodes["joined"]["slices"] < 64
    assert all(count > 0 for count in nodes["products"].values())
    assert 0 < told["pacer"]["products"] <= 600
    assert told["pacer"]["jitter_after_s"] > 0
    assert (told["pipeline"], told["plot"]) == (None, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(400)
@pytest.mark.soak
def test_the_demo_writes_every_product_to_the_tables_once_and_draws_a_plot(
    tmp_path: Path, start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the commands are typed
    process = start("demo", "--seconds", "8", "--json", "--keep", "kept", env=environment(TMPDIR=str(tmp_path)))
    out, err = process.communicate(timeout=360)
    assert (process.returncode, err) == (0, b"")
    (told,) = objects(out.decode())
    pipeline = told["pipeline"]
    assert told["ok"]
    assert pipeline["ok"]
    assert [verdict["name"] for verdict in pipeline["verdicts"]] == VERDICTS
    for verdict in pipeline["verdicts"]:
        assert (verdict["lost"], verdict["duplicated"], verdict["unknown"], verdict["mismatched"]) == (0, 0, 0, 0)
        assert verdict["received"] == verdict["sent"] > 0
    assert pipeline["reports"] > pipeline["verdicts"][0]["received"]
    assert told["arrived"] == told["products"]
    assert Path(told["plot"]).read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == [
        "headrace-demo.png", "one", "pipeline", "two"
    ]  # fmt: skip
    shown = [typed(command, tmp_path) for command in next_commands("kept", pipeline=True)]
    assert shown[0].count("alert/gust") == 5
    assert "pipeline-rules-metar" in shown[1]
    assert "rows x" in shown[2]


def test_the_oracle_finds_missing_and_duplicate_rows_of_a_table(tmp_path: Path) -> None:
    plan = Plan(tmp_path, tmp_path, seed=1, seconds=1)
    sent = [sighting_of(draft.feed, draft.ident, draft.payload) for draft in plan.metar_drafts()]
    with Queue.create(tmp_path / "two", size="4MiB") as queue:
        for draft in plan.metar_drafts():
            if not draft.ident.endswith(GARBLED):
                queue.put(draft.payload, feed=draft.feed, ident=draft.ident)
        rows = [
            {"sequence": product.sequence, "feed": product.feed, "ident": product.ident, "signature": product.signature,
             "report": report, "station": "KDEN", "observed": datetime(2026, 1, 6, 0, 53), "wind_gust": None}
            for product in queue.read() for report in range(bytes(product.payload).count(b"="))
        ]  # fmt: skip
    table = tmp_path / "pipeline" / "tables" / "metar"
    table.mkdir(parents=True)

    def verdict(rows: list[dict[str, Any]]) -> tuple[int, int, int]:
        pq.write_table(pa.Table.from_pylist(rows), table / "part.parquet")
        with Queue.open(tmp_path / "two") as queue:
            told = tables_of(plan, queue, sent).verdicts["table metar"]
        return told.lost, told.duplicated, told.mismatched

    assert verdict(rows) == (0, 0, 0)
    assert verdict(rows[1:]) == (1, 0, 0)
    assert verdict([*rows, rows[-1]]) == (0, 1, 0)


def judge_cut(told: dict[str, Any]) -> None:
    """The link was cut for a while, and every product still arrived."""
    cut = told["cut"]
    assert told["arrived"] == told["products"]
    assert cut["missing"] > 0
    assert cut["lasted_s"] > 0.5
    assert cut["caught_up_after_s"] > 0


def judge_station(station: dict[str, Any]) -> None:
    """One worker was killed while it held products, and every product was still acknowledged once."""
    kill = station["kill"]
    assert station["sent"] == station["received"] == station["acknowledged"] > 1000
    assert (station["lost"], station["duplicated"], station["waiting"], station["leased"]) == (0, 0, 0, 0)
    assert 0 < kill["held"] == station["restored"] == station["redelivered"]
    assert kill["back_after_s"] > 0
    assert [(worker["name"], worker["killed"]) for worker in station["workers"]] == [
        (name, worker == 1) for worker, name in enumerate(WORKERS)
    ]
    assert kill["pid"] == station["workers"][1]["pid"]
    assert sum(worker["products"] for worker in station["workers"]) == station["received"]


def test_in_a_pipe_each_event_is_one_line_and_the_commands_for_what_is_kept_run_as_printed(
    tmp_path: Path, start
) -> None:
    process = start("demo", "--no-pipeline", "--seconds", "2.2", "--seed", "7", "--keep", env=typing(tmp_path))
    out, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (0, b"")
    lines = out.decode().splitlines()
    for line, pattern in zip(lines, LINES, strict=True):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"
    shown = [typed(line.strip(), tmp_path) for line in lines[-3:]]
    assert shown[0].count("wx/radar") == 5
    assert re.search("decode +wx/", shown[1])
    assert "headrace-demo/two is intact" in shown[2]
    with Queue.open(tmp_path / "headrace-demo" / "two") as queue:
        assert queue.station("decode").statistics().consumers == 0
        assert f" put {queue.statistics().inserted_products:,}, arrived " in out.decode()
    assert [file.name for file in tmp_path.iterdir()] == ["headrace-demo"]
    assert sorted(file.name for file in (tmp_path / "headrace-demo").iterdir()) == ["one", "two"]


def test_the_command_for_the_table_runs_as_printed_whatever_the_folder_is_called(tmp_path: Path, run: Run) -> None:
    for folder in ("kept", 'it\'s $HOME "here"'):
        table = tmp_path / folder / "pipeline" / "tables" / "hourly"
        table.mkdir(parents=True)
        pq.write_table(pa.table({"station": ["KDEN"], "reports": [7]}), table / "part.parquet")
        *_, command = next_commands(folder, pipeline=True)
        assert "KDEN        7" in typed(command, tmp_path)


def test_a_folder_that_exists_is_refused_at_once_and_left_as_it_is(tmp_path: Path, run: Run) -> None:
    (tmp_path / "mine").mkdir()
    result = run("demo", "--keep", "mine", "--json")
    (told,) = objects(result.stderr)
    assert (result.exit_code, told["problem"]) == (3, "mine exists already")
    assert "--keep FOLDER" in told["hint"]
    assert list((tmp_path / "mine").iterdir()) == []


def typing(folder: Path) -> dict[str, str]:
    """Variables of a shell in which `python` is this environment's."""
    return environment(TMPDIR=str(folder), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def typed(command: str, folder: Path) -> str:
    """The output of a command as the demo prints it."""
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=typing(folder), capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_no_process_and_no_file(tmp_path: Path, start, number: int, code: int) -> None:
    process = start("demo", "--no-pipeline", env=environment(TMPDIR=str(tmp_path)))
    until(lambda: len(children_of(process.pid)) >= CHILDREN)
    children = children_of(process.pid)
    process.send_signal(number)
    _, err = process.communicate(timeout=240)
    assert (process.returncode, err.strip()) == (code, b"")
    until(lambda: not any(map(is_alive, children)))
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_reported(tmp_path: Path, start) -> None:
    process = start("demo", "--no-pipeline", "--json", env=environment(TMPDIR=str(tmp_path)))
    until(lambda: len(children_of(process.pid)) >= CHILDREN)
    actors = [pid for pid in children_of(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(actors[0], signal.SIGKILL)
    _, err = process.communicate(timeout=240)
    (told,) = objects(err.decode())
    assert process.returncode == told["exit"] == 3
    assert "ended early, with exit code -9" in told["problem"]
    assert list(tmp_path.iterdir()) == []


def test_a_product_acknowledged_twice_or_never_makes_the_demo_fail(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = outcome.load_acknowledged

    def load(path: Path) -> list[Any]:
        acknowledged = plain(path)
        if WORKERS[0] in path.name:
            return acknowledged[1:]
        return acknowledged[:1] + acknowledged if WORKERS[2] in path.name else acknowledged

    monkeypatch.setattr(outcome, "load_acknowledged", load)
    result = run("demo", "--no-pipeline", "--seconds", "1", "--json")
    (told,) = objects(result.stdout)
    assert result.exit_code == 1
    assert (told["ok"], told["station"]["ok"]) == (False, False)
    assert (told["station"]["lost"], told["station"]["duplicated"]) == (1, 1)


def test_products_that_are_evicted_during_the_cut_make_the_demo_fail_and_the_plot_counts_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real loss: the queues are so small that the first site no longer has them when the link is back."""
    drawn: list[tuple[Delivery, Figure]] = []

    def judged(plan: Plan, run: DemoRun) -> Delivery:
        delivery = outcome.delivery_of(plan, run)
        drawn.append((delivery, figure_of(plan, delivery, TableVerdicts({}, 0, []))))
        return delivery

    monkeypatch.setattr(demo_show, "delivery_of", judged)
    monkeypatch.setattr(Plan, "queue_bytes", 4 << 20)
    result = run("demo", "--no-pipeline", "--seconds", "3")
    ((delivery, figure),) = drawn
    lost = delivery.watchers["everything"].lost
    assert result.exit_code == 1
    assert delivery.cut is not None
    assert delivery.kill is not None
    assert lost > 0
    assert re.search(r" arrived [\d,]+; lost [1-9]", result.stdout)
    assert re.search(rf"\n  everything .* {lost:,} ", result.stdout)
    assert "the demo failed: see the verdicts above" in result.stdout
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert any(f"{delivery.cut.missing:,} products missing" in text for text in texts)
    assert any(text.startswith("worker 2 killed\nwhile it held ") for text in texts)
    assert any(re.search(r" [1-9][\d,]* lost$", text) for text in texts)


def test_the_queue_of_a_demo_holds_more_than_the_feeder_puts() -> None:
    plan = Plan(Path("q"), Path(), seed=1, seconds=2)
    put = sum(len(draft.payload) + 512 for draft in plan.drafts())
    assert put < plan.queue_bytes / 2


def test_a_plot_without_the_pipeline_that_it_shows_is_refused(run: Run, tmp_path: Path) -> None:
    told = run("demo", "--plot", "plot.png", "--no-pipeline")
    assert told.exit_code == 2
    assert "--plot and --no-pipeline exclude each other" in told.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_plot_is_a_new_file_that_nobody_can_have_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "headrace-demo.png").symlink_to(tmp_path / "elsewhere")
    first, second = new_plot(), new_plot()
    assert first != second
    assert {file.stat().st_mode & 0o777 for file in (first, second)} == {0o600}
    assert not (tmp_path / "elsewhere").exists()
