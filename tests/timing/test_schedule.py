"""The moments at which a pacer releases products, with a clock that tests move."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from headrace import Batch, LateError, Queue
from headrace.errors import OptionError
from headrace.timing.schedule import NS, Pace, Schedule, Transit

MS = 1_000_000
EPOCH_NS = 1_700_000_000 * NS


def pace(delay: str = "100ms", precision: str = "1ms", late: str = "release", overdue: str = "release") -> Pace:
    return Pace.of(delay, precision, late, overdue, 1000, "1MiB")


Created = Callable[..., Batch]


@pytest.fixture
def created(make_quick: Callable[..., Queue]) -> Created:
    """Makes a batch of products that were created at these milliseconds."""
    queue = make_quick()

    def make(*moments_ms: float) -> Batch:
        first = queue.next
        for moment in moments_ms:
            queue.put(b"x", feed="a", created=EPOCH_NS + round(moment * MS))
        return queue.read_batch(first)

    return make


def run(schedule: Schedule, now_ns: int, until_ns: int) -> Iterator[tuple[int, list[float]]]:
    """When (in milliseconds) something is released until a moment, and what."""
    while (due_ns := schedule.due_ns()) is not None and due_ns <= until_ns:
        now_ns = max(now_ns, due_ns)
        batch = schedule.poll(now_ns)
        if batch is not None:
            yield round(now_ns / MS), [(int(each) - EPOCH_NS) / MS for each in batch.columns["created_ns"]]


def released_ms(schedule: Schedule, now_ns: int, until_ns: int) -> list[tuple[int, float]]:
    return [(at, moment) for at, moments in run(schedule, now_ns, until_ns) for moment in moments]


def test_products_leave_with_the_spacing_that_they_were_created_with(created: Created) -> None:
    schedule = Schedule(1, pace())
    now_ns = 5 * NS
    for moment, transit in ((0, 40), (10, 90), (20, 40), (30, 41), (40, 139)):
        now_ns = 5 * NS + (moment + transit) * MS
        schedule.add(created(moment), 0, now_ns)
    found = released_ms(schedule, now_ns, 6 * NS)
    assert found == [
        (5000 + 140 + moment if moment > 30 else max(5179, 5140 + moment), moment) for moment in range(0, 50, 10)
    ]
    assert schedule.missed == 0


def test_products_within_one_step_of_the_precision_leave_together(created: Created) -> None:
    for precision, groups in (("100us", 6), ("1ms", 2), ("10ms", 1)):
        schedule = Schedule(1, pace(precision=precision))
        schedule.add(created(0, 0.2, 0.4, 1, 1.2, 1.4), 0, NS)
        assert len(list(run(schedule, NS, 2 * NS))) == groups


def test_order_is_that_of_creation_whatever_the_order_of_arrival(created: Created) -> None:
    schedule = Schedule(1, pace())
    for place, moment in enumerate((30, 10, 20, 0, 40)):
        schedule.add(created(moment), 0, NS + place * MS)
    assert [moment for _, moment in released_ms(schedule, NS, 2 * NS)] == [0, 10, 20, 30, 40]


def test_a_product_that_misses_its_moment_leaves_at_once_and_is_late_behind_later_ones(created: Created) -> None:
    for late in ("release", "drop", "error"):
        schedule = Schedule(1, pace(late=late))
        schedule.add(created(0, 10), 0, NS)
        assert len(released_ms(schedule, NS, 2 * NS)) == 2
        schedule.add(created(5), 0, NS + 300 * MS)
        assert schedule.missed == 1
        if late == "error":
            with pytest.raises(LateError, match="1 late") as raised:
                schedule.poll(NS + 300 * MS)
            assert len(raised.value.batch) == 1
            continue
        batch = schedule.poll(NS + 300 * MS)
        assert (None if batch is None else (len(batch), batch.late)) == ((1, 1) if late == "release" else None)
        assert sum(map(len, schedule.dropped)) == schedule.counts.dropped_late == (late == "drop")


def test_a_backlog_is_caught_up_with_and_then_the_pace_is_that_of_the_stream(created: Created) -> None:
    schedule = Schedule(1, pace())
    schedule.add(created(*range(0, 1000, 10)), 0, 7 * NS)  # a second that came at once
    found = released_ms(schedule, 7 * NS, 7 * NS + 5 * MS)
    assert found == [(7000, moment) for moment in range(0, 900, 10)]
    schedule.add(created(1000, 1010), 0, 7 * NS + 20 * MS)
    found = released_ms(schedule, 7 * NS + 20 * MS, 8 * NS)
    assert found[-3:] == [(7100, 990), (7110, 1000), (7120, 1010)]


def test_a_clock_that_is_set_forward_is_followed_at_once_and_one_set_back_within_a_second(created: Created) -> None:
    schedule = Schedule(1, pace())
    now_ns = NS
    for moment in itertools.chain(range(0, 100, 10), range(3_600_100, 3_600_200, 10), range(200, 1600, 10)):
        schedule.add(created(moment), 0, now_ns)
        now_ns += 10 * MS
        list(run(schedule, now_ns, now_ns))
    assert schedule.transit.jumps == 2
    assert 1 <= len(schedule.held) <= 11  # 100 ms of the stream, as at the beginning
    assert schedule.counts.restarts == 1
    assert 90 <= schedule.counts.late <= 110  # a second


def test_small_changes_of_the_transit_are_followed_slowly() -> None:
    transit = Transit(100 * MS)
    transit.note(50 * MS, NS)
    transit.note(40 * MS, NS)
    transit.move(2 * NS)
    assert transit.ns == pytest.approx(50 * MS - 0.01 * NS, abs=10)
    transit.move(3 * NS)
    assert (transit.ns, transit.jumps) == (40 * MS, 0)
    for second in range(4, 40):  # the route has become longer
        transit.note(60 * MS, second * NS)
        transit.move(second * NS)
    assert (transit.ns, transit.jumps) == (60 * MS, 0)


def test_a_program_that_is_too_slow_gets_what_is_overdue_at_once_or_it_is_dropped(created: Created) -> None:
    for overdue, released in (("release", 100), ("drop", 60)):
        schedule = Schedule(1, pace(overdue=overdue))
        for moment in range(0, 1000, 10):
            schedule.add(created(moment), 0, NS + moment * MS)
        batch = schedule.poll(NS + 600 * MS)  # the first was due at 100 ms
        assert batch is not None
        rest = released_ms(schedule, NS + 600 * MS, 3 * NS)
        assert len(batch) + len(rest) == released
        assert schedule.dropped_overdue == 100 - released == sum(map(len, schedule.dropped))
        assert schedule.overdue > 0


def test_invalid_terms_are_named() -> None:
    for bad, words in (
        ({"delay": "0.1ms"}, "delay"), ({"precision": "1us"}, "precision"), ({"late": "park"}, "late"),
        ({"overdue": "error"}, "overdue"), ({"delay": "0"}, "delay of 0s is out of range"),
        ({"precision": "1us"}, "precision of 1us is out of range"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=words):
            pace(**bad)
