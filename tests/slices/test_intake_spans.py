"""A node that owns thousands of scattered slices asks for them in a selection that any site accepts."""

import random

import numpy as np
import pytest

from headrace import Selection
from headrace.selection.parsing import TEXT_MAX
from headrace.slices.intake import SPANS_MAX, in_spans
from support.seeds import random_seed


def spans(flags: np.ndarray) -> int:  # type: ignore[type-arg]
    return int(np.count_nonzero(np.diff(np.concatenate([[0], flags.astype(int)])) == 1))


def test_few_spans_are_asked_for_as_they_are() -> None:
    flags = np.zeros(100, np.bool_)
    flags[[1, 2, 3, 50, 99]] = True
    assert in_spans(flags) is flags
    assert in_spans(flags, 3) is flags
    assert np.flatnonzero(in_spans(flags, 2)).tolist() == [*range(1, 51), 99]


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.9])
def test_scattered_slices_are_covered_by_spans_that_fit_into_a_call(share: float) -> None:
    chance = random.Random(random_seed())
    flags = np.array([chance.random() < share for _ in range(65_535)])
    flags[[0, 65_534]] = True
    wider = in_spans(flags)
    assert (wider | flags == wider).all()
    assert spans(wider) <= SPANS_MAX
    text = str(Selection(feed="wx/" + "x" * 250, slices=np.flatnonzero(wider).tolist()))
    assert len(text) <= TEXT_MAX
    assert Selection.parse(text).slices == tuple(np.flatnonzero(wider).tolist())
    assert wider[0]
    assert wider[-1]
