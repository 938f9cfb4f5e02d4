"""Files from site to site, and over links that break."""

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import TransferError
from payload.fragments.transfers import FEED, Receiving, make_file, send
from support.fleet import Fabric, want
from support.serving import Served, Wire
from support.waiting import until

SIZE = 6_000_000

pytestmark = pytest.mark.processes


def test_a_file_passes_from_site_to_site_through_queues_that_are_smaller(fabric: Fabric, tmp_path: Path) -> None:
    file = make_file(tmp_path / "big.bin", SIZE)
    there = fabric.add("there", want(f"{FEED}/receipts"), size="4MiB")
    here = fabric.add("here", want(FEED), near=("there",), size="2MiB")
    with Receiving(here, tmp_path / "in") as receiving:
        outcome: list[Any] = []
        sending = threading.Thread(target=lambda: outcome.append(send(there, file)))
        sending.start()
        until(lambda: receiving.statistics.bytes > SIZE // 3, "a third of the file")
        fabric.stop("here")  # the site, not the receiver
        fabric.start("here")
        sending.join(60)
    (told, sent) = outcome[0]
    assert sent[0].state == "done"
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert told.again_bytes <= SIZE * 0.05


def test_fragments_that_the_queue_of_the_receiver_cannot_take_are_refused(fabric: Fabric, tmp_path: Path) -> None:
    there = fabric.add("there", want(f"{FEED}/receipts"), size="128MiB")
    here = fabric.add("here", want(FEED), near=("there",), size="1MiB")
    with Receiving(here, tmp_path / "in") as receiving:
        _, sent = send(there, make_file(tmp_path / "big.bin", SIZE))
    assert [each.state for each in sent] == [each.state for each in receiving.received] == ["refused"]
    assert sent[0].problem == (
        "'big.bin' comes in fragments of 508.0 KiB, and the queue of the receiver takes 256.0 KiB at most"
    )


def test_a_site_on_the_way_that_is_too_small_is_named_by_its_problems_and_to_the_sender(
    fabric: Fabric, tmp_path: Path
) -> None:
    there = fabric.add("there", want(f"{FEED}/receipts"), size="128MiB")
    fabric.add("between", want(FEED), want(f"{FEED}/receipts", name="back"), near=("there",), size="1MiB")
    here = fabric.add("here", want(FEED, "next", "between"), near=("between",), size="128MiB")
    with (
        Receiving(here, tmp_path / "in"),
        pytest.raises(TransferError, match=r"none of its fragments of 508\.0 KiB does, after 5 attempts") as raised,
    ):
        send(there, make_file(tmp_path / "big.bin", SIZE))
    assert "enlarge that queue" in raised.value.hint
    problems = fabric.sites["between"].problems()
    assert [each.kind for each in problems if "refused" in each.text] == ["refused"]


def test_a_file_arrives_over_links_that_flap_at_both_ends(shared_memory: Path, tmp_path: Path) -> None:
    file = make_file(tmp_path / "big.bin", SIZE)
    served = Served(shared_memory, size="4MiB")
    wires = [Wire(served.endpoint), Wire(served.endpoint)]
    near, far = (served.connect(wire.endpoint, on_loss="wait") for wire in wires)
    outcome: list[Any] = []
    with Receiving(far, tmp_path / "in") as receiving:
        sending = threading.Thread(target=lambda: outcome.append(send(near, file, puts_at_once=2)))
        sending.start()
        for turn in range(4):
            until(lambda turn=turn: receiving.statistics.bytes > SIZE * turn // 5, "progress")  # type: ignore[misc]
            wires[turn % 2].cut()
            wires[turn % 2].restore()
        sending.join(60)
        assert outcome
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert outcome[0][0].again_bytes <= SIZE * 0.05
    for wire in wires:
        wire.close()
    served.close()
