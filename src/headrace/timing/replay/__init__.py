"""Replay: a window of a queue or an archive again, in its original spacing, faster, or as fast as possible.

    spacing.py   when a product is due: stream time against elapsed time, speed, pause
    source.py    where the products come from: a window of a queue, local or remote
    window.py    what part of a queue
    replay.py    Replay: batches when they are due; pause, resume, seek, speed, progress
    marks.py     products of a replay put into a queue, recognisable as what they are
    run.py       what a run needs to continue after a crash

`Queue.replay` and `Archive.replay` make one.
"""

from headrace.timing.replay.marks import Stored
from headrace.timing.replay.replay import Progress, Replay
from headrace.timing.replay.spacing import AS_FAST_AS_POSSIBLE, parse_speed

__all__ = ["AS_FAST_AS_POSSIBLE", "Progress", "Replay", "Stored", "parse_speed"]
