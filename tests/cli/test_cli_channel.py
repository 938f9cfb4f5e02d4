"""headrace channel: create, list, show, change, remove, validate."""

from pathlib import Path

from headrace import Queue
from support.commandline import Run, objects


def make(run: Run, path: Path, *options: object) -> None:
    assert run("channel", "create", path, "radar", "wx/radar/**", *options).exit_code == 0


def test_a_channel_is_created(run: Run, path: Path) -> None:
    result = run(
        "channel", "create", path, "radar", "wx/radar", "--order", "fifo", "--timeout", "10s", "--batch-max", 5
    )
    assert result.stdout == (
        "created radar for wx/radar/**: reliability best_effort, connections persistent, order fifo, discard any, "
        "timeout 10 s, batch_max 5\n"
    )
    with Queue.open(path) as queue:
        qos = queue.channel("radar").qos
        assert (qos.order, qos.timeout_s, qos.batch_max) == ("fifo", 10.0, 5)


def test_the_json_of_a_new_channel_has_its_whole_quality_of_service(run: Run, path: Path) -> None:
    (told,) = objects(run("channel", "create", path, "radar", "wx/radar", "--timeout", "10s", "--json").stdout)
    assert (told["name"], told["feed"], told["qos"]["timeout_s"]) == ("radar", "wx/radar/**", 10.0)


def test_a_channel_that_exists_on_the_same_terms_is_not_created_again(run: Run, path: Path) -> None:
    assert "created a for a/**" in run("channel", "create", path, "a", "a/**").stdout
    assert "a exists already, on the same terms" in run("channel", "create", path, "a", "a/**").stdout


def test_all_conflicts_are_listed_and_nothing_is_created(run: Run, path: Path) -> None:
    result = run("channel", "create", path, "radar", "wx/radar", "--discard", "fifo", "--timeout", "0s")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "2 conflicts: (1) timeout 0" in result.stderr
    with Queue.open(path) as queue:
        assert queue.channels() == []


def test_creating_a_channel_again_with_other_terms_is_an_error(run: Run, path: Path) -> None:
    make(run, path)
    make(run, path)
    result = run("channel", "create", path, "radar", "wx/radar", "--order", "fifo")
    assert result.exit_code == 3
    assert "order any, not fifo" in result.stderr


def test_the_order_of_a_channel_with_a_home_is_shown_as_its_stations_deliver(run: Run, path: Path) -> None:
    assert "order fifo" in run("channel", "create", path, "cmd", "lab/**", "--home", "denver").stdout
    (line,) = [line for line in run("channel", "show", path, "cmd").stdout.splitlines() if line.split()[0] == "order"]
    assert line.split() == ["order", "fifo"]


def test_channels_are_listed(run: Run, path: Path) -> None:
    assert run("channel", "list", path).stdout == f"{path} has no channels\n"
    assert run("channel", "list", path, "--json").stdout == ""
    make(run, path)
    assert run("channel", "list", path).stdout.splitlines()[2].split() == [
        "radar",
        "wx/radar/**",
        "0",
        "0",
        "0",
        "0",
        "0",
    ]
    (told,) = objects(run("channel", "list", path, "--json").stdout)
    assert (told["name"], told["suppliers"]) == ("radar", 0)


def test_a_channel_is_shown_with_its_stations(run: Run, path: Path) -> None:
    make(run, path, "--timeout", "10s")
    with Queue.open(path) as queue:
        channel = queue.channel("radar")
        channel.station("decoder", timeout="5s", batch_max=2)
        channel.station("archive", "**")
        with channel.supplier() as supplier:
            supplier.push(b"x")
    shown = run("channel", "show", path, "radar").stdout
    for words in (
        ["timeout", "10", "s"],
        ["pushed", "1"],
        ["decoder", "timeout", "5", "s,", "batch_max", "2"],
        ["archive", "inherits", "all"],
    ):
        assert any(line.split()[: len(words)] == words for line in shown.splitlines()), words
    (told,) = objects(run("channel", "show", path, "radar", "--json").stdout)
    assert told["stations"] == {"archive": {}, "decoder": {"timeout_s": 5.0, "batch_max": 2}}
    assert (told["qos"]["timeout_s"], told["statistics"]["pushed"]) == (10.0, 1)


