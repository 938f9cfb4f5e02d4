"""Wire: a link between two sites that can be cut, stalled and slowed, without privileges.

A wire listens on loopback and carries every connection on to one address. All wires of a fabric share one thread with an
event loop (Loom). What a wire has taken it delivers in order, later or never, and it takes no more than a little ahead,
so that the sender notices a slow wire.

    cut        connections are reset and new ones are refused, as when a process or a router dies
    stall      connections stay and carry nothing, new ones get no answer, as when a cable is pulled
    slow       a delay and a limit of bytes per second, each way
    heal       no fault
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

_CHUNK = 16_384
_AHEAD = 16  # chunks that a wire has taken and not delivered
_SOCKET_BYTES = 65_536  # buffers of the kernel are part of the wire, and must not hide its pace
_RESET = struct.pack("ii", 1, 0)


class Loom:
    """The thread in which wires run."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loom", daemon=True)
        self._thread.start()

    def run(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(10)

    def close(self) -> None:
        self.run(_end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_tasks() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Wire:
    """Carries to `host:port`; its own address is `port` on `host`."""

    def __init__(self, loom: Loom, host: str, port: int) -> None:
        self._loom, self._target = loom, (host, port)
        self._delay_s, self._bytes_per_s = 0.0, 0.0
        self._refuses = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server = loom.run(self._listen(host))
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        self._loom.run(self._set(refuses=True))
        self._loom.run(self._drop())

    def stall(self) -> None:
        self._loom.run(self._set(flows=False))

    def drop(self) -> None:
        """Reset the current connections; new ones are accepted."""
        self._loom.run(self._drop())

    def slow(self, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        """Zero: no delay, no limit."""
        self._loom.run(self._set(delay_s=delay_s, bytes_per_s=bytes_per_s))

    def heal(self) -> None:
        self._loom.run(self._set())

    def close(self) -> None:
        self._loom.run(self._close())

    async def _set(
        self, delay_s: float = 0.0, bytes_per_s: float = 0.0, refuses: bool = False, flows: bool = True
    ) -> None:
        self._delay_s, self._bytes_per_s, self._refuses = delay_s, bytes_per_s, refuses
        if flows:
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    async def _close(self) -> None:
        self._server.close()
        await self._drop()

    async def _listen(self, host: str) -> asyncio.Server:
        listener = socket.socket()
        _keep_small(listener)
        listener.bind((host, 0))
        return await asyncio.start_server(self._accept, sock=listener, limit=_CHUNK)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            _reset(writer)
            return
        await self._flowing.wait()
        onward = socket.socket()
        _keep_small(onward)
        onward.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(onward, self._target)
            far_reader, far_writer = await asyncio.open_connection(sock=onward, limit=_CHUNK)
        except OSError:
            onward.close()
            _reset(writer)
            return
        await self._carry_both(reader, writer, far_reader, far_writer)

    async def _carry_both(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self._writers |= {writer, far_writer}
        ways = [asyncio.ensure_future(self._carry(*way)) for way in ((reader, far_writer), (far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._writers -= {writer, far_writer}
            _reset(writer)
            _reset(far_writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One way; ends when either end does."""
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_AHEAD)
        taking = asyncio.ensure_future(self._take(reader, line))
        try:
            with contextlib.suppress(OSError):
                while (due := await line.get())[1]:
                    await self._deliver(*due, writer)
        finally:
            taking.cancel()

    async def _take(self, reader: asyncio.StreamReader, line: asyncio.Queue[tuple[float, bytes]]) -> None:
        data = b"begin"
        while data:
            try:
                data = await reader.read(_CHUNK)
            except OSError:
                data = b""
            await line.put((asyncio.get_running_loop().time() + self._delay_s, data))

    async def _deliver(self, due: float, data: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        await self._flowing.wait()
        writer.write(data)
        await writer.drain()
        if self._bytes_per_s:
            await asyncio.sleep(len(data) / self._bytes_per_s)


def _keep_small(own: socket.socket) -> None:
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)


def _reset(writer: asyncio.StreamWriter) -> None:
    own = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
