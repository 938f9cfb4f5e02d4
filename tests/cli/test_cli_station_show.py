"""headrace station list, headrace station show and headrace lag."""

import os
from pathlib import Path

import pytest

from headrace import Queue
from headrace.cli.station_show import compare_lag
from headrace.station import Lag
from support.commandline import Run, fill, objects


def test_stations_are_listed_with_their_backlogs(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--select", "wx/**", "--blocking")
    fill(path, 3)
    shown = run("station", "list", path).stdout.splitlines()
    assert shown[1].split() == [
        "name",
        "selection",
        "waiting",
        "leased",
        "parked",
        "behind",
        "consumers",
        "lag",
        "acknowledged",
        "is",
    ]
    assert shown[2].split()[:7] == ["decode", "wx/**", "3", "0", "0", "0", "0"]
    assert shown[2].split()[-2:] == ["0", "blocking"]
    (told,) = objects(run("station", "list", path, "--json").stdout)
    assert (told["name"], told["waiting"], told["blocking"], told["after"]) == ("decode", 3, True, [])


def test_the_list_shows_chains_and_groups(run: Run, path: Path) -> None:
    run("station", "create", path, "z-first", "--select", "wx/**")
    run("station", "create", path, "other", "--select", "de/**")
    run("station", "create", path, "a-second", "--after", "z-first")
    for name in ("one", "two"):
        run("station", "create", path, name, "--group", "pool")
    rows = [line.split()[:2] for line in run("station", "list", path).stdout.splitlines()[2:]]
    assert rows == [
        ["z-first", "wx/**"], ["a-second", "z-first"], ["other", "de/**"], ["one", "pool"], ["two", "pool"],
    ]  # fmt: skip
    after = {told["name"]: told["after"] for told in objects(run("station", "list", path, "--json").stdout)}
    assert (after["a-second"], after["z-first"], after["one"]) == (["z-first"], [], [])


def test_a_queue_without_stations_says_so(run: Run, path: Path) -> None:
    assert run("station", "list", path).stdout == f"{path} has no stations\n"
    assert run("station", "list", path, "--json").stdout == ""


def test_show_has_terms_counts_drops_and_consumers(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--select", "wx/**", "--capacity", "4")
    with Queue.open(path) as queue, queue.station("decode").attach() as consumer:
        queue.put_many([b"%d" % n for n in range(6)], feed="wx/text")
        consumer.ack(consumer.get(1, 5))
        held = consumer.get(2, 5)
        shown = run("station", "show", path, "decode").stdout
        (told,) = objects(run("station", "show", path, "decode", "--json").stdout)
        assert len(held) == 2
    for line in ("selection", "capacity  ", "4 products", "discards lifo", "flowed around", "waiting", "acknowledged"):
        assert line in shown
    assert f"  {os.getpid()}  " in shown
    statistics = told["statistics"]
    assert (statistics["leased"], statistics["acknowledged"]) == (2, 1)
    assert statistics["dropped"]["flowed_around"] + statistics["admitted"] == 6
    (consumer_told,) = told["consumers"]
    assert (consumer_told["pid"], consumer_told["leased"], consumer_told["acknowledged"]) == (os.getpid(), 2, 1)
    assert told["terms"]["capacity"] == 4


def test_control_characters_in_a_name_do_not_reach_the_terminal(run: Run, path: Path) -> None:
    result = run("station", "show", path, "\x1b[31mred")
    assert result.exit_code == 3
    assert "\x1b" not in result.stderr


# --- lag ------------------------------------------------------------------------------------------


def prepare(path: Path) -> None:
    """`slow` has 3 products waiting, one of them for the second time; `idle` selects none of them."""
    with Queue.open(path) as queue:
        queue.station("slow", "wx/**")
        queue.station("idle", "de/**")
    fill(path, 3)
    with Queue.open(path) as queue, queue.station("slow").attach() as consumer:
        consumer.nack(consumer.get(1, 5), failed=True)


def test_the_lag_of_every_station_is_shown(run: Run, path: Path) -> None:
    prepare(path)
    result = run("lag", path)
    assert result.exit_code == 0
    idle, slow = (line.split() for line in result.stdout.splitlines()[2:])
    assert idle == ["idle", "0", "0", "0.000", "0", "0"]
    assert slow[:3] == ["slow", "3", "1"]
    assert float(slow[3]) > 0


def test_only_the_given_stations_are_shown(run: Run, path: Path) -> None:
    prepare(path)
    (told,) = objects(run("lag", path, "slow", "--json").stdout)
    assert (told["name"], told["products"], told["retries"], told["exceeds"]) == ("slow", 3, 1, [])
    assert told["seconds"] > 0


def test_a_limit_that_is_exceeded_is_exit_code_1(run: Run, path: Path) -> None:
    prepare(path)
    assert run("lag", path, "--max-products", "3", "--max-seconds", "1h").exit_code == 0
    result = run("lag", path, "--max-products", "2")
    assert (result.exit_code, result.stderr) == (1, "slow is 3 products behind, more than 2\n")
    result = run("lag", path, "--max-seconds", "0")
    assert result.exit_code == 1
    assert result.stderr.startswith("slow is ")
    assert run("lag", path, "idle", "--max-products", "0", "--max-seconds", "0").exit_code == 0


def test_the_json_names_the_exceeded_limit(run: Run, path: Path) -> None:
    prepare(path)
    result = run("lag", path, "--max-products", "2", "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert [(told["name"], told["exceeds"]) for told in objects(result.stdout)] == [
        ("idle", []), ("slow", ["max_products"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lag", "exceeds"),
    [
        (Lag(10, 0, 30.0), []),
        (Lag(11, 0, 30.0), ["max_products"]),
        (Lag(10, 10, 30.5), ["max_seconds"]),
        (Lag(11, 0, 31.0), ["max_products", "max_seconds"]),
    ],
)
def test_a_limit_that_is_just_reached_is_not_exceeded(lag: Lag, exceeds: list[str]) -> None:
    assert compare_lag("decode", lag, 10, 30.0).exceeds == exceeds


def test_without_limits_nothing_is_exceeded() -> None:
    assert compare_lag("decode", Lag(10**9, 0, 1e9), None, None).exceeds == []


def test_a_missing_station_is_an_error(run: Run, path: Path) -> None:
    prepare(path)
    result = run("lag", path, "slwo")
    assert result.exit_code == 3
    assert "its stations are: idle, slow" in result.stderr


def test_the_lag_of_a_queue_without_stations_is_empty(run: Run, path: Path) -> None:
    assert run("lag", path).stdout == f"{path} has no stations\n"
    assert run("lag", path, "--json").stdout == ""


def test_an_invalid_limit_is_refused(run: Run, path: Path) -> None:
    assert run("lag", path, "--max-products", "-1").exit_code == 2
    assert "--max-seconds 'soon' is not a length of time" in run("lag", path, "--max-seconds", "soon").stderr


def test_a_station_that_loses_products_exceeds_every_limit(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "lossy.queue"
    with Queue.create(path, size="1MiB") as queue:
        queue.station("slow", "**")
        for _ in range(100):
            queue.put(bytes(20_000), feed="a")
    result = run("lag", path, "--max-seconds", "1h")
    assert (result.exit_code, "slow has lost" in result.stderr, "by eviction" in result.stderr) == (1, True, True)
    assert run("lag", path).exit_code == 0
    assert run("lag", path, "--max-seconds", "1h", "--evicted-within", "0s").exit_code == 0


def test_parked_products_are_shown_in_the_lag(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        station = queue.station("s", "**", deliveries_max=1)
        queue.put(b"", feed="a")
        with station.attach() as consumer:
            consumer.nack(consumer.get(1), failed=True)
            assert len(consumer.get_nowait()) == 0
    (told,) = objects(run("lag", path, "s", "--json").stdout)
    assert (told["products"], told["parked"]) == (0, 1)
