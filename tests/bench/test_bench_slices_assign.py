"""The benchmark of slices at the put, small."""

from pathlib import Path

from headrace.bench import slices_assign


def test_every_function_and_every_way_to_give_a_slice_has_its_figure(shared_memory: Path) -> None:
    steps: list[str] = []
    figures = {each.name: each for each in slices_assign.run(shared_memory, 0.1, steps.append)}
    functions = ("ident", "property", "modulo", "grid", "round_robin", "random", "function")
    assert [name for name in figures if name.startswith("assign-")] == [f"assign-{each}" for each in functions]
    assert {name for name in figures if not name.startswith("assign-")} == {
        "given-many-array", "given-many-list", "given-put", "plain-many", "plain-put", "plain-put-ns",
    }  # fmt: skip
    assert all(figures[name].value > 0 for name in figures if not name.startswith("assign-"))
    assert len(steps) == len(functions) + 2
    assert not list(shared_memory.iterdir())
