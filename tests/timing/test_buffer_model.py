"""The release buffer against an oracle: a list of products, and the rules as one would write them down.

Input is duplicated and reordered, time stamps are equal, all criteria and policies are tried.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling import EACH, ORIGINS, Fact, Sample, facts, make_sample

from headrace import LateError, Queue
from headrace.timing.release import Criteria, Releasing


@dataclass
class Oracle:
    """What is held: (fact, bytes, arrival). Slow and plain."""

    criteria: Criteria
    held: list[tuple[Fact, int, int]] = field(default_factory=list)
    released: list[Fact] = field(default_factory=list)
    newest: int = 0
    late: int = 0
    dropped_late: int = 0
    repeated: int = 0

    def add(self, products: list[tuple[Fact, int]], now: int) -> None:
        self.held += [(fact, size, now) for fact, size in products]

    def without_copies(self) -> None:
        kept: dict[Fact, tuple[Fact, int, int]] = {}
        for each in self.held:
            self.repeated += each[0] in kept
            kept.pop(each[0], None)
            kept[each[0]] = each
        self.held = sorted(kept.values(), key=lambda each: each[0])

    def poll(self, now: int, ended: bool) -> list[Fact] | str | None:
        if any(fact[0] < self.newest for fact, _, _ in self.held):
            self.without_copies()
            late = [each[0] for each in self.held if each[0][0] < self.newest]
            self.held = self.held[len(late) :]
            if self.criteria.late == "drop":
                self.dropped_late += len(late)
            else:
                self.late += len(late)
                return "late" if self.criteria.late == "error" else late
        count, size = len(self.held), sum(size for _, size, _ in self.held)
        over = [fact for fact, _, at in self.held if at + self.criteria.hold_ns <= now]
        full = count >= self.criteria.products_max or size >= self.criteria.bytes_max
        if not count or not (full or over or ended):
            return None
        self.without_copies()
        out: list[Fact] = []
        least = math.ceil(self.criteria.factor * len(self.held))
        while self.held and (
            ended
            or len(out) < least
            or sum(size for _, size, _ in self.held) >= self.criteria.bytes_max
            or any(at + self.criteria.hold_ns <= now for _, _, at in self.held)
        ):
            out.append(self.held.pop(0)[0])
        self.newest = max(self.newest, out[-1][0])
        return out


@pytest.fixture
def pool(make_quick: Callable[..., Queue]) -> Sample:
    return make_sample(make_quick)


places = st.lists(st.integers(0, EACH - 1), max_size=6)
arrivals = st.lists(st.tuples(st.integers(0, 2), places, st.integers(0, 4)), max_size=14)
terms = st.builds(
    lambda hold, products, size, factor, late: Criteria(hold, products, size, factor, late),
    st.integers(1, 6), st.integers(1, 12), st.integers(1, 30), st.sampled_from([0.5, 0.6, 0.75, 1.0]),
    st.sampled_from(["release", "drop", "error"]),
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(script=arrivals, criteria=terms, is_apart=st.booleans(), ends=st.booleans())
def test_the_buffer_releases_what_the_oracle_does(
    pool: Sample, script: list[tuple[int, list[int], int]], criteria: Criteria, is_apart: bool, ends: bool
) -> None:
    buffer, oracle, now = Releasing(len(ORIGINS) if is_apart else 1, criteria), Oracle(criteria), 1
    for number, chosen, passed in [*script, *([(0, [], 0)] if ends else [])]:
        batch = (pool.apart[number] if is_apart else pool.whole).take(
            chosen if is_apart else [number * EACH + place for place in chosen]
        )
        ended = ends and not chosen and not passed
        buffer.add(batch, number if is_apart else 0, now)
        oracle.add(list(zip(facts(batch), batch.sizes.tolist(), strict=True)), now)
        now += passed
        while (newest := oracle.newest, expected := oracle.poll(now, ended))[1] is not None:
            if expected == "late":
                with pytest.raises(LateError):
                    buffer.poll(now, ended)
                continue
            found = buffer.poll(now, ended)
            assert found is not None
            assert facts(found) == expected
            assert found.feeds == [f"x/{origin}" for _, origin, _ in expected]
            assert found.late == (len(expected) if expected[0][0] < newest else 0)
        assert buffer.poll(now, ended) is None
        assert len(buffer.held) == len(oracle.held)
        assert buffer.held.bytes == sum(size for _, size, _ in oracle.held)
    counts = buffer.counts
    assert (counts.late, counts.dropped_late, counts.repeated) == (oracle.late, oracle.dropped_late, oracle.repeated)
    assert counts.received == counts.released + sum(map(len, buffer.dropped)) + len(buffer.held) + (
        counts.late if criteria.late == "error" else 0
    )
