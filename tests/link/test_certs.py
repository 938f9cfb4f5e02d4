"""Certificates: contents, validity and permissions; nothing is overwritten."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store

from headrace.errors import FabricError, OptionError
from headrace.link.certificates import describe, make_authority, make_certificate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_authority(tmp_path / "certs")
    return tmp_path / "certs"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_authority_is_valid_for_ten_years_and_only_its_owner_can_read_its_key(tmp_path: Path) -> None:
    made = make_authority(tmp_path / "new" / "certs")
    assert made.is_authority
    assert 3649 < made.days_left() < 3651
    assert made.key_path is not None
    assert (mode(made.key_path), mode(made.path.parent)) == (0o600, 0o700)
    assert made.path.name == "authority.crt"


def test_a_certificate_has_the_name_of_its_site_and_its_hosts(folder: Path) -> None:
    made = make_certificate(folder, "denver", ["Denver.Example.org", "192.0.2.7", "[::1]", "2001:DB8::7", "192.0.2.7"])
    assert (made.name, made.issuer, made.is_authority) == ("denver", "Headrace authority", False)
    assert made.hosts == ("denver.example.org", "192.0.2.7", "::1", "2001:db8::7")
    assert 365 <= made.days_left() <= 731
    assert made.key_path == folder / "denver.key"
    assert mode(folder / "denver.key") == 0o600
    assert describe(folder / "denver.crt").hosts == made.hosts


def test_the_key_is_p256_and_belongs_to_the_certificate(folder: Path) -> None:
    make_certificate(folder, "denver")
    key = load_pem_private_key((folder / "denver.key").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    certificate = x509.load_pem_x509_certificate((folder / "denver.crt").read_bytes())
    assert certificate.public_key() == key.public_key()


def test_certificates_pass_a_strict_verifier_for_servers_and_clients(folder: Path) -> None:
    make_certificate(folder, "denver", ["denver.example.org"])
    authority = x509.load_pem_x509_certificate((folder / "authority.crt").read_bytes())
    certificate = x509.load_pem_x509_certificate((folder / "denver.crt").read_bytes())
    policy = PolicyBuilder().store(Store([authority]))
    policy.build_server_verifier(x509.DNSName("denver.example.org")).verify(certificate, [])
    policy.build_client_verifier().verify(certificate, [])
    with pytest.raises(x509.verification.VerificationError):
        policy.build_server_verifier(x509.DNSName("elsewhere.example.org")).verify(certificate, [])


def test_a_certificate_is_valid_for_a_clock_that_is_an_hour_slow(folder: Path) -> None:
    assert make_certificate(folder, "denver").starts <= datetime.now(UTC) - timedelta(minutes=59)


def test_nothing_is_overwritten(folder: Path) -> None:
    make_certificate(folder, "denver")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FabricError, match=r"denver\.key already exists; move it away"):
        make_certificate(folder, "denver")
    with pytest.raises(FabricError, match=r"authority\.key already exists"):
        make_authority(folder)
    (folder / "denver.key").unlink()
    with pytest.raises(FabricError, match=r"denver\.crt already exists"):
        make_certificate(folder, "denver")
    before.pop("denver.key")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "hosts", "days", "problem"),
    [
        ("den/ver", [], 730, "not a site id"),
        ("", [], 730, "not a site id"),
        ("authority", [], 730, "the authority's own files"),
        ("denver", ["den ver"], 730, "neither a name nor an address"),
        ("denver", ["denver:7447"], 730, "neither a name nor an address"),
        ("denver", [], 0, "out of range"),
        ("denver", [], 5000, "out of range"),
    ],
)
def test_an_invalid_name_host_or_validity_is_refused_and_leaves_no_file(
    folder: Path, name: str, hosts: list[str], days: int, problem: str
) -> None:
    with pytest.raises(OptionError, match=problem):
        make_certificate(folder, name, hosts, days=days)
    assert sorted(path.name for path in folder.iterdir()) == ["authority.crt", "authority.key"]


def test_the_error_without_an_authority_names_the_command_that_creates_one(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="has no authority; create one with: headrace certs authority"):
        make_certificate(tmp_path, "denver")


def test_an_authority_without_its_key_or_with_another_one_is_an_error(folder: Path, tmp_path: Path) -> None:
    make_authority(tmp_path / "other")
    (folder / "authority.key").write_bytes((tmp_path / "other" / "authority.key").read_bytes())
    with pytest.raises(FabricError, match="is not the key of"):
        make_certificate(folder, "denver")
    (folder / "authority.key").write_text("nonsense")
    with pytest.raises(FabricError, match="is not a private key"):
        make_certificate(folder, "denver")
    (folder / "authority.key").unlink()
    with pytest.raises(FabricError, match="the key of the authority is not readable"):
        make_certificate(folder, "denver")


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FabricError, match="cannot create"):
        make_authority(tmp_path / "file" / "certs")


def test_only_certificates_are_described(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="does not exist"):
        describe(tmp_path / "nothing.crt")
    with pytest.raises(FabricError, match=r"is not a certificate; it is a key; give the \.crt file"):
        describe(folder / "authority.key")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(FabricError, match="is not text"):
        describe(tmp_path / "bytes")
