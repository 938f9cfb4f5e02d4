"""What the words of `headrace slices` name: functions, algorithms and sinks of the user's modules."""

import os
import sys
from typing import Any

from headrace.errors import OptionError
from headrace.user_objects import load_object

_SINK_KINDS = "a sink is sqlite:FILE:TABLE, or MODULE:NAME of a sink of yours"
_SINK_HINTS = {
    "parquet": "a ParquetSink needs a schema: make it in a module of yours, and write MODULE:NAME; see docs/sinks.md",
    "queue": "put results into a feed of the queue with --publish FEED; for another queue, make a QueueSink in a "
    "module of yours, and write MODULE:NAME",
}


def load_here(name: str, what: str) -> Any:
    """The object `module:name`, also of a module in this directory; OptionError says what is missing."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return load_object(name, what, "PYTHONPATH; this directory is searched, too")


def load_sink(name: str) -> Any:
    """`sqlite:FILE:TABLE`, or an object or function `module:name` that is or returns a sink."""
    if name.startswith("sqlite:"):
        file, colon, table = name.removeprefix("sqlite:").rpartition(":")
        if not colon or not file or not table:
            raise OptionError(f"sink {name!r} is invalid", "write sqlite:FILE:TABLE, such as sqlite:out.db:readings")
        from headrace.slices import SqliteSink

        return SqliteSink(file, table)
    try:
        found = load_here(name, "sink")
    except OptionError as error:
        kind = name.partition(":")[0].lower()
        raise OptionError(error.problem, _SINK_HINTS.get(kind, f"{error.hint}; {_SINK_KINDS}")) from error
    if not hasattr(found, "store") or isinstance(found, type):
        found = found() if callable(found) else found
    if not hasattr(found, "store") or not hasattr(found, "claim"):
        raise OptionError(f"{name!r} is no sink", "name an object with claim and store, or a function that returns one")
    return found
