"""The options of a ProcessingNode, checked before anything is opened or created."""

import os
import pickle
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from headrace.errors import OptionError
from headrace.queue.interface import AnyQueue
from headrace.selection import Selection
from headrace.share.interface import ShareOptions
from headrace.share.share import check_node
from headrace.slices.crew import Labour
from headrace.slices.sinks.queue import QueueSink
from headrace.slices.workers import is_async
from headrace.units import parse_age


def check_labour(
    work: Any, workers: Any, batches: Any, use: Any, retry: float | str | timedelta, hung_after: float | str | timedelta
) -> Labour:
    """The options about workers."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= 1024:
        raise OptionError(f"workers {workers!r} is out of range", "use 1 to 1024")
    if use not in ("threads", "processes"):
        raise OptionError(f"use {use!r} is unknown", "choose threads or processes")
    if not callable(work):
        raise OptionError("work is not a function", "give a function of a product, or of a batch with batches=True")
    check_flag("batches", batches)
    if use == "processes":
        _check_importable(work)
    retry_s, hung_after_s = parse_age(retry, "retry"), parse_age(hung_after, "hung_after")
    for what, seconds in (("retry", retry_s), ("hung_after", hung_after_s)):
        if seconds <= 0:
            raise OptionError(f"{what} must be longer than 0 s", 'write a number and a unit, such as "1s"')
    return Labour(work, workers, batches, use, retry_s, hung_after_s)


def _check_importable(work: Any) -> None:
    if is_async(work):
        raise OptionError("a coroutine function runs in the event loop of the node", "leave `use` out")
    try:
        pickle.dumps(work)
    except Exception as error:
        raise OptionError(
            f"work cannot be sent to a worker process: {error}",
            "give a function at the top level of a module, or use threads",
        ) from error


def check_place(queue: Any, stream: Any, name: Any, terms: Mapping[str, Any]) -> None:
    """Where the node works, and as whom."""
    if not isinstance(queue, str | os.PathLike) and not callable(getattr(queue, "share", None)):
        raise OptionError(f"queue {queue!r} is not a queue", "give a queue, its directory, or an endpoint of a site")
    if not isinstance(stream, str) or not stream:
        raise OptionError(f"stream {stream!r} is not a name", "give the name of a channel with slices")
    if not isinstance(name, str):
        raise OptionError(f"name {name!r} is not text", "give a name, or leave it out")
    if name:
        check_node(name)
    unknown = sorted(set(terms) - set(ShareOptions.__annotations__))
    if unknown:
        known = ", ".join(ShareOptions.__annotations__)
        raise OptionError(f"option {unknown[0]!r} is unknown", f"the terms of a group are {known}")


def check_results(sink: Any, publish: Any, metrics: Any) -> None:
    """Where results and numbers go."""
    if sink is not None and publish is not None:
        raise OptionError("sink and publish exclude each other", "give one of them")
    if sink is not None and not all(callable(getattr(sink, each, None)) for each in ("claim", "store")):
        raise OptionError(f"sink {sink!r} has no claim and store", "give an object such as SqliteSink")
    if publish is not None and not isinstance(publish, str):
        raise OptionError(f"publish {publish!r} is not a feed", 'write a feed, such as "wx/derived"')
    if metrics is not None and not callable(metrics):
        raise OptionError("metrics is not a function", "give a function without arguments that returns numbers by name")


def check_flag(what: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise OptionError(f"{what} {value!r} is neither True nor False", "give one of them")


def publishing(queue: AnyQueue, stream: str, feed: str) -> QueueSink:
    """A sink for results on a feed of the queue itself, which must be outside of the stream."""
    if Selection(stream).wants_feed(feed):
        raise OptionError(
            f"publish: feed {feed!r} is part of the stream {stream!r}; results would be worked on again, without end",
            "publish on a feed outside of the stream",
        )
    return QueueSink(queue, feed)
