"""Thresholds, the classification of the thesis, and algorithms by name."""

import sys
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import OptionError
from headrace.share.interface import NOBODY, Load
from headrace.slices.algorithms import Thresholds, load_algorithm
from headrace.slices.fewest_moves import FewestMoves
from headrace.slices.snapshot import Node, Snapshot


def snapshot(owners: list[int], costs: list[float], draining: tuple[int, ...] = (), nodes: int = 3) -> Snapshot:
    members = [Node(each, f"node-{each}", Load(), each in draining) for each in range(nodes)]
    return Snapshot(members, np.array(owners), np.array(costs), np.zeros(len(owners), bool))


def test_overloaded_nodes_give_to_underloaded_ones_and_normal_ones_do_neither() -> None:
    owners = [0] * 12 + [1] * 6 + [2] * 2
    moves = Thresholds().decide(snapshot(owners, [0.1] * 20))
    assert [(move.giver, move.taker, len(move.slices)) for move in moves] == [(0, 2, 4)]


def test_nodes_within_the_thresholds_move_nothing() -> None:
    assert Thresholds().decide(snapshot([0] * 6 + [1] * 5 + [2] * 5, [0.1] * 16)) == []


def test_thresholds_spread_slices_of_nobody_and_empty_draining_nodes() -> None:
    moves = Thresholds().decide(snapshot([NOBODY] * 6 + [2] * 4, [0.1] * 10, draining=(2,)))
    assert {(move.giver, move.taker) for move in moves} == {(NOBODY, 0), (NOBODY, 1), (2, 0), (2, 1)}
    assert sum(len(move.slices) for move in moves) == 10
    assert {move.reason for move in moves if move.giver == 2} == {"drain"}


def test_thresholds_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="out of range"):
        Thresholds(above=0)


def test_an_algorithm_is_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_algorithms.py").write_text(
        "class Nothing:\n    def decide(self, snapshot):\n        return []\nready = Nothing()\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(load_algorithm("fewest-moves"), FewestMoves)
    assert isinstance(load_algorithm("thresholds"), Thresholds)
    assert load_algorithm("my_algorithms:Nothing").decide(snapshot([0], [0.1])) == []
    assert load_algorithm("my_algorithms:ready") is sys.modules["my_algorithms"].ready
    for wrong in ("nothing", "my_algorithms:nowhere", "no_such_module:x", ":x", "my_algorithms:number"):
        with pytest.raises(OptionError, match="algorithm"):
            load_algorithm(wrong)
