"""Daemon: the process that Spark forks its Python workers from, with everything that they need already loaded.

Spark starts it by `spark.python.daemon.module` (session.py) and talks to it as to its own. A worker then begins without
half a second of imports, shares their memory with the others, and its garbage collector never looks at them.
"""

import gc

from pyspark.daemon import manager

import headrace.pipeline.run.decoding
import headrace.pipeline.source.source  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
