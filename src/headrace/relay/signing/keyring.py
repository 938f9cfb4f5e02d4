"""Keys: by which origins sign, and who they are for; files of keys and of revocations.

A key is an Ed25519 pair. Its id is the first 8 bytes of the BLAKE3 of the public key, as 16 hexadecimal digits. An
origin may have several, each from one time until another, so that keys change without a gap: publish the next one
before it is used. What counts is when a product was put. A revoked key proves nothing, whenever a product was put.

    NAME.sign.key   the private key, as PEM, for the origin alone (mode 0600)
    a file of revocations has a line for each key: its id, and any text behind it

Not here: which products must be signed (verify.py).
"""

import base64
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from blake3 import blake3
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from headrace.errors import OptionError
from headrace.link.credentials import secret_text
from headrace.product.put import check_origin

PUBLIC_BYTES = 32
FOREVER = 1 << 63
_ID = re.compile(r"[0-9a-f]{16}")
_MAKE = "create one with: headrace keys create"

Standing = Literal["valid", "unknown", "revoked", "out of date"]


@dataclass(frozen=True, slots=True)
class OriginKey:
    """A public key, and for whose products and when it counts."""

    origin: str
    public: bytes
    from_ns: int = 0
    until_ns: int = FOREVER

    @property
    def id(self) -> int:
        return key_id(self.public)


def key_id(public: bytes) -> int:
    return int.from_bytes(blake3(public).digest()[:8], "little")


def id_text(number: int) -> str:
    return number.to_bytes(8, "little").hex()


class KeyRing:
    """The keys that a site knows. Threads may share it; it does not change."""

    def __init__(self, keys: Iterable[OriginKey] = (), revoked: Iterable[int] = ()) -> None:
        self.keys, self.revoked = tuple(keys), frozenset(revoked)
        self._by_id: dict[tuple[str, int], list[OriginKey]] = {}
        self._loaded: dict[bytes, Ed25519PublicKey] = {}
        for key in self.keys:
            self._by_id.setdefault((key.origin, key.id), []).append(key)
            self._loaded[key.public] = Ed25519PublicKey.from_public_bytes(key.public)

    def __bool__(self) -> bool:
        return bool(self.keys)

    def find(self, origin: str, number: int, put_ns: int) -> tuple[Standing, Ed25519PublicKey | None]:
        """The key of that id of an origin, for a product that was put at this time; or why there is none."""
        keys = self._by_id.get((origin, number))
        if keys is None:
            return "unknown", None
        if number in self.revoked:
            return "revoked", None
        for key in keys:
            if key.from_ns <= put_ns < key.until_ns:
                return "valid", self._loaded[key.public]
        return "out of date", None


# --- files ----------------------------------------------------------------------------------------


def make_key(folder: Path, name: str) -> tuple[Path, bytes]:
    """Create NAME.sign.key in the folder; the file, and the public key. OptionError if the file exists."""
    file = folder / f"{check_origin(name)}.sign.key"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise OptionError(
            f"{file} exists", "give another folder: the old key is needed until the new one is known everywhere"
        ) from None
    with open(descriptor, "wb") as opened:
        opened.write(text)
    return file, public_of(private)


def public_of(key: Ed25519PrivateKey | Ed25519PublicKey) -> bytes:
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    return public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def read_private(file: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file; OptionError if there is none of Ed25519, FabricError if others may read it."""
    text = secret_text(file, "the key")
    try:
        key = serialization.load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError) as error:
        raise OptionError(f"{file} has no private key: {error}", _MAKE) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise OptionError(f"the key in {file} is not one of Ed25519", _MAKE)
    return key


def read_public(file: Path) -> tuple[bytes, int, int]:
    """The public key in a file with a certificate or a key, and from when until when it counts."""
    data, from_ns, until_ns = file.read_bytes(), 0, FOREVER
    try:
        if b"BEGIN CERTIFICATE" in data:
            certificate = x509.load_pem_x509_certificate(data)
            key: object = certificate.public_key()
            from_ns = int(certificate.not_valid_before_utc.timestamp()) * 10**9
            until_ns = int(certificate.not_valid_after_utc.timestamp()) * 10**9
        elif b"PRIVATE KEY" in data:
            key = read_private(file)
        else:
            key = serialization.load_pem_public_key(data)
    except ValueError as error:
        raise OptionError(f"{file} has no public key: {error}", "give a certificate or a key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey | Ed25519PublicKey):
        raise OptionError(f"the key in {file} is not one of Ed25519", "only those sign: headrace keys create")
    return public_of(key), from_ns, until_ns


def public_text(public: bytes) -> str:
    """As it is written in a configuration."""
    return base64.b64encode(public).decode()


def parse_public(text: str) -> bytes:
    """OptionError unless it is a public key, as `public_text` writes it."""
    try:
        public = base64.b64decode(text, validate=True)
        if len(public) != PUBLIC_BYTES:
            raise ValueError
        Ed25519PublicKey.from_public_bytes(public)
    except ValueError:
        raise OptionError(
            f"{text[:80]!r} is not a public key", "give 32 bytes in base64, as headrace keys show prints them"
        ) from None
    return public


def read_revoked(file: Path) -> frozenset[int]:
    """The ids in a file of revocations; OptionError names a line that has none."""
    found = set()
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        words = line.split("#")[0].split()
        if words:
            found.add(parse_id(words[0], f"{file}, line {number}: "))
    return frozenset(found)


def parse_id(text: str, where: str = "") -> int:
    if not _ID.fullmatch(text):
        raise OptionError(
            f"{where}{text[:80]!r} is not the id of a key", "give 16 hexadecimal digits: headrace keys show"
        )
    return int.from_bytes(bytes.fromhex(text), "little")