def test_a_channel_is_created_and_shown_with_its_slices(run: Run, path: Path) -> None:
    make(run, path, "--slices", 16, "--assign", "property:station")
    made = run("channel", "create", path, "grid", "wx/grid", "--assign", "grid:lat,lon,4x8").stdout
    assert made.endswith("slices 32, assign grid:lat,lon,4x8\n")
    with Queue.open(path) as queue:
        queue.put(b"x", feed="wx/radar")
    shown = run("channel", "show", path, "radar").stdout
    assert "property:station" in shown
    assert "1, for lack of what assign needs" in shown
    (told,) = objects(run("channel", "show", path, "radar", "--json").stdout)
    assert told["slicing"] == {"slices": 16, "assign": "property:station"}
    assert told["statistics"]["spread"] == 1
    (product,) = objects(run("cat", path, "--json").stdout)
    assert product["slice"] == 0


def test_slices_are_refused_by_change_with_a_reason(run: Run, path: Path) -> None:
    make(run, path, "--slices", 16)
    changed = run("channel", "change", path, "radar", "--slices", 17)
    assert changed.exit_code == 2
    assert "the option slices of a channel cannot change\n  try: remove the channel" in changed.stderr
    assert "--slices" not in run("channel", "change", "--help").stdout


def test_invalid_slices_are_validated(run: Run) -> None:
    assert run("channel", "validate", "--slices", 8, "--assign", "modulo:n").exit_code == 0
    invalid = run("channel", "validate", "--slices", 65536, "--assign", "nonsense")
    assert invalid.exit_code == 2
    assert "slices: slices 65536 is out of range\n  try: give a number from 1 to 65535" in invalid.stdout
    assert "assign: assign 'nonsense' is unknown" in invalid.stdout
    assert run("channel", "validate", "--slices", 7, "--assign", "grid:lat,lon,2x3").exit_code == 1


def test_a_missing_channel_is_exit_code_3(run: Run, path: Path) -> None:
    for command in ("show", "delete"):
        result = run("channel", command, path, "radar")
        assert result.exit_code == 3
        assert "has no channel 'radar'" in result.stderr


def test_a_channel_is_changed(run: Run, path: Path) -> None:
    make(run, path, "--timeout", "10s", "--order", "fifo")
    result = run("channel", "change", path, "radar", "--timeout", "none", "--pacing", "1s", "--batch-max", 9)
    assert result.stdout.startswith("changed radar: ")
    with Queue.open(path) as queue:
        qos = queue.channel("radar").qos
        assert (qos.timeout_s, qos.pacing_s, qos.batch_max, qos.order) == (None, 1.0, 9, "fifo")


def test_a_change_without_options_is_a_usage_error(run: Run, path: Path) -> None:
    make(run, path)
    result = run("channel", "change", path, "radar")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        2,
        "headrace: Nothing to change: give at least one option",
    )


def test_a_channel_with_stations_is_deleted_only_by_force(run: Run, path: Path) -> None:
    make(run, path)
    with Queue.open(path) as queue:
        queue.channel("radar").station("decoder", "**")
    assert run("channel", "delete", path, "radar").exit_code == 3
    assert run("channel", "delete", path, "radar", "--force").stdout == "deleted radar\n"
    with Queue.open(path) as queue:
        assert (queue.channels(), queue.stations()) == ([], [])
    make(run, path)
    assert objects(run("channel", "delete", path, "radar", "--json").stdout) == [{"name": "radar", "deleted": True}]


# --- validate -------------------------------------------------------------------------------------


def test_valid_options_pass(run: Run) -> None:
    result = run("channel", "validate", "--order", "fifo", "--timeout", "10s", "--max-per-consumer", "none")
    assert (result.exit_code, result.stdout) == (0, "the options are valid\n")
    assert objects(run("channel", "validate", "--json").stdout) == [{"ok": True, "conflicts": []}]


def test_contradictions_are_listed_with_exit_code_1(run: Run) -> None:
    result = run(
        "channel",
        "validate",
        "--reliability",
        "persistent",
        "--discard",
        "fifo",
        "--max-per-consumer",
        5,
        "--batch-max",
        6,
    )
    assert result.exit_code == 1
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [
        "reliability, discard", "  try", "batch_max, max_per_consumer", "  try",
    ]  # fmt: skip
    assert result.stderr == "2 conflicts\n"


def test_an_invalid_value_is_exit_code_2(run: Run) -> None:
    result = run(
        "channel", "validate", "--order", "up", "--timeout", "soon", "--batch-max", "-3", "--discard", "fifo", "--json"
    )
    assert result.exit_code == 2
    (told,) = objects(result.stdout)
    assert [conflict["options"] for conflict in told["conflicts"]] == [
        ["timeout"], ["order"], ["batch_max"], ["discard", "max_per_consumer"],
    ]  # fmt: skip
    assert all(conflict["problem"] and conflict["remedy"] for conflict in told["conflicts"])
