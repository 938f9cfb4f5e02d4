"""RemoteDictionaries: the dictionaries of a site's queue, for products that a client reads or puts.

A client fetches a dictionary when it looks at the first payload that needs it, and keeps it. Before it puts products of
another queue as they are, it gives the site the dictionaries that they need.
"""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.errors import DictionaryError
from headrace.log.dictionaries import Dictionary, decode_dictionary, encode_dictionary, name_of
from headrace.product.expansion import DictionarySource
from headrace.remote.protocol.calls import AddDictionary, GetDictionary
from headrace.remote.protocol.replies import Done

if TYPE_CHECKING:
    from headrace.remote.client.connection import Connection


class RemoteDictionaries:
    """Of one connection (product/expansion.py: DictionarySource). Threads may share it."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._known: dict[int, Dictionary] = {}
        self._given: set[int] = set()  # the site has these
        self._lock = threading.Lock()

    def need(self, number: int) -> Dictionary:
        """The dictionary; DictionaryError if the site does not give it."""
        found = self._known.get(number)
        if found is None:
            _, data = self._ask(number)
            if not data:
                raise DictionaryError(
                    f"site {self._connection.site} has no dictionary {name_of(number)} for this client, and a product "
                    "needs it",
                    "its operator may restore the file, or allow you to receive the feeds that it was trained with",
                )
            found = decode_dictionary(data, number)
            with self._lock:
                self._known[number] = found
        return found

    def give(self, numbers: Iterable[int], source: DictionarySource | None) -> None:
        """After return, the site has these dictionaries; DictionaryError if they are not to be had."""
        for number in numbers:
            if number in self._given or (self._connection.has_dictionaries and self._ask(number)[1]):
                self._given.add(number)
                continue
            found = None if source is None else source.need(number)
            if not isinstance(found, Dictionary) or not self._connection.has_dictionaries:
                raise DictionaryError(
                    f"site {self._connection.site} lacks dictionary {name_of(number)}, which the products need",
                    "put the products one by one: put(product.payload, feed=...)",
                )
            self._connection.ask(AddDictionary(number), Done, encode_dictionary(found))
            self._given.add(number)

    def _ask(self, number: int) -> tuple[Done, bytes]:
        if not self._connection.has_dictionaries:
            raise DictionaryError(
                f"site {self._connection.site} is too old to send dictionary {name_of(number)}", "update the site"
            )
        return self._connection.ask(GetDictionary(number), Done)
