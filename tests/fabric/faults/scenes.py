"""Scenes: what may happen to a fleet while it is fed. Each returns when it is over, and says from when recovery counts.

A scene that breaks something and mends it counts from the mending. One that the fabric must get over by itself, because
there is another way, counts from the breaking.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from harness import PATIENCE_S, Fleet
from network import Link

Scene = Callable[[Fleet], float]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    fleet: str
    scene: str
    recovered_s: float
    products: int  # in all queues together, in the end

    def __str__(self) -> str:
        return f"{self.fleet:<24} {self.scene:<58} {self.recovered_s:7.2f} {self.products:9}"


HEADER = f"{'fleet':<24} {'what was done':<58} {'s until level':>7} {'judged':>9}"


def play(fleet: Fleet, name: str, told: str, scene: Scene, *, feed: str = "ac", seconds: float = 6.0, rate: float = 300,
         patience_s: float = PATIENCE_S, spared: str = "") -> Row:  # fmt: skip
    """Start the fleet, feed it, let the scene happen, and judge. Sites in `spared` are not waited for meanwhile."""
    fleet.start()
    for site in feed:
        fleet.feed(site, seconds, rate)
    time.sleep(fleet.chance.uniform(1.0, 1.5))
    since = scene(fleet)
    fleet.settle(patience_s)
    sites = [site for site in fleet.sites if site not in spared]
    recovered_s = fleet.timeline.behind_until(sites, [site for site in feed if site not in spared], since)
    row = Row(name, told, recovered_s, fleet.judge())
    print(row)
    return row


def cut(link: Link, seconds: float) -> Scene:
    """Connections are reset, and refused for a while."""

    def scene(fleet: Fleet) -> float:
        fleet.network.cut(link)
        time.sleep(seconds)
        fleet.network.heal(link)
        return time.monotonic()

    return scene


def stall(link: Link, seconds: float) -> Scene:
    """Nothing goes through for a while, and nobody is told."""

    def scene(fleet: Fleet) -> float:
        fleet.network.stall(link)
        time.sleep(seconds)
        fleet.network.heal(link)
        return time.monotonic()

    return scene


def flap(link: Link, times: int) -> Scene:
    """Cut and healed again and again, for moments."""

    def scene(fleet: Fleet) -> float:
        for _ in range(times):
            fleet.network.cut(link)
            time.sleep(fleet.chance.uniform(0.05, 0.6))
            fleet.network.heal(link)
            time.sleep(fleet.chance.uniform(0.05, 0.6))
        return time.monotonic()

    return scene


def slow(link: Link, seconds: float, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> Scene:
    def scene(fleet: Fleet) -> float:
        fleet.network.slow(link, delay_s, bytes_per_s)
        time.sleep(seconds)
        fleet.network.heal(link)
        return time.monotonic()

    return scene


def kill(*sites: str, seconds: float = 1.0) -> Scene:
    """kill -9 at a random moment, and a restart after a while."""

    def scene(fleet: Fleet) -> float:
        time.sleep(fleet.chance.uniform(0, 1))
        fleet.kill(*sites)
        time.sleep(seconds)
        fleet.start(*sites)
        return time.monotonic()

    return scene


def freeze(site: str, seconds: float) -> Scene:
    """SIGSTOP for a while: its links stay, and it says nothing."""

    def scene(fleet: Fleet) -> float:
        fleet.freeze(site)
        time.sleep(seconds)
        fleet.thaw(site)
        return time.monotonic()

    return scene


def pause_consumer(site: str, seconds: float) -> Scene:
    """Nobody takes anything from a blocking station, so that the site's queue takes nothing more."""

    def scene(fleet: Fleet) -> float:
        pid = fleet.consume(site)
        time.sleep(1)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        return time.monotonic()

    return scene


def in_turn(*scenes: Scene) -> Scene:
    """One after the other, each when the one before is over."""

    def scene(fleet: Fleet) -> float:
        since = 0.0
        for each in scenes:
            since = each(fleet)
        return since

    return scene


def lasting(breaking: Callable[[Fleet], None], mending: Callable[[Fleet], None], seconds: float) -> Scene:
    """Broken for so long that others must find another way meanwhile: counts from the breaking."""

    def scene(fleet: Fleet) -> float:
        since = time.monotonic()
        breaking(fleet)
        time.sleep(seconds)
        mending(fleet)
        return since

    return scene
