"""Dictionaries between sites: given to sites that may have them, and fetched before products that need them are stored.

A dictionary consists of pieces of the products that it was trained with. So it is given to a principal that may receive
all feeds of its pattern, and to no other: one that may not gets the same reply as if there were none, and the products
expanded (plain.py).
"""

from headrace.errors import DictionaryError, FabricError
from headrace.link.rights import Feeds
from headrace.log.dictionaries import Dictionary, decode_dictionary, encode_dictionary, name_of
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.messages.query import DictionaryReply, GetDictionary, Unreachable
from headrace.relay.replies import PENDING, Pending
from headrace.relay.site_client import Asked, SiteClient

_KEPT_MAX = 4


def give_dictionary(queue: Queue, number: int, allowed: Feeds) -> bytes:
    """The dictionary, for a client that may receive these feeds; empty if it may not have it, or there is none."""
    found = log_of(queue).dictionaries.get(number)
    return encode_dictionary(found) if found is not None and may_have(found, allowed) else b""


def may_have(dictionary: Dictionary, allowed: Feeds) -> bool:
    """Whether all products that may have trained the dictionary are of these feeds."""
    return allowed.includes(dictionary.feed)


class SiteDictionaries:
    """The dictionaries of another site (product/expansion.py: DictionarySource). Nobody waits here for that site.

    One thread at a time uses it. The latest ones are kept, because products need them one after the other.
    """

    def __init__(self, client: SiteClient) -> None:
        self._client = client
        self._asked: dict[int, Asked] = {}
        self._kept: dict[int, Dictionary] = {}

    def need(self, number: int) -> Dictionary:
        """The dictionary; DictionaryError, which may pass, if it has not come, or the site does not give it."""
        found = self._kept.get(number)
        if found is None:
            found = decode_dictionary(self._fetched(number), number)
            self._kept = {**dict(list(self._kept.items())[1 - _KEPT_MAX :]), number: found}
        return found

    def _fetched(self, number: int) -> bytes:
        if number not in self._asked:
            self._asked = {number: self._client.ask(GetDictionary(number), DictionaryReply)}
        name, site = name_of(number), self._client.site
        try:
            reply: DictionaryReply | Pending = self._asked[number].poll()
        except (Unreachable, FabricError) as error:
            self._asked = {}
            raise DictionaryError(
                f"site {site} does not send dictionary {name}: {error}", "it is asked again"
            ) from None
        if reply is PENDING:
            raise DictionaryError(f"dictionary {name} of site {site} has not come yet", "it was asked for")
        self._asked = {}
        if not reply.dictionary:
            raise DictionaryError(
                f"site {site} has no dictionary {name} for this site, and its products need it",
                "its operator may restore the file, or allow this site to receive the feeds that it was trained with",
            )
        return reply.dictionary
