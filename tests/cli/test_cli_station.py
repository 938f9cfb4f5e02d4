"""headrace station: add, change, seek, pause, resume, remove."""

from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from support.commandline import Run, fill, objects


def terms(path: Path, name: str) -> Any:
    with Queue.open(path) as queue:
        return queue.station(name).terms


# --- add ------------------------------------------------------------------------------------------


def test_a_station_is_created_with_the_given_terms(run: Run, path: Path) -> None:
    words = [
        "--select", "wx/**", "--blocking", "--capacity", "50", "--prescale", "2", "--order", "fifo", "--restore", "output",
        "--deliveries-max", "3", "--hung-after", "1min", "--timeout", "10s", "--start-time", "2030-01-01T00:00Z",
        "--stop-time", "2031-01-01T00:00Z", "--batch-max", "10", "--pacing", "100ms", "--consumers-max", "4",
        "--max-queue", "1000", "--group", "pool", "--distribution", "least_loaded",
    ]  # fmt: skip
    result = run("station", "create", path, "decode", *words, "--json")
    assert result.exit_code == 0
    (warned,) = objects(result.stderr)
    assert warned["consumers"] == 0
    (told,) = objects(result.stdout)
    assert (told["name"], told["created"]) == ("decode", True)
    for term, value in {
        "selection": "wx/**", "blocking": True, "capacity": 50, "prescale": 2, "order": "fifo", "restore": "output",
        "deliveries_max": 3, "hung_after_s": 60.0, "timeout_s": 10.0, "start_ns": 1893456000 * 10**9,
        "stop_ns": 1924992000 * 10**9, "batch_max": 10, "pacing_s": 0.1, "consumers_max": 4, "max_queue": 1000,
        "group": "pool", "distribution": "least_loaded", "durable": True,
    }.items():  # fmt: skip
        assert told["terms"][term] == value, term
        assert getattr(terms(path, "decode"), term) == value, term


def test_a_station_without_terms_selects_everything_from_now_on(run: Run, path: Path) -> None:
    fill(path, 3)
    assert run("station", "create", path, "all").exit_code == 0
    fill(path, 2)
    with Queue.open(path) as queue:
        assert queue.station("all").statistics().waiting == 2


@pytest.mark.parametrize(("start", "waiting"), [("oldest", 4), ("3", 2), ("next", 0), ("1h", 4), ("2020-01-01", 4)])
def test_a_station_starts_at_the_given_position(run: Run, path: Path, start: str, waiting: int) -> None:
    fill(path, 4)
    assert run("station", "create", path, "decode", "--from", start).exit_code == 0
    with Queue.open(path) as queue:
        assert queue.station("decode").statistics().waiting == waiting


def test_adding_a_station_again_with_the_same_terms_changes_nothing(run: Run, path: Path) -> None:
    words = ["station", "create", path, "decode", "--select", "wx/**", "--capacity", "9"]
    assert run(*words).stdout == "created decode: wx/**\n"
    result = run(*words)
    assert (result.exit_code, result.stdout) == (0, "decode exists already with these terms: wx/**\n")
    assert objects(run(*words, "--json").stdout)[0]["created"] is False


