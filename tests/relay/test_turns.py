"""Turns: no principal delays the streams of the others, however many it has and whatever they cost."""

from headrace.relay.turns import PRODUCTS_MAX, PRODUCTS_MIN, TURN_S, Step, play_round


class World:
    """A mock clock, and a queue that ends at `end`."""

    def __init__(self) -> None:
        self.now, self.end = 0.0, 0


class Costly:
    """A stream whose steps cost time."""

    def __init__(self, world: World, cost_s: float, products: int = 10) -> None:
        self._world, self._cost_s, self._products = world, cost_s, products
        self.position = 0
        self.reached: dict[int, float] = {}  # when it had come to a position

    @property
    def is_behind(self) -> bool:
        return self.position < self._world.end

    def step(self) -> None:
        self._world.now += self._cost_s
        self.position = min(self._world.end, self.position + self._products)
        self.reached[self.position] = self._world.now


def test_a_stream_waits_for_one_turn_of_each_other_principal() -> None:
    world = World()
    own, honest = Costly(world, 0.0001, 1000), Costly(world, 0.0001, 1000)
    hostile = [Costly(world, TURN_S / 2) for _ in range(32)]
    for begun in range(20):
        world.end += 1000
        before = world.now
        assert play_round([[own], hostile, [honest]], Costly.step, lambda: world.now)
        assert (own.position, honest.position) == (world.end, world.end)
        assert honest.reached[world.end] - before <= 2 * TURN_S, begun
    assert sum(each.position for each in hostile) > 0


def test_streams_of_one_principal_come_forward_together() -> None:
    world = World()
    world.end = 100
    streams = [Costly(world, 2 * TURN_S) for _ in range(4)]
    while play_round([streams], Costly.step, lambda: world.now):
        positions = [each.position for each in streams]
        assert max(positions) - min(positions) <= 10
    assert [each.position for each in streams] == [100] * 4


def test_a_step_becomes_shorter_while_products_take_long() -> None:
    step = Step()
    for _ in range(40):
        step.took(TURN_S * 2)
    assert step.products == PRODUCTS_MIN
    for _ in range(40):
        step.took(TURN_S / 100)
    assert step.products == PRODUCTS_MAX
    step.took(TURN_S / 2)
    assert step.products == PRODUCTS_MAX
