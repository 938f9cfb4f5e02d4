"""Hello: client and site agree on a version of the protocol before the first call.

    client    Hello(0, lowest, highest)        the versions that the client speaks
    site      Welcome(version)                 the highest that both speak; or a refusal that names the versions of both

A hello travels as calls do (envelope.py). Its form, that of a welcome, and that of a refusal (a Zenoh error reply with
text) are the same in all versions of the protocol, so that a client and a site of any age understand each other this
far. The site remembers nothing: each call has its version.

VERSION is raised by every change of a call, of an envelope, or of the meaning of a reply. OLDEST_VERSION is raised to
VERSION as well, unless the change only adds calls, or members of calls that have a default. Then client and site of the
versions before it still understand each other, whichever of them is newer: a member that has its default is not sent,
and a site refuses a call that it does not know. A new member of a reply needs a new version too, because a client
refuses members that it does not know: a site sends it only to clients that speak that version. docs/protocol.md lists
the versions.
"""

from typing import Annotated, Final, Literal

import msgspec

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError
from headrace.remote.protocol.replies import Welcome

VERSION = 13
PARTS_VERSION = 12  # the first one with payloads in parts
COMPRESSION_VERSION = 13  # the first one with compressed messages and dictionaries
OLDEST_VERSION = 9  # that clients and sites of VERSION speak, too
HELLO: Final = 0  # the first element of a hello, where a call has its version

_Version = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
HELLO_BYTES_MAX = 64 << 10
_REMEDY = "update the older of the two"


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The range of versions that a client speaks. Elements behind these are ignored."""

    hello: Literal[0]
    lowest: _Version
    highest: _Version


_HELLO: Decoder[Hello] = Decoder(Hello, bytes_max=HELLO_BYTES_MAX)


def decode_hello(head: bytes) -> Hello:
    """The hello in an attachment; FabricMessageError names what is invalid."""
    try:
        hello = _HELLO.decode(head)
    except msgspec.DecodeError as error:
        raise FabricMessageError(
            f"the hello is invalid: {error}", "send [0, lowest version, highest version]"
        ) from None
    if hello.lowest > hello.highest:
        raise FabricMessageError(
            f"the hello is invalid: version {hello.lowest} to {hello.highest}", "give the lowest version first"
        )
    return hello


def agree(hello: Hello) -> Welcome:
    """The version to use; FabricMessageError if there is none that both speak."""
    version = min(hello.highest, VERSION)
    if version < max(hello.lowest, OLDEST_VERSION):
        raise FabricMessageError(
            f"the client speaks {_span(hello.lowest, hello.highest)} of the protocol, the site {spoken()}", _REMEDY
        )
    return Welcome(version)


def check_spoken(version: int) -> None:
    """FabricMessageError if a call has a version that this site does not speak."""
    if not OLDEST_VERSION <= version <= VERSION:
        raise FabricMessageError(f"the call has version {version} of the protocol; the site speaks {spoken()}", _REMEDY)


def spoken() -> str:
    """The versions of this site, in words."""
    return _span(OLDEST_VERSION, VERSION)


def _span(lowest: int, highest: int) -> str:
    return f"version {lowest}" if lowest == highest else f"versions {lowest} to {highest}"
