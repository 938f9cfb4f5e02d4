"""Python: what Spark starts as `python` on this machine, so that all its Python processes come from our daemon.

Spark forks Python processes from daemons: one daemon for tasks, and one for each step of planning (find sources, create
one, divide a read). Its setting for the daemon reaches only the one for tasks. A process of the others imports
everything, in the first query and in each one after a minute without, and prints a traceback when Spark closes its
connection after that minute. So `python` is a script that starts our daemon (run/worker_daemon.py) wherever Spark asks
for its own.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.pipeline.spark.java import scripts, using_variables, write_script

DAEMON = "headrace.pipeline.run.worker_daemon"  # imported by this name, in a process of its own
_TASKS, _DRIVER = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
_SCRIPT = """#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m {daemon} "$@"
fi
exec "{python}" "$@"
"""


@contextmanager
def using_daemon(*, for_tasks: bool) -> Iterator[None]:
    """A Spark that is started inside this context has our daemon, unless the user has chosen another Python.

    for_tasks: also for what runs with the Python of tasks; other machines do not have the script.
    """
    key = hashlib.sha256(os.fsencode(sys.executable)).hexdigest()[:8]  # several environments may share the folder
    script = scripts() / f"python-{key}" / "bin" / "python"
    names = (_TASKS, _DRIVER) if for_tasks else (_DRIVER,)
    own = [name for name in names if os.environ.get(name, sys.executable) == sys.executable]
    try:
        write_script(script, _SCRIPT.format(daemon=DAEMON, python=sys.executable))
    except OSError:  # the environment is read-only: only tasks have it
        own = []
    with using_variables(dict.fromkeys(own, str(script))):
        yield
