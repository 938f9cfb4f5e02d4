"""Batches of products for the tests of decoders."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headrace.pipeline.decoders import Decoded, Decoder, decoder
from headrace.pipeline.source.columns import SCHEMA
from headrace.testing import FeedGenerator

NOON = datetime(2020, 1, 6, 12, 30, tzinfo=UTC)


def products_of(
    payloads: Sequence[bytes | str], created: datetime | Sequence[datetime] = NOON, idents: Sequence[str] = ()
) -> pa.RecordBatch:
    """A batch with all columns of products."""
    times = [created] * len(payloads) if isinstance(created, datetime) else created
    rows = [
        {
            "sequence": place + 1,
            "feed": "wx/test",
            "ident": idents[place] if idents else f"product {place}",
            "payload": payload.encode("latin-1") if isinstance(payload, str) else payload,
            "signature": None,
            "origin": "here",
            "origin_sequence": place + 1,
            "created": times[place],
            "inserted": times[place],
            "priority": 4,
            "expiry": None,
            "slice": None,
            "properties": [("kind", "test")],
        }
        for place, payload in enumerate(payloads)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def generated(kind: str, count: int, size_max: int = 60_000, seed: int = 17) -> pa.RecordBatch:
    print(f"seed {seed}")
    drafts = list(FeedGenerator(seed=seed, feeds=[kind], products=count, duplicates=0, giants=False, size_max=size_max))
    times = [datetime.fromtimestamp(draft.created_ns / 1e9, UTC) for draft in drafts]
    return products_of([draft.payload for draft in drafts], times, [draft.ident for draft in drafts])


def decoded(name: str, products: pa.RecordBatch) -> Decoded:
    """Decode, and check what every decoder promises."""
    by = decoder(name)
    made = by.decode(products)
    check(by, products, made)
    return made


def check(by: Decoder, products: pa.RecordBatch, made: Decoded) -> None:
    assert made.rows.schema == pa.schema([pa.field("place", pa.int32()), *by.schema])
    made.rows.validate(full=True)
    places = set(made.rows.column("place").to_pylist())
    failed = [place for place, _ in made.errors]
    assert len(set(failed)) == len(failed)
    assert places.isdisjoint(failed)
    assert places.union(failed) <= set(range(products.num_rows))
    assert all(why and len(why) <= 400 for _, why in made.errors)


def rows(name: str, payloads: Sequence[bytes | str], **more: Any) -> list[dict[str, Any]]:
    """The rows of payloads that are all good."""
    made = decoded(name, products_of(payloads, **more))
    assert made.errors == []
    return made.rows.to_pylist()  # type: ignore[no-any-return]


def errors(name: str, payloads: Sequence[bytes | str]) -> dict[int, str]:
    return dict(decoded(name, products_of(payloads)).errors)
