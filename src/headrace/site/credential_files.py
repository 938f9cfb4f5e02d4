"""The files that a session reads only when it opens: certificates, keys and users, by their content.

A file that was replaced under its name is a change, too, and a reload must open a new session for it. Before the old
session is closed, a rehearsal opens one on the new terms, on loopback and without any neighbour: what Zenoh refuses
there, it would refuse later, when the old session is gone.

Not here: passwords to connect with, which are part of the terms, and whether the files belong together
(`headrace.link.credentials`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from headrace.files import read_regular
from headrace.link.session import SessionTerms, open_session

Digests = Mapping[Path, bytes]


def digests_of(terms: SessionTerms) -> Digests:
    """The digest of each file that a session on these terms reads; OSError names a file that is not readable."""
    tls = terms.tls
    files = (terms.users_file, *(() if tls is None else (tls.authority, tls.certificate, tls.key)))
    return {file: hashlib.sha256(read_regular(file, follow=True)).digest() for file in files if file is not None}


def changed_files(before: Digests, after: Digests) -> list[str]:
    """The names of the files whose content is new."""
    return [file.name for file, digest in after.items() if before.get(file) != digest]


def rehearse(terms: SessionTerms) -> None:
    """Open and close a session on these terms; FabricError if Zenoh refuses its credentials or its rules."""
    secure = terms.tls is not None and terms.tls.certificate is not None
    listen = ("tls/127.0.0.1:0" if secure else "tcp/127.0.0.1:0",)
    alone = replace(
        terms, mode="peer", listen=listen, connect=(), scouting="off", gossip=False, mesh=False, shared_memory=False
    )
    if terms.user is not None and terms.users_file is None:
        alone = replace(alone, user=None)  # a session that only connects has no users
    open_session(alone).close()  # type: ignore[no-untyped-call]
