"""Generated products at their pace, on a clock that moves only during a sleep."""

import pytest

from headrace.testing import Draft, pacing
from headrace.testing.pacing import due_batches


class SteppedTime:
    """A clock that moves only during a sleep."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def drafts_at(*times_s: float) -> list[Draft]:
    return [Draft("x", str(at_s), b"12345", 0, at_s=at_s) for at_s in times_s]


def test_drafts_come_at_their_times_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedTime()
    monkeypatch.setattr(pacing, "time", clock)
    seen = [(clock.now_s - 100, draft.at_s) for batch in due_batches(drafts_at(0, 0, 1, 1.5), False) for draft in batch]
    assert seen == [(0, 0), (0, 0), (1, 1), (1.5, 1.5)]


def test_a_producer_that_fell_behind_receives_all_due_drafts_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedTime()
    monkeypatch.setattr(pacing, "time", clock)
    batches = due_batches(drafts_at(0, 1, 2, 3, 9), False)
    assert len(next(batches)) == 1
    clock.now_s += 5
    assert [draft.at_s for draft in next(batches)] == [1, 2, 3]


def test_a_batch_is_bounded_in_bytes() -> None:
    assert [len(batch) for batch in due_batches(drafts_at(0, 0, 0, 0, 0), True, bytes_max=12)] == [2, 2, 1]
