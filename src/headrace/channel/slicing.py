"""Slices of a channel: into how many parts its stream is cut, and what assigns a product to one of them.

    queue.channel("radar", "wx/radar/**", slices=256, assign="property:station")

Both are terms of the channel, fixed for its life, so that every producer uses the same ones: the slice of a product is
computed where the product enters the queue (kernel/log/slices.pxi), on every path. `Slicing` is what the definition of
a channel holds; `Assignment` is the same in parts. docs/channels.md has the functions and their exact definitions.

Not here: the computation itself, and the counters of products that had to be spread (assigner.py).
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from headrace.errors import HeadraceError, OptionError
from headrace.kernel import _kernel as kernel
from headrace.product.properties import NAME_BYTES_MAX
from headrace.selection.functions import check_function_name
from headrace.station.conflicts import Conflict

SLICES_DEFAULT = 256
SLICES_MAX = kernel.NO_SLICE  # a record has 16 bits for its slice, and this number says that it has none
SLICING_OPTIONS = ("slices", "assign")
_SIDE_MAX = 65535  # rows or columns of a grid
_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})")
_PLAIN = ("ident", "round_robin", "random", "given")
_FORMS = (
    "choose ident, property:NAME, modulo:NAME, round_robin, random, grid:LATITUDE,LONGITUDE, function:NAME, or given"
)


class Slicing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The slices of a channel; make one with `read_slicing`."""

    slices: int  # numbered 0 to slices - 1
    assign: str  # the function that assigns them


@dataclass(frozen=True, slots=True)
class Assignment:
    """The function that assigns slices, in parts."""

    how: str  # what stands before the colon
    names: tuple[str, ...] = ()  # of the property, of latitude and longitude, or of the user's function
    rows: int = 0  # of a grid; 0: not given
    columns: int = 0

    def __str__(self) -> str:
        size = (f"{self.rows}x{self.columns}",) if self.rows else ()
        return f"{self.how}:{','.join((*self.names, *size))}" if self.names else self.how


# --- reading --------------------------------------------------------------------------------------


def read_slicing(options: Mapping[str, Any]) -> tuple[Slicing | None, list[Conflict]]:
    """The slices that the options ask for, None if they ask for none; and every conflict."""
    slices, assign = options.get("slices"), options.get("assign")
    if slices is None and assign is None:
        return None, []
    faults = list(_invalid_slices(slices))
    assignment = Assignment("ident")
    try:
        assignment = parse_assign("ident" if assign is None else assign)
    except HeadraceError as error:
        faults.append(Conflict(("assign",), error.problem, error.hint, of_values=True))
    if faults:
        return None, faults
    slices = slices or assignment.rows * assignment.columns or SLICES_DEFAULT
    if assignment.how == "grid":
        assignment = _sized(assignment, slices)
        faults = list(_too_few_cells(assignment, slices)) if assign is not None else []
    return None if faults else Slicing(slices=slices, assign=str(assignment)), faults


def parse_assign(text: Any) -> Assignment:
    """The parts of what people write; OptionError, or SelectionError for the name of a function, says what is wrong."""
    if not isinstance(text, str):
        raise OptionError(f"assign {text!r} is not text", _FORMS)
    how, colon, rest = text.partition(":")
    if how in _PLAIN and not colon:
        return Assignment(how)
    if how in ("property", "modulo"):
        return Assignment(how, (_property(text, rest),))
    if how == "function":
        return Assignment(how, (check_function_name(rest),))
    if how == "grid":
        return _grid(text, rest)
    raise OptionError(f"assign {text[:80]!r} is unknown", _FORMS)


def _property(text: str, name: str) -> str:
    if not 1 <= len(name.encode(errors="replace")) <= NAME_BYTES_MAX:
        raise OptionError(f"assign {text[:80]!r} names no property", "write property:NAME or modulo:NAME")
    return name


def _grid(text: str, rest: str) -> Assignment:
    names = rest.split(",")
    size = _SIZE.fullmatch(names.pop()) if len(names) == 3 else None
    rows, columns = (int(size[1]), int(size[2])) if size else (0, 0)
    if len(names) != 2 or (rest.count(",") == 2 and not size) or max(rows, columns) > _SIDE_MAX:
        raise OptionError(
            f"assign {text[:80]!r} is not a grid",
            f"write grid:LATITUDE,LONGITUDE or grid:LATITUDE,LONGITUDE,ROWSxCOLUMNS, at most {_SIDE_MAX} of each",
        )
    return Assignment("grid", tuple(_property(text, name) for name in names), rows, columns)


def _sized(assignment: Assignment, slices: int) -> Assignment:
    """The grid with its numbers of rows and columns: one cell for each slice if they are not given.

    Then there are as many rows as possible without a cell that is narrower than high in degrees.
    """
    if assignment.rows:
        return assignment
    rows = next(rows for rows in range(max(1, math.isqrt(slices // 2)), 0, -1) if slices % rows == 0)
    return replace(assignment, rows=rows, columns=slices // rows)


def _invalid_slices(slices: Any) -> Iterator[Conflict]:
    if slices is None:
        return
    problem = ""
    if isinstance(slices, bool) or not isinstance(slices, int):
        problem = f"slices {slices!r} is not a whole number"
    elif not 1 <= slices <= SLICES_MAX:
        problem = f"slices {slices} is out of range"
    if problem:
        yield Conflict(("slices",), problem, f"give a number from 1 to {SLICES_MAX}", of_values=True)


def _too_few_cells(grid: Assignment, slices: int) -> Iterator[Conflict]:
    cells = grid.rows * grid.columns
    if cells < slices:
        yield Conflict(
            SLICING_OPTIONS,
            f"a grid of {grid.rows} x {grid.columns} has {cells} cells, and {slices - cells} of {slices} slices would "
            "never get a product",
            f"give at most {cells} slices, or a finer grid",
        )


# --- words ----------------------------------------------------------------------------------------


def slicing_texts(slicing: Slicing | None) -> dict[str, str]:
    """The options that a channel was created with, for people; empty if it has no slices."""
    return {} if slicing is None else {"slices": str(slicing.slices), "assign": slicing.assign}
