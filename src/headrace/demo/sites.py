"""The two sites of a demonstration: each what `headrace serve` runs, from a configuration that is written for it.

A site tells the stage where it listens, and then how far its request has got.
"""

import os
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from headrace.demo.actors import REPORT_S, Report, acting
from headrace.site.daemon import Daemon
from headrace.site.site import Site

_FIRST = """\
[site]
queue = "{queue}"
listen = ["tcp/127.0.0.1:0"]
[log]
file = "{log}"
"""
_SECOND = """\
[site]
queue = "{queue}"
listen = ["tcp/127.0.0.1:0"]
connect = ["{upstream}"]
[[request]]
select = "**"
from = "oldest"
[log]
file = "{log}"
"""


def write_first(file: Path, queue: Path) -> Path:
    """The configuration of the site at which products are put."""
    file.write_text(_FIRST.format(queue=queue, log=file.with_suffix(".log")))
    return file


def write_second(file: Path, queue: Path, upstream: str) -> Path:
    """The configuration of the site that wants all of them."""
    file.write_text(_SECOND.format(queue=queue, log=file.with_suffix(".log"), upstream=upstream))
    return file


def run_site(file: Path, pipe: Connection) -> None:
    """Serve until SIGTERM."""
    with acting(pipe):
        Daemon(file).run(lambda site, where: _Reporter(site, where[0], pipe).start())


class _Reporter(threading.Thread):
    def __init__(self, site: Site, endpoint: str, pipe: Connection) -> None:
        super().__init__(name="headrace-demo-reporter", daemon=True)
        self._site, self._endpoint, self._pipe = site, endpoint, pipe

    def run(self) -> None:
        pause = threading.Event()
        try:
            while not pause.wait(REPORT_S):
                self._pipe.send(self._report())
        except OSError:
            os.kill(os.getpid(), signal.SIGTERM)  # the stage is gone

    def _report(self) -> Report:
        told = self._site.statistics()
        products = sum(counts.products for counts in told.arrivals.values())
        for upstream in told.upstreams:
            counts = upstream.counts
            return Report(
                products, endpoint=self._endpoint, state=counts.state, base=upstream.base, repairs=counts.repairs
            )
        return Report(products, endpoint=self._endpoint)
