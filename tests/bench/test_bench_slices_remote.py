"""The benchmark of processing nodes at a site runs, small, so that it does not rot. Nothing is timed here."""

from pathlib import Path

import pytest

from headrace.bench import slices_remote


@pytest.mark.processes
def test_the_benchmark_of_remote_nodes_takes_all_its_figures(
    shared_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices_remote, "MOVES", 3)
    steps: list[str] = []
    figures = {each.name: each for each in slices_remote.run(shared_memory, 6, 0.4, steps.append)}
    assert list(figures) == ["exchange-site", "exchange", "told", "nodes-site", "nodes-each", "nodes-threads"]
    assert all(figure.value > 0 for figure in figures.values())
    assert len(steps) == 2
