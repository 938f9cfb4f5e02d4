"""The queue terms of a configuration, compared with those of an existing queue."""

from collections.abc import Callable
from pathlib import Path

import pytest
from siteconfig import SITE, Write, only, reported

from headrace import Queue
from headrace.errors import NotAQueueError
from headrace.log.config import default_origin, read_config
from headrace.site import load_config
from headrace.site.config import QueueTable


def test_a_new_queue_gets_the_terms_of_the_file(write: Write, tmp_path: Path) -> None:
    config = load_config(write(f"{SITE}name = 'x'\n[queue]\nsize = '4MiB'\n"))
    assert (config.site.name, config.queue.size) == ("x", 4 << 20)
    assert not (tmp_path / "q").exists()
    (tmp_path / "q").mkdir()
    assert load_config(write(SITE)).site.name == default_origin()


def test_a_queue_created_with_the_terms_matches_the_file(write: Write, tmp_path: Path) -> None:
    config = load_config(write(f"{SITE}[queue]\nsize = '4MiB'\nage = '1h'\ndedup = 'payload'\nhash = 'md5'\n"))
    terms = config.queue
    with Queue.create(
        config.site.queue, size=terms.size, age=terms.age_s, durability=terms.durability, dedup=terms.dedup, hash=terms.hash,
        origin=config.site.name,
    ):  # fmt: skip
        assert load_config(tmp_path / "site.toml") == config


def test_an_existing_queue_keeps_its_terms_and_its_name(write: Write, make_queue: Callable[..., Queue]) -> None:
    make_queue(size="4MiB", age="1h", dedup="payload", hash="xxh3", origin="there")
    config = load_config(write(SITE))
    assert config.site.name == "there"
    assert config.queue == QueueTable(size=4 << 20, age_s=3600.0, dedup="payload", hash="xxh3")


def test_equal_terms_are_accepted(write: Write, make_queue: Callable[..., Queue]) -> None:
    make_queue(size="4MiB", age="1h", origin="there")
    terms = "[queue]\nsize = '4096KiB'\nage = '60min'\ndurability = 'process'\ndedup = 'identity'\nhash = 'blake3'\n"
    assert reported(write(f"{SITE}name = 'there'\n{terms}")) == []


@pytest.mark.parametrize(
    ("text", "key", "problem", "remedy"),
    [
        ("size = '8MiB'", "size", '"8MiB" differs from {path}, which has "4MiB"',
         'run: headrace queue resize {path} --size 8MiB, or write size = "4MiB" here'),
        ("age = '2h'", "age", '"2h" differs from {path}, which has no limit',
         "run: headrace queue resize {path} --age 2h, or leave age out here"),
        ("durability = 'disk'", "durability", '"disk" differs from {path}, which has "process"',
         'a queue keeps its durability: write durability = "process" here, or choose another queue'),
        ("dedup = 'payload'", "dedup", '"payload" differs from {path}, which has "identity"',
         'a queue keeps its dedup: write dedup = "identity" here, or choose another queue'),
        ("hash = 'md5'", "hash", '"md5" differs from {path}, which has "blake3"',
         'a queue keeps its hash: write hash = "blake3" here, or choose another queue'),
    ],
)  # fmt: skip
def test_different_terms_are_reported_with_both_values_and_the_remedy(
    write: Write, make_queue: Callable[..., Queue], text: str, key: str, problem: str, remedy: str
) -> None:
    path = make_queue(size="4MiB").path
    found = only(write(f"{SITE}[queue]\n{text}\n"))
    assert (found.line, found.table, found.key) == (4, "[queue]", key)
    assert found.problem == problem.format(path=path)
    assert found.hint == remedy.format(path=path)


def test_resizing_the_queue_resolves_the_problem(write: Write, make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(size="4MiB")
    path = write(f"{SITE}[queue]\nsize = '8MiB'\nage = '2h'\n")
    assert len(reported(path)) == 2
    queue.resize(size="8MiB", age="2h")
    assert reported(path) == []


def test_a_different_name_is_reported_with_both_names(write: Write, make_queue: Callable[..., Queue]) -> None:
    make_queue(origin="there")
    found = only(write(f"{SITE}name = 'here'\n"))
    assert (found.line, found.key) == (3, "name")
    assert "'here' is not the origin of" in found.problem
    assert "'there'" in found.problem
    assert 'name = "there"' in found.hint


def test_a_path_that_is_not_a_queue_is_reported(write: Write, tmp_path: Path) -> None:
    (tmp_path / "q").write_text("x")
    assert "is not a folder" in only(write(SITE)).problem
    (tmp_path / "q").unlink()
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "x").touch()
    assert "it is not a queue" in only(write(SITE)).problem
    (tmp_path / "q" / "queue.json").write_text("{")
    assert "queue.json is invalid" in only(write(SITE)).problem


def test_a_path_that_is_invalid_for_a_queue_is_reported(write: Write, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    found = only(write('[site]\nqueue = "f/deeper/q"\n'))
    assert found.key == "queue"
    assert f"{tmp_path / 'f'} is not a folder" in found.problem
    assert only(write(f'[site]\nqueue = "{"x" * 300}"\n')).key == "queue"
    assert reported(write('[site]\nqueue = "not/yet/there/q"\n')) == []
    assert not (tmp_path / "not").exists()


def test_a_path_without_a_directory_is_said_to_have_no_queue(tmp_path: Path) -> None:
    with pytest.raises(NotAQueueError, match=r"there is no queue at .*nope"):
        read_config(tmp_path / "nope")
