"""Decoders: built-in and user-defined ones, failures that affect only their product, and arbitrary bytes."""

import pickle
import random
import re
import sys
import textwrap
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from decoding import check, decoded, generated, products_of
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import MissingExtraError, OptionError
from headrace.pipeline.decoders import DECODERS, Decoded, decoder
from headrace.pipeline.decoders.ddl import arrow_schema
from headrace.pipeline.decoders.decoder import cause, make_decoder, rows_of
from headrace.pipeline.run.decoding import decode_batch

IN_PROCESS = [name for name in DECODERS if name not in ("bufr", "grib", "grib-values")]
KIND_OF = {
    "wmo": "bulletin",
    "metar": "metar",
    "nexrad2": "nexrad2",
    "nexrad3": "nexrad3",
    "monitor": "monitor",
    "events": "event",
    "events-summary": "event",
    "text": "bulletin",
    "grib": "ngrid",
    "grib-values": "ngrid",
    "bufr": "bufr",
}
SCHEMA = pa.schema({"size": pa.int64()})

OWN = """
    import pyarrow as pa
    import pyarrow.compute as pc

    from headrace.pipeline.decoders import Decoded

    def sizes(products):
        lengths = pc.binary_length(products.column("payload"))
        places = pa.array(range(products.num_rows), pa.int32())
        return pa.RecordBatch.from_arrays([places, lengths], names=["place", "size"])

    def picky(products):
        if any(b"bad" in payload for payload in products.column("payload").to_pylist()):
            raise RuntimeError("bad payload")
        return sizes(products)

    def reports(products):
        return Decoded(sizes(products.slice(1)).slice(0, 0), [(0, "the first one")] if products.num_rows else [])

    def ill(products):
        return Decoded(sizes(products).slice(0, 0), [(place, why) for place, why in enumerate(WORDS[: products.num_rows])])

    WORDS = ["bad \\udcff", None, ValueError("x"), "é" * 1000]

    def wise(product):
        raise ValueError("bad " + product["payload"].decode(errors="surrogateescape"))

    def of_type(kind, name="x"):
        def made(products):
            raise RuntimeError
        made.schema = pa.schema([pa.field(name, kind)])
        return made

    null, unsigned, fine = of_type(pa.null()), of_type(pa.uint64()), of_type(pa.timestamp("ns", "UTC"))
    nested, twice = of_type(pa.list_(pa.large_string())), of_type(pa.struct([("a", pa.int8()), ("A", pa.int8())]))
    reserved, cased = of_type(pa.int8(), "_error"), of_type(pa.int8(), "FEED")

    def elsewhere(products):
        return pa.RecordBatch.from_pydict({"place": pa.array([7], pa.int32()), "size": pa.array([1], pa.int32())})
    elsewhere.schema = pa.schema({"size": pa.int32()})

    def fails(products):
        return products.column("payload")[0]

    def table(products):
        return pa.table({"place": []})

    def placeless(products):
        return pa.RecordBatch.from_pydict({"size": pa.array([], pa.int32())})

    def words(product):
        for number, word in enumerate(product["payload"].decode().split()):
            yield {"word": word, "number": number, "kind": product["properties"]["kind"]}

    def typo(product):
        yield {"wrod": "x"}

    def leaves(product):
        raise SystemExit(3)

    NUMBER = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_formats.py").write_text(textwrap.dedent(OWN))
    (tmp_path / "own_broken.py").write_text("1 / 0")
    (tmp_path / "own_exit.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("own_formats", None)
    return "own_formats"


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_is_found_by_its_name_and_makes_columns_that_spark_takes(name: str) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    found = decoder(name)
    assert found.name == name
    assert "place" not in found.schema.names
    assert to_arrow_schema(from_arrow_schema(found.schema), timezone="UTC").types == found.schema.types
    for field in found.schema:
        assert "large" not in str(field.type)
        assert "dictionary" not in str(field.type)
        assert "ns" not in str(field.type)
    assert pickle.loads(pickle.dumps(found)).schema == found.schema


def test_an_unknown_decoder_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"no decoder 'metr'; did you mean 'metar'\? choose from bufr, events"):
        decoder("metr")


def test_a_missing_library_is_an_error_that_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eccodes", None)
    with pytest.raises(MissingExtraError, match=r"GRIB and BUFR need packages .*; pip install 'headrace\[grib\]'"):
        decoder("grib")


def test_a_built_in_decoder_takes_no_schema() -> None:
    with pytest.raises(OptionError, match="schema of its own"):
        decoder("metar", "station string")


def test_a_function_may_take_batches(own: str) -> None:
    by = decoder(f"{own}:sizes")
    products = products_of([b"abc", b"", b"z"])
    made = by.decode(products)
    check(by, products, made)
    assert made.rows.column("size").to_pylist() == [3, 0, 1]


def test_a_function_that_raises_loses_only_the_products_it_raises_for(own: str) -> None:
    by = decoder(f"{own}:picky")
    products = products_of([b"bad" if place in (3, 4, 90) else b"good" for place in range(100)])
    made = by.decode(products)
    check(by, products, made)
    assert made.errors == [(place, "RuntimeError: bad payload") for place in (3, 4, 90)]
    assert made.rows.column("place").to_pylist() == [place for place in range(100) if place not in (3, 4, 90)]


def test_a_function_may_name_errors_itself(own: str) -> None:
    assert decoder(f"{own}:reports").decode(products_of([b"a", b"b"])).errors == [(0, "the first one")]


def test_errors_of_any_kind_become_text_that_a_table_takes(own: str) -> None:
    by, products = decoder(f"{own}:ill"), products_of([b"a", b"b", b"c", b"d"])
    made = by.decode(products)
    check(by, products, made)
    assert [why[:20] for _, why in made.errors] == ["bad ?", "no reason was given", "x", "é" * 20]
    by = decoder(f"{own}:wise", "x int")
    made = by.decode(products_of([b"\xff"]))
    assert made.errors == [(0, "ValueError: bad ?")]
    assert [batch.num_rows for batch in decode_batch(products, decoder(f"{own}:ill"))] == [4]


def test_a_function_that_exits_does_not_end_the_process(own: str) -> None:
    made = decoder(f"{own}:leaves", "size int").decode(products_of([b"x", b"y"]))
    assert made.errors == [(0, "SystemExit: 3"), (1, "SystemExit: 3")]


def test_a_product_of_many_rows_is_not_repeated_for_each(own: str) -> None:
    products = products_of([b"\n".join([b"y" * 340] * 9000)])
    batches = list(decode_batch(products, decoder("text")))
    assert sum(batch.num_rows for batch in batches) == 9000
    assert max(batch.num_rows for batch in batches) <= 4096


def test_a_row_with_an_invalid_place_is_an_error(own: str) -> None:
    made = decoder(f"{own}:elsewhere").decode(products_of([b"a", b"b"]))
    assert made.rows.num_rows == 0
    assert [place for place, why in made.errors if "place that is not from 0 to 0" in why] == [0, 1]


def test_a_function_may_take_a_product_and_yield_rows(own: str) -> None:
    by = decoder(f"{own}:words", "word string, number int, kind string")
    products = products_of([b"one two", b"\xff", b"three"])
    made = by.decode(products)
    check(by, products, made)
    assert [(row["place"], row["word"], row["number"]) for row in made.rows.to_pylist()] == [
        (0, "one", 0),
        (0, "two", 1),
        (2, "three", 0),
    ]
    assert made.rows.column("kind").to_pylist() == ["test"] * 3
    assert made.errors[0][0] == 1
    assert "UnicodeDecodeError" in made.errors[0][1]


def test_a_row_with_a_name_or_a_type_that_the_schema_does_not_have_is_an_error(own: str) -> None:
    made = decoder(f"{own}:typo", "word string").decode(products_of([b"x"]))
    assert made.errors == [(0, "ValueError: it returned wrod, which the schema does not have")]
    made = decoder(f"{own}:words", "word int, number int, kind string").decode(products_of([b"x"]))
    assert made.rows.num_rows == 0
    assert len(made.errors) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:f", "no module 'no_such_module'; install it"),
        ("own_formats:nothing", "has no 'nothing'"),
        ("own_formats:NUMBER", "is not a function"),
        ("own_formats:fails", "the schema of decoder .* is unknown"),
        ("own_formats:table", "the schema of decoder .* is unknown"),
        ("own_formats:placeless", "'place' as first column"),
        ("own_formats:null", "'x' of type null, which Spark does not support"),
        ("own_formats:unsigned", "of type uint64"),
        ("own_formats:fine", "of type timestamp.ns"),
        ("own_formats:nested", "of type list<item: large_string>"),
        ("own_formats:twice", "of type struct<a: int8, A: int8>"),
        ("own_formats:reserved", "a column '_error', which is reserved"),
        ("own_formats:cased", "a column 'FEED', and there is 'feed'"),
        ("own_broken:f", "its module fails with ZeroDivisionError"),
        ("own_exit:f", "its module fails with SystemExit: 3"),
        ("own_formats:leaves", "the schema of decoder .* it fails with SystemExit: 3"),
    ],
)
def test_an_invalid_function_is_an_error_with_the_remedy(own: str, name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        decoder(name)
    assert caught.value.hint


def test_a_schema_is_read_as_spark_writes_it() -> None:
    schema = arrow_schema(
        "a string not null, `b c` array<struct<x: int, y: map<string, bigint>>>, d decimal(9, 2), e timestamp, "
        "f double, g date, h binary, i tinyint, j smallint, k float, l boolean, m long"
    )
    assert schema.field("a").type == pa.string()
    assert schema.field("b c").type == pa.list_(pa.struct({"x": pa.int32(), "y": pa.map_(pa.string(), pa.int64())}))
    assert schema.field("d").type == pa.decimal128(9, 2)
    assert schema.field("e").type == pa.timestamp("us", tz="UTC")
    assert [schema.field(name).type for name in "fghijklm"] == [
        pa.float64(), pa.date32(), pa.binary(), pa.int8(), pa.int16(), pa.float32(), pa.bool_(), pa.int64(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "ddl",
    [
        "",
        "a",
        "a strnig",
        "a int, a int",
        "place int",
        "a timestamp_ntz",
        ")",
        "a decimal(50, 2)",
        "a decimal(0)",
        "a decimal(1, 2, 3)",
        "a struct<int>",
        "a map<string>",
        "a array<>",
    ],
)
def test_an_invalid_schema_is_an_error(ddl: str) -> None:
    with pytest.raises(OptionError):
        arrow_schema(ddl)


def test_values_of_every_type_of_a_schema_can_be_made(own: str, tmp_path: Path) -> None:
    code = "def f(product):\n    import datetime\n    yield {'d': datetime.date(2020, 1, 6), 't': product['created']}\n"
    (tmp_path / "own_types.py").write_text(code)
    (row,) = decoder("own_types:f", "d date, t timestamp").decode(products_of([b""])).rows.to_pylist()
    assert (row["d"], row["t"]) == (date(2020, 1, 6), datetime(2020, 1, 6, 12, 30, tzinfo=UTC))


def test_any_exception_is_traced_to_its_product() -> None:
    def fails(products: pa.RecordBatch) -> Decoded:
        payloads = products.column("payload").to_pylist()
        if b"x" in payloads:
            raise MemoryError
        return Decoded(rows_of(SCHEMA, [(place, len(payload)) for place, payload in enumerate(payloads)]), [])

    made = make_decoder("fails", SCHEMA, fails).decode(products_of([b"a", b"x", b"ccc", b"x"]))
    assert made.rows.to_pydict() == {"place": [0, 2], "size": [1, 3]}
    assert made.errors == [(1, "MemoryError"), (3, "MemoryError")]


@pytest.mark.parametrize(
    ("reason", "same"),
    [
        ("truncated to 4,000 of 9,120 bytes", "truncated to N of N bytes"),
        ("not read within 1.5 s", "not read within N s"),
        ("no report (as in KDEN 060053Z)", "no report (as in KDEN 060053Z)"),
        ("GRIB edition 3.", "GRIB edition N."),
    ],
)
def test_reasons_that_differ_in_numbers_have_the_same_cause(reason: str, same: str) -> None:
    assert cause(reason) == same


@pytest.mark.parametrize("name", DECODERS)
def test_no_products_make_no_rows(name: str) -> None:
    made = decoded(name, products_of([]))
    assert (made.rows.num_rows, made.errors) == (0, [])


@pytest.mark.parametrize("name", IN_PROCESS)
@settings(max_examples=150, deadline=None)
@given(payloads=st.lists(st.binary(max_size=300), max_size=4))
def test_any_bytes_are_rows_or_an_error(name: str, payloads: list[bytes]) -> None:
    assert_none_raised(decoded(name, products_of(payloads)))


def assert_none_raised(made: Decoded) -> None:
    """No error comes from an exception: a decoder expects any bytes."""
    assert not [why for _, why in made.errors if re.match(r"[A-Z]\w*(Error|Invalid|Exception)\b", why)]


@pytest.mark.parametrize("name", IN_PROCESS)
def test_altered_products_are_rows_or_an_error(name: str) -> None:
    source = random.Random(4271)
    payloads = generated(KIND_OF[name], 60, 4000).column("payload").to_pylist()
    assert_none_raised(decoded(name, products_of([_altered(source, source.choice(payloads)) for _ in range(400)])))


def _altered(source: random.Random, payload: bytes) -> bytes:
    data = bytearray(payload)
    for _ in range(source.randrange(1, 8)):
        at = source.randrange(min(len(data), 200) or 1)
        choice = source.randrange(4)
        if choice == 0:
            del data[at : at + source.randrange(1, 40)]
        elif choice == 1:
            data[at:at] = source.randbytes(source.randrange(1, 20))
        elif data:
            data[at % len(data)] = source.choice((0, 255, 61, 10, source.randrange(256)))
    return bytes(data)


HOSTILE = {
    "equal signs": b"=" * 2_000_000,
    "line ends": b"\r\n" * 1_000_000,
    "spaces": b" " * 2_000_000,
    "one word": b"A" * 2_000_000,
    "short words": b"SAUS70 KWBC 060000\r\r\nMETAR\r\r\nKDEN 060053Z " + b"1 " * 1_000_000,
    "no terminator": b"SAUS70 KWBC 060000\r\r\n" + b"KDEN 060053Z 18008KT\r\r\n" * 90_000,
    "reports": b"SAUS70 KWBC 060000\r\r\n" + b"KDEN 060053Z RMK=" * 9_999,
    "weather": b"KDEN 060053Z " + b"-RASNGR " * 400 + b"=",
    "digits": b"0" * 2_000_000,
    "slashes": b"KDEN 060053Z " + b"/" * 2_000_000,
    "remarks": b"KDEN 060053Z RMK " + b"T0" * 1_000_000,
    "bzip2": b"\x00\x00\x00\x08BZh9" * 200_000,
    "zeros": bytes(2_000_000),
    "high bytes": b"\xff" * 2_000_000,
}


@pytest.mark.parametrize("name", IN_PROCESS)
def test_hostile_payloads_are_decoded_in_bounded_time(name: str) -> None:
    """Each takes 2 s at most; a decoder whose time is not proportional to the size would take hours, until the timeout."""
    for what, payload in HOSTILE.items():
        before = time.process_time()
        assert_none_raised(decoded(name, products_of([payload])))
        print(f"{what}: {time.process_time() - before:.2f} s")
