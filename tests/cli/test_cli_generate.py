"""headrace generate and headrace verify."""

import signal
from pathlib import Path

import pytest

from headrace import Queue
from headrace.errors import BlockedError
from headrace.testing import FeedGenerator
from support.commandline import Run, interruptible, objects
from support.waiting import until

SMALL = ["--size-max", "2kB", "--no-giants"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "q", size="16MiB", origin="here").close()
    return tmp_path / "q"


def test_without_a_queue_the_products_are_listed(run: Run) -> None:
    result = run("generate", "--products", "5", "--feeds", "metar,lightning", "--seed", "3")
    assert len(result.stdout.splitlines()) == 5
    drafts = list(FeedGenerator(seed=3, products=5, feeds=["metar", "lightning"]))
    told = objects(run("generate", "--products", "5", "--feeds", "metar, lightning", "--seed", "3", "--json").stdout)
    assert [(line["feed"], line["ident"], line["size"]) for line in told] == [
        (draft.feed, draft.ident, len(draft.payload)) for draft in drafts
    ]


def test_generated_products_pass_verification(run: Run, path: Path) -> None:
    words = ["--products", "300", "--fast", "--duplicates", "0.1", "--oracle", "sent.jsonl", "--json", *SMALL]
    (told,) = objects(run("generate", path, *words).stdout)
    assert told["sent"] == 300
    assert told["duplicates"] > 0
    with Queue.open(path) as queue:
        assert queue.statistics().held_products == told["stored"] == 300 - told["duplicates"]
    result = run("verify", path, "--oracle", "sent.jsonl", "--json")
    (verdict,) = objects(result.stdout)
    assert result.exit_code == 0
    assert (verdict["ok"], verdict["sent"], verdict["received"]) == (True, told["stored"], told["stored"])


def test_a_selection_is_verified_alone(run: Run, path: Path) -> None:
    run("generate", path, "--products", "300", "--fast", "--oracle", "sent.jsonl", *SMALL)
    for words in (["--select", "wx/radar/**"], ["--ident", "^S"]):
        (verdict,) = objects(run("verify", path, "--oracle", "sent.jsonl", "--json", *words).stdout)
        assert verdict["ok"]
        assert 0 < verdict["sent"] < 290


def test_products_that_the_queue_held_before_are_not_compared(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put_many([b"1", b"2"], feed="earlier")
    run("generate", path, "--products", "50", "--fast", "--oracle", "sent.jsonl", *SMALL)
    told = run("verify", path, "--oracle", "sent.jsonl")
    assert told.exit_code == 0, told.stdout
    assert (
        "not compared: 2 earlier products, which the queue held before the first product of sent.jsonl" in told.stdout
    )
    with Queue.open(path) as queue:
        queue.put(b"3", feed="later")
    told = run("verify", path, "--oracle", "sent.jsonl")
    assert told.exit_code == 1
    assert "unknown: sent.jsonl does not have them; another program has put them, or another run" in told.stdout


def test_a_lost_and_a_foreign_product_make_the_verdict_negative(run: Run, path: Path) -> None:
    run("generate", path, "--products", "50", "--fast", "--oracle", "sent.jsonl", "--duplicates", "0", *SMALL)
    with Queue.open(path) as queue:
        batch = queue.read_batch(limit=1)
        (feed,), (ident,) = batch.feeds, batch.idents
        queue.delete(feed)
        queue.put(b"foreign", feed="other")
    result = run("verify", path, "--oracle", "sent.jsonl")
    assert result.exit_code == 1
    assert ident in result.stdout.partition("lost")[2]
    (verdict,) = objects(run("verify", path, "--oracle", "sent.jsonl", "--json").stdout)
    assert not verdict["ok"]
    assert verdict["lost"] >= 1
    assert verdict["unknown"] == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--feeds", "nope"], "no feed kind ['nope']"),
        (["--duplicates", "3"], "duplicates is 3.0"),
        (["--rate", "0"], "rate is 0.0"),
        (["--size-max", "2 apples"], "--size-max '2 apples' is not a size"),
        (["--duration", "soon"], "--duration 'soon' is not a length of time"),
        (["--oracle", "no/such/folder/file"], "is not a writable file"),
    ],
)
def test_invalid_options_are_refused(run: Run, words: list[str], problem: str) -> None:
    result = run("generate", "--products", "1", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


@pytest.mark.parametrize("content", [None, b"", b"not an oracle\n"])
def test_a_file_that_is_not_an_oracle_is_invalid_input(
    run: Run, path: Path, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    result = run("verify", path, "--oracle", "file")
    assert result.exit_code == 2
    assert result.stderr.startswith("headrace: file")


def test_ctrl_c_ends_a_stream_and_leaves_a_correct_oracle(run: Run, path: Path, tmp_path: Path, start) -> None:
    process = start("generate", path, "--rate", "300", "--oracle", "sent.jsonl", "--json", *SMALL)
    with Queue.open(path) as queue:
        until(lambda: queue.next > 50)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, err.strip()) == (130, b"")
    (told,) = objects(out.decode())
    result = run("verify", path, "--oracle", tmp_path / "sent.jsonl", "--json")
    assert objects(result.stdout)[0]["sent"] == told["stored"]
    assert result.exit_code == 0


def test_ctrl_c_ends_a_stream_while_a_blocking_station_is_full(path: Path, start) -> None:
    with Queue.open(path) as queue:
        station = queue.station("slow", "**", blocking=True, capacity=5)
        process = start("generate", path, "--rate", "300", "--json", *SMALL)
        until(lambda: station.statistics().waiting == 5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
        assert (process.returncode, err.strip()) == (130, b"")
        assert objects(out.decode())[0]["stored"] == queue.next - 1


def test_ctrl_c_during_a_blocked_put_takes_effect_after_it(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocked(*_: object, timeout: float) -> None:
        signal.raise_signal(signal.SIGINT)
        raise BlockedError("the station is full")

    monkeypatch.setattr("headrace.cli.generate.put_drafts", blocked)
    with interruptible():
        result = run("generate", path, "--fast", "--products", "3", "--json", *SMALL)
    assert (result.exit_code, objects(result.stdout)[0]["sent"]) == (130, 0)
