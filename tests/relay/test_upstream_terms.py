"""What a site tells about itself, and what an upstream makes of it: how often it beats, and what we may receive.

In a simulated world: seconds pass at once, and nothing is judged by a real clock.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_driver import Driver
from simulation import ORIGIN, Corpus, Network, Origin, World

from headrace import Selection
from headrace.errors import FabricMessageError
from headrace.relay.messages.beat import Beat, decode_beat, encode_beat, silence_s
from headrace.relay.receive.track import Known
from headrace.relay.receive.upstream import Upstream

FEEDS = ("wx/a", "wx/b", "tel/c")
PRODUCTS = 60


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpora"), 1, PRODUCTS, FEEDS)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("headrace.fabric")
    logger.disabled = True
    yield
    logger.disabled = False


class Scene:
    """An origin and its receiver, in a calm network."""

    def __init__(self, corpus: Corpus, begin_at: str = "oldest", **origin: object) -> None:
        self.world, self._begin_at = World(1), begin_at
        network = Network(self.world, is_rough=False)
        self.origin = Origin(self.world, network, ORIGIN, corpus, **origin)  # type: ignore[arg-type]
        self.driver = Driver(self.world, network, {ORIGIN: self.origin}, self.make(None))
        self.origin.subscribers.append(self.driver)

    def make(self, known: Known | None) -> Upstream:
        return Upstream(ORIGIN, Selection("**"), self._begin_at, lambda: self.world.now, known=known)

    def stored(self) -> list[int]:
        counts = self.driver.stored.get(self.origin.corpus.name, {})
        assert set(counts.values()) <= {1}, "stored twice"
        return sorted(counts)

    def permit(self, *feeds: str) -> None:
        """As a reload does it: the site begins again, with other rules."""
        self.origin.receivable = feeds
        self.origin.restart()

    def of(self, *feeds: str, upto: int | None = None) -> list[int]:
        return [number for number in range(1, upto or self.origin.next) if self.origin.corpus.feeds[number] in feeds]


# --- beats ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("beat_s", [0.1, 0.5, 4.0, 60.0])
def test_a_site_is_silent_by_its_own_interval(corpus: Corpus, beat_s: float) -> None:
    scene = Scene(corpus, beat_s=beat_s)
    scene.origin.put(10)
    scene.world.run(20 * beat_s + 20)
    assert scene.driver.upstream.statistics.problem == "", "it was never taken for unreachable"
    assert scene.stored() == list(range(1, 11))
    scene.origin.leave()
    scene.world.run(scene.world.now + silence_s(int(1000 * beat_s)) + 2)
    assert scene.driver.upstream.statistics.state == "unreachable"


def test_a_tail_that_was_lost_is_found_by_a_slow_beat(corpus: Corpus) -> None:
    scene = Scene(corpus, beat_s=10.0)
    scene.world.run(5)
    scene.driver._buffer.shut()
    scene.origin.put(3)
    scene.world.run(6)
    scene.driver._buffer.open()
    assert scene.stored() == []
    scene.world.run(25)
    assert scene.stored() == [1, 2, 3]


@pytest.mark.parametrize("interval_ms", [0, 9, 60_001, -500])
def test_an_interval_that_is_out_of_bounds_is_refused(interval_ms: int) -> None:
    beat = Beat(2, "a", b"q" * 16, "own", 0, 0, {}, 0, 0, interval_ms)
    with pytest.raises(FabricMessageError, match="invalid beat"):
        decode_beat(encode_beat(beat))


# --- rights ---------------------------------------------------------------------------------------


def test_feeds_that_are_permitted_later_come_from_where_the_request_began(corpus: Corpus) -> None:
    scene = Scene(corpus, receivable=("wx/a",))
    scene.origin.put(30)
    scene.world.run(10)
    assert scene.stored() == scene.of("wx/a")
    scene.permit("wx/a", "wx/b")
    scene.world.run(20)
    assert scene.stored() == scene.of("wx/a", "wx/b")
    scene.permit("**")
    scene.origin.put(10)
    scene.world.run(30)
    assert scene.stored() == list(range(1, 41))


def test_nothing_from_before_the_beginning_comes(corpus: Corpus) -> None:
    scene = Scene(corpus, "next", receivable=("wx/a",))
    scene.world.run(0)
    scene.driver.restart(scene.make(None))
    scene.origin.put(20)
    scene.world.run(10)
    scene.origin.put(20)
    scene.world.run(20)
    began = scene.driver.upstream.known.began
    assert began > 1
    scene.permit("**")
    scene.world.run(30)
    assert scene.stored() == list(range(began, 41))


def test_rights_that_were_widened_while_the_receiver_was_down_are_noticed(corpus: Corpus) -> None:
    scene = Scene(corpus, receivable=("wx/a",))
    scene.origin.put(30)
    scene.world.run(10)
    scene.driver.save()
    scene.permit("wx/*")
    scene.driver.restart(scene.make(scene.driver.saved))
    scene.world.run(20)
    assert scene.stored() == scene.of("wx/a", "wx/b")


def test_a_receiver_that_dies_while_it_reads_what_is_new_reads_it_again(corpus: Corpus) -> None:
    scene = Scene(corpus, receivable=("wx/a",), page_products_max=2, pages_max=1)
    scene.origin.put(50)
    scene.world.run(20)
    scene.permit("**")
    scene.world.run(scene.world.now + 60, lambda: len(scene.driver.stored["1"]) > len(scene.of("wx/a")) + 2)
    assert len(scene.driver.stored["1"]) < 50, "it is in the middle"
    scene.driver.save()
    scene.driver.restart(scene.make(scene.driver.saved))
    scene.world.run(scene.world.now + 60)
    assert sorted(scene.driver.stored["1"]) == list(range(1, 51))


def test_feeds_that_are_denied_end_at_once_and_come_back_whole(corpus: Corpus) -> None:
    scene = Scene(corpus)
    scene.origin.put(20)
    scene.world.run(10)
    scene.permit("wx/a")
    scene.origin.put(20)
    scene.world.run(20)
    assert scene.stored() == sorted([*range(1, 21), *(n for n in scene.of("wx/a") if n > 20)])
    scene.permit("**")
    scene.world.run(30)
    assert sorted(scene.driver.stored["1"]) == list(range(1, 41))


def test_a_beat_that_invents_a_new_run_of_the_site_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    scene = Scene(corpus)
    scene.origin.put(5)
    scene.world.run(5)
    beat = Beat(2, ORIGIN, scene.origin.queue, "own", 0, 5, {}, 0, 999, 500)
    scene.driver.hear(None, b"", encode_beat(beat), False)
    scene.world.run(8)
    assert scene.driver.upstream.statistics.refused == 1
    assert scene.driver.upstream.statistics.state == "live"


# --- a position behind the end of the log -----------------------------------------------------------------


@pytest.mark.parametrize("feeds", [("**",), ("wx/a",)])
def test_a_position_behind_the_end_of_the_log_is_given_up(corpus: Corpus, feeds: tuple[str, ...]) -> None:
    """However it came to be; also if the site permits more feeds than it did when the position was saved."""
    scene = Scene(corpus)
    scene.origin.put(20)
    far = Known(scene.origin.queue, 10**6, 10**6, feeds, whole=10**6)
    scene.driver.restart(scene.make(far))
    scene.world.run(10)
    assert scene.stored() == list(range(1, 21))
    scene.origin.put(10)
    scene.world.run(20)
    assert scene.stored() == list(range(1, 31))
    assert scene.driver.upstream.known.base == 30
    assert scene.driver.upstream.statistics.begun_again == 1
