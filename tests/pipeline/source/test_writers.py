"""Writers: what becomes of the rows that a task gets."""

import pyarrow as pa
from blake3 import blake3

from headrace import Queue
from headrace.pipeline.source.options import write_options
from headrace.pipeline.source.writers import put_arguments


def test_a_signature_that_is_null_is_made_from_the_row(queue: Queue) -> None:
    """A repeated task gives the same ones; equal payloads on two feeds are two products."""
    given = blake3(b"given").digest(16)
    rows = pa.RecordBatch.from_pydict(
        {
            "payload": pa.array([b"21.5"] * 3, pa.binary()),
            "feed": ["room/a", "room/b", "room/b"],
            "signature": pa.array([None, None, given], pa.binary()),
        }
    )
    options = write_options({"queue": str(queue.path)})
    assert [queue.put_many(**put_arguments(rows, options)).stored for _ in range(2)] == [3, 0]
    signatures = [product.signature for product in queue.read_batch()]
    assert (len(set(signatures)), signatures[2]) == (3, given)
