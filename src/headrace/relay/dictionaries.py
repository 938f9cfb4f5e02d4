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
from headrace.relay.site_client import SiteClient


def give_dictionary(queue: Queue, number: int, allowed: Feeds) -> bytes:
    """The dictionary, for a client that may receive these feeds; empty if it may not have it, or there is none."""
    found = log_of(queue).dictionaries.get(number)
    return encode_dictionary(found) if found is not None and may_have(found, allowed) else b""


def may_have(dictionary: Dictionary, allowed: Feeds) -> bool:
    """Whether all products that may have trained the dictionary are of these feeds."""
    return allowed.includes(dictionary.feed)


class SiteDictionaries:
    """The dictionaries of another site (product/expansion.py: DictionarySource)."""

    def __init__(self, client: SiteClient) -> None:
        self._client = client

    def need(self, number: int) -> Dictionary:
        """The dictionary; DictionaryError, which may pass, if the site does not give it."""
        try:
            reply: DictionaryReply = self._client.query(GetDictionary(number), DictionaryReply)
        except (Unreachable, FabricError) as error:
            raise DictionaryError(
                f"site {self._client.site} does not send dictionary {name_of(number)}: {error}", "it is asked again"
            ) from None
        if not reply.dictionary:
            raise DictionaryError(
                f"site {self._client.site} has no dictionary {name_of(number)} for this site, and its products need it",
                "its operator may restore the file, or allow this site to receive the feeds that it was trained with",
            )
        return decode_dictionary(reply.dictionary, number)
