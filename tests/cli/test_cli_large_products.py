"""Large products on the command line: a part passes for a product nowhere."""

import os
from pathlib import Path

import pytest

from headrace import Queue
from support.commandline import Run, objects

LARGE = os.urandom(1_500_000)  # above a quarter of the queue
SMALL = b"clear sky"


@pytest.fixture
def large(path: Path) -> Path:
    """A queue with a large product and a small one."""
    with Queue.open(path) as queue:
        queue.put(LARGE, feed="sat/a", ident="large")
        queue.put(SMALL, feed="sat/b", ident="small")
    return path


def parts_in(path: Path) -> int:
    """How many parts the large product has, without its manifest."""
    with Queue.open(path) as queue:
        return queue.next - 3


def test_a_large_product_is_written_whole_and_once(run: Run, large: Path, tmp_path: Path) -> None:
    assert run("cat", large, "--select", "sat/a").stdout_bytes == LARGE
    result = run("cat", large, "--output", "out")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("wrote 2 files")
    assert sorted(file.read_bytes() for file in (tmp_path / "out").iterdir()) == sorted([LARGE, SMALL])


def test_a_product_that_lacks_a_part_is_named_and_not_written(run: Run, large: Path) -> None:
    result = run("cat", large, "--to", "3")
    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    missing, parts = parts_in(large) - 1, parts_in(large) + 1
    assert f"product 'large' of feed sat/a is not written: {missing} of its {parts} parts" in result.stderr
    (told,) = objects(run("cat", large, "--to", "3", "--json").stderr)
    wanted = {"feed": "sat/a", "ident": "large", "first": 1, "missing": missing, "parts": parts}
    assert told["incomplete"] == wanted


def test_parts_whose_manifest_is_gone_are_named(run: Run, large: Path) -> None:
    result = run("cat", large, "--from", "2")
    assert (result.exit_code, result.stdout_bytes) == (1, SMALL)
    assert f"1 of its {parts_in(large) + 1} parts" in result.stderr


def test_a_watch_says_which_part_a_line_is(run: Run, large: Path) -> None:
    count = parts_in(large)
    lines = run("watch", large, "--from", "oldest", "--timeout", "0s", "--payload").stdout.splitlines()
    shown = [line for line in lines if "  sat/" in line]
    assert shown[0].endswith("sat/a  large  (manifest)")
    assert shown[1].endswith(f"sat/a  large  (part 1 of {count})")
    assert shown[-1].endswith("sat/b  small")
    told = objects(run("watch", large, "--from", "oldest", "--timeout", "0s", "--json").stdout)
    facts = [
        None if each["fragment"] is None else (each["fragment"]["part"], each["fragment"]["manifest"]) for each in told
    ]
    assert facts == [(None, True), *((number, False) for number in range(1, count + 1)), None]
    assert {each["fragment"]["parts"] for each in told[:-1]} == {count}


def test_fragments_of_files_are_not_written_as_products(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert run("send", tmp_path / "empty", path, "--feed", "files", "--no-wait").exit_code == 0
    result = run("cat", path)
    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    assert "of files: not written; headrace receive joins them" in result.stderr


@pytest.mark.parametrize("words", [["--separator", " "], ["--exec", "cat >> taken"]], ids=["payloads", "program"])
def test_a_station_parks_parts_and_gives_them_to_nobody(
    run: Run, large: Path, tmp_path: Path, words: list[str]
) -> None:
    with Queue.open(large) as queue:
        queue.station("all", start="oldest", deliveries_max=2)
    result = run("station", "take", large, "all", *words)
    written = (tmp_path / "taken").read_bytes() if "--exec" in words else result.stdout_bytes
    assert (result.exit_code, written) == (1, SMALL)
    parts = parts_in(large) + 1
    assert f"product 2 of station all: it is part 1 of {parts - 1} of a large product, which" in result.stderr
    assert len(result.stderr.strip().splitlines()) <= parts + 1  # each part once, and that it is attached
    with Queue.open(large) as queue:
        now = queue.station("all").statistics()
        assert (now.waiting + now.behind, now.leased, now.parked) == (0, 0, parts)


@pytest.mark.parametrize("words", [[], ["--exec", "cat > taken"]], ids=["payloads", "program"])
def test_without_a_limit_of_deliveries_parts_end_the_run_and_stay(run: Run, large: Path, words: list[str]) -> None:
    with Queue.open(large) as queue:
        queue.station("parts", "sat/a", start="oldest", deliveries_max=0)
    result = run("station", "take", large, "parts", *words)
    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    with Queue.open(large) as queue:
        now = queue.station("parts").statistics()
        assert (now.waiting + now.behind, now.leased, now.parked) == (parts_in(large) + 1, 0, 0)
