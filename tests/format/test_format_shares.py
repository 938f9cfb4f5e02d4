"""Groups of nodes, read by the slow reader, against what the group says."""

import struct
from collections.abc import Callable

import numpy as np
import share_reader
from share_reader import NOBODY, read_share, read_shares

from headrace import Queue
from headrace.share import layout
from headrace.share.interface import ELSEWHERE, Load, Progress, Work, marks

MakeQueue = Callable[..., Queue]
ALL = np.arange(6, dtype=np.uint32)


def test_the_slow_reader_reads_groups(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.channel("radar", "wx/radar", slices=6)
    for number in range(9):
        queue.put(b"%d" % number, feed="wx/radar", ident=str(number))
    queue.share("radar", "half", only="0-2,5", dead_after="10s", tries_max=7)
    share = queue.share("radar")
    assert read_shares(queue.path) == [
        {name: getattr(each, name) for name in share_reader.GROUP}
        for each in (queue.share("radar", "half").terms, share.terms)
    ]
    half = read_share(queue.path, 1)
    assert [each["owner"] for each in half["slices"]] == [NOBODY, NOBODY, NOBODY, ELSEWHERE, ELSEWHERE, NOBODY]
    assert (half["header"]["dead_after_ns"], half["header"]["tries_max"]) == (10 * 10**9, 7)
    giver, taker = share.join("giver", user="ada", pid=4711), share.join("täker")
    term = share.lead("b", 60)
    share.give(term, giver.number, ALL, "join")
    one = np.array([1], np.uint64)
    progress = Progress(
        confirm=marks(ALL, [1] * 6, [4] * 6), load=Load(waiting=3, cpu=0.5), work=Work(1, ALL[2:3], 5 * one, 7 * one)
    )
    giver.exchange(progress)
    giver.begin(1, 1, 4)
    giver.fail(1, 1, 4)
    giver.park(1, 1, 4, "KeyError: ü")
    share.begin(term, giver.number, taker.number, ALL[:2], "load")
    giver.exchange(Progress(release=marks([0], [1], [6])))
    state, told = share.state(), read_share(queue.path, 2)
    columns = {"owner": state.owners, "taker": state.takers, "epoch": state.epochs}
    for name, column in columns.items():
        assert [each[name] for each in told["slices"]] == column.tolist()
    for name in ("positions", "products", "busy_ns"):
        assert told[name] == getattr(state, name).tolist()
    assert told["positions"] == [6, 5, 4, 4, 4, 4]
    assert [told["seats"][0][name] for name in ("name", "user", "pid")] == ["giver", "ada", 4711]
    assert [seat["name"] for seat in told["seats"].values()] == ["giver", "täker"]
    assert told["seats"][0]["load"] == {"cpu": 0.5, "waiting": 3}
    assert [seat["version"] for seat in told["seats"].values()] == [giver.version, taker.version]
    sessions = [
        (each["number"], each["giver"], each["taker"], share_reader.REASONS[each["reason"]], each["slices"],
         each["left"], share_reader.OUTCOMES[each["outcome"]])
        for each in told["sessions"]
    ]  # fmt: skip
    assert sessions == [
        (each.number, each.giver, each.taker, each.reason, each.slices, each.left, each.outcome)
        for each in state.sessions
    ]
    assert [(each["sequence"], each["slice"], each["tries"], each["error"]) for each in told["parked"]] == [
        (4, 1, 1, "KeyError: ü")
    ]
    assert [(each["name"], each["waiting"], each["cpu"], each["slices"]) for each in told["samples"]] == [
        ("giver", 3, 0.5, 6)
    ]
    assert (told["header"]["leader"], told["header"]["term"]) == ("b", 1)


def test_the_word_that_wakes_nodes_is_where_the_page_says(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.channel("radar", "wx/radar", slices=6)
    share = queue.share("radar")
    seat = share.join("one")
    file = queue.path / "shares" / "wake"
    before = struct.unpack("<I", file.read_bytes()[:4])[0]
    share.drain(seat.number)
    assert struct.unpack("<I", file.read_bytes()[:4])[0] == before + 1
    seat.exchange(Progress())
    assert struct.unpack("<I", file.read_bytes()[:4])[0] == before + 1
    assert len(file.read_bytes()) == 64


def test_the_rings_are_read_in_their_order(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.channel("radar", "wx/radar", slices=1)
    share = queue.share("radar")
    seats = [share.join("a"), share.join("b")]
    share.give(0, seats[0].number, ALL[:1], "join")
    for _ in range(layout.SESSIONS + 5):
        share.begin(0, seats[0].number, seats[1].number, ALL[:1], "hand")
        share.cancel(0, ALL[:1])
    numbers = [each["number"] for each in read_share(queue.path, 1)["sessions"]]
    assert numbers == list(range(7, layout.SESSIONS + 7))


def test_the_page_has_every_size_and_count_of_a_share_file() -> None:
    kinds = (layout.HEADER, layout.SEAT, layout.SESSION, layout.PARKED_ENTRY, layout.SAMPLE)
    assert [kind.itemsize for kind in kinds] == [
        share_reader.HEADER_BYTES, share_reader.SEAT_BYTES, share_reader.SESSION_BYTES, share_reader.PARKED_BYTES,
        share_reader.SAMPLE_BYTES,
    ]  # fmt: skip
    assert (layout.SEATS, layout.SESSIONS, layout.PARKED, layout.SAMPLES) == (
        share_reader.SEATS, share_reader.SESSIONS, share_reader.PARKED_PLACES, share_reader.SAMPLES,
    )  # fmt: skip
