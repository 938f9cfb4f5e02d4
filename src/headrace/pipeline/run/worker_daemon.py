"""Daemon: the process from which Spark forks its Python workers, with everything that they need already imported.

Spark starts it by `spark.python.daemon.module` (spark/session.py) and talks to it as to its own daemon. A worker then
starts without half a second of imports, shares their memory with the other workers, and its garbage collector never
scans them.
"""

import gc

from pyspark import daemon

import headrace.pipeline.run.decoding
import headrace.pipeline.source.data_source  # noqa: F401
from headrace.pipeline.spark.quiet import end_silently

if __name__ == "__main__":
    end_silently(daemon)
    gc.collect()
    gc.freeze()
    daemon.manager()
