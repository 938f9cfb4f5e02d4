"""Quotas: how much of a site one principal may use.

A principal is a name of a certificate or user; those without a name share one quota. Everything that a member can make
grow at a site has such a limit, so that no member takes what others need. A refusal names the quota (`refused`).

A site has one QuotaTable for all its services, which ask it at each decision (`quotas.of(name)`): it changes while they
run, when the configuration is read again.

Not here: which feeds a principal may use (rights.py), and the limits of a site as a whole, which stand where they hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import QuotaError


@dataclass(frozen=True, slots=True)
class Quotas:
    """For each principal. 0 is no valid value: what a principal may not do at all, rights say."""

    sessions: int = 256  # clients that are connected
    streams: int = 32  # of the site, made for its selections
    stations: int = 64  # that it has created
    cursors: int = 64  # that it has created
    feeds: int = 20_000  # whose first product it put; a queue never forgets the name of a feed
    origins: int = 256  # the same
    dictionaries: int = 16  # that it has added
    consumers: int = 512  # and suppliers, attached at a time
    calls_per_s: float = 5000.0
    bytes_per_s: float = 1e9  # of payloads that it puts
    waiting_bytes: int = 256 << 20  # of payloads that it has put and that wait for room, or came in part
    selection_s: float = 0.5  # of processor time per second, for its selections and reads


@dataclass(slots=True)
class QuotaTable:
    """The quotas of each principal: those that have a name of their own here, or else those of everybody."""

    everybody: Quotas = field(default_factory=Quotas)
    named: Mapping[str, Quotas] = field(default_factory=dict)

    def of(self, name: str | None) -> Quotas:
        """The quotas in force for a principal; None: those without a name."""
        return self.named.get(name, self.everybody) if name is not None else self.everybody

    def change(self, other: "QuotaTable") -> None:
        """Put other quotas into force, for what is decided from now on."""
        self.everybody, self.named = other.everybody, other.named


def refused(quota: str, limit: float, who: str | None) -> QuotaError:
    """The refusal; `quota` is the name of a field of Quotas."""
    return QuotaError(
        f"{who or 'clients without a name'}: the quota {quota} of {limit:g} is used up",
        f"use less, or ask the operator of the site for more: {quota} in [[quota]]",
    )
