"""SiteClock: the time at the site, from replies that take long or short."""

import random

from headrace.remote.client.site_clock import SiteClock

S = 10**9


class Clocks:
    """A monotonic clock here, and the clock of a site."""

    def __init__(self) -> None:
        self.here_ns, self.ahead_ns = 0, 1_000_000 * S

    @property
    def there_ns(self) -> int:
        return self.here_ns + self.ahead_ns

    def call(self, clock: SiteClock, there_s: float, back_s: float, waited_s: float = 0) -> None:
        sent_ns = self.here_ns
        self.here_ns += int(there_s * S) + int(waited_s * S)
        told_ns = self.there_ns
        self.here_ns += int(back_s * S)
        clock.note(sent_ns, told_ns, int(waited_s * S))


def test_nothing_is_known_before_the_first_reply() -> None:
    assert SiteClock().now_ns() is None


def test_a_quick_reply_bounds_slow_ones() -> None:
    clocks = Clocks()
    clock = SiteClock(lambda: clocks.here_ns)
    clocks.call(clock, 0.001, 0.001)
    clocks.call(clock, 5, 7)
    now_ns = clock.now_ns()
    assert now_ns is not None
    assert clocks.there_ns <= now_ns < clocks.there_ns + S // 100


def test_large_replies_and_calls_that_wait_at_the_site_blur_nothing() -> None:
    clocks = Clocks()
    clock = SiteClock(lambda: clocks.here_ns)
    clocks.call(clock, 0.001, 7, waited_s=5)
    now_ns = clock.now_ns()
    assert now_ns is not None
    assert clocks.there_ns <= now_ns < clocks.there_ns + S // 100


def test_it_is_never_earlier_than_at_the_site_whatever_the_link_does() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng, clocks = random.Random(seed), Clocks()
    clock = SiteClock(lambda: clocks.here_ns)
    for _ in range(500):
        clocks.call(clock, rng.expovariate(2), rng.expovariate(2), rng.expovariate(2))
        clocks.here_ns += int(rng.expovariate(0.1) * S)
        clocks.ahead_ns += int(rng.uniform(-1e-4, 1e-4) * S)  # it drifts
        now_ns = clock.now_ns()
        assert now_ns is not None
        assert now_ns >= clocks.there_ns - S // 1000


def test_a_clock_that_is_set_back_is_believed() -> None:
    clocks = Clocks()
    clock = SiteClock(lambda: clocks.here_ns)
    clocks.call(clock, 0.001, 0.001)
    clocks.ahead_ns -= 3600 * S
    clocks.call(clock, 0.001, 0.002)
    now_ns = clock.now_ns()
    assert now_ns is not None
    assert clocks.there_ns <= now_ns < clocks.there_ns + S // 100
