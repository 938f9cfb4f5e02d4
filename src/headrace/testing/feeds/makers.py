"""The kinds of feed by name, and a maker for each.

The names are those of `headrace.testing.profiles`. Each maker draws from a source of its own,
made from the seed and its name.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from headrace.testing.feeds.bufr import BufrMaker
from headrace.testing.feeds.bulletin import BulletinMaker
from headrace.testing.feeds.content import Maker, Noise, draw_pool
from headrace.testing.feeds.grid import ConduitMaker, NgridMaker
from headrace.testing.feeds.instruments import EventMaker, MonitorMaker
from headrace.testing.feeds.lightning import LightningMaker
from headrace.testing.feeds.metar import MetarMaker
from headrace.testing.feeds.radar import Level2Maker, Level3Maker
from headrace.testing.feeds.satellite import SatelliteMaker

_TEXT: Mapping[str, Callable[[random.Random], Maker]] = MappingProxyType(
    {"metar": MetarMaker, "bulletin": BulletinMaker, "lightning": LightningMaker}
)
_BULK: Mapping[str, Callable[[random.Random, Noise], Maker]] = MappingProxyType(
    {
        "bufr": BufrMaker,
        "nexrad2": Level2Maker,
        "nexrad3": Level3Maker,
        "ngrid": NgridMaker,
        "conduit": ConduitMaker,
        "satellite": SatelliteMaker,
        "event": EventMaker,
        "monitor": MonitorMaker,
    }
)


def makers(seed: int, kinds: Iterable[str]) -> list[Maker]:
    """Fresh makers, in the order of `kinds`. The pool is drawn only if one of them needs it."""
    pool: memoryview | None = None
    made: list[Maker] = []
    for kind in kinds:
        source = random.Random(f"{seed}/{kind}")
        if kind in _TEXT:
            made.append(_TEXT[kind](source))
            continue
        if pool is None:
            pool = draw_pool(random.Random(f"{seed}/pool"))
        made.append(_BULK[kind](source, Noise(pool, source)))
    return made
