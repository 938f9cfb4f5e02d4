"""An imported pqact.conf leaves the files that LDM's pqact would leave, byte for byte, for generated traffic.

Everything is real but Spark: rules, matching, preparation, actions and programs. By hand, with Spark and 1,700 entries:

    headrace queue create wx.queue --size 256MiB --dedup payload --hash md5
    headrace generate wx.queue --products 5000 --fast --size-max 20kB --feeds metar,bulletin,…
    python tests/pipeline/rules/pqact_samples.py SEED 1700 > pqact.conf
    headrace pipeline import pqact.conf > rules.toml
    headrace pipeline run rules.toml --once
    python tests/pipeline/rules/test_pqact_files.py FOLDER
"""

import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pqact_oracle import Sent, files_of
from pqact_samples import LOG, pqact_conf

from headrace import Queue
from headrace.pipeline.actions import DeadLetters, performer
from headrace.pipeline.actions.programs import Programs, groups_of
from headrace.pipeline.rules import load_rules
from headrace.pipeline.rules.pqact import translate
from headrace.pipeline.run import pile, shared_batch
from headrace.pipeline.run.micro_batch import BatchHandler
from headrace.pipeline.run.status import RuleStatus
from headrace.pipeline.source.columns import arrow_of
from headrace.pipeline.source.open_queues import QueueAddress
from headrace.testing import FeedGenerator
from support.seeds import random_seed

KINDS = ("metar", "bulletin", "bufr", "nexrad2", "nexrad3", "ngrid", "conduit", "satellite", "lightning")


def products_in(queue: Queue) -> Iterator[Sent]:
    for each in queue.read("oldest"):
        yield Sent(
            each.feed, each.ident, bytes(each.payload), each.signature, each.created_ns // 1000, each.origin_sequence,
            each.origin,
        )  # fmt: skip


def found(folder: Path) -> dict[str, bytes]:
    """The files that rules have written: below `files`, and by programs beside the rules."""
    places = {"files": folder / "files", **dict.fromkeys(("dec", "bulletin", "log"), folder)}
    files: dict[str, bytes] = {}
    for name, base in places.items():
        below = base if name == "files" else base / name
        paths = (path for path in below.rglob("*") if path.is_file() and not path.name.startswith(".headrace"))
        files |= {str(path.relative_to(base)): path.read_bytes() for path in paths}
    return files


def prepared_folder(folder: Path) -> None:
    (folder / "log.sh").write_text(LOG)
    for name in ("dec", "bulletin", "log"):
        (folder / name).mkdir(exist_ok=True)


def compared(folder: Path, conf: str) -> tuple[int, int]:
    """The number of files and bytes; AssertionError names the files that differ."""
    with Queue.open(folder / "wx.queue") as queue:
        wanted, has = files_of(conf, products_in(queue)), found(folder)
    wrong = sorted(path for path in wanted.keys() | has.keys() if wanted.get(path) != has.get(path))
    assert not wrong, [(path, len(wanted.get(path, b"")), len(has.get(path, b""))) for path in wrong[:10]]
    return len(wanted), sum(map(len, wanted.values()))


def run_without_spark(path: Path, batches: list[list[pa.RecordBatch]], monkeypatch: pytest.MonkeyPatch) -> None:
    rules = load_rules(path)
    programs, letters, folder = Programs(rules.pipeline.programs), DeadLetters(path.parent / "dead"), path.parent
    pipes = {f"{rule.name}.pipe-{n}": action for rule in rules.enabled for n, action in enumerate(rule.pipe)}
    groups = groups_of(pipes, programs)

    def handler(rule: Any) -> BatchHandler:
        actions = [
            performer(action, f"{name}-{n}", rule.select, letters, groups.get(f"{rule.name}.{name}-{n}"))
            for name, n, action in rule.actions()
        ]
        return BatchHandler(rule, "shared.1", "test", QueueAddress("q", None), folder, RuleStatus(rule.name), actions,
                            letters, folder / "state")  # fmt: skip

    def sorted_here(frame: Any, sorter: Any) -> Iterator[tuple[int, bytes]]:
        for batch in pile._sorted(sorter, iter(frame)):
            yield from zip(batch["kind"].to_pylist(), batch["message"].to_pylist(), strict=True)

    monkeypatch.setattr(shared_batch, "sorted_messages", sorted_here)
    monkeypatch.setattr(shared_batch, "flush_entries", lambda *_: None)
    enabled = [rule for rule in rules.rules if rule.enabled]
    plain = shared_batch.PlainHandler(folder, [handler(rule) for rule in rules.enabled], letters, enabled)
    for number, batch in enumerate(batches):
        plain.handle(batch, number)  # type: ignore[arg-type]
    programs.close()


def test_an_imported_file_leaves_the_files_that_pqact_would_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed := random_seed())
    conf = pqact_conf(seed, 400)
    prepared_folder(tmp_path)
    made = translate(conf)
    assert made.untranslated == ()
    (tmp_path / "rules.toml").write_text(made.toml)
    with Queue.create(tmp_path / "wx.queue", size="64MiB", dedup="payload", hash="md5") as queue:
        for sent in FeedGenerator(seed=seed, feeds=KINDS, products=1200, size_max=2000):
            queue.put(sent.payload, feed=sent.feed, ident=sent.ident)
        ends = sorted({queue.oldest, queue.next, *(chance.randrange(1, queue.next) for _ in range(6))})
        parts = [arrow_of(queue.read_batch(begin, stop=end)) for begin, end in itertools.pairwise(ends)]
    run_without_spark(tmp_path / "rules.toml", [parts[:2], parts[2:3], parts[3:]], monkeypatch)
    files, size = compared(tmp_path, conf)
    assert files > 100
    assert size > 100_000
    assert not (tmp_path / "dead").exists()


if __name__ == "__main__":
    print(compared(Path(sys.argv[1]), (Path(sys.argv[1]) / "pqact.conf").read_text()))
