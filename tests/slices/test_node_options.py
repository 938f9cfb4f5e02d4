"""Options that a node refuses, before it has opened or created anything; and calls in the wrong order."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Queue
from headrace.errors import OptionError, ShareError
from headrace.slices import ProcessingNode


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    made = make_quick()
    made.channel("radar", "wx/**", slices=2)
    return made


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"queue": 7}, "queue 7 is not a queue"),
        ({"stream": None}, "stream None is not a name"),
        ({"stream": ""}, "stream '' is not a name"),
        ({"name": "a/b"}, "a/b"),
        ({"name": 7}, "name 7 is not text"),
        ({"sink": print}, "has no claim and store"),
        ({"publish": 7}, "publish 7 is not a feed"),
        ({"metrics": {"load": 1.0}}, "metrics is not a function"),
        ({"batches": "no"}, "batches 'no' is neither True nor False"),
        ({"balance": 1}, "balance 1 is neither True nor False"),
        ({"retry": 0}, "retry must be longer than 0 s"),
        ({"hung_after": "0s"}, "hung_after must be longer than 0 s"),
        ({"worker": 2}, "option 'worker' is unknown"),
        ({"use": "processes", "work": lambda _: None}, "work cannot be sent to a worker process"),
    ],
)
def test_an_option_that_is_invalid_is_named_and_no_group_is_created(
    queue: Queue, options: dict[str, Any], problem: str
) -> None:
    given: dict[str, Any] = {"queue": queue, "stream": "radar", "work": print, **options}
    with pytest.raises(OptionError, match=problem) as caught:
        ProcessingNode(**given)
    assert caught.value.hint
    assert queue.shares() == []


def test_a_node_is_waited_for_after_its_start_and_started_before_its_stop(queue: Queue) -> None:
    node = ProcessingNode(queue, "radar", print)
    with pytest.raises(ShareError, match="has not been started"):
        node.wait()
    node.stop()
    with pytest.raises(ShareError, match="was stopped"):
        node.start()
