"""An independent client proves who it is, by the settings of Zenoh and the keys that docs/protocol.md names."""

import hashlib
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
import zenoh
from independent_client import Client, Failed

from headrace import Queue
from headrace.link.rights import Rule
from headrace.link.session import SessionTerms, locators, open_session
from headrace.site.site import Site
from support.links import make_certs, tls

PAGE = Path(__file__).parents[3] / "docs/protocol.md"
RULES = (Rule(("ada",), publish=("a",), receive=("a",)),)


def drive(endpoint: str, **settings: Any) -> None:
    client = Client(endpoint, name="ada", **settings)
    assert client.put(b"1", "a") == 1
    with pytest.raises(Failed, match="ada may not publish feed b"):
        client.put(b"1", "b")
    client.close()


def serve(shared_memory: Path, terms: SessionTerms, **settings: Any) -> None:
    with open_session(terms) as session, Queue.create(shared_memory / "q", size="1MiB", durability="memory") as queue:
        site = Site(session, queue, [], rules=RULES)
        try:
            (endpoint,) = locators(session)
            drive(endpoint + settings.pop("suffix", ""), **settings)
        finally:
            site.close()


def test_a_client_with_a_password(shared_memory: Path, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ada:secret\n")
    terms = SessionTerms("router", listen=("tcp/127.0.0.1:0",), users_file=tmp_path / "users", rules=RULES)
    usrpwd = "transport/auth/usrpwd"
    key = hashlib.scrypt(b"secret", salt=b"headrace user 1\x00ada", n=32768, r=8, p=3, maxmem=64 << 20, dklen=32)
    secret = f"scrypt$1${urlsafe_b64encode(key).decode().rstrip('=')}"
    assert secret in PAGE.read_text()
    serve(shared_memory, terms, **{f"{usrpwd}/user": "ada", f"{usrpwd}/password": secret})


def test_a_client_with_a_certificate(shared_memory: Path, tmp_path: Path) -> None:
    certs = make_certs(tmp_path / "certs", "hub", "ada")
    terms = SessionTerms("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "hub"), rules=RULES)
    settings = {
        "root_ca_certificate": "authority.crt",
        "connect_certificate": "ada.crt",
        "connect_private_key": "ada.key",
    }
    named = {f"transport/link/tls/{name}": str(certs / file) for name, file in settings.items()}
    serve(shared_memory, terms, suffix="#enable_mtls=true", **named)


def test_a_client_without_credentials_is_not_admitted(shared_memory: Path, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ada:secret\n")
    terms = SessionTerms("router", listen=("tcp/127.0.0.1:0",), users_file=tmp_path / "users", rules=RULES)
    with pytest.raises(zenoh.ZError):
        serve(shared_memory, terms)
