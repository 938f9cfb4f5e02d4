"""Problems of quotas: which principals were refused, or slowed down, by which of their quotas."""

from collections.abc import Iterable, Iterator

from headrace.relay.messages.description import Problem
from headrace.remote.server.principal import Refusals
from headrace.units import format_count

KIND = "quota"


def quota_problems(refusals: Iterable[Refusals], now: float) -> Iterator[Problem]:
    """One for each principal and quota; `now` in monotonic seconds."""
    for each in refusals:
        who = each.principal or "clients without a name"
        yield Problem(
            KIND, f"{who} {each.quota}",
            f"{who}: the quota {each.quota} of {each.limit:g} was used up, {format_count(each.count, 'refusal')}",
            f"look at what they do: headrace audit; or grant more: {each.quota} in [[quota]]",
            max(now - each.at, 1e-3),
        )  # fmt: skip
