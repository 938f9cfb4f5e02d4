"""The link between the two sites of a demonstration: a process that passes on bytes, until it is told to cut.

Cut means that connections end as if the cable had been pulled out, and new ones are refused. Nothing that was on its
way arrives.
"""

import asyncio
from multiprocessing.connection import Connection
from typing import Any

from headrace.demo.actors import Report, acting

CUT, MEND = "cut", "mend"
_HOST = "127.0.0.1"
_BYTES = 1 << 16


def run_link(port: int, pipe: Connection) -> None:
    """Pass on to `port`, from a port of our own that is told to the stage."""
    with acting(pipe):
        asyncio.run(_Link(port, pipe).run())


class _Link:
    def __init__(self, port: int, pipe: Connection) -> None:
        self._port, self._pipe = port, pipe
        self._own_port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def run(self) -> None:
        await self._mend()
        self._pipe.send(Report(endpoint=f"tcp/{_HOST}:{self._own_port}"))
        words: asyncio.Queue[str] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), lambda: words.put_nowait(self._pipe.recv()))
        while True:
            word = await words.get()
            await (self._cut() if word == CUT else self._mend())

    async def _mend(self) -> None:
        self._server = await asyncio.start_server(self._connect, _HOST, self._own_port)
        self._own_port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, thither = await asyncio.open_connection(_HOST, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, thither}
        await asyncio.gather(_pass_on(reader, thither), _pass_on(there, writer))
        self._writers -= {writer, thither}


async def _pass_on(reader: asyncio.StreamReader, writer: Any) -> None:
    try:
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # it was cut, or one of the two has gone
    writer.close()
