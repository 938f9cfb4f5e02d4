"""Places: queues that this process has open for Spark's tasks.

Spark keeps its Python workers from task to task; so does this module with queues. A worker on the machine of the queue
maps its folder. One on another machine, where there is no such folder, uses the site.
"""

import os
from pathlib import Path

from headrace.errors import OptionError
from headrace.pipeline.source.options import Place
from headrace.queue import Queue
from headrace.remote import connect

_open: dict[tuple[int, Place], Queue] = {}  # by process: a fork must not use its parent's


def open_place(place: Place) -> Queue:
    """The queue there; it stays open as long as this process lives."""
    key = (os.getpid(), place)
    if key not in _open:
        _open[key] = _opened(place)
    return _open[key]


def _opened(place: Place) -> Queue:
    if place.queue is not None and (place.site is None or Path(place.queue).is_dir()):
        return Queue.open(place.queue)
    if place.site is None:
        raise OptionError("neither queue nor site is given", "give one of them")
    return connect(place.site)
