"""A function that opens sessions, which are closed after the test."""

from collections.abc import Iterator

import pytest

from support.links import Open, sessions


@pytest.fixture
def opened() -> Iterator[Open]:
    with sessions() as opened:
        yield opened
