"""Python: what Spark starts as `python` on this machine, so that all its Python processes come from our daemon.

Spark forks Python processes from daemons: one daemon for tasks, and one for each step of planning (find sources, create
one, divide a read). Its setting for the daemon reaches only the one for tasks. A process of the others imports
everything anew, in the first query and in each one after a minute without, and prints a traceback when Spark closes its
connection after that minute. So `python` is a script that starts our daemon (run/worker_daemon.py) wherever Spark asks
for its own.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.pipeline.spark.java import scripts, using_variables, write_script

DAEMON = "headrace.pipeline.run.worker_daemon"  # imported by this name, in a process of its own
_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")  # of tasks, and of the driver
_SCRIPT = """#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m {daemon} "$@"
fi
exec "{python}" "$@"
"""


@contextmanager
def using_daemon() -> Iterator[None]:
    """A Spark that is started inside this context has our daemon, unless the user has chosen another Python."""
    script = scripts() / "python" / "bin" / "python"
    own = [name for name in _VARIABLES if os.environ.get(name, sys.executable) == sys.executable]
    try:
        write_script(script, _SCRIPT.format(daemon=DAEMON, python=sys.executable))
    except OSError:  # the environment is read-only: only tasks have it
        own = []
    with using_variables(dict.fromkeys(own, str(script))):
        yield
