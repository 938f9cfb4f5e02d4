"""Round trip: how long a site takes to answer the smallest question there is."""

import time

import zenoh

from headrace.errors import FabricError
from headrace.relay.asking import Asker, Unreachable
from headrace.relay.question import Where, WhereAnswer

TIMES = 3
_PATIENCE_S = 1.0


def round_trips(
    session: zenoh.Session, site: str, times: int = TIMES, principal: str | None = None
) -> tuple[float, ...]:
    """Seconds, one for each answer; after the first question without an answer no more are asked."""
    asker, taken = Asker(session, site, principal), []
    for _ in range(times):
        begun = time.perf_counter()
        try:
            asker.ask(Where("next"), WhereAnswer, _PATIENCE_S)
        except (Unreachable, FabricError, zenoh.ZError):
            break
        taken.append(time.perf_counter() - begun)
    return tuple(taken)
