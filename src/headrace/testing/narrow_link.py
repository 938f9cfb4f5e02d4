"""NarrowLink: a proxy in front of a site, on loopback, that carries so many bytes per second and can be cut.

    link = NarrowLink("tcp/127.0.0.1:7447", bytes_per_s=1_000_000)
    queue = headrace.connect(link.endpoint)

All connections through it share its rate, each way, as the programs behind one line do. Buffers of the kernel are part
of a link, so they are kept small: a sender notices within some tens of kilobytes that the link is full.
"""

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

_CHUNK_BYTES = 8_192
_BUFFER_BYTES = 32_768
_LATE_S = 0.02  # a thread that wakes up late by less does not reduce the rate


class NarrowLink:
    """Carries connections to a `tcp/` endpoint, from `endpoint`, until `close`. Without a rate it is only cut."""

    def __init__(self, to: str, bytes_per_s: float | None = None) -> None:
        host, _, port = to.removeprefix("tcp/").partition("?")[0].rpartition(":")
        self._target = (host, int(port))
        self._ways = (_Pace(bytes_per_s), _Pace(bytes_per_s))
        self._sockets: set[socket.socket] = set()
        self._is_cut = False
        self._server = socket.socket()
        _keep_small(self._server)
        self._server.bind(("127.0.0.1", 0))
        self._server.listen(1024)
        self.endpoint = f"tcp/127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, name="headrace-narrow-link", daemon=True).start()

    @property
    def carried(self) -> tuple[int, int]:
        """Bytes so far: to the site, and from the site."""
        return self._ways[0].carried, self._ways[1].carried

    def cut(self) -> None:
        """Break all connections, and refuse new ones until `restore`."""
        self._is_cut = True
        for end in list(self._sockets):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def __enter__(self) -> "NarrowLink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- threads ----------------------------------------------------------------------------------

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near, socket.socket() as far:
            _keep_small(far)
            with suppress(OSError):
                far.connect(self._target)
                ends = {near, far}
                self._sockets |= ends
                back = threading.Thread(target=self._carry, args=(far, near, self._ways[1]), daemon=True)
                back.start()
                self._carry(near, far, self._ways[0])
                back.join()
                self._sockets -= ends

    def _carry(self, source: socket.socket, target: socket.socket, pace: "_Pace") -> None:
        """One way; its end is the end of both."""
        with suppress(OSError):
            while not self._is_cut and (data := source.recv(_CHUNK_BYTES)):
                pace.wait(len(data))
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class _Pace:
    """The rate of one way, which all connections share; they take turns."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s, self._lock = bytes_per_s, threading.Lock()
        self._free_s = 0.0  # when the link has carried all that it has taken
        self.carried = 0

    def wait(self, count: int) -> None:
        """Return when so many bytes have passed."""
        with self._lock:
            self.carried += count
            if self._bytes_per_s is None:
                return
            self._free_s = max(self._free_s, time.monotonic() - _LATE_S) + count / self._bytes_per_s
            until_s = self._free_s
        time.sleep(max(0.0, until_s - time.monotonic()))


def _keep_small(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
