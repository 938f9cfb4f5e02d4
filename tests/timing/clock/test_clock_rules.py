"""The steps of RFC 5905, one by one, and the discipline: each rule with the smallest case that shows it."""

import random

import pytest

from headrace.log.clock_words import NTP
from headrace.testing.ntp import SimulatedServer
from headrace.testing.ntp_world import SECOND, Link, World
from headrace.timing.clock.association import Association
from headrace.timing.clock.discipline import STEP_NS, Estimate, steer
from headrace.timing.clock.election import Candidate, elect
from headrace.timing.clock.frequency import Frequency, Point
from headrace.timing.clock.ntp import Ntp
from headrace.timing.clock.packet import decode_reply, encode_request, from_ntp, to_ntp
from headrace.timing.clock.samples import Rate, Sample, SampleFilter

MS = 1_000_000
KNOWN = Rate(0, 15_000)
NEAR = Link(50_000, 50_000, 5_000)


def candidate(name: str, offset_ns: int, distance_ns: int, jitter_ns: int = 1000, stratum: int = 1) -> Candidate:
    return Candidate(name, Sample(0, offset_ns, 0, distance_ns), jitter_ns, stratum)


def estimate(offset_ns: int, half_ns: int = MS) -> Estimate:
    return Estimate(10 * SECOND, offset_ns, offset_ns - half_ns, offset_ns + half_ns, KNOWN)


# --- packets --------------------------------------------------------------------------------------


def test_times_of_packets_are_exact_and_reach_beyond_2036() -> None:
    for time_ns in (0, 1_795_000_000 * SECOND + 123_456_789, 2_500_000_000 * SECOND + 1):
        assert from_ntp(to_ntp(time_ns)) == time_ns


@pytest.mark.parametrize(
    ("server", "cause"),
    [
        (SimulatedServer(leap=3), "unsynchronised"),
        (SimulatedServer(stratum=16), "unsynchronised"),
        (SimulatedServer(stated_ns=3 * SECOND), "too far"),
        (SimulatedServer(hides_ns=SECOND), "invalid times"),
    ],
)
def test_a_reply_that_must_not_be_used_is_counted_by_its_cause(server: SimulatedServer, cause: str) -> None:
    association, nonce = Association("a", 64.0), bytes(range(8))
    request = association.request(SECOND, nonce)
    assert association.receive(server.reply(request, 5 * SECOND), SECOND + MS, KNOWN) is None
    assert association.refused == {cause: 1}
    assert association.candidate(2 * SECOND, KNOWN) is None


def test_a_reply_counts_once_and_only_for_the_request_that_is_under_way() -> None:
    association = Association("a", 64.0)
    first = SimulatedServer().reply(association.request(SECOND, b"12345678"), 5 * SECOND)
    request = association.request(3 * SECOND, b"abcdefgh")
    assert association.receive(first, 3 * SECOND + MS, KNOWN) is None  # late, or replayed
    reply = SimulatedServer().reply(request, 7 * SECOND)
    assert association.receive(reply, 3 * SECOND + 2 * MS, KNOWN) is not None
    assert association.receive(reply, 3 * SECOND + 3 * MS, KNOWN) is None
    for datagram in (b"", reply[:47], b"\x23" + reply[1:], b"\x3c" + reply[1:]):
        request = association.request(5 * SECOND, reply[24:32])
        assert association.receive(datagram, 5 * SECOND + MS, KNOWN) is None
    assert association.refused == {"not our request": 1, "repeated": 1, "too short": 2, "wrong mode": 1,
                                   "wrong version": 1}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_no_datagram_is_more_than_refused(seed: int) -> None:
    chance, association = random.Random(seed), Association("a", 64.0)
    for number in range(300):
        request = association.request(number * SECOND, nonce := chance.randbytes(8))
        datagram = bytearray(SimulatedServer().reply(request, chance.randrange(1 << 62)))
        for _ in range(chance.randint(1, 6)):
            datagram[chance.randrange(24)] = chance.randrange(256)
        association.receive(bytes(datagram), number * SECOND + chance.randrange(MS), KNOWN)
        assert association.candidate(number * SECOND, KNOWN) is None or association.accepted
        assert len(nonce) == 8
    assert association.accepted + association.refused.total() == 300


