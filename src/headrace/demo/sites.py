"""The two sites of a demonstration, and the link between them.

A site is what `headrace serve` runs, from a configuration that is written for it. It reports where it listens, and then
how far its request has got.

The link is a process that forwards bytes between Unix sockets, so that no other user of the machine takes part. When it
is cut, its connections end as if the cable had been pulled out, new connections are refused, and nothing that was on
its way arrives.
"""

import asyncio
import os
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from headrace.demo.processes import REPORT_S, Report, child_process
from headrace.link.endpoint import UNIX
from headrace.site.daemon import Daemon
from headrace.site.site import Site

CUT, RESTORE = "cut", "restore"  # commands to the link
_CHUNK_BYTES = 1 << 16

_FIRST = """\
[site]
queue = "{queue}"
listen = ["local"]
scouting = "off"
[log]
file = "{log}"
"""
_SECOND = """\
[site]
queue = "{queue}"
listen = ["local"]
scouting = "off"
connect = ["{upstream}"]
[[request]]
select = "**"
from = "oldest"
[log]
file = "{log}"
"""


def write_first(file: Path, queue: Path) -> Path:
    """Write the configuration of the site where products are put."""
    file.write_text(_FIRST.format(queue=queue, log=file.with_suffix(".log")))
    return file


def write_second(file: Path, queue: Path, upstream: str) -> Path:
    """Write the configuration of the site that requests all of them."""
    file.write_text(_SECOND.format(queue=queue, log=file.with_suffix(".log"), upstream=upstream))
    return file


def run_site(file: Path, pipe: Connection) -> None:
    """Serve until SIGTERM."""
    with child_process(pipe):
        Daemon(file).run(lambda site, endpoints: _Reporter(site, endpoints[0], pipe).start())


class _Reporter(threading.Thread):
    """Reports the progress of a site; ends the site if the run is gone."""

    def __init__(self, site: Site, endpoint: str, pipe: Connection) -> None:
        super().__init__(name="headrace-demo-reporter", daemon=True)
        self._site, self._endpoint, self._pipe = site, endpoint, pipe

    def run(self) -> None:
        pause = threading.Event()
        try:
            while not pause.wait(REPORT_S):
                self._pipe.send(self._report())
        except OSError:
            os.kill(os.getpid(), signal.SIGTERM)

    def _report(self) -> Report:
        statistics = self._site.statistics()
        products = sum(counts.products for counts in statistics.arrivals.values())
        for upstream in statistics.upstreams:
            counts = upstream.counts
            lost = sum(counts.left_out.values())
            return Report(products, lost=lost, endpoint=self._endpoint, state=counts.state, base=upstream.base)
        return Report(products, endpoint=self._endpoint)


# --- the link -------------------------------------------------------------------------------------


def run_link(socket: str, pipe: Connection) -> None:
    """Forward bytes to the socket of a site, from one beside it that is reported to the run."""
    with child_process(pipe):
        asyncio.run(_Link(socket, pipe).run())


class _Link:
    def __init__(self, socket: str, pipe: Connection) -> None:
        self._socket, self._pipe = socket, pipe
        self._own = Path(socket).with_name("link")
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def run(self) -> None:
        await self._listen()
        self._pipe.send(Report(endpoint=f"{UNIX}/{self._own}"))
        commands: asyncio.Queue[str] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), lambda: commands.put_nowait(self._pipe.recv()))
        while True:
            command = await commands.get()
            await (self._cut() if command == CUT else self._listen())

    async def _listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._connect, self._own)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            site_reader, site_writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, site_writer}
        await asyncio.gather(_forward(reader, site_writer), _forward(site_reader, writer))
        self._writers -= {writer, site_writer}


async def _forward(reader: asyncio.StreamReader, writer: Any) -> None:
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the link was cut, or one end is gone
    writer.close()
