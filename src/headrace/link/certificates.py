"""Certificates: a small private authority, for tests and for groups of sites that trust each other.

    folder/authority.crt  authority.key     made once; the key stays where it is
    folder/denver.crt     denver.key        one pair per site or user; the name is the certificate's common name

A site that has `authority.crt` admits the bearers of the authority's certificates, under their names; access rules say
what a name may do there. Keys are EC P-256 and readable only by their owner. No file is ever overwritten.

Not here: revocation. A stolen certificate is valid until it expires; remove its name from the access rules, or make a
new authority.
"""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.errors import FabricError, OptionError
from headrace.link.credentials import SITE_DAYS, read_certificate
from headrace.link.endpoint import parse_endpoint
from headrace.product.put import check_origin

AUTHORITY = "authority"
AUTHORITY_DAYS = 3650
_SKEW = timedelta(hours=1)  # the clocks of sites may differ by this much


@dataclass(frozen=True, slots=True)
class Certificate:
    """The contents of a certificate, and the files of the pair."""

    path: Path
    name: str
    issuer: str
    hosts: tuple[str, ...]
    is_authority: bool
    starts: datetime
    expires: datetime
    fingerprint: str  # SHA-256, hexadecimal
    key_path: Path | None = None  # of its key, if it was made just now

    def days_left(self, now: datetime | None = None) -> float:
        """Days until it expires; negative afterwards."""
        return (self.expires - (now or datetime.now(UTC))) / timedelta(days=1)


def make_authority(folder: str | Path, *, name: str = "Headrace authority") -> Certificate:
    """Make an authority in a directory, which is created if it is missing. FabricError if it has one already."""
    folder = Path(folder)
    key_path, path = _pair(folder, AUTHORITY)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FabricError(f"cannot create {folder}: {error.strerror}", "choose another directory") from None
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return _written(builder.sign(key, hashes.SHA256()), key, key_path, path)


def make_certificate(folder: str | Path, name: str, hosts: Sequence[str] = (), *, days: int = SITE_DAYS) -> Certificate:
    """Make a certificate for a site or user, issued by the authority in the directory.

    `hosts` are the names and addresses under which others connect to it; a program that only connects needs none.
    FabricError if there is no authority, or a file of that name exists; OptionError for an invalid name, host or number
    of days.
    """
    if check_origin(name) == AUTHORITY:
        raise OptionError(f"{AUTHORITY!r} is the name of the authority's own files", "choose another name")
    if not 1 <= days <= AUTHORITY_DAYS:
        raise OptionError(f"{days} days are out of range", f"use 1 to {AUTHORITY_DAYS}")
    folder = Path(folder)
    alternatives = [_alternative(host) for host in dict.fromkeys(hosts)]
    key_path, path = _pair(folder, name)
    authority, authority_key = _load_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_subject(name), authority.subject, key.public_key(), days, authority.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(_PURPOSES, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _written(builder.sign(authority_key, hashes.SHA256()), key, key_path, path)


def describe(path: str | Path) -> Certificate:
    """Describe the certificate in a PEM file; FabricError if there is none."""
    return _described(read_certificate(Path(path)), Path(path))


# --- parts of a certificate -----------------------------------------------------------------------------

_PURPOSES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, latest: datetime | None = None
) -> x509.CertificateBuilder:
    now = datetime.now(UTC).replace(microsecond=0)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(end if latest is None else min(end, latest))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(parse_endpoint(f"tls/{host}:1").host)
    except OptionError:
        raise OptionError(f"host {host!r} is neither a name nor an address", "write it without a port") from None


def _described(certificate: x509.Certificate, path: Path, key_path: Path | None = None) -> Certificate:
    return Certificate(
        path,
        _common_name(certificate.subject),
        _common_name(certificate.issuer),
        _hosts(certificate),
        _is_authority(certificate),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.fingerprint(hashes.SHA256()).hex(),
        key_path,
    )


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


# --- files ------------------------------------------------------------------------------------------------


def _pair(folder: Path, name: str) -> tuple[Path, Path]:
    """The files of a name; FabricError if one of them exists."""
    key_path, path = folder / f"{name}.key", folder / f"{name}.crt"
    for each in (key_path, path):
        if each.exists():
            raise FabricError(f"{each} already exists", "move it away first; no file is overwritten")
    return key_path, path


def _load_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    path, key_path = folder / f"{AUTHORITY}.crt", folder / f"{AUTHORITY}.key"
    if not path.exists():
        raise FabricError(f"{folder} has no authority", f"create one with: headrace certs authority {folder}")
    certificate = read_certificate(path)
    if datetime.now(UTC) > certificate.not_valid_after_utc:
        raise FabricError(f"the authority {path} has expired", "create a new one in another directory")
    try:
        key = load_pem_private_key(key_path.read_bytes(), password=None)
    except OSError as error:
        hint = "create certificates where the authority was created"
        raise FabricError(f"the key of the authority is not readable: {key_path}: {error.strerror}", hint) from None
    except (ValueError, TypeError):
        raise FabricError(f"{key_path} is not a private key", "restore it from a backup") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise FabricError(f"{key_path} is not the key of {path}", "restore both from one backup")
    return certificate, key


def _written(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, key_path: Path, path: Path) -> Certificate:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(key_path, secret, 0o600)
    try:
        _write(path, certificate.public_bytes(Encoding.PEM), 0o644)
    except FabricError:
        key_path.unlink()
        raise
    return _described(certificate, path, key_path)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file, whole or not at all; it survives a power failure after return."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise FabricError(f"{path} already exists", "move it away first; no file is overwritten") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        raise FabricError(f"cannot write {path}: {error.strerror}", "check the directory and its disk") from None
