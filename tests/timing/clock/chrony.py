"""Real servers: chronyd on loopback, which serves the time of this machine and does not touch its clock; and a proxy."""

import os
import pwd
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from headrace.timing.clock.packet import encode_request, from_ntp, to_ntp

_FETCHED = f"{sys.prefix}/chrony/usr/sbin"  # by .ci/chrony.sh
CHRONYD = shutil.which("chronyd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:{_FETCHED}")


class Chronyd:
    """A server with `local stratum`, `-x` (the clock stays alone), without a command port; killed by `close`."""

    def __init__(self, folder: Path, stratum: int | None) -> None:
        """Without a stratum it follows nobody, and says that it is not synchronised."""
        folder.mkdir()
        while True:
            port = _free_port()
            self.name = f"127.0.0.1:{port}"
            self._process = _started(folder, port, stratum)
            if _replies(port, folder / "log"):
                break
            self.close()  # another program has taken the port in the meantime

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _started(folder: Path, port: int, stratum: int | None) -> "subprocess.Popen[bytes]":
    assert CHRONYD is not None
    config = folder / "chrony.conf"
    local = "" if stratum is None else f"local stratum {stratum}\n"
    config.write_text(f"port {port}\nbindaddress 127.0.0.1\n{local}allow 127.0.0.1\ncmdport 0\npidfile {folder}/pid\n")
    user = pwd.getpwuid(os.getuid()).pw_name
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([CHRONYD, "-x", "-d", "-f", str(config), "-u", user], stdout=log, stderr=log)


def _replies(port: int, log: Path) -> bool:
    """Whether the server is there, once that is known; chronyd goes on without a socket if it gets none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(0.2)
        client.connect(("127.0.0.1", port))
        while b"Could not" not in log.read_bytes():
            with suppress(TimeoutError, ConnectionRefusedError):
                client.send(encode_request(bytes(8)))
                if client.recv(1024):
                    return True
    return False


class Proxy:
    """Between a client and a real server: delays requests, and shifts the times of replies, which makes it a liar."""

    def __init__(self, server: str, *, off_ns: int = 0, delay_s: float = 0.0) -> None:
        host, _, port = server.partition(":")
        self._server, self._delay_s, self.off_ns = (host, int(port)), delay_s, off_ns
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as behind:
            behind.settimeout(5.0)
            while not self._stopped.is_set():
                request, client = self._socket.recvfrom(1024)
                if not request:
                    continue
                time.sleep(self._delay_s)
                behind.sendto(request, self._server)
                with suppress(TimeoutError):  # the server is away
                    self._socket.sendto(self._shifted(behind.recv(1024)), client)

    def _shifted(self, reply: bytes) -> bytes:
        times = [to_ntp(from_ntp(stamp) + self.off_ns) for stamp in struct.unpack_from("!QQ", reply, 32)]
        return reply[:32] + struct.pack("!QQ", *times) + reply[48:]

    def close(self) -> None:
        self._stopped.set()
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
