"""Harness: sites in real processes, links between them that can fail, feeders, and the oracle's verdict on every queue.

    with chain(folder, seed) as fleet:          # a - b - c - d, each a `headrace serve` of its own
        fleet.start()
        fleet.feed("a", seconds=5)              # `headrace generate`, in its own process too
        fleet.network.cut(("b", "c"))
        ...
        fleet.settle()                          # everything that was put has arrived everywhere
    fleet.judge()                               # lost 0, duplicated 0, order kept, nothing altered, queues clean

Every site requests everything, from the beginning. Each process that is started here is ended here.
"""

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from network import Link, Network, Wires
from timeline import Timeline

from headrace import Queue
from headrace.testing import Oracle
from support.waiting import until

HEADRACE = [str(Path(sys.executable).with_name("headrace"))]
LEASH = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []  # nothing outlives a harness that dies
PATIENCE_S = 60.0
KINDS = ("bulletin,event,monitor", "nexrad3,lightning", "bufr,satellite", "metar")  # no two feeders put the same
_LOST = re.compile(r"site (\S+): products (\d+)-(\d+) are lost")


class Fleet:
    """Sites by name. A site that was killed keeps its queue and its place, and can be started again."""

    def __init__(self, folder: Path, sites: Iterable[str], links: Sequence[Link], seed: int,
                 network: Network | None = None, *, relayed: bool = False,
                 queues: dict[str, dict[str, str]] | None = None, folders: dict[str, Path] | None = None,
                 requests: dict[str, dict[str, Any]] | None = None) -> None:  # fmt: skip
        """`relayed`: each site requests everything from its neighbours, instead of each product from its origin.

        `queues` are terms of [queue] by site, `folders` where their queues lie, `requests` keys of [[request]].
        """
        self._folder, self.links, self.seed = folder, list(links), seed
        self.chance = random.Random(seed)
        self.network: Network = Wires() if network is None else network
        self.sites = list(sites)
        self.timeline = Timeline()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._feeders: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._consumers: dict[str, subprocess.Popen[bytes]] = {}
        self._environment: dict[str, dict[str, str]] = {}
        self._paths = {site: (folders or {}).get(site, folder) / f"{site}.queue" for site in self.sites}
        self._requests = requests or {}
        self._write_files(relayed, queues or {})

    def _write_files(self, relayed: bool, queues: dict[str, dict[str, str]]) -> None:
        listen = {site: self.network.add(site) for site in self.sites}
        connect: dict[str, list[str]] = defaultdict(list)
        near: dict[str, list[str]] = defaultdict(list)
        for link in self.links:
            connect[link[1]].append(self.network.link(link))
            near[link[0]].append(link[1])
            near[link[1]].append(link[0])
        for site in self.sites:
            tables = {
                "site": {"queue": str(self._paths[site]), "name": site, "listen": [listen[site]],
                         "connect": connect[site]},
                "queue": {"size": "256MiB", **queues.get(site, {})},
                "log": {"file": str(self.log_file(site))},
            }  # fmt: skip
            request = {"select": "**", "from": "oldest", "sites": near[site] if relayed else []}
            request |= self._requests.get(site, {})
            text = _toml(tables) + "\n[[request]]\n" + _keys(request)
            if "127.0.0." not in listen[site]:
                text += "\n[users]\n" + _keys(self._users())
            (self._folder / f"{site}.toml").write_text(text)

    def _users(self) -> dict[str, str]:
        """Beyond loopback a site requires names and passwords."""
        files = {"password_file": ("password", "open sesame\n"), "dictionary_file": ("users", "fleet:open sesame\n")}
        for name, text in files.values():
            (self._folder / name).write_text(text)
            (self._folder / name).chmod(0o600)
        return {"name": "fleet", **{key: str(self._folder / name) for key, (name, _) in files.items()}}

    def path(self, site: str) -> Path:
        return self._paths[site]

    def log_file(self, site: str) -> Path:
        return self._folder / f"{site}.log"

    def log(self, site: str) -> str:
        return self.log_file(site).read_text() if self.log_file(site).exists() else ""

    def endpoint(self, site: str) -> str:
        """The endpoint at which a program on the same host reaches the site."""
        (endpoint,) = re.findall(r'listen = \["(.*?)"\]', (self._folder / f"{site}.toml").read_text())
        return str(endpoint).replace("0.0.0.0", "127.0.0.1")

    def describe(self, site: str) -> dict[str, Any]:
        """The description of a site, by `headrace sites`; on a busy machine a site may not reply in time."""
        words = [*HEADRACE, "sites", self.endpoint(site), "--json"]
        while True:
            told = subprocess.run([*self.network.prefix(site), *words], capture_output=True, check=True).stdout
            (found,) = [node for node in json.loads(told)["nodes"] if node["name"] == site]
            if found["description"] is not None:
                return dict(found["description"])

    # --- processes --------------------------------------------------------------------------------

    def start(self, *sites: str) -> None:
        """Start these, or all, and wait until they are ready."""
        for site in sites or self.sites:
            words = [
                *self.network.prefix(site),
                *LEASH,
                *HEADRACE,
                "serve",
                str(self._folder / f"{site}.toml"),
                "--json",
            ]
            environment = {**os.environ, **self._environment.get(site, {})}
            with (self._folder / f"{site}.out").open("wb") as out, self._errors(site).open("ab") as errors:
                self._processes[site] = subprocess.Popen(words, stdout=out, stderr=errors, env=environment)
        for site in sites or self.sites:
            until(lambda site=site: self._is_ready(site), f"site {site} is ready")  # type: ignore[misc]
            self.timeline.detach(site)
            self.timeline.attach(site, self._paths[site])

    def _errors(self, site: str) -> Path:
        return self._folder / f"{site}.err"

    def _is_ready(self, site: str) -> bool:
        process = self._processes[site]
        assert process.poll() is None, f"site {site} has ended: {self._errors(site).read_text()}"
        return b"endpoints" in (self._folder / f"{site}.out").read_bytes()

    def environ(self, site: str, **values: str) -> None:
        """For the next start of a site."""
        self._environment[site] = values

    def pid(self, site: str) -> int:
        return self._processes[site].pid

    def kill(self, *sites: str) -> None:
        """kill -9, all at once."""
        for site in sites:
            if site not in self.origins:
                self.timeline.detach(site)
        for site in sites:
            self._processes[site].kill()
        for site in sites:
            self._processes.pop(site).wait()

    def freeze(self, site: str) -> None:
        os.kill(self.pid(site), signal.SIGSTOP)

    def thaw(self, site: str) -> None:
        os.kill(self.pid(site), signal.SIGCONT)

    def stop(self, *sites: str) -> None:
        """SIGTERM, and a clean end."""
        for site in sites:
            self._processes[site].terminate()
        for site in sites:
            code = self._processes.pop(site).wait(PATIENCE_S)
            assert code == 0, f"site {site} ended with {code}: {self._errors(site).read_text()}{self.log(site)}"

    # --- feeding ----------------------------------------------------------------------------------

    @property
    def origins(self) -> list[str]:
        """The sites at which products were put."""
        return list(dict.fromkeys(site for site, _ in self._feeders))

    def feed(self, site: str, seconds: float, rate: float = 300, size_max: str = "4kB", *, fast: bool = False,
             copies: bool = True) -> None:  # fmt: skip
        """Put a seeded stream at a site from now on, at its pace or all at once, with or without duplicates."""
        number = len(self._feeders)
        words = [
            "generate", str(self._paths[site]), "--seed", str(self.seed + number), "--duration", f"{seconds}s",
            "--rate", str(rate), "--feeds", KINDS[number], "--size-max", size_max, "--no-giants",
            "--oracle", str(self._sent(number)), "--json", "--fast" if fast else "--real-time",
            *([] if copies else ["--duplicates", "0"]),
        ]  # fmt: skip
        environment = {**os.environ, **self._environment.get(site, {})}
        with (self._folder / f"feeder-{number}.out").open("wb") as out:
            process = subprocess.Popen([*LEASH, *HEADRACE, *words], stdout=out, stderr=out, env=environment)
        self._feeders.append((site, process))

    def _sent(self, number: int) -> Path:
        return self._folder / f"sent-{number}.jsonl"

    def wait_fed(self, seconds: float = PATIENCE_S) -> None:
        """Wait until all feeders have put everything."""
        for number, (site, process) in enumerate(self._feeders):
            code = process.wait(seconds)
            assert code == 0, f"the feeder of {site}: {(self._folder / f'feeder-{number}.out').read_text()}"

    def consume(self, site: str) -> int:
        """Start a consumer of a blocking station at a site; return its process id."""
        words = [*LEASH, sys.executable, str(Path(__file__).with_name("consuming.py"))]
        with self._errors(site).open("ab") as errors:
            process = subprocess.Popen([*words, str(self._paths[site]), str(self._noted(site))], stderr=errors)
        self._consumers[site] = process
        until(lambda: self._noted(site).exists(), "the consumer is there")
        return process.pid

    def _noted(self, site: str) -> Path:
        return self._folder / f"{site}.noted"

    def settle(self, seconds: float = PATIENCE_S) -> float:
        """Wait until every site has everything; return how long after the last feeder that was."""
        self.wait_fed()
        return until(lambda: self.timeline.is_level(self.sites, self.origins), self._missing, seconds)

    def wait_for_more(self, sites: Iterable[str], products: int = 100) -> float:
        """Wait until these sites have products of each origin that were put after the call; how long that took.

        So many of each origin, or all that its feeder has put if that has ended meanwhile.
        """
        goals = {origin: self.timeline.count(origin, origin) + products for origin in self.origins}

        def have_more() -> bool:
            for origin, feeder in self._feeders:
                if feeder.poll() is not None:
                    goals[origin] = min(goals[origin], self.timeline.count(origin, origin))
            return all(self.timeline.count(site, origin) >= goals[origin] for site in sites for origin in goals)

        return until(have_more, self._missing)

    def _missing(self) -> dict[str, int]:
        count = self.timeline.count
        return {f"{origin} at {site}": count(site, origin) - count(origin, origin)
                for site in self.sites for origin in self.origins}  # fmt: skip

    # --- judging ----------------------------------------------------------------------------------

    def judge(self, sites: Iterable[str] = (), lost: int = 0) -> int:
        """Stop all sites, and compare the queues of these, or all, with what was sent; how many products that were.

        `lost`: so many are missing there of each origin, and nothing else is wrong.
        """
        for site in self.sites:
            self.timeline.detach(site)
            assert not (complaint := self._errors(site).read_text()), f"site {site}: {complaint}"
        self.stop(*list(self._processes))
        return sum(self._judge_site(site, lost) for site in sites or self.sites)

    def oracle_of(self, origin: str) -> Oracle:
        """All products that were put at a site, in order."""
        numbers = [number for number, (site, _) in enumerate(self._feeders) if site == origin]
        assert len(numbers) == 1, "one feeder for each origin"
        return Oracle.load(self._sent(numbers[0]))

    def _judge_site(self, site: str, lost: int) -> int:
        held: dict[str, list[Any]] = {origin: [] for origin in self.origins}
        with Queue.open(self._paths[site]) as queue:
            assert queue.check() == []
            for batch in queue.follow("oldest", timeout=0):
                for product in batch:
                    held[product.origin].append(product)
            for origin, products in held.items():
                self._judge_origin(site, origin, products, lost)
            if site in self._consumers:
                self._judge_consumer(site, queue.next)
            return sum(len(products) for products in held.values())

    def _judge_origin(self, site: str, origin: str, products: list[Any], lost: int) -> None:
        oracle = self.oracle_of(origin)
        newest: dict[str, int] = {}
        for product in products:
            oracle.received(product.feed, product.ident, product.payload)
            assert product.origin_sequence > newest.get(product.feed, 0), f"{product.ident} at {site} is out of order"
            newest[product.feed] = product.origin_sequence
        verdict = oracle.verdict(order="feed")
        is_ok = verdict.lost == lost and replace(verdict, lost=0).ok
        assert is_ok, f"what {origin} has put, at {site}: {verdict}\n{self.log(site)[-4000:]}"

    def _judge_consumer(self, site: str, end: int) -> None:
        """The consumer gets everything once, in order."""
        until(lambda: len(self._noted(site).read_text().splitlines()) >= end - 1, "the consumer has everything")
        assert [int(line) for line in self._noted(site).read_text().splitlines()] == list(range(1, end))

    def held(self, site: str, origin: str) -> list[int]:
        """The sequences of an origin that a site holds, sorted, since feeds may arrive out of step."""
        with Queue.open(self._paths[site]) as queue:
            batches = queue.follow("oldest", timeout=0)
            return sorted(product.origin_sequence for batch in batches for product in batch if product.origin == origin)

    def lost(self, site: str, origin: str) -> list[tuple[int, int]]:
        """The ranges of an origin that a site has named as lost, from its log: first and last sequence there."""
        return [(int(first), int(last)) for name, first, last in _LOST.findall(self.log(site)) if name == origin]

    # --- the end ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        feeders = (feeder for _, feeder in self._feeders)
        for process in (*self._processes.values(), *self._consumers.values(), *feeders):
            process.kill()
            process.wait()
        self.timeline.close()
        self.network.close()


def _keys(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    return "\n".join(f"[{name}]\n{_keys(table)}" for name, table in tables.items())


def chain(folder: Path, seed: int, sites: str = "abcd", **terms: Any) -> Fleet:
    """Sites in a row."""
    return Fleet(folder, sites, list(itertools.pairwise(sites)), seed, **terms)


def ring(folder: Path, seed: int, sites: str = "abcd", **terms: Any) -> Fleet:
    """Sites in a circle."""
    links = [*itertools.pairwise(sites), (sites[0], sites[-1])]
    return Fleet(folder, sites, links, seed, **terms)
