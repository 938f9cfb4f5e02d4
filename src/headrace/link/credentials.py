"""Credentials: how a session proves its identity, and how it checks the identity of others.

By certificate: `TlsTerms`, for tls and quic endpoints. The common name of a certificate is its bearer's name. By name
and password: `UserTerms` to connect, and a users file to admit others (`headrace.link.users`). The files are read and
checked here before Zenoh sees them, so that each mistake is reported with its file and its remedy.

Not here: making certificates (`headrace.link.certificates`), and what a name may do (`headrace.link.access`).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import FabricError, OptionError
from headrace.files import IrregularFileError, exposure, read_regular
from headrace.link.passwords import secret_of

if TYPE_CHECKING:
    from cryptography import x509

SITE_DAYS = 730  # how long the certificate of a site is valid, if its maker does not say


@dataclass(frozen=True, slots=True)
class TlsTerms:
    """The authority to trust, and the certificate to show. Without a certificate a session can only connect.

    `mutual`: a program that connects here must show a certificate of the authority, too. The session's own certificate
    is shown to every program that asks for it in any case.
    """

    authority: Path
    certificate: Path | None = None
    key: Path | None = None
    mutual: bool = True

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise OptionError("a certificate and its key are required together", "give both, or neither")


@dataclass(frozen=True, slots=True)
class UserTerms:
    """The name and the password to connect with; the secret that is derived from it may stand for the password."""

    name: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.name or ":" in self.name or not self.name.isprintable() or self.name != self.name.strip():
            raise OptionError(f"invalid user name {self.name!r}", "use printable text without a colon")
        if not self.password or self.password != self.password.strip() or not self.password.isprintable():
            raise OptionError(
                f"invalid password of user {self.name}", "use printable text without spaces at its start or end"
            )

    @property
    def secret(self) -> str:
        """What is shown to a site instead of the password."""
        return secret_of(self.name, self.password)


def check_tls(tls: TlsTerms) -> None:
    """FabricError unless the files exist, are readable, belong together and are valid today."""
    authorities = _certificates(tls.authority, "the certificate of the authority")
    if tls.certificate is None or tls.key is None:
        return
    certificate, *between = _certificates(tls.certificate, "the certificate")
    _check_key(tls.key, tls.certificate, certificate)
    _check_dates(tls.certificate, certificate)
    if not any(_is_issued_by(certificate, issuer) for issuer in (*authorities, *between)):
        raise FabricError(
            f"{tls.certificate} was not issued by the authority in {tls.authority}",
            "create it with: headrace certs site, in the directory of that authority",
        )


def read_certificate(path: Path) -> "x509.Certificate":
    """The first certificate in a PEM file; FabricError if there is none."""
    return _certificates(path, "the certificate")[0]


def principal_of(tls: TlsTerms | None, user: UserTerms | None) -> str | None:
    """The name by which the access rules of sites know the bearer: of the user, or of the certificate."""
    if user is not None:
        return user.name
    return None if tls is None or tls.certificate is None else common_name(tls.certificate)


def common_name(certificate: Path) -> str | None:
    """The name that a certificate proves; None: it has none."""
    from cryptography.x509.oid import NameOID

    names = read_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else None


def secret_text(path: Path, what: str) -> str:
    """The content of a file that nobody else may read; FabricError if others may, or if it is not readable here."""
    text = _text(path, what)
    open_to_others = exposure(path)
    if open_to_others:
        raise FabricError(f"{what} {path} {open_to_others}", f"run: chmod 600 {path}")
    return text


def _text(path: Path, what: str) -> str:
    try:
        return read_regular(path, follow=True).decode()
    except FileNotFoundError:
        hint = "check the path; headrace certs creates certificates"
        raise FabricError(f"{what} does not exist: {path}", hint) from None
    except UnicodeDecodeError:
        hint = "passwords are plain text; certificates and keys are PEM files"
        raise FabricError(f"{what} {path} is not readable: it is not text", hint) from None
    except IrregularFileError as error:
        raise FabricError(f"{what} {path} is not readable: {error.strerror}", "give the path of a file") from None
    except OSError as error:
        hint = "make the file readable for the user that runs this program"
        raise FabricError(f"{what} {path} is not readable: {error.strerror}", hint) from None


def _certificates(path: Path, what: str) -> "list[x509.Certificate]":
    from cryptography import x509

    text = _text(path, what)
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        hint = "it is a key; give the .crt file" if "PRIVATE KEY" in text else "give a PEM file"
        raise FabricError(f"{what} {path} is not a certificate", hint) from None


def _check_key(key_path: Path, path: Path, certificate: "x509.Certificate") -> None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = secret_text(key_path, "the private key")
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except TypeError:
        raise FabricError(
            f"the private key {key_path} is encrypted", "store it without a password, mode 0600"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        hint = "it is a certificate; give the .key file" if "CERTIFICATE" in text else "give a PEM file"
        raise FabricError(f"{key_path} is not a private key", hint) from None
    if key.public_key() != certificate.public_key():
        raise FabricError(f"the private key {key_path} does not match the certificate {path}", "give one pair")


def _check_dates(path: Path, certificate: "x509.Certificate") -> None:
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        hint = "create a new one with: headrace certs site"
        raise FabricError(f"{path} expired on {certificate.not_valid_after_utc:%Y-%m-%d}", hint)
    if now < certificate.not_valid_before_utc:
        hint = "check the clock of this machine"
        raise FabricError(f"{path} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}", hint)


def _is_issued_by(certificate: "x509.Certificate", authority: "x509.Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
