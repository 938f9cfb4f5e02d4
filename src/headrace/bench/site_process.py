"""The site of a benchmark: a process that serves a queue over loopback, and what a process uses.

The process sends "ready", then its endpoint. It answers "usage", and ends at "stop" (processes.py).
"""

import gc
import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from headrace.link.session import SessionTerms, locators, open_session
from headrace.queue import Queue
from headrace.site.site import Site


class Usage(msgspec.Struct, frozen=True):
    """What a process uses now, and has used until now."""

    threads: int
    memory_kib: int
    processor_s: float
    moment_s: float


def own_usage() -> Usage:
    """That of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return Usage(int(status["Threads"]), int(status["VmRSS"].split()[0]), time.process_time(), time.monotonic())


def usage_of(pipe: Connection) -> Usage:
    """That of the process at the other end, which answers "usage"."""
    pipe.send("usage")
    usage: Usage = pipe.recv()
    return usage


def serve(parent: Connection, path: Path, frees_memory: bool = False) -> None:
    """A process: the site of the queue at `path`; with `frees_memory`, usage is without garbage."""
    terms = SessionTerms("router", listen=("tcp/127.0.0.1:0",))
    with Queue.open(path) as queue, open_session(terms) as session:
        site = Site(session, queue, [])
        parent.send("ready")
        parent.send(locators(session)[0])
        while parent.recv() != "stop":
            if frees_memory:
                gc.collect()
            parent.send(own_usage())
        site.close()
