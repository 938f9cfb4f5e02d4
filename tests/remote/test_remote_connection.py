"""A connection tells for how long a site has been silent."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import SiteUnreachableError
from headrace.remote.client.connection import PendingReply
from support.serving import Served


@pytest.fixture
def served(shared_memory: Path) -> Iterator[Served]:
    made = Served(shared_memory)
    yield made
    made.close()


def test_silence_counts_from_the_beginning_of_the_call(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = served.connect(patience=0.3)
    with monkeypatch.context() as patch:
        patch.setattr(PendingReply, "take", lambda asked: time.sleep(0.4))
        with pytest.raises(SiteUnreachableError) as caught:
            remote.put(b"x", feed="a")
    told = re.search(r"has not replied for ([\d.]+) s", caught.value.problem)
    assert told is not None
    assert float(told[1]) >= 0.4