def test_adding_a_station_again_with_other_terms_is_refused(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--capacity", "9")
    result = run("station", "create", path, "decode", "--capacity", "10")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "exists with capacity 9, not 10" in result.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--capacity", "many"], "capacity 'many' is out of range"),
        (["--capacity", "0"], "capacity 0 is out of range"),
        (["--order", "random"], "order 'random' is unknown"),
        (["--hung-after", "soon"], "hung_after 'soon' is not a length of time"),
        (["--start-time", "soon"], "start_time 'soon' is not a time"),
        (["--discard", "fifo"], "discard fifo says what a full station drops"),
        (["--pacing", "1s"], "pacing 1 s waits for a batch to fill"),
        (["--select", "a b"], "a b"),
        (["--from", "sometime"], "start 'sometime' is invalid"),
        (["--group", "a/b"], "station name 'a/b' is invalid"),
    ],
)
def test_invalid_terms_are_refused_and_no_station_is_created(
    run: Run, path: Path, words: list[str], problem: str
) -> None:
    result = run("station", "create", path, "decode", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr
    assert "\n  try: " in result.stderr
    with Queue.open(path) as queue:
        assert queue.stations() == []


def test_a_station_after_a_missing_station_is_refused(run: Run, path: Path) -> None:
    result = run("station", "create", path, "archive", "--after", "decode")
    assert result.exit_code == 3
    assert "there is no station 'decode' to stand behind" in result.stderr


def test_a_station_of_a_channel_inherits_its_terms_and_may_tighten_them(run: Run, path: Path) -> None:
    run("channel", "create", path, "radar", "wx/radar/**", "--timeout", "10s", "--max-per-consumer", "100")
    assert run("station", "create", path, "decode", "--channel", "radar", "--capacity", "50").exit_code == 0
    made = terms(path, "decode")
    assert (made.channel, made.capacity, made.timeout_s, made.selection) == ("radar", 50, 10.0, "wx/radar/**")
    result = run("station", "create", path, "other", "--channel", "radar", "--capacity", "500")
    assert (result.exit_code, result.stdout) == (2, "")


# --- change ---------------------------------------------------------------------------------------


def test_only_the_given_terms_are_changed(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--select", "wx/**", "--capacity", "9", "--timeout", "10s", "--blocking")
    words = ["--capacity", "none", "--timeout", "none", "--no-blocking", "--transient", "--hung-after", "5s"]
    result = run("station", "change", path, "decode", *words, "--json")
    assert objects(result.stdout)[0]["terms"]["hung_after_s"] == 5.0
    changed = stored_terms(path, "decode")
    assert (changed["capacity"], changed["timeout_s"], changed["blocking"], changed["durable"]) == (
        None,
        None,
        False,
        False,
    )
    assert changed["selection"] == "wx/**"


def stored_terms(path: Path, name: str) -> dict[str, Any]:
    """From the file: a transient station is removed when a process opens the queue and no other has it open."""
    (found,) = objects((path / "stations.json").read_text().replace("\n", ""))
    return next(terms for terms in found["stations"] if terms["name"] == name)


def test_a_new_selection_applies_to_later_products(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--select", "wx/**")
    fill(path, 2)
    assert run("station", "change", path, "decode", "--select", "de/**").stdout == "changed decode: selection\n"
    fill(path, 2)
    with Queue.open(path) as queue:
        queue.put(b"other", feed="de/text")
        assert queue.station("decode").statistics().waiting == 3


def test_change_without_an_option_is_refused(run: Run, path: Path) -> None:
    run("station", "create", path, "decode")
    result = run("station", "change", path, "decode")
    assert result.exit_code == 2
    assert "give at least one option" in result.stderr


def test_a_refused_change_leaves_the_terms_as_they_were(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--capacity", "10")
    result = run("station", "change", path, "decode", "--batch-max", "20")
    assert result.exit_code == 2
    assert "a batch of 20 never fills" in result.stderr
    assert terms(path, "decode").batch_max is None


def test_a_station_of_a_channel_is_changed_through_its_channel(run: Run, path: Path) -> None:
    run("channel", "create", path, "radar", "wx/radar/**", "--max-per-consumer", "100")
    run("station", "create", path, "decode", "--channel", "radar")
    assert run("station", "change", path, "decode", "--capacity", "40", "--select", "**/KFTG").exit_code == 0
    assert (terms(path, "decode").capacity, terms(path, "decode").selection) == (40, "wx/radar/**/KFTG")
    assert run("station", "change", path, "decode", "--capacity", "400").exit_code == 2
    assert terms(path, "decode").capacity == 40


# --- seek, pause, remove --------------------------------------------------------------------------


def test_a_station_without_waiting_products_is_moved_without_a_question(run: Run, path: Path) -> None:
    fill(path, 4)
    run("station", "create", path, "decode")
    assert run("station", "seek", path, "decode", "2").stdout == "decode is at 2; 0 products forgotten\n"
    with Queue.open(path) as queue:
        assert queue.station("decode").statistics().waiting == 3


@pytest.mark.parametrize("answer", ["n\n", "", "\n"])
def test_waiting_products_are_not_forgotten_unless_the_answer_is_yes(run: Run, path: Path, answer: str) -> None:
    fill(path, 4)
    run("station", "create", path, "decode", "--from", "oldest")
    result = run("station", "seek", path, "decode", "next", stdin=answer)
    assert result.exit_code == 1
    assert "Forget 4 products waiting for decode and move to next?" in result.stderr
    assert "nothing was moved" in result.stderr
    with Queue.open(path) as queue:
        assert queue.station("decode").statistics().waiting == 4


def test_with_yes_the_whole_chain_is_moved_without_a_question(run: Run, path: Path) -> None:
    fill(path, 4)
    run("station", "create", path, "decode", "--from", "oldest")
    run("station", "create", path, "archive", "--after", "decode")
    (told,) = objects(run("station", "seek", path, "archive", "next", "--yes", "--json").stdout)
    assert told == {"name": "archive", "position": 5, "stations": ["decode", "archive"], "forgotten_products": 4}
    with Queue.open(path) as queue:
        assert queue.station("decode").statistics().waiting == 0


def test_skipped_products_count_as_forgotten(run: Run, path: Path) -> None:
    fill(path, 9)
    run("station", "create", path, "decode", "--from", "oldest", "--capacity", "2", "--blocking")
    (told,) = objects(run("station", "seek", path, "decode", "6", "--yes", "--json").stdout)
    assert told["forgotten_products"] == 5


def test_an_invalid_position_moves_nothing(run: Run, path: Path) -> None:
    fill(path, 4)
    run("station", "create", path, "decode", "--from", "oldest")
    result = run("station", "seek", path, "decode", "somewhere", "--yes")
    assert result.exit_code == 2
    assert "start 'somewhere' is invalid" in result.stderr


def test_a_paused_station_delivers_nothing_until_it_is_resumed(run: Run, path: Path) -> None:
    run("station", "create", path, "decode")
    assert run("station", "pause", path, "decode").stdout == "paused decode; 0 products waiting\n"
    fill(path, 1)
    assert "paused" in run("station", "list", path).stdout
    with Queue.open(path) as queue, queue.station("decode").attach() as consumer:
        assert len(consumer.get_nowait()) == 0
        (told,) = objects(run("station", "resume", path, "decode", "--json").stdout)
        assert told == {"name": "decode", "paused": False, "waiting": 1}
        assert len(consumer.get(1, 5)) == 1


def test_a_station_is_deleted(run: Run, path: Path) -> None:
    run("station", "create", path, "decode")
    assert run("station", "delete", path, "decode").stdout == "deleted decode; 0 unacknowledged products\n"
    with Queue.open(path) as queue:
        assert queue.stations() == []


def test_a_station_with_unacknowledged_products_is_not_deleted_unless_the_answer_is_yes(run: Run, path: Path) -> None:
    run("station", "create", path, "decode")
    fill(path, 2)
    result = run("station", "delete", path, "decode", stdin="n\n")
    assert result.exit_code == 1
    assert "Delete decode, with 2 unacknowledged products?" in result.stderr
    (told,) = objects(run("station", "delete", path, "decode", "--yes", "--json").stdout)
    assert told == {"name": "decode", "deleted": True, "left_products": 2}


@pytest.mark.parametrize(
    "words",
    [
        ["show"], ["change", "--capacity", "3"], ["seek", "next"], ["pause"], ["resume"], ["delete"], ["parked"], ["retry"],
        ["forget"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_missing_station_is_an_error_that_lists_the_existing_stations(run: Run, path: Path, words: list[str]) -> None:
    command, *rest = words
    result = run("station", command, path, "decoed", *rest)
    assert result.exit_code == 3
    assert "create it with: headrace station create" in result.stderr
    run("station", "create", path, "decode")
    result = run("station", command, path, "decoed", *rest, "--json")
    (told,) = objects(result.stderr)
    assert (result.exit_code, told["error"]) == (3, "StationMissingError")
    assert told["hint"] == "its stations are: decode"


# --- nobody is attached ---------------------------------------------------------------------------


def test_a_blocking_station_without_consumers_is_warned_of(run: Run, path: Path) -> None:
    result = run("station", "create", path, "decode", "--blocking", "--capacity", "1000")
    assert result.exit_code == 0
    warned = "headrace: no consumer is attached to blocking station decode: puts wait once it holds 1,000 products\n"
    assert result.stderr == warned
    result = run("station", "create", path, "keep", "--blocking")
    assert result.stderr.endswith("puts wait once the queue is full\n")
    assert run("station", "create", path, "other").stderr == ""


def test_a_blocking_station_with_a_consumer_is_not_warned_of(run: Run, path: Path) -> None:
    with Queue.open(path) as queue, queue.station("decode", blocking=True, capacity=10).attach():
        assert run("station", "create", path, "decode", "--blocking", "--capacity", "10").stderr == ""
