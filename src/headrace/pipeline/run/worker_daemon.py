"""Daemon: the process from which Spark forks its Python processes, with everything that they need already imported.

Spark starts it (spark/python.py) and talks to it as to its own daemon; its argument is the module that the processes
run. They start without half a second of imports, share their memory with each other, and their garbage collector never
scans them.
"""

import gc
import sys
from importlib import import_module

from pyspark import daemon

from headrace.pipeline.spark.quiet import end_silently

TASKS, LOOKUP = "pyspark.worker", "pyspark.sql.worker.lookup_data_sources"


def prepare(worker: str) -> None:
    """Import what processes that run this module need. The one that looks for sources runs once for each session."""
    import_module(worker)
    if worker != LOOKUP:
        import_module("headrace.pipeline.source.data_source")
    if worker == TASKS:
        import_module("headrace.pipeline.run.decoding")


if __name__ == "__main__":
    end_silently(daemon)
    prepare(sys.argv[1])
    gc.collect()
    gc.freeze()
    daemon.manager()
