"""Creation: what a new channel needs of the queue, and of the channels that it has already.

A product has one slice and is compressed in one way: channels that assign slices, or that compress, must not overlap.
The queue itself is not needed: `headrace config check` asks the same before a site starts.

Not here: conflicts within the options (conflicts.py), and the creation itself (channel.py).
"""

import shlex
from collections.abc import Mapping
from typing import Any

from headrace.channel.compression import COMPRESSION_OPTIONS, Compression
from headrace.channel.conflicts import agree
from headrace.channel.document import ChannelDocument
from headrace.channel.qos import QoS
from headrace.channel.slicing import SLICING_OPTIONS, Slicing
from headrace.channel.subtree import Subtree
from headrace.errors import ChannelNameError, DictionaryError
from headrace.log.dictionaries import FOLDER, Dictionaries, parse_name
from headrace.station.conflicts import Conflict, terms_error

CHANNELS_MAX = 1024


def agree_on_new(
    document: ChannelDocument, dictionaries: Dictionaries, name: str, subtree: Subtree, options: Mapping[str, Any],
    now_ns: int,
) -> tuple[QoS, Slicing | None, Compression | None]:  # fmt: skip
    """The terms of a channel that is to be created.

    TermsError, DictionaryError or ChannelNameError says why it cannot be.
    """
    qos, slicing, compression = agree(options, now_ns)
    if slicing is not None:
        _refuse_overlap(document, name, subtree)
    if compression is not None:
        check_compression(dictionaries, document, name, subtree, compression)
    if len(document.channels) >= CHANNELS_MAX:
        raise ChannelNameError(
            f"the queue has {CHANNELS_MAX} channels, the maximum", "delete one: headrace channel delete"
        )
    return qos, slicing, compression


def check_compression(
    dictionaries: Dictionaries, document: ChannelDocument, name: str, subtree: Subtree, compression: Compression
) -> None:
    """TermsError if another channel compresses some of these feeds; DictionaryError if the queue lacks the dictionary.

    A product is compressed once, in one way.
    """
    for other in document.channels.values():
        if other.name != name and other.compression is not None and Subtree.of(other.feed).overlaps(subtree):
            problem = f"channel {other.name!r} compresses {other.feed}, and channel {name!r} would {subtree.pattern}"
            remedy = "leave out compress, or choose feeds that do not overlap"
            raise terms_error([Conflict(COMPRESSION_OPTIONS, problem, remedy)])
    wanted = compression.dictionary
    number = None if wanted is None else parse_name(wanted)
    if number is not None and dictionaries.get(number) is None:
        raise DictionaryError(
            f"{dictionaries.queue} lacks dictionary {wanted}, which channel {name!r} is to use",
            f"copy {FOLDER}/{wanted}.dictionary of another queue to {dictionaries.folder / f'{wanted}.dictionary'}, or "
            f"leave dictionary out and train one later: {training(dictionaries, name, subtree)}",
        )


def training(dictionaries: Dictionaries, name: str, subtree: Subtree) -> str:
    """The command that trains a dictionary for a channel."""
    queue = shlex.quote(str(dictionaries.queue))
    return f"headrace queue train {queue} {shlex.quote(subtree.pattern)} --channel {name}"


def _refuse_overlap(document: ChannelDocument, name: str, subtree: Subtree) -> None:
    """TermsError if another channel assigns slices to some of these feeds: a product has one slice."""
    for other in document.channels.values():
        if other.slicing is not None and Subtree.of(other.feed).overlaps(subtree):
            new = f"channel {name!r} would to {subtree.pattern}"
            problem = f"channel {other.name!r} assigns slices to {other.feed}, and {new}"
            remedy = f"use channel {other.name!r}, leave out slices and assign, or choose feeds that do not overlap"
            raise terms_error([Conflict(SLICING_OPTIONS, problem, remedy)])
