"""Records: products as bytes between queues, in the form that docs/format.md gives them.

`read_batch` makes a Batch of bytes that another site sent, after checking every byte; its payloads are views of those
bytes. `Queue.put_batch` stores the products of a Batch as they are: with their origin, their sequence there and their
signature, whatever the queue's own configuration says. Its checks and errors are here.

Not here: how records are packed into messages (`relay/messages`, `remote/protocol`), and the checking and copying
itself (`kernel/log/wire.pxi`).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.errors import (
    BatchTooLargeError,
    InvalidError,
    OptionError,
    PayloadTooLargeError,
    RecordsDamagedError,
)
from headrace.kernel import _kernel as kernel
from headrace.log.config import QueueConfig
from headrace.log.explain import explain
from headrace.product.batch import Batch, rows_behind
from headrace.product.expansion import DictionarySource
from headrace.product.feed import check_feed
from headrace.product.options import with_compression
from headrace.product.put import check_origin
from headrace.units import format_size

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headrace.log.log import Log

_CODES = kernel.CODES


class Names:
    """The feeds and origins of all batches that were read with it, by number; it only grows.

    At most 4096 origins and 258,048 feeds, as in a queue. Threads may share it.
    """

    __slots__ = ("dictionaries", "feeds", "origins", "texts")

    def __init__(self) -> None:
        self.feeds: dict[str, int] = {}
        self.origins: dict[str, int] = {}
        self.texts: list[str] = []
        self.dictionaries: DictionarySource | None = None  # of compressed products


def read_batch(data: "Buffer", names: Names) -> Batch:
    """The products in `data`, which holds records and nothing else; RecordsDamagedError if one is invalid.

    Their `sequence` is that of their origin, and `inserted_ns` is 0.
    """
    try:
        rows = kernel.read_records(data, names.feeds, names.origins, names.texts, check_feed, check_origin)
    except kernel.KernelError as error:
        raise RecordsDamagedError(
            f"the record at byte {error.file} of {memoryview(data).nbytes} is invalid: {error.fault}",
            "request it again; if it stays invalid, its sender is at fault",
            error.file,
        ) from None
    rows.lend(names.dictionaries)
    return Batch(rows, names.texts)


def rows_of(batch: Batch) -> kernel.Rows:
    """The kernel's rows behind a batch."""
    rows = rows_behind(batch) if isinstance(batch, Batch) else None
    if not isinstance(rows, kernel.Rows):
        raise InvalidError(f"{batch!r} is not a batch of products", "give what read, get or read_batch has returned")
    return rows


def mask_of(keep: Any, products: int) -> npt.NDArray[np.uint8] | None:
    """Which products to put, as the kernel takes it; None all."""
    if keep is None:
        return None
    mask = np.ascontiguousarray(keep, np.bool_).view(np.uint8)
    if mask.shape != (products,):
        raise OptionError(f"keep has {mask.size} values for {products} products", "give one for each")
    return mask


def wrong_signatures(batch: Batch, mask: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.bool_] | None:
    """Which of the products that the mask names have a hash as signature that is not of their content; None: none.

    Such a product is never stored. What could not be recomputed is not among them (kernel/log/prove.pxi).
    """
    if not kernel.prove(rows_of(batch), mask):
        return None
    wrong: npt.NDArray[np.bool_] = batch.columns["proof"] == kernel.PROOF_WRONG
    return wrong if mask is None else wrong & mask.astype(np.bool_)


def packed_rows(
    log: "Log", batch: Batch, mask: npt.NDArray[np.uint8] | None, *, passed_on: bool
) -> dict[int, tuple[bytes, bytes]] | None:
    """Of products that are put as they are: those that a channel of this queue compresses, with all of their options.

    A product that came compressed stays as it is. `passed_on`: it may be passed on once less.
    """
    columns, rows = batch.columns, rows_of(batch)
    feeds = {int(number) for number in np.unique(columns["feed"])}
    compressed = [number for number in feeds if log.packer.packs(batch.names[number])]
    if not compressed:
        return None
    wanted = np.isin(columns["feed"], compressed) & (columns["form"] == 0)
    if mask is not None:
        wanted &= mask != 0
    made = {}
    for place in np.flatnonzero(wanted).tolist():
        packed = log.pack(rows.view(place), batch.feed(place))
        if packed is not None:
            options = with_compression(rows.options(place), packed.compression, hops_less=int(passed_on))
            made[place] = (packed.payload, options)
    return made or None


def explain_records(error: kernel.KernelError, path: Path, batch: Batch, config: QueueConfig) -> Exception:
    """The error that says what is wrong with the batch, or what the kernel's code means."""
    if error.code == _CODES["payload_too_large"]:
        return PayloadTooLargeError(
            f"product {error.file} of the batch: a payload of {batch.sizes[error.file]} bytes exceeds the "
            f"{format_size(config.payload_bytes_max)} that this queue takes",
            "a payload is at most a quarter of the queue: resize the queue",
        )
    if error.code == _CODES["batch_too_large"]:
        return BatchTooLargeError(
            f"a batch of {len(batch)} products does not fit into {config.size} bytes as one piece",
            "put it in several calls, or resize the queue",
        )
    if error.code == _CODES["signature"]:
        return InvalidError(
            f"product {error.file} of the batch, {batch[error.file].ident!r}, has a signature that is not that of its "
            "content",
            "do not store it: whoever sent it has altered it",
        )
    if error.code == _CODES["revision"]:
        return InvalidError(
            f"product {error.file} of the batch has another payload than at its origin",
            "put such a product by itself: put(product.payload, feed=...)",
        )
    if error.code == _CODES["altered"]:
        return RecordsDamagedError("a record of the batch was altered while it was put", "read the batch again", 0)
    return explain(error, path)
