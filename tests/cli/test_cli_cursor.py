"""headrace cursor: list, seek, remove."""

from pathlib import Path

from headrace import Queue
from support.commandline import Run, fill, objects


def make(path: Path, *names: str) -> None:
    fill(path, 4)
    with Queue.open(path) as queue:
        for name in names:
            queue.cursor(name, 3)


def test_cursors_are_listed_with_position_and_distance(run: Run, path: Path) -> None:
    make(path, "archive")
    assert run("cursor", "list", path).stdout.splitlines()[2].split() == ["archive", "3", "2", "0"]
    (told,) = objects(run("cursor", "list", path, "--json").stdout)
    assert (told["name"], told["position"], told["behind"], told["lost_products"]) == ("archive", 3, 2, 0)


def test_a_queue_without_cursors_says_so(run: Run, path: Path) -> None:
    assert run("cursor", "list", path).stdout == f"{path} has no cursors\n"
    assert run("cursor", "list", path, "--json").stdout == ""


def test_a_cursor_is_moved(run: Run, path: Path) -> None:
    make(path, "archive")
    assert run("cursor", "seek", path, "archive", "oldest").stdout == "archive is at 1\n"
    assert objects(run("cursor", "seek", path, "archive", "next", "--json").stdout) == [
        {"name": "archive", "position": 5}
    ]
    with Queue.open(path) as queue:
        assert queue.cursor("archive").position == 5


def test_a_misspelt_cursor_is_refused_and_not_created(run: Run, path: Path) -> None:
    make(path, "archive")
    for words in (["seek", path, "archvie", "oldest"], ["delete", path, "archvie"]):
        result = run("cursor", *words)
        assert result.exit_code == 3  # as for a missing station
        assert "its cursors are: archive" in result.stderr
    with Queue.open(path) as queue:
        assert queue.cursors() == ["archive"]


def test_an_invalid_position_does_not_move_the_cursor(run: Run, path: Path) -> None:
    make(path, "archive")
    assert run("cursor", "seek", path, "archive", "somewhere").exit_code == 2
    with Queue.open(path) as queue:
        assert queue.cursor("archive").position == 3


def test_a_cursor_is_created_where_it_is_told_and_stays_there(run: Run, path: Path) -> None:
    fill(path, 5)
    assert run("cursor", "create", path, "archive", "--from", "3").stdout == "created archive at 3\n"
    assert run("cursor", "create", path, "archive").stdout == "archive exists already, at 3\n"
    (told,) = objects(run("cursor", "create", path, "other", "--json").stdout)
    assert told == {"name": "other", "created": True, "position": 1}


def test_a_cursor_is_deleted(run: Run, path: Path) -> None:
    make(path, "archive", "other")
    assert run("cursor", "delete", path, "archive").stdout == "deleted archive\n"
    with Queue.open(path) as queue:
        assert queue.cursors() == ["other"]
