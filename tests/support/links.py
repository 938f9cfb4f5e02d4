"""What tests of sessions share: sessions that are closed, certificates, and waiting for what must come."""

import time
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
    """An authority, and certificates for these names on loopback."""
    make_authority(folder)
    for name in names:
        make_certificate(folder, name, LOOPBACK)
    return folder


def tls(folder: Path, name: str | None = None, *, mutual: bool = True) -> TlsTerms:
    """The terms of who has the certificate of `name`, or none."""
    if name is None:
        return TlsTerms(folder / "authority.crt", mutual=mutual)
    return TlsTerms(folder / "authority.crt", folder / f"{name}.crt", folder / f"{name}.key", mutual)


@contextmanager
def sessions() -> Iterator[Open]:
    """Open sessions by terms; the latest is closed first."""
    with ExitStack() as opened:

        def open_by(mode: str, **terms: object) -> zenoh.Session:
            session = open_session(SessionTerms(mode, **terms))  # type: ignore[arg-type]
            opened.callback(session.close)  # type: ignore[no-untyped-call]
            return session

        yield open_by


def eventually(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.005)


class Listener:
    """A subscription that keeps what it gets."""

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
