"""Quotas: how much of a site one principal may use.

A principal is a name of a certificate or user; those without a name share one quota. Everything that a member can make
grow at a site has such a limit, so that no member takes what others need. A refusal names the quota (`refused`).

Not here: which feeds a principal may use (rights.py), and the limits of a site as a whole, which stand where they hold.
"""

from dataclasses import dataclass

from headrace.errors import QuotaError


@dataclass(frozen=True, slots=True)
class Quotas:
    """For each principal. 0 is no valid value: what a principal may not do at all, rights say."""

    sessions: int = 256  # clients that are connected
    streams: int = 32  # of the site, made for its selections
    stations: int = 64  # that it has created
    consumers: int = 512  # and suppliers, attached at a time
    calls_per_s: float = 5000.0
    bytes_per_s: float = 1e9  # of payloads that it puts
    waiting_bytes: int = 256 << 20  # of payloads that it has put and that wait for room, or came in part
    selection_s: float = 0.5  # of processor time per second, for its selections and reads


def refused(quota: str, limit: float, who: str | None) -> QuotaError:
    """The refusal; `quota` is the name of a field of Quotas."""
    return QuotaError(
        f"{who or 'clients without a name'}: the quota {quota} of {limit:g} is used up",
        f"use less, or ask the operator of the site for more: {quota} in [quota]",
    )
