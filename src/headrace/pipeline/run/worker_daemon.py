"""Daemon: the process from which Spark forks its Python workers, with everything that they need already imported.

Spark starts it by `spark.python.daemon.module` (spark/session.py) and talks to it as to its own daemon. A worker then
starts without half a second of imports, shares their memory with the other workers, and its garbage collector never
scans them.

A query with a `limit` needs no more rows at some point, and so does one that was cancelled: Spark closes the connection
to the worker, which then ends. That is no error, so nothing is printed.
"""

import gc
import socket

from pyspark import daemon

import headrace.pipeline.run.decoding
import headrace.pipeline.source.data_source  # noqa: F401

_spark_worker = daemon.worker


def quiet_worker(sock: socket.socket, authenticated: bool) -> int:
    """Spark's worker; without a word if Spark has closed the connection."""
    try:
        return _spark_worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return 1


if __name__ == "__main__":
    daemon.worker = quiet_worker
    gc.collect()
    gc.freeze()
    daemon.manager()
