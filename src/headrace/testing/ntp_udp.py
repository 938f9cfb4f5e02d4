"""UdpServer: a simulated NTP server on a loopback address, whose time is that of this machine and what it is off."""

import heapq
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from headrace.testing.ntp import SimulatedServer

_WAIT_S = 0.2


class UdpServer:
    """Serves from its construction until `close`. Its behaviour can be changed at any time; None: it is dead."""

    def __init__(
        self, behaviour: SimulatedServer | None, *, out_s: float = 0.0, back_s: float = 0.0, jitter_s: float = 0.0,
        truth: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        """`out_s` and `back_s` delay requests and replies; `jitter_s` delays replies further, at random."""
        self.behaviour = behaviour
        self._out_s, self._back_s, self._jitter_s, self._truth = out_s, back_s, jitter_s, truth
        self._chance = random.Random(1)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simulated-ntp", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        waiting: list[tuple[float, int, bytes, tuple[str, int]]] = []
        while not self._stopped.is_set():
            self._socket.settimeout(max(0.0001, min(_WAIT_S, waiting[0][0] - time.monotonic() if waiting else _WAIT_S)))
            try:
                request, address = self._socket.recvfrom(1024)
                self.asked += 1
                reply = self._reply(request) if request else None
                if reply is not None:
                    late_s = self._out_s + self._back_s + self._chance.expovariate(1.0) * self._jitter_s
                    heapq.heappush(waiting, (time.monotonic() + late_s, self.asked, reply, address))
            except (TimeoutError, BlockingIOError):
                pass
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, reply, address = heapq.heappop(waiting)
                self._socket.sendto(reply, address)

    def _reply(self, request: bytes) -> bytes | None:
        """As if the request had arrived `out_s` later, and been answered at once."""
        behaviour = self.behaviour
        if behaviour is None:
            return None
        return replace(behaviour, holds_ns=0).reply(
            request, self._truth() + int(self._out_s * 1e9), time.monotonic_ns()
        )

    def close(self) -> None:
        self._stopped.set()
        self._socket.sendto(b"", self._socket.getsockname())  # ends its wait
        self._thread.join()
        self._socket.close()
