"""headrace station parked, retry and forget: products that failed too often."""

from pathlib import Path

from headrace import Queue
from support.commandline import Run, fill, objects


def park(path: Path, name: str, count: int) -> None:
    """Make products fail at a station that parks them after one delivery."""
    with Queue.open(path) as queue, queue.station(name).attach() as consumer:
        batch = consumer.get(count, 5)
        assert len(batch) == count
        consumer.nack(batch, failed=True)
        consumer.get_nowait(count)


def test_parked_products_are_listed(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--deliveries-max", "1")
    fill(path, 2)
    assert run("station", "parked", path, "decode").stdout == "nothing is parked at decode\n"
    park(path, "decode", 2)
    rows = [line.split() for line in run("station", "parked", path, "decode").stdout.splitlines()[2:]]
    assert rows == [["1", "1", "9", "B", "wx/text", "ident", "1"], ["2", "1", "9", "B", "wx/text", "ident", "2"]]
    told = objects(run("station", "parked", path, "decode", "--json").stdout)
    assert [(each["sequence"], each["ident"], each["held"]) for each in told] == [
        (1, "ident 1", True), (2, "ident 2", True),
    ]  # fmt: skip


def test_parked_products_are_retried(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--deliveries-max", "1")
    fill(path, 3)
    park(path, "decode", 3)
    assert run("station", "retry", path, "decode", "2").stdout == "retried 1 product of decode\n"
    assert objects(run("station", "retry", path, "decode", "--json").stdout) == [{"name": "decode", "retried": 2}]
    with Queue.open(path) as queue, queue.station("decode").attach() as consumer:
        assert sorted(consumer.get(3, 5).sequences) == [1, 2, 3]


def test_parked_products_are_forgotten(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--deliveries-max", "1")
    fill(path, 3)
    park(path, "decode", 3)
    assert run("station", "forget", path, "decode", "1", "3").stdout == "forgotten 2 products of decode\n"
    assert [each["sequence"] for each in objects(run("station", "parked", path, "decode", "--json").stdout)] == [2]
    with Queue.open(path) as queue:
        assert len(queue.read_batch()) == 3


def test_a_sequence_that_is_not_parked_is_a_negative_finding(run: Run, path: Path) -> None:
    run("station", "create", path, "decode", "--deliveries-max", "1")
    fill(path, 1)
    park(path, "decode", 1)
    result = run("station", "retry", path, "decode", "1", "7")
    assert result.exit_code == 1
    assert (result.stdout, result.stderr) == (
        "retried 1 product of decode\n", "headrace: not parked at decode: 7\n",
    )  # fmt: skip
    result = run("station", "forget", path, "decode", "7", "--json")
    assert (result.exit_code, objects(result.stderr)) == (1, [{"name": "decode", "not_parked": [7]}])
