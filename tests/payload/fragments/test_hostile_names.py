"""What a hostile sender may say: no name leads out of the directory, and nothing that is invalid is believed."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headrace import Queue
from headrace.errors import NameRefusedError
from headrace.payload.fragments.manifest import Manifest, encode_manifest, hash_of
from headrace.payload.fragments.mark import Mark, facts_of
from headrace.payload.fragments.names import STATE_FOLDER, check_name, folder_of
from payload.fragments.transfers import FEED, Receiving
from support.waiting import until

HOSTILE = [
    "../out", "a/../../out", "/etc/out", "", ".", "..", "a//b", "a/./b", "a\0b", "a\nb", "\x1b[2J", "a" * 256,
    "a/" * 64 + "a", "b" * 250 + ("/" + "b" * 250) * 4, STATE_FOLDER + "/lock", "a/", "\ud800",
]  # fmt: skip


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick(size="1MiB", origin="here")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(NameRefusedError, match="is refused"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "a/b.c", "..a", "a..", ".hidden", "ä/ö €", "a\\b", "-rf"])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert check_name(name) == name


def _announce(queue: Queue, name: str, content: bytes = b"evil", **facts: object) -> None:
    """A whole file, as a hostile sender puts it."""
    manifest = Manifest(
        transfer=os.urandom(16).hex(), name=name, size=len(content), fragment_bytes=100, hashes=hash_of(content),
        **facts,  # type: ignore[arg-type]
    )  # fmt: skip
    marks = [Mark(manifest.transfer, 1, 1), Mark(manifest.transfer, 0, 1)]
    queue.put_many([encode_manifest(manifest), content], feed=FEED, **facts_of(marks))


def test_no_name_leads_out_of_the_directory(queue: Queue, tmp_path: Path) -> None:
    root = tmp_path / "deep" / "in"
    for name in HOSTILE[:-1]:
        _announce(queue, name)
    _announce(queue, "good")
    with Receiving(queue, root, count=len(HOSTILE)) as receiving:
        until(lambda: len(receiving.received) == len(HOSTILE), "all files")
    assert receiving.statistics.finished == 1
    assert receiving.statistics.refused == len(HOSTILE) - 1
    assert {each.name for each in root.iterdir()} == {STATE_FOLDER, "good"}
    assert {each.name for each in root.parent.iterdir()} == {"in"}


def test_links_in_the_directory_are_not_followed(queue: Queue, tmp_path: Path) -> None:
    root, outside = tmp_path / "in", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")
    (root / "link").symlink_to(outside)
    (root / "last").symlink_to(outside / "file")
    with pytest.raises(NameRefusedError, match="is a link"), folder_of(root, "link/file"):
        pass
    _announce(queue, "link/file")
    _announce(queue, "last")
    with Receiving(queue, root, count=2, existing="replace") as receiving:
        until(lambda: len(receiving.received) == 2, "both files")
    assert [each.state for each in receiving.received] == ["refused", "done"]
    assert (outside / "file").read_bytes() == b"mine"
    assert (root / "last").read_bytes() == b"evil"
    assert not (root / "last").is_symlink()


def test_set_uid_bits_sizes_and_garbage_are_refused(queue: Queue, tmp_path: Path) -> None:
    _announce(queue, "large", bytes(90))
    queue.put(b"garbage", feed=FEED)
    queue.put_many([b"garbage"], feed=FEED, **facts_of([Mark("00" * 16, 5, 5)]))
    queue.put_many([b"garbage"], feed=FEED, **facts_of([Mark("11" * 16, 4, 5)]))
    queue.put(b"garbage", feed=f"{FEED}/receipts")
    _announce(queue, "good")
    with Receiving(queue, tmp_path / "in", size_max=50, count=3) as receiving:
        until(lambda: len(receiving.received) == 3, "the good file")
    assert {each.name: each.state for each in receiving.received}["good"] == "done"
    assert receiving.statistics.refused == 2
    assert receiving.statistics.invalid == 2


def test_nobody_else_withdraws_or_spoils_a_file_on_its_way(queue: Queue, tmp_path: Path) -> None:
    content = bytes(250)
    manifest = Manifest(transfer="ab" * 16, name="mine", size=250, fragment_bytes=100)
    marks = [Mark(manifest.transfer, number, 3) for number in range(4)]
    pieces = [content[place : place + 100] for place in (0, 100, 200)]
    queue.put_many([encode_manifest(manifest)], feed=FEED, **facts_of(marks[3:]))
    queue.put_many(pieces[:2], feed=FEED, **facts_of(marks[:2]))
    sequences = iter(range(1, 9))
    withdrawn = msgspec.structs.replace(manifest, withdrawn="by a stranger")
    renamed = msgspec.structs.replace(manifest, name="theirs")
    for payload, mark in ((encode_manifest(withdrawn), marks[3]), (encode_manifest(renamed), marks[3]),
                          (b"garbage", marks[3]), (bytes(50), marks[2])):  # fmt: skip
        queue.put_many([payload], feed=FEED, origin="elsewhere", origin_sequence=[next(sequences)], **facts_of([mark]))
    whole = msgspec.structs.replace(manifest, hashes=b"".join(map(hash_of, pieces)))
    queue.put_many([pieces[2], encode_manifest(whole)], feed=FEED, **facts_of(marks[2:]))
    with Receiving(queue, tmp_path / "in") as receiving:
        until(lambda: receiving.statistics.finished == 1, "the file")
    assert (tmp_path / "in" / "mine").read_bytes() == content
