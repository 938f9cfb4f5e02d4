"""Assigner: tells the kernel which channels cut their stream into slices, and calls the functions of users.

    channels/7.slices    magic 8 B, format u64, next u64, spread u64, reserved: 64 bytes, mapped
                           next      the counter of the round robin, over all processes
                           spread    products that got a slice round robin, because they lack what the function needs

The kernel assigns slices while it appends (kernel/log/slices.pxi), from a table that it refuses to use once channels
with slices have changed: `control.slicings` says so. Then `make_way` reads the definitions again. The number is read
before the definitions are, and raised after they are written, so a table never passes for newer than it is.

A function of a user is Python, so it is called here, before the append, for all products of a call at once.

Channels that compress are part of the same table, so that every process learns of them before its next append.

Counters are in the page cache: a power failure may lose the latest counts.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.channel.document import FOLDER, ChannelDocument, Definition, DefinitionFile
from headrace.channel.slicing import Slicing, parse_assign
from headrace.channel.subtree import Subtree
from headrace.channel.words import WordFile
from headrace.errors import FunctionMissingError, HeadraceError, OptionError, SelectionError
from headrace.kernel import _kernel as kernel
from headrace.log.place import check_place
from headrace.log.seams import Assigned, Entering
from headrace.product.product import Product
from headrace.selection.functions import Functions

HOW = {
    "given": kernel.ASSIGN_GIVEN, "ident": kernel.ASSIGN_IDENT, "property": kernel.ASSIGN_PROPERTY,
    "modulo": kernel.ASSIGN_MODULO, "grid": kernel.ASSIGN_GRID, "function": kernel.ASSIGN_FUNCTION,
    "round_robin": kernel.ASSIGN_ROUND_ROBIN, "random": kernel.ASSIGN_RANDOM,
}  # fmt: skip
COUNTERS = WordFile(
    "slices", int.from_bytes(b"HRSLICES", "little"), 1, 64, "remove it while no process puts; only counters are lost"
)
_SPREAD = 3  # word of the file
_CALLS = "function:"
_CODES = kernel.CODES

logger = logging.getLogger("headrace.channel")


class ChannelAssigner:
    """The slices of the channels of one opened queue (log/seams.py: Assigner)."""

    def __init__(
        self, log: kernel.Log, path: Path, functions: Functions, compress: Callable[[list[Definition]], None]
    ) -> None:
        """`compress` gets the channels that compress, whenever the channels may have changed."""
        self._log, self._path, self._functions, self._compress = log, path, functions, compress
        self._file = DefinitionFile(path)
        self._table: tuple[int, list[Definition]] = (0, [])  # for which number; the channels with slices
        self._failed: set[str] = set()  # functions whose first failure was logged
        self.calls = False

    def make_way(self, error: kernel.KernelError) -> None:
        """Bring the kernel's table up to date; if it is, raise why the slice of a product is refused."""
        if error.code != _CODES["slices"] and self._is_current():
            raise self._explain(error)
        self._refresh()

    def _is_current(self) -> bool:
        """Whether the kernel's table, and the one here, are those of the channels now."""
        return self._table[0] == self._log.slicings_number == self._log.state["slicings"]

    def _refresh(self) -> None:
        check_place(self._log, self._path, always=True)  # the path may lead to another queue by now
        number = self._log.state["slicings"]
        channels = self._file.read().channels.values()
        self._compress([each for each in channels if each.compression is not None])
        sliced = [each for each in channels if each.slicing is not None]
        kernel.set_slicings(self._log, number, [self._for_kernel(each) for each in sliced])
        self._table = (number, sliced)
        self.calls = any(each.slicing is not None and each.slicing.assign.startswith(_CALLS) for each in sliced)

    def _for_kernel(self, definition: Definition) -> tuple[Any, ...]:
        assert definition.slicing is not None
        parts = parse_assign(definition.slicing.assign)
        counters = COUNTERS.map(counters_path(self._path, definition))
        names = [name.encode() for name in parts.names]
        root = Subtree.of(definition.feed).root.encode()
        return root, definition.slicing.slices, HOW[parts.how], names, parts.rows, parts.columns, counters

    # --- functions of users -----------------------------------------------------------------------

    def assign(self, entering: Entering) -> Assigned:
        """Call the functions of users for the products of one call; FunctionMissingError if one is not known here.

        Products in other channels keep the slice that they came with.
        """
        if not self._is_current():
            self._refresh()
        number, sliced = self._table
        slices, feeds = entering.slices.copy(), set(entering.feeds)
        for definition in sliced:
            slicing, subtree = definition.slicing, Subtree.of(definition.feed)
            if slicing is None or not slicing.assign.startswith(_CALLS):
                continue
            wanted = {feed for feed in feeds if subtree.has(feed)}
            if wanted == feeds:
                slices[:] = self._call(definition.name, slicing, entering.products)
            elif wanted:
                places = [place for place, feed in enumerate(entering.feeds) if feed in wanted]
                products = [entering.products[place] for place in places]
                slices[places] = self._call(definition.name, slicing, products)
        return Assigned(slices, number)

    def _call(self, channel: str, slicing: Slicing, products: Sequence[Product]) -> npt.NDArray[np.uint16]:
        """The slice of each product; NO_SLICE, so that it is spread, where the function fails to give one."""
        name = parse_assign(slicing.assign).names[0]
        try:
            function = self._functions.get(name).function
        except SelectionError as error:
            problem = f"channel {channel!r} assigns slices by the function {name!r}, and {error.problem}"
            raise FunctionMissingError(f"{problem}; nothing was stored", error.hint) from None
        try:
            return _numbers(function(products), len(products), slicing.slices)
        except Exception:
            if name not in self._failed:
                self._failed.add(name)
                logger.exception("the function %r, which assigns slices, failed; its products are spread", name)
            return np.full(len(products), kernel.NO_SLICE, np.uint16)

    def functions(self) -> list[tuple[str, str]]:
        """The channels whose slices a function of a user assigns, and its name."""
        sliced = [(each.name, each.slicing.assign) for each in self._file.read().channels.values() if each.slicing]
        return [(channel, assign.removeprefix(_CALLS)) for channel, assign in sliced if assign.startswith(_CALLS)]

    # --- errors -----------------------------------------------------------------------------------

    def _explain(self, error: kernel.KernelError) -> HeadraceError:
        feed = error.fault
        for definition in self._table[1]:
            if definition.slicing is not None and Subtree.of(definition.feed).has(feed):
                return _refusal(error, definition.name, definition.slicing, feed)
        return OptionError(f"the slice of a product of {feed} is refused", "the channels have changed: put it again")


