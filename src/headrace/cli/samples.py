"""Sample products, to try a selection or rules on.

The directory of a queue stands for its newest products. A file is either a list of products as `headrace watch --json`
and `headrace cat --json` write them, one JSON object per line, or the payload of one product whose other fields are
given as options. A product without its payload keeps its size; conditions on its content are never true.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headrace.errors import InvalidError, OptionError
from headrace.product import Product, PropertyValue
from headrace.product.product import PRIORITY_DEFAULT
from headrace.queue import Queue
from headrace.selection.values import parse_moment
from headrace.units import format_size

_SAMPLE_BYTES_MAX = 64 << 20
_NEWEST = 20  # products of a queue


class SampleLine(msgspec.Struct):
    """One product, as the commands write it; a missing field has its default."""

    feed: str
    ident: str = ""
    sequence: int = 0
    size: int = 0
    signature: str = ""
    origin: str = "sample"
    origin_sequence: int = 0
    previous: int | None = None
    created: str | None = None
    inserted: str | None = None
    priority: int = PRIORITY_DEFAULT
    expiry: str | None = None
    slice: int | None = None
    properties: dict[str, bool | int | float | str] = msgspec.field(default_factory=dict)
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A product to try, and its source."""

    source: str
    product: Product
    has_payload: bool


def samples_of(path: str, feed: str, ident: str | None, properties: Mapping[str, PropertyValue]) -> Iterator[Sample]:
    """The products in a file or a queue; OptionError names a line that is invalid."""
    if Path(path).is_dir():
        yield from _newest(path)
        return
    with Path(path).open("rb") as file:
        content = file.read(_SAMPLE_BYTES_MAX + 1)
    if len(content) > _SAMPLE_BYTES_MAX:
        raise OptionError(f"{path} has more than {format_size(_SAMPLE_BYTES_MAX)}", "give a smaller sample")
    if not _is_list(content):
        name = Path(path).name if ident is None else ident
        line = SampleLine(feed, name, properties=dict(properties), payload=content)
        yield Sample(path, _product(line), True)
        return
    for number, text in enumerate(content.splitlines(), 1):
        if text.strip():
            yield _sample(f"{path}:{number}", text)


def _newest(path: str) -> Iterator[Sample]:
    with Queue.open(path) as queue:
        for product in queue.read_batch(max(queue.oldest, queue.next - _NEWEST), limit=_NEWEST):
            copy = dataclasses.replace(product, payload=memoryview(bytes(product.payload)))
            yield Sample(f"{path}:{product.sequence}", copy, True)


def _is_list(content: bytes) -> bool:
    """Whether the first line is a product in JSON."""
    try:
        msgspec.json.decode(content.partition(b"\n")[0], type=SampleLine)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _sample(source: str, text: bytes) -> Sample:
    try:
        line = msgspec.json.decode(text, type=SampleLine)
        return Sample(source, _product(line), line.payload is not None)
    except (msgspec.DecodeError, InvalidError, ValueError) as error:
        hint = "give the output of `headrace watch --json` or `headrace cat --json`"
        raise OptionError(f"{source} is not a product: {error}", hint) from None


def _product(line: SampleLine) -> Product:
    payload: Any = line.payload
    if payload is None:
        payload = np.broadcast_to(np.zeros(1, np.uint8), (max(0, line.size),))  # that many bytes, without storing them
    now_ns = time.time_ns()
    return Product(
        feed=line.feed,
        ident=line.ident,
        payload=memoryview(payload),
        sequence=line.sequence,
        signature=bytes.fromhex(line.signature),
        origin=line.origin,
        origin_sequence=line.origin_sequence,
        previous=line.previous,
        created_ns=now_ns if line.created is None else parse_moment(line.created, "created"),
        inserted_ns=now_ns if line.inserted is None else parse_moment(line.inserted, "inserted"),
        priority=line.priority,
        expiry_ns=None if line.expiry is None else parse_moment(line.expiry, "expiry"),
        slice=line.slice,
        properties=line.properties,
    )
