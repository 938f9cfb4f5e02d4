"""Track: what is missing is known, whatever is lost, late or duplicated on the way."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.relay.receive.track import Track


def test_a_page_that_follows_moves_its_feed() -> None:
    track = Track(10)
    assert track.fits("a", 10)
    track.add_live("a", 15)
    assert (track.reached("a"), track.reached("b"), track.base) == (15, 10, 10)


def test_a_page_that_begins_further_on_does_not_fit() -> None:
    track = Track(10)
    assert not track.fits("a", 11)
    track.add_live("a", 12)
    assert track.fits("a", 12)
    assert not track.fits("b", 12)


def test_a_pull_moves_all_feeds() -> None:
    track = Track(0)
    track.add_live("a", 5)
    track.add_live("b", 20)
    track.add_pulled(10)
    assert (track.reached("a"), track.reached("b"), track.reached("c")) == (10, 20, 10)
    assert dict(track.ahead) == {"b": 20}


def test_a_beat_that_is_satisfied_moves_the_base() -> None:
    track = Track(10)
    track.add_live("a", 14)
    assert track.add_beat(8, 20, {"a": 14})
    assert track.base == 20
    assert not track.ahead


def test_a_beat_reveals_a_lost_tail() -> None:
    track = Track(10)
    track.add_live("a", 14)
    assert not track.add_beat(10, 20, {"a": 17})
    assert track.base == 10


def test_after_missed_beats_nothing_is_concluded() -> None:
    assert not Track(10).add_beat(12, 20, {})
    assert not Track(10).add_beat(5, 20, None)
    assert Track(30).add_beat(12, 20, {"a": 18})


@given(st.integers(0, 2**32), st.floats(0, 0.6), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_everything_arrives_once_and_in_order_whatever_the_live_path_drops(seed: int, loss: float, feeds: int) -> None:
    """A site that sends pages and beats, a path that drops them, a log that has everything."""
    chance = random.Random(seed)
    log = [(number, f"feed/{chance.randrange(feeds)}") for number in range(1, 121)]
    track, arrived = Track(0), list[tuple[int, str]]()
    sent: dict[str, int] = {}
    since = examined = position = 0
    before, recent = dict[str, int](), dict[str, int]()

    def pull() -> None:
        arrived.extend(row for row in log[:position] if row[0] > track.reached(row[1]))
        track.add_pulled(position)

    while position < len(log):
        stretch = log[position : position + chance.randint(1, 9)]
        position += len(stretch)
        for feed in dict.fromkeys(feed for _, feed in stretch):
            mine = [row for row in stretch if row[1] == feed]
            after, upto = sent.get(feed, 0), mine[-1][0]
            sent[feed] = recent[feed] = upto
            if chance.random() < loss:
                continue
            if not track.fits(feed, after):
                pull()
            arrived.extend(row for row in mine if row[0] > track.reached(feed))
            track.add_live(feed, upto, sum(number > track.base for number, _ in mine))
        if chance.random() < 0.3:
            told = before | recent
            if chance.random() >= loss and not track.add_beat(since, position, told):
                pull()
            before, recent, since, examined = recent, {}, examined, position
    pull()
    assert sorted(arrived) == log
    for feed in {feed for _, feed in log}:
        assert [row for row in arrived if row[1] == feed] == [row for row in log if row[1] == feed]


def test_a_page_without_a_hole_behind_the_base_moves_it() -> None:
    track = Track(10)
    track.add_live("a", 13, 3)
    assert (track.base, dict(track.ahead)) == (13, {})
    track.add_live("a", 16, 2)
    assert (track.base, dict(track.ahead)) == (13, {"a": 16})
