"""Helpers for tests of sites: sites in this process, linked over loopback."""

import json
import random
import socket
from contextlib import suppress
from pathlib import Path

import zenoh

from headrace import Queue, Selection
from headrace.relay.receive.receiver import Request
from headrace.site.site import Site


def free_port() -> int:
    """A port that nobody uses, below those that the system gives to connections: nothing takes it before its use."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def open_plain(listen: list[str], connect: list[str]) -> zenoh.Session:
    config = zenoh.Config()
    for key, value in {
        "mode": "router", "listen/endpoints": listen, "connect/endpoints": connect,
        "scouting/multicast/enabled": False, "transport/shared_memory/enabled": False,
    }.items():  # fmt: skip
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


class Fabric:
    """Sites by name. A site that was stopped keeps its queue and its port, and can be started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._endpoints: dict[str, str] = {}
        self._terms: dict[str, tuple[list[str], list[Request]]] = {}
        self.beats_s: dict[str, float] = {}  # by site: between two beats
        self.queues: dict[str, Queue] = {}
        self.sites: dict[str, Site] = {}
        self.sessions: dict[str, zenoh.Session] = {}

    def add(self, name: str, *requests: Request, near: tuple[str, ...] = (), **options: object) -> Queue:
        """Create a queue, and start a site with it that connects to the sites in `near`."""
        settings = {"size": "16MiB", "origin": name, **options}
        self.queues[name] = Queue.create(self._folder / name, **settings)  # type: ignore[arg-type]
        self._endpoints[name] = f"tcp/127.0.0.1:{free_port()}"
        self._terms[name] = ([self._endpoints[other] for other in near], list(requests))
        self.start(name)
        return self.queues[name]

    def renew(self, name: str, **options: object) -> Queue:
        """Stop a site, and give it a new queue; `start` it again."""
        self.stop(name)
        self.queues[name].close()
        Queue.remove(self._folder / name)
        settings = {"size": "16MiB", "origin": name, **options}
        self.queues[name] = Queue.create(self._folder / name, **settings)  # type: ignore[arg-type]
        return self.queues[name]

    def start(self, name: str) -> None:
        connect, requests = self._terms[name]
        self.sessions[name] = open_plain([self._endpoints[name]], connect)
        self.sites[name] = Site(self.sessions[name], self.queues[name], requests, beat_s=self.beats_s.get(name, 0.1))

    def stop(self, name: str) -> None:
        self.sites.pop(name).close()
        self.sessions.pop(name).close()

    def close(self) -> None:
        for name in list(self.sites):
            self.stop(name)
        for queue in self.queues.values():
            assert queue.check() == []
            queue.close()


def want(text: str, begin_at: str = "next", *sites: str, name: str = "r") -> Request:
    return Request(name, Selection.parse(text), begin_at, sites)


def held(queue: Queue) -> list[tuple[str, str, int, bytes]]:
    """The products of a queue: feed, origin, sequence at the origin, payload."""
    return [
        (p.feed, p.origin, p.origin_sequence, bytes(p.payload)) for p in queue.read_batch("oldest", limit=1_000_000)
    ]
