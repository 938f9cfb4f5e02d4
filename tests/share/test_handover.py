"""Every order of messages, deaths and moves, explored without an exception."""

from collections import deque

import pytest
from handover import Handover, World


def explore(model: Handover) -> tuple[dict[World, list[World]], list[str]]:
    """All states that can be reached, with their successors; and every fault, with the way to it."""
    came: dict[World, tuple[World, str] | None] = {model.start: None}
    after: dict[World, list[World]] = {}
    waiting = deque([model.start])
    faults: list[str] = []
    while waiting:
        world = waiting.popleft()
        if world.faults:
            faults.append(f"{world.faults}: {' > '.join(way_to(world, came))}")
            after[world] = []
            continue
        steps = list(model.steps(world))
        after[world] = [new for _, new in steps]
        for name, new in steps:
            if new not in came:
                came[new] = (world, name)
                waiting.append(new)
    return after, faults


def way_to(world: World, came: dict[World, tuple[World, str] | None]) -> list[str]:
    names = []
    while (step := came[world]) is not None:
        world, name = step
        names.append(name)
    return names[::-1]


def dead_ends(model: Handover, after: dict[World, list[World]]) -> list[World]:
    """States from which there is no way to the end."""
    before: dict[World, list[World]] = {world: [] for world in after}
    for world, steps in after.items():
        for new in steps:
            before[new].append(world)
    good = {world for world in after if model.is_complete(world)}
    waiting = deque(good)
    while waiting:
        for earlier in before[waiting.popleft()]:
            if earlier not in good:
                good.add(earlier)
                waiting.append(earlier)
    return [world for world in after if world not in good]


@pytest.mark.parametrize(
    ("nodes", "slices", "products", "deaths", "moves", "losses"),
    [
        (2, 1, 1, 1, 1, 1),
        (2, 1, 2, 1, 1, 0),
        (2, 2, 1, 0, 2, 0),
        (2, 2, 1, 1, 1, 0),
        (3, 1, 1, 1, 1, 0),
        pytest.param(2, 1, 1, 1, 2, 1, marks=pytest.mark.soak),
        pytest.param(3, 2, 1, 1, 1, 0, marks=pytest.mark.soak),
    ],
)
def test_in_every_order_of_events_no_product_is_skipped_and_every_state_can_finish(
    nodes: int, slices: int, products: int, deaths: int, moves: int, losses: int
) -> None:
    model = Handover(nodes, slices, products, deaths=deaths, moves=moves, losses=losses)
    after, faults = explore(model)
    print(f"{len(after)} states, {sum(map(len, after.values()))} steps")
    assert not faults, faults[0]
    assert any(model.is_complete(world) for world in after)
    assert not dead_ends(model, after)


def test_without_a_death_no_product_is_worked_on_twice() -> None:
    model = Handover(2, 1, 2, deaths=0, moves=2, losses=0)
    after, faults = explore(model)
    assert not faults
    assert all(epochs.bit_count() <= 1 for world in after for each in world.worked for epochs in each)
