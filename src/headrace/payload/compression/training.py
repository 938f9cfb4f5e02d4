"""Training: a dictionary from products of a queue.

A bulletin of 200 bytes repeats little of itself, and much of the thousand bulletins before it. A dictionary has what
they have in common, once. It is trained with half of a sample of the products, and tried with the other half, so
that what it saves is a fact about products that it has not seen.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.channel.compression import LEVEL_DEFAULT
from headrace.errors import DictionaryError, OptionError
from headrace.log.dictionaries import DICTIONARY_BYTES_MAX, Dictionary, numbered
from headrace.payload.compression.coding import RECORD_OVERHEAD, Coder
from headrace.units import format_size

SIZE_DEFAULT, SIZE_MIN = 32 << 10, 1 << 10
SAMPLES_DEFAULT, SAMPLES_MIN = 10_000, 20
SAMPLE_BYTES_MAX = 128 << 10  # of a product that is worth a dictionary at all; of larger ones, the beginning
_ALL_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Training:
    """A dictionary, and what it saves of products that it was not trained with; bytes are as stored."""

    dictionary: Dictionary
    products: int  # that it was tried with
    plain_bytes: int
    alone_bytes: int  # compressed without a dictionary
    with_bytes: int


def train(
    payloads: Iterable[bytes | memoryview], feed: str, *, size: int = SIZE_DEFAULT, level: int = LEVEL_DEFAULT
) -> Training:
    """A dictionary of at most `size` bytes for products like these; DictionaryError if they do not make one."""
    import zstandard  # loaded by programs that compress something

    if not SIZE_MIN <= size <= DICTIONARY_BYTES_MAX:
        raise OptionError(
            f"a dictionary of {format_size(size)} is out of range",
            f"choose {format_size(SIZE_MIN)} to {format_size(DICTIONARY_BYTES_MAX)}",
        )
    samples: list[Any] = _sample(payloads)
    if len(samples) < SAMPLES_MIN:
        raise DictionaryError(
            f"{len(samples)} products of {feed} are too few for a dictionary", f"train with {SAMPLES_MIN} at least"
        )
    try:
        trained = zstandard.train_dictionary(size, samples[::2], level=level)
    except zstandard.ZstdError as error:
        raise DictionaryError(
            f"the {len(samples)} products of {feed} do not make a dictionary: {error}",
            "train with more products, or with a smaller --size",
        ) from None
    dictionary = numbered(trained.as_bytes(), feed)
    rest = samples[1::2]
    alone, with_it = (sum(_stored(coder, each) for each in rest) for coder in (Coder(level), Coder(level, dictionary)))
    return Training(dictionary, len(rest), sum(map(len, rest)), alone, with_it)


def _sample(payloads: Iterable[bytes | memoryview]) -> list[bytes]:
    samples, total = [], 0
    for payload in payloads:
        if len(payload):
            samples.append(bytes(payload[:SAMPLE_BYTES_MAX]))
            total += len(samples[-1])
        if total >= _ALL_BYTES_MAX:
            break
    return samples


def _stored(coder: Coder, payload: bytes) -> int:
    """Bytes that the payload takes in a queue."""
    frame = coder.compress(payload)
    return len(payload) if frame is None else len(frame) + RECORD_OVERHEAD
