"""Batches for tests of the release buffer and the pacer, without waiting for anything."""

from collections.abc import Callable

import pytest
from sampling import Sample, make_sample

from headrace import Queue


@pytest.fixture
def sample(make_quick: Callable[..., Queue]) -> Sample:
    """Products of three origins in one queue, and in a queue for each origin."""
    return make_sample(make_quick)
