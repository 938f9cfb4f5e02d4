"""LDM's metadata before the content: what a decoder made for pqact's -metadata reads."""

import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from acting import context_of

from headrace.errors import PipelineError
from headrace.pipeline.actions import Counts, DeadLetters, performer
from headrace.pipeline.actions.prepared import Recipe
from headrace.pipeline.rules import ExecAction, FileAction, PipeAction
from headrace.product.ldm_feedtypes import FEEDTYPES

CREATED = datetime(2026, 1, 6, 0, 53, 1, 250_007, tzinfo=UTC)
IDENTS = ["SAUS70 KWBC 060053", "météo"]
PAYLOADS = [b"METAR KDEN\r\r\n", b"\xe9\x01\n"]
ROWS = pa.RecordBatch.from_pydict({
    "sequence": pa.array([1, 2], pa.int64()), "feed": ["wx/text/metar", "wx/radar/nexrad2/KFTG"], "ident": IDENTS,
    "payload": pa.array(PAYLOADS, pa.binary()), "signature": pa.array([b"s" * 16, b"t" * 16], pa.binary()),
    "origin": ["ldm1.example.org", "b"], "origin_sequence": pa.array([17, (1 << 32) + 5], pa.int64()),
    "created": pa.array([CREATED, CREATED], pa.timestamp("us", "UTC")),
})  # fmt: skip


def read_one(data: bytes, has_data: bool = True) -> tuple[dict[str, Any], bytes]:
    """Metadata and data of the first product, read as a decoder in C does, and the rest."""
    length, signature, size, seconds, microseconds, feedtype, sequence = struct.unpack_from("=I16sIQiII", data)
    (ident_bytes,) = struct.unpack_from("=I", data, 44)
    ident = data[48 : 48 + ident_bytes]
    (origin_bytes,) = struct.unpack_from("=I", data, 48 + ident_bytes)
    origin = data[52 + ident_bytes : 52 + ident_bytes + origin_bytes]
    assert length == 44 + 4 + ident_bytes + 4 + origin_bytes
    end = length + (size if has_data else 0)
    made = {"signature": signature, "size": size, "time": (seconds, microseconds), "feedtype": feedtype,
            "sequence": sequence, "ident": ident.decode(), "origin": origin.decode(), "data": data[length:end]}  # fmt: skip
    return made, data[end:]


def expected(place: int, payload: bytes) -> dict[str, Any]:
    return {
        "signature": (b"s" if place == 0 else b"t") * 16, "size": len(payload),
        "time": (int(CREATED.timestamp()), 250_007), "sequence": (17, 5)[place],
        "feedtype": FEEDTYPES[("DDS", "NEXRAD2")[place]].bit, "ident": IDENTS[place],
        "origin": ("ldm1.example.org", "b")[place], "data": payload,
    }  # fmt: skip


def perform(action: Any, root: Path) -> None:
    made = performer(action, "act-0", None, DeadLetters(root / "dead"))
    rows = made.recipe(ROWS)  # type: ignore[attr-defined]
    counts: Counts = made.perform_batches([rows], context_of(root))  # type: ignore[attr-defined]
    assert (counts.rows, counts.failed) == (2, 0)
    made.close()


def test_a_program_reads_product_after_product(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys; open('out', 'wb').write(sys.stdin.buffer.read())")
    perform(PipeAction(command=command, folder=tmp_path, content="payload", metadata="ldm"), tmp_path)
    first, rest = read_one((tmp_path / "out").read_bytes())
    second, rest = read_one(rest)
    assert (first, second, rest) == (expected(0, PAYLOADS[0]), expected(1, PAYLOADS[1]), b"")


def test_a_file_has_the_metadata_of_each_product_before_it(tmp_path: Path) -> None:
    perform(FileAction(path="all", folder=tmp_path, content="payload", metadata="ldm"), tmp_path)
    first, rest = read_one((tmp_path / "all").read_bytes())
    assert first == expected(0, PAYLOADS[0])
    assert read_one(rest) == (expected(1, PAYLOADS[1]), b"")


def test_a_program_for_each_product_gets_metadata_too(tmp_path: Path) -> None:
    action = ExecAction(command=("sh", "-c", 'cat > "$1"', "sh", "{sequence}"), folder=tmp_path, content="payload",
                        metadata="ldm")  # fmt: skip
    perform(action, tmp_path)
    assert read_one((tmp_path / "2").read_bytes()) == (expected(1, PAYLOADS[1]), b"")


def test_the_size_is_that_of_the_content_that_is_left() -> None:
    made = Recipe((), None, "payload", ("controls", "non-ascii"), metadata="ldm")
    contents = made.contents_of(ROWS).to_pylist()
    assert [read_one(content)[0]["data"] for content in contents] == [b"METAR KDEN\n", b"\n"]
    assert [read_one(content)[0]["size"] for content in contents] == [11, 1]


def test_metadata_may_stand_alone() -> None:
    contents = Recipe((), None, "none", metadata="ldm").contents_of(ROWS).to_pylist()
    facts, rest = read_one(contents[0], has_data=False)
    assert (facts["size"], facts["data"], rest) == (len(PAYLOADS[0]), b"", b"")


def test_rows_without_the_columns_are_refused() -> None:
    with pytest.raises(PipelineError, match="the rows have no column 'origin'"):
        Recipe((), None, "payload", metadata="ldm").check([name for name in ROWS.schema.names if name != "origin"])


def test_spipe_frames_each_product_with_its_ident() -> None:
    contents = Recipe((), None, "payload", metadata="ldm-spipe").contents_of(ROWS).to_pylist()
    for ident, payload, content in zip(IDENTS, PAYLOADS, contents, strict=True):
        sync, key_bytes = struct.unpack_from("=QQ", content)
        (data_bytes,) = struct.unpack_from("=Q", content, 16 + key_bytes)
        assert (sync, content[16 : 16 + key_bytes].decode()) == (0x1DFCCF1A, ident)
        assert (data_bytes, content[24 + key_bytes :]) == (len(payload) + 2, payload + b"\x03\x1e")


def test_xpipe_writes_each_product_in_xdr() -> None:
    def text(data: bytes, at: int) -> tuple[bytes, int]:
        (length,) = struct.unpack_from(">I", data, at)
        return data[at + 4 : at + 4 + length], at + 4 + length + -length % 4

    for place, content in enumerate(Recipe((), None, "payload", metadata="ldm-xpipe").contents_of(ROWS).to_pylist()):
        wanted = expected(place, PAYLOADS[place])
        *time, signature = struct.unpack_from(">ii16s", content)
        origin, at = text(content, 24)
        feedtype, sequence = struct.unpack_from(">II", content, at)
        ident, at = text(content, at + 8)
        data, end = text(content, at)
        assert (tuple(time), signature, feedtype, sequence, data) == (
            wanted["time"], wanted["signature"], wanted["feedtype"], wanted["sequence"], wanted["data"],
        )  # fmt: skip
        assert (origin.decode(), ident.decode(), end) == (wanted["origin"], wanted["ident"], len(content))
