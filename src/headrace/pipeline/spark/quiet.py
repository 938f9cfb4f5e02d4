"""Quiet: what Spark and py4j print, where it is not for a person who must act.

    remedy_first       an exception begins with the message of our error, before Spark's words and tracebacks
    forget_interrupts  Ctrl-C while Java works, or a signal that ends Java: the exception, without py4j's traceback in
                       the log
    forget_queries     a query is invalid: the exception, without Spark's log entry of several kB that repeats it
    forget_batches     a pipeline is stopped during a batch, which is repeated at the next start
    forget_java        Java has ended before this process: no traceback of PySpark's server for accumulators
    end_silently       a Python process of Spark's whose connection was closed ends: a query with a `limit` needs no
                       more rows, and at the end of a session every connection is closed

Each changes a function of PySpark or py4j in this process, because neither has a setting for it. If a later version has
other names, nothing is changed.
"""

import logging
import sys
import traceback
from socketserver import BaseServer
from types import ModuleType, SimpleNamespace
from typing import Any

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import accumulators
from pyspark.errors.exceptions import captured
from pyspark.logger import PySparkLogger

from headrace.pipeline.spark.failures import own_message

CLOSED = (BrokenPipeError, ConnectionResetError)
_INTERRUPTED = "KeyboardInterrupt while sending command."
_SENDING = "Exception while sending command."
_SHUTTING_DOWN = "Exception occurred while shutting down connection"
_IN_CALLBACK = "There was an exception while executing the Python Proxy"
_CALLBACKS = "py4j.clientserver"
_QUERIES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_DAEMON = "pyspark.daemon"
_MARK = "_headrace"


def remedy_first() -> None:
    """Exceptions from Java that contain an error of ours begin with its message. Once for each process."""
    convert: Any = getattr(captured, "convert_exception", None)
    if convert is None or hasattr(convert, _MARK):
        return

    def with_remedy(error: Any) -> Any:
        converted = convert(error)
        message = own_message(str(getattr(converted, "_desc", "")))
        if message and not converted._desc.startswith(message):
            converted._desc = f"{message}\n\n{converted._desc}"
        return converted

    setattr(with_remedy, _MARK, True)
    vars(captured)["convert_exception"] = with_remedy


def forget_interrupts() -> None:
    """Leave out py4j's log entries for an interrupt and the end of Java, which it raises as well. Once per process."""
    for name in ("", _CALLBACKS):  # py4j uses the root logger, too
        logger = logging.getLogger(name)
        if not any(isinstance(each, _NoInterrupts) for each in logger.filters):
            logger.addFilter(_NoInterrupts())


class _NoInterrupts(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == _SHUTTING_DOWN and record.exc_info:  # it was shut already
            return not isinstance(record.exc_info[1], CLOSED)
        if record.msg == _SENDING and record.exc_info:
            return not isinstance(record.exc_info[1], Py4JNetworkError)
        return record.msg != _INTERRUPTED and not _is_reentrant(record.exc_info)


def _is_reentrant(raised: Any) -> bool:
    """Spark's handler of Ctrl-C calls Java while this thread is waiting for Java."""
    return bool(raised) and "reentrant call" in str(getattr(raised[1], "__context__", ""))


def forget_queries() -> None:
    """Leave out Spark's log entries for invalid queries: each is an exception, too, which says the same."""
    for name in _QUERIES:
        PySparkLogger.getLogger(name).disabled = True


def forget_batches() -> None:
    """Leave out py4j's log entry for a batch that is abandoned because its query is stopped. From now on."""
    logger = logging.getLogger(_CALLBACKS)
    if not any(isinstance(each, _NoBatches) for each in logger.filters):
        logger.addFilter(_NoBatches())


class _NoBatches(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_IN_CALLBACK)


def forget_java() -> None:
    """The server for accumulators prints nothing when Java ends first, as by a signal to all processes of a service."""
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(accumulators, name, None)
        if server is not None:
            server.handle_error = _handle_error


def _handle_error(server: BaseServer, request: Any, address: Any) -> None:
    if not isinstance(sys.exc_info()[1], (EOFError, *CLOSED)):
        BaseServer.handle_error(server, request, address)


# --- in Python processes that Spark starts ----------------------------------------------------------


def end_silently(daemon: ModuleType | None = None) -> None:
    """For workers of this daemon, which is the main module if none is given, and for a worker without a daemon."""
    daemon = sys.modules["__main__"] if daemon is None else daemon
    name = getattr(getattr(daemon, "__spec__", None), "name", "")
    if name == _DAEMON:  # it prints what ended a worker by its global name `traceback`
        vars(daemon)["traceback"] = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)
    elif name.startswith("pyspark.sql."):
        sys.excepthook = _excepthook


def _print_exc() -> None:
    if not isinstance(sys.exc_info()[1], CLOSED):
        traceback.print_exc()


def _excepthook(kind: Any, error: BaseException, trace: Any) -> None:
    if not isinstance(error, CLOSED):
        sys.__excepthook__(kind, error, trace)