def test_a_server_that_asks_for_less_is_polled_less_and_one_that_denies_is_left_alone() -> None:
    association = Association("a", 64.0)
    kiss = bytearray(SimulatedServer().reply(association.request(SECOND, b"12345678"), 5 * SECOND))
    kiss[1], kiss[12:16] = 0, b"RATE"
    assert association.receive(bytes(kiss), SECOND + MS, KNOWN) is None
    assert association.due_ns == 129 * SECOND
    kiss[24:32], kiss[12:16] = b"abcdefgh", b"DENY"
    association.request(129 * SECOND, b"abcdefgh")
    assert association.receive(bytes(kiss), 129 * SECOND + MS, KNOWN) is None
    assert (association.due_ns, association.state) == (None, "denied")


def test_a_request_says_nothing_about_this_machine() -> None:
    request = encode_request(b"12345678")
    assert request == b"\x23" + bytes(39) + b"12345678"
    assert decode_reply(SimulatedServer(7).reply(request, SECOND), b"12345678").received_ns == SECOND + 7


# --- filter ---------------------------------------------------------------------------------------


def test_the_filter_prefers_the_shortest_delay_until_it_is_too_old() -> None:
    samples = SampleFilter()
    samples.add(Sample(0, 0, MS, MS // 2), KNOWN)
    samples.add(Sample(SECOND, 3 * MS, 10 * MS, 5 * MS), KNOWN)
    assert samples.best(SECOND, KNOWN).delay_ns == MS  # type: ignore[union-attr]
    samples.add(Sample(600 * SECOND, 3 * MS, 10 * MS, 5 * MS), KNOWN)
    assert samples.best(600 * SECOND, KNOWN).delay_ns == 10 * MS  # type: ignore[union-attr]


def test_half_the_round_trip_covers_a_delay_that_is_all_on_one_way() -> None:
    world = World(random.Random(1))
    ntp = Ntp([Association("a", 64.0)])
    for _ in range(8):
        world.poll(ntp, [(SimulatedServer(stated_ns=1000), Link(200 * MS, 0, 0))])
        world.run(10.0)
    assert 100 * MS < world.words.bound_at(world.boot_ns) < 110 * MS
    assert abs(world.error_ns) > 90 * MS  # wrong by half the round trip, and it says so


def test_a_server_that_steps_is_heard_with_its_new_time_only() -> None:
    samples = SampleFilter()
    assert samples.add(Sample(0, 0, MS, MS), KNOWN)
    assert not samples.add(Sample(SECOND, SECOND, MS, MS), KNOWN)
    assert len(samples) == 1


# --- election -------------------------------------------------------------------------------------


def test_one_liar_of_four_is_named_and_moves_nothing() -> None:
    honest = [candidate(name, offset, MS) for name, offset in (("a", 0), ("b", 100_000), ("c", -100_000))]
    alone, lied_to = elect(honest), elect([*honest, candidate("liar", SECOND, MS)])
    assert alone is not None
    assert lied_to is not None
    assert lied_to.verdicts["liar"] == "falseticker"
    assert lied_to.offset_ns == alone.offset_ns


def test_a_liar_that_reaches_the_others_cannot_narrow_the_interval_away_from_the_truth() -> None:
    honest = [candidate(name, 0, MS) for name in "abc"]
    elected = elect([*honest, candidate("liar", 2 * MS, 3 * MS // 2)])  # 0.5 to 3.5 ms
    assert elected is not None
    assert elected.low_ns <= 0 <= elected.high_ns
    assert (elected.low_ns, elected.high_ns) == (-MS, MS)


@pytest.mark.parametrize("offsets", [(0, SECOND), (0, SECOND, 2 * SECOND), (0, 0, SECOND, SECOND)])
def test_without_a_majority_there_is_no_result(offsets: tuple[int, ...]) -> None:
    assert elect([candidate(str(place), offset, MS) for place, offset in enumerate(offsets)]) is None


def test_clustering_sets_the_farthest_aside_and_leaves_three() -> None:
    offsets = {"a": 0, "b": 10_000, "c": -10_000, "d": 5_000, "far": 900_000}
    elected = elect([candidate(name, offset, MS) for name, offset in offsets.items()])
    assert elected is not None
    assert elected.verdicts["far"] == "outlier"
    assert sum(verdict == "truechimer" for verdict in elected.verdicts.values()) >= 3
    assert abs(elected.offset_ns) < 20_000


def test_the_last_server_of_four_cannot_move_the_clock_by_a_lie() -> None:
    world = World(random.Random(3))
    ntp = Ntp([Association(name, 64.0) for name in "abcd"])
    all_honest = [(SimulatedServer(stated_ns=1000), NEAR)] * 4
    for _ in range(8):
        world.poll(ntp, all_honest)
        world.run(2.0)
    for _ in range(12):
        world.poll(ntp, [(None, NEAR)] * 3 + [(SimulatedServer(400 * MS, stated_ns=1000), NEAR)])
        world.run(64.0)
    assert ntp.verdicts == {"d": "undecided"}
    assert world.steps == 0


# --- discipline -----------------------------------------------------------------------------------


def test_a_clock_that_is_ahead_runs_slower_by_a_twelfth_at_most_until_it_is_right() -> None:
    shown_ns = 10 * SECOND + 6 * SECOND
    words = steer(shown_ns, estimate(0), NTP, shown_ns).words
    assert words.utc_ns == shown_ns
    assert words.rate_ppb == -SECOND // 12 or words.rate_ppb == -(SECOND // 12)
    end_ns = 10 * SECOND + 72 * SECOND
    assert abs(words.at(end_ns) - end_ns) < 1000
    assert words.bound_at(10 * SECOND) >= 6 * SECOND + MS
    assert abs(words.at(end_ns + 100 * SECOND) - (end_ns + 100 * SECOND)) < 1000  # the correction has ended


def test_a_clock_that_is_behind_runs_faster_or_jumps_beyond_the_threshold() -> None:
    little = steer(10 * SECOND, estimate(STEP_NS), NTP, 0)
    assert (little.stepped_ns, little.words.utc_ns) == (0, 10 * SECOND)
    assert little.words.rate_ppb > 0
    much = steer(10 * SECOND, estimate(STEP_NS + 1), NTP, 0)
    assert much.stepped_ns == STEP_NS + 1
    assert much.words.utc_ns == 10 * SECOND + STEP_NS + 1
    assert much.words.bound_ns < MS + 2000


def test_small_corrections_keep_the_spacing_of_time_stamps() -> None:
    assert steer(10 * SECOND, estimate(-MS), NTP, 0).words.rate_ppb == -125_000


# --- frequency ------------------------------------------------------------------------------------


def test_the_frequency_is_learned_and_what_is_unknown_about_it_is_stated() -> None:
    frequency = Frequency()
    assert frequency.rate == Rate(0, 500_000)
    for second in range(0, 64, 8):
        offset_ns = second * 40_000
        frequency.add(Point(second * SECOND + 1, offset_ns, offset_ns - 50_000, offset_ns + 50_000))
    assert abs(frequency.rate.ppb - 40_000) < 2_000
    assert frequency.rate.drift_ppb <= 15_000


def test_noise_is_not_taken_for_a_frequency() -> None:
    chance, frequency = random.Random(5), Frequency()
    for second in range(0, 16, 2):
        offset_ns = chance.randint(-5 * MS, 5 * MS)
        frequency.add(Point(second * SECOND + 1, offset_ns, offset_ns - 20 * MS, offset_ns + 20 * MS))
    assert abs(frequency.rate.ppb) < 60_000


def test_a_frequency_that_changed_is_learned_anew() -> None:
    frequency = Frequency()
    for second in range(0, 64, 8):
        frequency.add(Point(second * SECOND + 1, 0, -50_000, 50_000))
    frequency.add(Point(128 * SECOND, 30 * MS, 30 * MS - 50_000, 30 * MS + 50_000))
    assert frequency.rate == Rate(0, 500_000)
