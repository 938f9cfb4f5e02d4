"""Window: what part of a queue to replay, and the replay of it. Used by queues, local and remote."""

from collections.abc import Callable
from typing import Any

from headrace.errors import OptionError, StartAheadError
from headrace.log.read import Start
from headrace.selection import Selection
from headrace.timing.replay.replay import Elapsed, Replay
from headrace.timing.replay.source import By, QueueSource, Reads, check_by
from headrace.timing.replay.spacing import parse_speed

Resolve = Callable[[Start], int]


def originals(selection: Selection) -> Selection:
    """The same selection, without products of replays unless it says more about them: no replay feeds itself."""
    return selection.replace(replay=False) if selection.replay is None else selection


def _end(resolve: Resolve, stop: Start) -> int:
    try:
        return resolve(stop)
    except StartAheadError:
        raise OptionError(
            f"the window ends at {stop!r}, in the future", "leave it out, or let live products follow"
        ) from None


def replay_queue(
    resolve: Resolve, follow: Callable[[int, Selection], Reads], start: Start, stop: Start | None, selection: Selection,
    *, speed: Any, by: By, holds_memory: bool, elapsed: Elapsed | None = None,
) -> Replay:  # fmt: skip
    """A replay of the products between two places of a queue; without a `stop`, live products follow.

    `follow` makes a follower that waits for nothing. OptionError: the window ends before it begins.
    """
    factor, checked, selection = parse_speed(speed), check_by(by), originals(selection)
    first = resolve(start)
    end = None if stop is None else _end(resolve, stop)
    if end is not None and end < first:
        raise OptionError(f"the window ends at {stop!r}, before it begins at {start!r}", "swap the two")
    source = QueueSource(follow(first, selection), resolve, end, checked, holds_memory=holds_memory)
    return Replay(source, factor, elapsed)
