"""Helpers for tests of sessions: sessions that are closed at the end, certificates, and listeners."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import zenoh
from zenoh.handlers import Callback

from headrace.link.certificates import make_authority, make_certificate
from headrace.link.credentials import TlsTerms
from headrace.link.session import SessionTerms, open_session

LOOPBACK = ("localhost", "127.0.0.1", "::1")
Open = Callable[..., zenoh.Session]


def make_certs(folder: Path, *names: str) -> Path:
    """Create an authority, and certificates for these names on loopback."""
    make_authority(folder)
    for name in names:
        make_certificate(folder, name, LOOPBACK)
    return folder


def tls(folder: Path, name: str | None = None, *, mutual: bool = True) -> TlsTerms:
    """TLS with the certificate of `name`, or without a certificate."""
    if name is None:
        return TlsTerms(folder / "authority.crt", mutual=mutual)
    return TlsTerms(folder / "authority.crt", folder / f"{name}.crt", folder / f"{name}.key", mutual)


@contextmanager
def sessions() -> Iterator[Open]:
    """A function that opens sessions; they are closed at the end, the latest first."""
    with ExitStack() as opened:

        def open_by(mode: str, **terms: object) -> zenoh.Session:
            session = open_session(SessionTerms(mode, **terms))  # type: ignore[arg-type]
            opened.callback(session.close)  # type: ignore[no-untyped-call]
            return session

        yield open_by


class Listener:
    """A subscription that keeps all samples. They are stored on Zenoh's thread, so before later replies on the same link."""

    def __init__(self, session: zenoh.Session, key: str) -> None:
        self.keys: list[str] = []
        self.payloads: list[bytes] = []
        self._subscriber = session.declare_subscriber(key, Callback(self._take, indirect=False))

    def _take(self, sample: zenoh.Sample) -> None:
        self.payloads.append(sample.payload.to_bytes())
        self.keys.append(str(sample.key_expr))

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self._subscriber.undeclare()  # type: ignore[no-untyped-call]
