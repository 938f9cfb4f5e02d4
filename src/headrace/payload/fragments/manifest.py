"""Manifest: what a receiver must know of a transfer, and how a file is cut.

A transfer is one file, directory or large product on its way. It travels as products of one feed:

    manifest            name, size, how it is cut; asks receivers what they have already
    fragment 0 … n-1    the bytes, in pieces of equal size; the last one may be shorter
    manifest            the same with the BLAKE3 hash of each fragment

All carry the option `fragment`: transfer, number, count; the manifest has the last number (mark.py). The
id of a transfer follows from what is sent, so a sender that was killed and runs again continues the same transfer.

The hash of the whole is BLAKE3 over the hashes of the fragments: each fragment is verified alone, in any order, and the
bytes are hashed once. A fragment that is a hole of a sparse file is named in `holes` and not sent.

Nothing in a manifest is believed before `check_manifest` and, for its name, `names.check_name`.
"""

from functools import lru_cache
from typing import Annotated, Literal, TypeVar

import msgspec
from blake3 import blake3

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError
from headrace.payload.fragments.names import check_name
from headrace.payload.fragments.ranges import numbers_of

VERSION = 1
HASH_BYTES = 32
TRANSFER_BYTES = 16
FRAGMENTS_MAX = 1 << 16
FRAGMENT_BYTES_MAX = 1 << 30
SIZE_MAX = FRAGMENTS_MAX * FRAGMENT_BYTES_MAX
MANIFEST_BYTES_MAX = 8 << 20
_USUAL_BYTES = 2 << 20
Document = TypeVar("Document")
Size = Annotated[int, msgspec.Meta(ge=0, le=SIZE_MAX)]
Place = Annotated[int, msgspec.Meta(ge=0, lt=FRAGMENTS_MAX)]


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """One transfer. `hashes` is empty until every fragment was read."""

    version: int = VERSION
    transfer: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    kind: Literal["file", "directory", "product"] = "file"
    name: str  # of a file, a path without .. and without a leading slash; of a product, its ident
    size: Size = 0
    fragment_bytes: Annotated[int, msgspec.Meta(ge=1, le=FRAGMENT_BYTES_MAX)] = _USUAL_BYTES
    mode: Annotated[int, msgspec.Meta(ge=0, le=0o777)] = 0o644
    mtime_ns: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = 0  # before 1970: negative
    holes: list[tuple[Place, Place]] = []  # fragments that consist of zeros and are not sent
    hashes: bytes = b""  # 32 bytes for each fragment
    run: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$|^$")] = ""  # of the sender: another one each time it runs
    source: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$|^$")] = ""  # the same for one path of one sender
    asks: bool = False  # the sender asks each receiver what it has
    withdrawn: str = ""  # why the sender has given up; the receiver drops what it has

    @property
    def count(self) -> int:
        """How many fragments it has."""
        return -(-self.size // self.fragment_bytes)

    @property
    def has_hashes(self) -> bool:
        return len(self.hashes) == self.count * HASH_BYTES

    @property
    def root(self) -> bytes:
        """The hash of the whole, from the hashes of the fragments."""
        return blake3(self.hashes).digest()

    def length_of(self, number: int) -> int:
        """The bytes of a fragment."""
        return min(self.fragment_bytes, self.size - number * self.fragment_bytes)

    def describes_same(self, other: "Manifest") -> bool:
        """Whether both cut the same thing in the same way."""
        return _what(self) == _what(other)


def _what(manifest: Manifest) -> tuple[object, ...]:
    return (manifest.transfer, manifest.kind, manifest.name, manifest.size, manifest.fragment_bytes)


def transfer_of(*facts: object) -> bytes:
    """The id of the transfer that these facts describe; the same for the same facts."""
    return blake3(msgspec.json.encode([str(fact) for fact in facts])).digest(TRANSFER_BYTES)


def hash_of(fragment: bytes | bytearray | memoryview) -> bytes:
    """The hash of one fragment. Lets other threads run meanwhile."""
    return blake3(fragment).digest()


@lru_cache(8)
def zeros_hash(length: int) -> bytes:
    """The hash of a fragment that is a hole."""
    return hash_of(bytes(length))


_DECODER: Decoder[Manifest] = Decoder(Manifest, bytes_max=MANIFEST_BYTES_MAX, encoding="json")
encode_manifest = msgspec.json.Encoder().encode


def decode_manifest(payload: bytes | memoryview) -> Manifest:
    """The manifest in a product, checked; FabricMessageError names what is invalid."""
    return check_manifest(decode_document(_DECODER, payload, "manifest"))


def decode_document(decoder: Decoder[Document], payload: bytes | memoryview, what: str) -> Document:
    """A manifest or a receipt that a stranger may have sent; FabricMessageError if it is too large or invalid."""
    try:
        return decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise FabricMessageError(f"the {what} is invalid: {error}", "it is ignored") from None


def check_manifest(manifest: Manifest) -> Manifest:
    """Return the manifest if everything in it is consistent."""
    if manifest.version != VERSION:
        raise FabricMessageError(f"the manifest has version {manifest.version}", "run the same version at both ends")
    if manifest.kind != "product":
        check_name(manifest.name)
    if manifest.count > FRAGMENTS_MAX or (manifest.kind == "directory" and manifest.size):
        raise FabricMessageError(
            f"{manifest.name!r} has {manifest.count} fragments", f"the limit is {FRAGMENTS_MAX}, 0 for a directory"
        )
    if manifest.hashes and not manifest.has_hashes:
        raise FabricMessageError(f"the hashes of {manifest.name!r} are truncated", "it is ignored")
    numbers_of(manifest.holes, manifest.count)
    return manifest
