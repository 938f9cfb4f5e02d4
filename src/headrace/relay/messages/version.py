"""The version that pages and beats begin with; calls have one of their own (remote/protocol/hello.py).

A message of another version may have other members, so it may fail to decode. `check_version` finds out whether that is
the reason, after a message failed: a message that decodes costs nothing more.
"""

import msgspec

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError


class _Versioned(msgspec.Struct, frozen=True, array_like=True):
    """What every version of these messages has in common."""

    version: int


_DECODER: Decoder[_Versioned] = Decoder(_Versioned, bytes_max=16 << 20)


def check_version(what: str, message: bytes, known: int) -> None:
    """FabricMessageError if the message has another version than `known`; nothing if it has no version at all."""
    try:
        version = _DECODER.decode(message).version
    except msgspec.DecodeError:
        return
    if version != known:
        raise other_version(what, version, known)


def other_version(what: str, version: int, known: int) -> FabricMessageError:
    return FabricMessageError(
        f"{what} has version {version}; this Headrace has version {known}", "run the same Headrace version at both ends"
    )
