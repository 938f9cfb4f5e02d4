"""Batch: many products at once, as columns.

A Batch comes from reading a queue. Its numbers are NumPy columns over one block of rows. Its payloads are views into
the queue's memory, which stay valid while the batch or any view taken from it exists, whatever writers do. Iterating
returns `Product` objects one by one; `to_arrow()` returns all of them as an Arrow RecordBatch without a Python loop.

Not here: the Arrow arrays (arrow.py); how rows are picked and verified (log/read.py, kernel/log/scan.pxi).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.extras import require
from headrace.product.options import Fragment, fragment_in
from headrace.product.product import Product
from headrace.units import format_count

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

ROW = np.dtype(
    [
        ("sequence", "<u8"), ("inserted_ns", "<u8"), ("created_ns", "<u8"), ("expires_ns", "<u8"),
        ("origin_sequence", "<u8"), ("previous", "<u8"), ("record", "<u8"), ("payload", "<u8"),
        ("payload_bytes", "<u4"), ("feed", "<u4"), ("origin", "<u2"), ("slice", "<u2"),
        ("ident_bytes", "<u2"), ("properties_bytes", "<u2"), ("priority", "u1"), ("kind", "u1"),
        ("feed_bytes", "u1"), ("origin_bytes", "u1"), ("segment", "<u4"), ("signature", "V16"),
        ("slot", "<u4"), ("deliveries", "<u2"), ("revisions", "<u2"), ("ticket", "<u4"),
        ("options_bytes", "<u2"), ("form", "u1"), ("proof", "u1"),
    ]
)  # fmt: skip


class Rows(Protocol):
    """What a Batch needs of the kernel: rows in C, pinned."""

    @property
    def next(self) -> int: ...
    def __len__(self) -> int: ...
    def some(self, places: npt.NDArray[np.uint32]) -> "Rows": ...
    def view(self, place: int) -> memoryview: ...
    def product(self, place: int, names: Sequence[str]) -> Product: ...
    def products(self, names: Sequence[str]) -> Iterator[Product]: ...
    def ident(self, place: int) -> str: ...
    def properties(self, place: int) -> bytes: ...
    def options(self, place: int) -> bytes: ...
    def record(self, place: int) -> bytes: ...
    def gather_idents(self, begin: int = 0) -> tuple[bytes, bytes]: ...
    def gather_payloads(self, wide: bool) -> tuple[bytes, bytes]: ...
    def gather_properties(self) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...
    def gather_texts(self, wanted: bytes) -> tuple[tuple[bytes, bytes] | None, ...]: ...
    def gather_numbers(self) -> dict[str, Any]: ...
    @property
    def passed_over(self) -> tuple[int, int, int, int, int]: ...


@dataclass(frozen=True, slots=True)
class Lost:
    """Sequences `first` to `last` were evicted before the reader read them."""

    first: int
    last: int

    @property
    def products(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}-{self.last} ({self.products} products)"


class Batch:
    """Products in the order of their sequence; see the module."""

    __slots__ = ("_columns", "_names", "_rows", "lost")

    def __init__(self, rows: Rows, names: Sequence[str], lost: Lost | None = None) -> None:
        self._rows = rows
        self._names = names
        self._columns: npt.NDArray[np.void] | None = None
        self.lost = lost  # what was evicted before this read

    @property
    def next(self) -> int:
        """Where to read on."""
        return self._rows.next

    @property
    def columns(self) -> npt.NDArray[np.void]:
        """The rows as a structured NumPy array."""
        if self._columns is None:
            self._columns = np.frombuffer(self._rows, dtype=ROW)  # type: ignore[call-overload]
        return self._columns

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Product]:
        return self._rows.products(self._names)

    def __getitem__(self, place: int) -> Product:
        if not -len(self) <= place < len(self):
            raise IndexError(f"batch of {len(self)} products has no place {place}")
        return self._rows.product(place % len(self), self._names)

    def take(self, places: Sequence[int] | npt.NDArray[np.integer[Any]]) -> "Batch":
        """The products at these places, as a batch without copies; IndexError if there is no such place."""
        return Batch(self._rows.some(np.ascontiguousarray(places, np.uint32)), self._names)

    def __repr__(self) -> str:
        span = f" {self.sequences[0]}-{self.sequences[-1]}" if len(self) else ""
        return f"<Batch of {len(self)}{span}, next {self.next}{f', lost {self.lost}' if self.lost else ''}>"

    def _repr_html_(self) -> str:
        from headrace.notebook import payload_text, rows_table  # notebook.py says why it is imported here

        heads = ("sequence", "feed", "ident", "created", "size", "payload")
        rows = (
            (each.sequence, each.feed, each.ident, each.created, each.size, payload_text(each.part)) for each in self
        )
        title = f"{format_count(len(self), 'product')}{f', lost {self.lost}' if self.lost else ''}"
        return rows_table(title, heads, rows, len(self), "product")

    # --- columns ----------------------------------------------------------------------------------

    @property
    def sequences(self) -> npt.NDArray[np.uint64]:
        return self.columns["sequence"]

    @property
    def sizes(self) -> npt.NDArray[np.uint32]:
        """Payload bytes of each product."""
        return self.columns["payload_bytes"]

    @property
    def deliveries(self) -> npt.NDArray[np.uint16]:
        """From a station: how often each product was delivered, this time included."""
        return self.columns["deliveries"]

    @property
    def revisions(self) -> npt.NDArray[np.uint16]:
        """From a station: how often stations before it have changed the payload."""
        return self.columns["revisions"]

    @property
    def payload_bytes(self) -> int:
        """Payload bytes of all products."""
        return int(self.sizes.sum(dtype=np.uint64))

    @property
    def feeds(self) -> list[str]:
        return [self._names[feed] for feed in self.columns["feed"].tolist()]

    @property
    def idents(self) -> list[str]:
        idents: list[str] = self.ident_column().to_pylist()
        return idents

    @property
    def origins(self) -> list[str]:
        return [self._names[origin] for origin in self.columns["origin"].tolist()]

    @property
    def names(self) -> Sequence[str]:
        """The feeds and origins that numbers in the columns mean."""
        return self._names

    def name(self, number: int) -> str:
        """The feed or origin that has this number in `columns`."""
        return self._names[number]

    def origin(self, place: int) -> str:
        """The origin of one product."""
        return self._names[int(self.columns["origin"][place])]

    def feed(self, place: int) -> str:
        """The feed of one product."""
        return self._names[int(self.columns["feed"][place])]

    def payload(self, place: int) -> memoryview:
        """The payload at one place, without a copy."""
        if not 0 <= place < len(self):
            raise IndexError(f"batch of {len(self)} products has no place {place}")
        return self._rows.view(place)

    def property_block(self, place: int) -> bytes:
        """The properties at one place as they are encoded (`headrace.product.properties`)."""
        return self._rows.properties(place)

    def record(self, place: int) -> bytes:
        """The product at one place as a record, the form it has on disk and on the wire."""
        return self._rows.record(place)

    def fragments(self) -> dict[int, Fragment]:
        """The products that are fragments of something larger: their places, and which part each is."""
        places = np.flatnonzero(self.columns["options_bytes"]).tolist()
        found = ((place, fragment_in(self._rows.options(place))) for place in places)
        return {place: fragment for place, fragment in found if fragment is not None}

    # --- what was skipped, by cause ---------------------------------------------------------------

    @property
    def scanned(self) -> int:
        """Index rows examined for this batch."""
        return self._rows.passed_over[0]

    @property
    def filtered(self) -> int:
        """Rows that did not match the selection."""
        return self._rows.passed_over[1]

    @property
    def deleted(self) -> int:
        return self._rows.passed_over[2]

    @property
    def damaged(self) -> int:
        """Rows that a repair has marked as damaged."""
        return self._rows.passed_over[3]

    @property
    def expired(self) -> int:
        return self._rows.passed_over[4]

    # --- Arrow ------------------------------------------------------------------------------------

    # Arrow is imported here and not above: it takes as long to load as NumPy, and few programs need it.

    def to_arrow(self) -> "pa.RecordBatch":
        """All products as one Arrow RecordBatch; payloads are copied into one buffer, the columns too.

        Feeds and origins are dictionary-encoded; properties are a map from name to the value as text. Payloads of
        2 GiB and more in all come as `large_binary`.
        """
        from headrace.product import arrow

        return arrow.record_batch(self)

    def to_pandas(self) -> "pd.DataFrame":
        """All products as a pandas DataFrame, with the columns of `to_arrow`.

        Feeds and origins are categorical, properties are dicts of texts, and a missing slice is `<NA>`. Numbers that
        are never missing share the memory of the Arrow columns; payloads become bytes objects, one by one.
        """
        require("pandas")
        from headrace.product import arrow

        frame: pd.DataFrame = arrow.pandas_frame(self)
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """All products as a polars DataFrame, with the columns of `to_arrow`, whose memory it shares where it can.

        Feeds and origins are categorical; properties are maps, or lists of `key` and `value` in an older polars.
        """
        require("polars")
        from headrace.product import arrow

        frame: pl.DataFrame = arrow.polars_frame(self)
        return frame

    def name_column(self, field: str) -> Any:
        """Feeds or origins as an Arrow array of text."""
        from headrace.product import arrow

        return arrow.name_column(self, field).dictionary_decode()

    def ident_column(self) -> Any:
        """Idents as an Arrow array of text."""
        from headrace.product import arrow

        return arrow.ident_column(self)

    def payload_column(self) -> Any:
        """Payloads, copied, as an Arrow array; `large_binary` from 2 GiB on."""
        from headrace.product import arrow

        return arrow.payload_column(self)

    def property_column(self) -> Any:
        """Properties as an Arrow array of maps from name to the value as text."""
        from headrace.product import arrow

        return arrow.property_column(self)


def rows_behind(batch: Batch) -> Rows:
    """The kernel's rows of a batch, for the parts of Headrace that hand them back to the kernel."""
    return batch._rows
