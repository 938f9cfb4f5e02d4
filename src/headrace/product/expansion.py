"""Expansion: the payload of a compressed product, as it was put.

The kernel calls `expand` for a product whose payload a program looks at (kernel/log/expand.pxi). No site is trusted: a
frame that would expand to another size than its record says is damaged, and that is found out before any memory is
allocated for it.

Not here: where dictionaries are (log/dictionaries.py), and how payloads are compressed (payload/compression).
"""

import threading
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import DictionaryError, ProductDamagedError

if TYPE_CHECKING:
    import zstandard

_DECOMPRESSORS_MAX = 64  # that a thread keeps
_of_thread = threading.local()  # a decompressor serves one thread at a time


class Dictionary(Protocol):
    """One dictionary (log/dictionaries.py)."""

    @property
    def content(self) -> bytes: ...


class DictionarySource(Protocol):
    """Where dictionaries are: in the queue, or at the site that the products came from."""

    def need(self, number: int) -> Dictionary:
        """The dictionary of that number; DictionaryError if it is not to be had."""


def expand(frame: Any, number: int, size: int, source: DictionarySource | None, sequence: int) -> bytes:
    """The payload in a frame; ProductDamagedError if it is not one of `size` bytes.

    `number` is that of its dictionary, 0: none. DictionaryError if that is missing.
    """
    import zstandard  # loaded by programs that read something compressed

    if number == 0:
        content = b""
    elif source is None:
        raise DictionaryError(f"product {sequence} needs dictionary {number:08x}", "read it from the queue that has it")
    else:
        content = source.need(number).content
    try:
        if zstandard.frame_content_size(frame) != size:
            raise zstandard.ZstdError("its size is another one")
        payload: bytes = _decompressor(content).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ProductDamagedError(
            f"the compressed payload of product {sequence} is damaged: {error}", f"read on at {sequence + 1}", sequence
        ) from None
    return payload


def refuse(sequence: int) -> None:
    """Raise what is wrong with a payload in a form that this Headrace does not know."""
    raise ProductDamagedError(
        f"product {sequence} has a payload in a form that this Headrace does not know",
        f"upgrade Headrace, or read on at {sequence + 1}",
        sequence,
    )


def _decompressor(dictionary: bytes) -> "zstandard.ZstdDecompressor":
    import zstandard  # as above

    try:
        kept: dict[bytes, zstandard.ZstdDecompressor] = _of_thread.decompressors
    except AttributeError:
        kept = _of_thread.decompressors = {}
    found = kept.get(dictionary)
    if found is None:
        if len(kept) >= _DECOMPRESSORS_MAX:
            kept.clear()
        made = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        found = kept[dictionary] = zstandard.ZstdDecompressor(dict_data=made)
    return found