def _refusal(error: kernel.KernelError, channel: str, slicing: Slicing, feed: str) -> OptionError:
    which = f"product {error.file} of the batch, of {feed}," if error.file else f"the product of {feed}"
    if error.code == _CODES["slice_given"]:
        return OptionError(
            f"channel {channel!r} assigns slices by {slicing.assign}, and {which} came with one; nothing was stored",
            "leave out slice, or create a channel with assign given",
        )
    return OptionError(
        f"channel {channel!r} has {slicing.slices} slices, given by the producer, and {which} came without one of "
        "them; nothing was stored",
        f"give a slice from 0 to {slicing.slices - 1}",
    )


def _numbers(said: Any, count: int, slices: int) -> npt.NDArray[np.uint16]:
    """What a function returned as slices; NO_SLICE for None and for a number out of range."""
    if not isinstance(said, np.ndarray):
        said = [-1 if number is None else number for number in said]
    numbers = np.asarray(said)
    if numbers.shape != (count,) or (count and numbers.dtype.kind not in "iu"):
        raise TypeError(f"it returned {said!r:.80}, and not one whole number for each of {count} products")
    return np.where((numbers < 0) | (numbers >= slices), kernel.NO_SLICE, numbers).astype(np.uint16)


# --- numbers and files ----------------------------------------------------------------------------


def put_in_force(log: kernel.Log, document: ChannelDocument) -> None:
    """Make every process read the channels again before its next append; also for a process that died before it did."""
    if document.slicings > log.state["slicings"]:
        with log.held():
            log.set_state(slicings=max(document.slicings, log.state["slicings"]))


def next_number(log: kernel.Log, document: ChannelDocument) -> int:
    """The number `slicings` of a document in which channels with slices have changed."""
    return max(document.slicings, log.state["slicings"]) + 1


def counters_path(path: Path, definition: Definition) -> Path:
    return path / FOLDER / f"{definition.number}.slices"


def spread_products(path: Path, definition: Definition) -> int:
    """How many products of the channel lacked what its function needs."""
    file = counters_path(path, definition)
    return int(COUNTERS.map(file)[_SPREAD]) if definition.slicing is not None and file.exists() else 0
