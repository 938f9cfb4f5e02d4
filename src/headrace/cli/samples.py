"""Sample products, to try a selection or rules on.

The directory of a queue stands for its newest products, or for those that selections want: the newest 20 of them, and
for each selection the newest one, if it is among the newest 10,000 products. A file is either a list of products as
`headrace watch --json` and `headrace cat --json` write them, one JSON object per line, or the payload of one product
whose other fields are given as options. A product without its payload keeps its size; conditions on its content are
never true.
"""

import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headrace.decoding import Decoder
from headrace.errors import InvalidError, OptionError
from headrace.product import Product, PropertyValue
from headrace.product.product import PRIORITY_DEFAULT, MadeProduct
from headrace.queue import Queue
from headrace.selection import Selection
from headrace.selection.table.table import SubscriptionTable
from headrace.selection.values import parse_moment
from headrace.units import format_size

_SAMPLE_BYTES_MAX = 64 << 20
_NEWEST = 20  # products of a queue
_REACH = 10_000  # how many products back those are looked for that selections want
_WINDOW = 500


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


_DECODER: Decoder[SampleLine] = Decoder(SampleLine, encoding="json")


def samples_of(
    path: str, feed: str, ident: str | None, properties: Mapping[str, PropertyValue], wanted: Sequence[Selection] = ()
) -> Iterator[Sample]:
    """The products in a file or a queue; OptionError names a line that is invalid."""
    if Path(path).is_dir():
        yield from _newest(path, wanted)
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


def _newest(path: str, wanted: Sequence[Selection]) -> Iterator[Sample]:
    with Queue.open(path) as queue:
        chosen = list(_chosen(_newest_first(queue), wanted)) or list(islice(_newest_first(queue), _NEWEST))
        for product in reversed(chosen):
            yield Sample(f"{path}:{product.sequence}", product.copy(), True)


def _newest_first(queue: Queue) -> Iterator[Product]:
    """The newest products, backwards; a window at a time, because most callers need few."""
    end, begin = queue.next, max(queue.oldest, queue.next - _REACH)
    while end > begin:
        start = max(begin, end - _WINDOW)
        batch = queue.read_batch(start, limit=_WINDOW, bytes_limit="1TiB", stop=end)
        yield from (batch[place] for place in reversed(range(len(batch))))
        end = start


def _chosen(newest_first: Iterable[Product], wanted: Sequence[Selection]) -> Iterator[Product]:
    """The newest products that some selection wants, and the newest one that each wants."""
    table = SubscriptionTable(unindexed_max=len(wanted) + 1)
    for key, selection in enumerate(wanted):
        table.add(key, selection)
    count, served = 0, set[Hashable]()
    for product in newest_first:
        if len(served) == len(wanted) and count >= _NEWEST:
            return
        keys = table.matches(product, product.inserted_ns)
        if keys and (count < _NEWEST or not served.issuperset(keys)):
            count += 1
            yield product
        served.update(keys)


def _is_list(content: bytes) -> bool:
    """Whether the first line is a product in JSON."""
    try:
        _DECODER.decode(content.partition(b"\n")[0])
    except msgspec.DecodeError:
        return False
    return True


def _sample(source: str, text: bytes) -> Sample:
    try:
        line = _DECODER.decode(text)
        return Sample(source, _product(line), line.payload is not None)
    except (msgspec.DecodeError, InvalidError, ValueError) as error:
        hint = "give the output of `headrace watch --json` or `headrace cat --json`"
        raise OptionError(f"{source} is not a product: {error}", hint) from None


def _product(line: SampleLine) -> Product:
    payload: Any = line.payload
    if payload is None:
        payload = np.broadcast_to(np.zeros(1, np.uint8), (max(0, line.size),))  # that many bytes, without storing them
    now_ns = time.time_ns()
    return MadeProduct(
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
