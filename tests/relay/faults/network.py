"""Networks for sites in processes: what lies between them, and what may happen to it.

    Wires        every site on a loopback address of its own, a wire for every link. Needs no privileges.
    Namespaces   every site in a network namespace of its own, a veth pair for every link: the kernel's own TCP over
                 links that go down, lose packets and are slow. Needs root, and says by `missing` what else.

A link is named by its two sites, the one that listens first.
"""

import os
import shutil
import socket
import subprocess
from functools import cache
from typing import Protocol

from wire import Loom, Wire

Link = tuple[str, str]
PORT = 7447


class Network(Protocol):
    """What the harness needs."""

    def add(self, site: str) -> str:
        """A place for a site; the endpoint at which it listens."""

    def link(self, link: Link) -> str:
        """A link; the endpoint by which its second site reaches the first."""

    def prefix(self, site: str) -> list[str]:
        """The words before a command that runs at the site."""

    def cut(self, link: Link) -> None: ...
    def stall(self, link: Link) -> None: ...
    def heal(self, link: Link) -> None: ...
    def slow(self, link: Link, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None: ...
    def close(self) -> None: ...


class Wires:
    """On loopback."""

    def __init__(self) -> None:
        self._loom = Loom()
        self._places: dict[str, tuple[str, int]] = {}
        self.wires: dict[Link, Wire] = {}

    def add(self, site: str) -> str:
        host = f"127.0.0.{len(self._places) + 2}"
        with socket.socket() as probe:
            probe.bind((host, 0))
            self._places[site] = (host, int(probe.getsockname()[1]))
        return "tcp/{}:{}".format(*self._places[site])

    def link(self, link: Link) -> str:
        host, port = self._places[link[0]]
        self.wires[link] = Wire(self._loom, host, port)
        return f"tcp/{host}:{self.wires[link].port}"

    def prefix(self, site: str) -> list[str]:
        return []

    def cut(self, link: Link) -> None:
        self.wires[link].cut()

    def stall(self, link: Link) -> None:
        self.wires[link].stall()

    def heal(self, link: Link) -> None:
        self.wires[link].heal()

    def slow(self, link: Link, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        self.wires[link].slow(delay_s, bytes_per_s)

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()
        self._loom.close()


class Namespaces:
    """In the kernel."""

    def __init__(self) -> None:
        self._spaces: dict[str, str] = {}
        self._ends: dict[Link, tuple[str, str]] = {}  # devices, in the spaces of the link's sites

    def add(self, site: str) -> str:
        space = f"headrace-{os.getpid()}-{site}"
        _run("ip", "netns", "add", space)
        self._spaces[site] = space
        self._at(site, "ip", "link", "set", "lo", "up")
        return f"tcp/0.0.0.0:{PORT}"

    def link(self, link: Link) -> str:
        number = len(self._ends)
        ends = (f"hr{number}l", f"hr{number}r")
        self._ends[link] = ends
        first, second = (self._spaces[site] for site in link)
        _run("ip", "link", "add", ends[0], "netns", first, "type", "veth", "peer", "name", ends[1], "netns", second)
        for place, (site, end) in enumerate(zip(link, ends, strict=True), 1):
            self._at(site, "ip", "address", "add", f"10.77.{number}.{place}/24", "dev", end)
            self._at(site, "ip", "link", "set", end, "up")
        return f"tcp/10.77.{number}.1:{PORT}"

    def prefix(self, site: str) -> list[str]:
        return ["ip", "netns", "exec", self._spaces[site]]

    def cut(self, link: Link) -> None:
        """The device goes down at the first site; the other one loses its carrier."""
        self._at(link[0], "ip", "link", "set", self._ends[link][0], "down")

    def stall(self, link: Link) -> None:
        """Every packet is lost, without an error."""
        self.lose(link, 100)

    def lose(self, link: Link, percent: int) -> None:
        """Lose a percentage of packets, each way."""
        for site, end in zip(link, self._ends[link], strict=True):
            self._at(site, "nft", "add", "table", "netdev", end)
            self._at(site, "nft", "add", "chain", "netdev", end, "in",
                     f"{{ type filter hook ingress device {end} priority 0; }}")  # fmt: skip
            self._at(site, "nft", "add", "rule", "netdev", end, "in", "numgen", "random", "mod", "100", "<",
                     str(percent), "drop")  # fmt: skip

    def slow(self, link: Link, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        if delay_s:
            raise NotImplementedError("delays need netem, which kernels may not have: use Wires")
        for site, end in zip(link, self._ends[link], strict=True):
            self._at(site, "tc", "qdisc", "replace", "dev", end, "root", "tbf", "rate", f"{int(bytes_per_s * 8)}bit",
                     "burst", "16kb", "latency", "200ms")  # fmt: skip

    def heal(self, link: Link) -> None:
        for site, end in zip(link, self._ends[link], strict=True):
            self._at(site, "ip", "link", "set", end, "up")
            self._at(site, "tc", "qdisc", "del", "dev", end, "root", check=False)
            self._at(site, "nft", "delete", "table", "netdev", end, check=False)

    def close(self) -> None:
        for space in self._spaces.values():
            _run("ip", "netns", "delete", space, check=False)

    def _at(self, site: str, *words: str, check: bool = True) -> None:
        _run(*self.prefix(site), *words, check=check)


def _run(*words: str, check: bool = True) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


@cache
def missing() -> str:
    """What this machine lacks for Namespaces; empty if nothing."""
    for word in ("ip", "tc", "nft"):
        if shutil.which(word) is None:
            return f"there is no {word}"
    trial = Namespaces()
    try:
        for site in ("x", "y"):
            trial.add(site)
        trial.link(("x", "y"))
        trial.lose(("x", "y"), 1)
        trial.heal(("x", "y"))
        trial.slow(("x", "y"), bytes_per_s=125_000)
    except RuntimeError as error:
        return str(error)
    finally:
        trial.close()
    return ""
