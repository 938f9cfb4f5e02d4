"""Packets of NTP: the request of a client, and a reply with everything wrong with it named (RFC 5905, section 7.3).

A packet has 48 bytes. Extension fields and authentication codes behind them are ignored. Times are unsigned 32.32 fixed
point seconds since 1900; the first half of that range stands for 2036 to 2104, so that no clock is needed to read them.

A request says nothing about this machine: its transmit time is a random number, which the server returns as the origin
time. A reply with another one answers a request that we did not send: it is forged, or from an earlier exchange.
"""

import struct
from dataclasses import dataclass

PACKET_BYTES = 48
PORT = 123
VERSION = 4
CLIENT, SERVER = 3, 4  # modes
UNSYNCHRONISED = 3  # leap indicator
STRATUM_MAX = 15

_PACKET = struct.Struct("!BBbbII4s8s8sQQ")
_NS = 1_000_000_000
_ERA_S = 1 << 32
_TO_1970_S = 2_208_988_800  # from 1900
_REQUEST = bytes([VERSION << 3 | CLIENT]) + bytes(39)


class RefusedError(Exception):
    """A datagram that is no valid reply; `cause` is one of a few words, by which it is counted."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server says. Times are nanoseconds since 1970, UTC."""

    received_ns: int  # when the request arrived there
    sent_ns: int
    stratum: int
    leap: int  # 1: the last minute of this day has 61 seconds; 2: it has 59
    root_delay_ns: int  # to the clock that the server follows in the end, and back
    root_dispersion_ns: int
    precision_ns: int
    reference: bytes  # whom the server follows: an address, or a name of four letters


def encode_request(nonce: bytes) -> bytes:
    """A request of a client; `nonce` has eight random bytes."""
    return _REQUEST + nonce


def decode_reply(datagram: bytes, nonce: bytes) -> Reply:
    """The reply to the request with that nonce; RefusedError if it is none."""
    if len(datagram) < PACKET_BYTES:
        raise RefusedError("too short")
    (first, stratum, _, precision, delay, dispersion, reference, _, origin, received, sent) = _PACKET.unpack_from(
        datagram
    )
    if first & 7 != SERVER:
        raise RefusedError("wrong mode")
    if not 1 <= first >> 3 & 7 <= VERSION:
        raise RefusedError("wrong version")
    if origin != nonce:
        raise RefusedError("not our request")
    if stratum == 0 and reference.isalpha():
        raise RefusedError(f"kiss {reference.decode()}")
    if first >> 6 == UNSYNCHRONISED or not 1 <= stratum <= STRATUM_MAX:
        raise RefusedError("unsynchronised")
    if not received or not sent or sent < received:
        raise RefusedError("invalid times")
    return Reply(
        from_ntp(received), from_ntp(sent), stratum, first >> 6, _short_ns(delay), _short_ns(dispersion),
        max(1, int(2.0 ** max(-30, min(precision, 4)) * _NS)), reference,
    )  # fmt: skip


def encode_reply(request: bytes, reply: Reply) -> bytes:
    """The reply of a server to a request; for simulated servers."""
    precision = max(-30, -round(_NS / reply.precision_ns).bit_length())
    return _PACKET.pack(
        reply.leap << 6 | VERSION << 3 | SERVER, reply.stratum, 6, precision, _to_short(reply.root_delay_ns),
        _to_short(reply.root_dispersion_ns), reply.reference, bytes(8), request[40:48], to_ntp(reply.received_ns),
        to_ntp(reply.sent_ns),
    )  # fmt: skip


def from_ntp(stamp: int) -> int:
    """Nanoseconds since 1970, from 1968 to 2104."""
    seconds, fraction = stamp >> 32, stamp & 0xFFFFFFFF
    if seconds < 1 << 31:
        seconds += _ERA_S
    return (seconds - _TO_1970_S) * _NS + (fraction * _NS >> 32)


def to_ntp(time_ns: int) -> int:
    seconds, fraction = divmod(time_ns, _NS)
    return (seconds + _TO_1970_S) % _ERA_S << 32 | -(-(fraction << 32) // _NS) & 0xFFFFFFFF


def _short_ns(value: int) -> int:
    """16.16 fixed point seconds; rounded up, since it is an error."""
    return -(-value * _NS >> 16)


def _to_short(value_ns: int) -> int:
    return min(0xFFFFFFFF, -(-(value_ns << 16) // _NS))
