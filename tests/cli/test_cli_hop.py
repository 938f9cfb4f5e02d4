"""headrace hop: through which site a product came."""

from pathlib import Path

from headrace import Queue
from headrace.relay.hops import Hops
from support.commandline import Run, objects


def receive(path: Path) -> None:
    """One product that was put here, and one that came from origin `boulder` through site `denver`."""
    with Queue.open(path) as queue:
        queue.put(b"1", feed="wx/a", ident="ours")
        queue.put(b"2", feed="wx/b", ident="theirs", origin="boulder", origin_sequence=7)
    hops = Hops(path)
    hops.add(2, 2, "denver")
    hops.save(1)


def test_each_product_is_shown_with_its_origin_and_the_site_that_sent_it(run: Run, path: Path) -> None:
    receive(path)
    result = run("hop", path, 1, 2)
    assert (result.exit_code, result.stderr) == (0, "")
    title, header, ours, theirs = (line.split() for line in result.stdout.splitlines())
    assert (title, header) == (["hops:"], ["sequence", "feed", "ident", "origin", "came", "through"])
    assert ours[:3] + ours[-2:] == ["1", "wx/a", "ours", "put", "here"]
    assert theirs == ["2", "wx/b", "theirs", "boulder", "denver"]


def test_json_has_one_object_for_each_product(run: Run, path: Path) -> None:
    receive(path)
    ours, theirs = objects(run("hop", path, 1, 2, "--json").stdout)
    assert (ours["sequence"], ours["hop"]) == (1, None)
    assert theirs == {"sequence": 2, "feed": "wx/b", "ident": "theirs", "origin": "boulder", "hop": "denver"}


def test_a_product_that_the_queue_does_not_hold_is_refused(run: Run, path: Path) -> None:
    receive(path)
    result = run("hop", path, 3)
    assert result.exit_code == 3
    assert "does not hold product 3" in result.stderr
    assert "it holds 1 to 2" in result.stderr


def test_an_empty_queue_is_called_empty(run: Run, path: Path) -> None:
    result = run("hop", path, 1)
    assert (result.exit_code, "the queue is empty" in result.stderr) == (3, True)


def test_a_sequence_and_a_directory_are_required(run: Run, path: Path) -> None:
    assert run("hop", path).exit_code == 2
    assert run("hop", path, "x").exit_code == 2
    assert run("hop", "tcp/127.0.0.1:1", 1).exit_code == 2
