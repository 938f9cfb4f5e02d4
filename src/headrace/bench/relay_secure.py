"""`headrace bench relay --secure`: what trust costs, and what a hostile client costs the others.

The same measurements as `headrace bench relay`, between two sites over loopback, one variant beside the other:

    plain       TCP, no rules
    tls         mutual TLS
    rules       and rules: for the two sites, and for others as a large site has them
    signed      and every product signed by its origin; the other site requires and verifies the signatures

The variants take turns, several rounds, and the median counts: what the machine does besides then concerns all of them.
Each figure says how much it is of the plain one. The hostile client is in relay_hostile.py.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headrace.bench.relay import LARGE, Progress, backlog, latencies, live, share_of
from headrace.bench.relay_hostile import hostile
from headrace.bench.report import Figure
from headrace.bench.two_sites import PLAIN, Trust
from headrace.link.certificates import make_authority, make_certificate
from headrace.link.rights import Rule
from headrace.relay.signing.keyring import OriginKey, public_of
from headrace.relay.signing.terms import SigningTerms
from headrace.relay.signing.verify import VerifyRule

BACKLOG = {150: 300_000, 13_600: 30_000, LARGE: 400}  # size: number of products
LIVE, PER_SECOND, ROUNDS = 200_000, 200, 3
HOSTILE_S, HOSTILE_S_MIN = 6.0, 1.0  # of each part
NOT_MEASURED = [
    "several machines, real networks, durability on disk",
    "QUIC, and certificates with other keys than EC P-256",
    "the time to set up a link: handshakes happen once",
    "one core for each process: sites, clients and the hostile client share the cores of this machine",
]
_HOSTS = ("127.0.0.1", "localhost")
_OTHERS = 50  # names that have rules besides the two sites
Values = dict[str, list[float]]  # of each variant, one for each round


def run(place: Path, scale: float, progress: Progress) -> Iterator[Figure]:
    """All variants side by side, then the hostile client."""
    certs = place / "certs"
    variants = trusts(certs)
    for size, count in BACKLOG.items():
        number = max(20_000_000 // (size + 900), int(count * scale))
        progress(f"backlog of {size} B products")
        rates = _rounds(variants, scale, partial(backlog, place, size, number))
        unit, factor = ("GB/s", LARGE / 1e9) if size == LARGE else ("/s", 1.0)
        yield from _beside_each_other(f"backlog-{size}", f"backlog, {size:,} B", rates, unit, factor)
    progress("live at full speed")
    rates = _rounds(variants, scale, lambda trust: live(place, max(2_000, int(LIVE * scale)), trust)[0])
    yield from _beside_each_other("live-150", "live at full speed, 150 B", rates, "/s")
    progress(f"latency at {PER_SECOND}/s")
    taken: dict[str, list[list[int]]] = {name: [] for name in variants}
    for name, trust in list(variants.items()) * _round_count(scale):
        taken[name].append(latencies(place, PER_SECOND, scale, trust))
    for quantile, share in (("p50", 0.5), ("p99", 0.99)):
        values = {name: [share_of(each, share) for each in rounds] for name, rounds in taken.items()}
        what = f"latency at {PER_SECOND}/s, {quantile}"
        yield from _beside_each_other(f"latency-{PER_SECOND}-{quantile}", what, values, "ms")
    progress("a hostile client beside honest ones")
    yield from hostile(certs, place, max(HOSTILE_S_MIN, HOSTILE_S * scale), progress)


def trusts(certs: Path) -> dict[str, Trust]:
    """The variants, each with what the one before it has."""
    make_authority(certs)
    for name in ("one", "two"):
        make_certificate(certs, name, _HOSTS)
    tls = replace(PLAIN, certs=certs)
    pair = Rule(("one", "two"), receive=("**",), publish=("**",))
    others = tuple(Rule((f"site{number}",), receive=(f"wx/{number}/**",)) for number in range(_OTHERS))
    rules = replace(tls, rules=(pair, *others))
    return {"plain": PLAIN, "tls": tls, "rules": rules, "signed": replace(rules, signing=_signing())}


def _signing() -> Mapping[str, SigningTerms]:
    """The first site signs, and the second one requires its signatures."""
    private = Ed25519PrivateKey.generate()
    known = (OriginKey("one", public_of(private)),)
    required = (VerifyRule(("**",), "require"),)
    return {"one": SigningTerms(private.private_bytes_raw()), "two": SigningTerms(keys=known, verify=required)}


def _round_count(scale: float) -> int:
    return ROUNDS if scale >= 0.1 else 1


def _rounds(variants: Mapping[str, Trust], scale: float, measure: Callable[[Trust], float]) -> Values:
    """The variants in turn, so that none has the quiet moments of the machine to itself."""
    values: Values = {name: [] for name in variants}
    for name, trust in list(variants.items()) * _round_count(scale):
        values[name].append(measure(trust))
    return values


def _beside_each_other(name: str, what: str, values: Values, unit: str, factor: float = 1.0) -> Iterator[Figure]:
    plain = statistics.median(values["plain"])
    for variant, rounds in values.items():
        value = statistics.median(rounds)
        beside = "" if variant == "plain" else f"{value / plain:.2f} times plain"
        yield Figure(f"{name}-{variant}", f"{what}, {variant}", value * factor, unit, beside=beside)
