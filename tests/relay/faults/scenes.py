"""Scenes: faults of a fleet while products are put, and how soon the fleet is level again.

A scene breaks something, waits, repairs it, and returns its times. Two times are measured:

    meanwhile    from the start of the fault until the sites that were not hit are level, if they are before it ends:
                 there is another path, or the fault does not affect them
    afterwards   from the end of the fault until all sites are level. For a site that was killed, the fault ends when the
                 site reports that it is ready.

A site is level if it has everything that was put anywhere more than a second ago (timeline.GRACE_S).
"""

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clocks import WrongClock
from harness import PATIENCE_S, Fleet
from network import Link, Namespaces

from support.waiting import until

HOUR_S = 3600
_BALLAST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Over:
    """A scene that has happened."""

    broken: float
    repaired: float
    hit: str = ""  # sites that were away or could not store anything; they need not be level meanwhile


Scene = Callable[[Fleet], Over]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    fleet: str
    scene: str
    meanwhile_s: float | None
    recovered_s: float
    products: int  # in all queues that were judged

    def __str__(self) -> str:
        meanwhile = "-" if self.meanwhile_s is None else f"{self.meanwhile_s:.1f}"
        return f"{self.fleet:<6} {self.scene:<68} {meanwhile:>9} {self.recovered_s:10.1f} {self.products:8}"


HEADER = f"{'fleet':<6} {'what was done':<68} {'meanwhile':>9} {'afterwards':>10} {'judged':>8}"


def play(fleet: Fleet, name: str, told: str, scene: Scene, *, feed: str = "ac", seconds: float = 6.0, rate: float = 300,
         patience_s: float = PATIENCE_S, judged: str = "") -> Row:  # fmt: skip
    """Start the fleet, feed it for `seconds`, play the scene, and judge the sites in `judged`, or all."""
    fleet.start()
    for site in feed:
        fleet.feed(site, seconds, rate)
    fleet.wait_for_more(fleet.sites)
    time.sleep(fleet.chance.uniform(0, 0.5))
    over = scene(fleet)
    fleet.settle(patience_s)
    sound = [[site for site in sites if site not in over.hit] for sites in (fleet.sites, feed)]
    meanwhile_s = fleet.timeline.level_within(*sound, over.broken, over.repaired)
    recovered_s = fleet.timeline.behind_until(fleet.sites, feed, over.repaired)
    row = Row(name, told, meanwhile_s, recovered_s, fleet.judge(judged))
    print(row)
    return row


def during(seconds: float, breaking: Callable[[Fleet], None], repair: Callable[[Fleet], None], hit: str = "") -> Scene:
    """A fault that lasts `seconds`; the sites in `hit` must fall behind."""

    def scene(fleet: Fleet) -> Over:
        broken = time.monotonic()
        breaking(fleet)
        time.sleep(seconds)
        until(lambda: not any(fleet.timeline.is_level(site, fleet.origins) for site in hit), f"{hit} fall behind")
        repair(fleet)
        return Over(broken, time.monotonic(), hit)

    return scene


# --- links ----------------------------------------------------------------------------------------


def cut(link: Link, seconds: float) -> Scene:
    """Connections are reset, and refused for a while."""
    return during(seconds, lambda fleet: fleet.network.cut(link), lambda fleet: fleet.network.heal(link))


def stall(link: Link, seconds: float) -> Scene:
    """Nothing passes for a while, and neither end gets an error."""
    return during(seconds, lambda fleet: fleet.network.stall(link), lambda fleet: fleet.network.heal(link))


def slow(link: Link, seconds: float, bytes_per_s: float) -> Scene:
    return during(
        seconds,
        lambda fleet: fleet.network.slow(link, bytes_per_s=bytes_per_s),
        lambda fleet: fleet.network.heal(link),
    )


def delay(seconds: float, delay_s: float) -> Scene:
    """Delay every link, in both directions."""

    def breaking(fleet: Fleet) -> None:
        for link in fleet.links:
            fleet.network.slow(link, delay_s=delay_s)

    return during(seconds, breaking, _heal_all)


def lose(seconds: float, percent: int) -> Scene:
    """Lose `percent` of the packets on every link, in both directions."""

    def breaking(fleet: Fleet) -> None:
        assert isinstance(fleet.network, Namespaces)
        for link in fleet.links:
            fleet.network.lose(link, percent)

    return during(seconds, breaking, _heal_all)


def _heal_all(fleet: Fleet) -> None:
    for link in fleet.links:
        fleet.network.heal(link)


def flap(link: Link, times: int) -> Scene:
    """Cut and heal a link repeatedly, for moments."""

    def scene(fleet: Fleet) -> Over:
        broken = time.monotonic()
        for _ in range(times):
            fleet.network.cut(link)
            time.sleep(fleet.chance.uniform(0.05, 0.6))
            fleet.network.heal(link)
            time.sleep(fleet.chance.uniform(0.05, 0.6))
        return Over(broken, time.monotonic())

    return scene


# --- sites ----------------------------------------------------------------------------------------


def kill(*sites: str, seconds: float = 1.0) -> Scene:
    """kill -9 at a random moment, and a restart after a while."""

    def scene(fleet: Fleet) -> Over:
        time.sleep(fleet.chance.uniform(0, 1))
        return during(seconds, lambda fleet: fleet.kill(*sites), lambda fleet: fleet.start(*sites), "".join(sites))(
            fleet
        )

    return scene


def freeze(site: str, seconds: float) -> Scene:
    """SIGSTOP for a while: the links of the site stay open, and it sends nothing."""
    return during(seconds, lambda fleet: fleet.freeze(site), lambda fleet: fleet.thaw(site), site)


def pause_consumer(site: str, seconds: float) -> Scene:
    """Stop the consumer of a blocking station, so that the site's queue accepts nothing more."""

    def scene(fleet: Fleet) -> Over:
        pid = fleet.consume(site)
        fleet.wait_for_more(site)
        return during(seconds, lambda _: os.kill(pid, signal.SIGSTOP), lambda _: os.kill(pid, signal.SIGCONT), site)(
            fleet
        )

    return scene


def fill_disk(site: str, disk: Path, seconds: float) -> Scene:
    """Another program fills the disk of the site's queue, and frees the space after a while."""

    def breaking(_: Fleet) -> None:
        with (disk / "ballast").open("wb", buffering=0) as file:
            while _takes_more(file.fileno()):
                pass

    def repair(fleet: Fleet) -> None:
        assert "No space left" in fleet.log(site), "the disk was not full"
        (disk / "ballast").unlink()

    return during(seconds, breaking, repair, site)


def _takes_more(file: int) -> bool:
    try:
        return os.write(file, bytes(_BALLAST_BYTES)) > 0
    except OSError as error:
        assert error.errno == errno.ENOSPC
        return False


def jump(clocks: list[WrongClock], times: int) -> Scene:
    """Set the clocks of running sites, one after the other, by hours."""

    def scene(fleet: Fleet) -> Over:
        broken = time.monotonic()
        for number in range(times):
            clocks[number % len(clocks)].set(fleet.chance.choice((-1, 1)) * fleet.chance.randrange(HOUR_S, 12 * HOUR_S))
            time.sleep(0.4)
        return Over(broken, time.monotonic())

    return scene


def in_turn(*scenes: Scene) -> Scene:
    """One after the other, each when the one before is over."""

    def scene(fleet: Fleet) -> Over:
        overs = [each(fleet) for each in scenes]
        return Over(overs[0].broken, overs[-1].repaired, "".join(over.hit for over in overs))

    return scene
