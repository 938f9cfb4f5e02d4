"""Terms of signing: what a site signs with, whose signatures it knows, and where it asks for them.

Plain data, equal if nothing has changed: the content of the files that a configuration names, not their names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headrace.queue import Queue
from headrace.relay.messages.page import Pack, records_of
from headrace.relay.signing.keyring import KeyRing, OriginKey, key_id, public_of
from headrace.relay.signing.replays import Replays
from headrace.relay.signing.sign import Signer
from headrace.relay.signing.verify import Verifier, VerifyRule


@dataclass(frozen=True, slots=True)
class SigningTerms:
    """Of one site."""

    private: bytes | None = field(default=None, repr=False)  # 32 bytes; None: nothing is signed here
    keys: tuple[OriginKey, ...] = ()
    revoked: frozenset[int] = frozenset()
    verify: Sequence[VerifyRule] = ()

    @property
    def own(self) -> int | None:
        """The id of the key by which this site signs."""
        return None if self.private is None else key_id(public_of(Ed25519PrivateKey.from_private_bytes(self.private)))

    def pack(self, site: str) -> Pack:
        """How products leave: as records, signed if there is a key."""
        if self.private is None:
            return records_of
        return Signer(site, Ed25519PrivateKey.from_private_bytes(self.private)).records

    def verifier(self, queue: Queue) -> Verifier | None:
        """None if no key is known here, and none is required."""
        if not self.keys and not any(rule.mode == "require" for rule in self.verify):
            return None
        return Verifier(KeyRing(self.keys, self.revoked), self.verify, Replays(queue))
