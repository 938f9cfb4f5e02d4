"""Templates: safe names of files, feeds and arguments, made from products."""

import posixpath
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import RuleError
from headrace.pipeline.rules.template import template
from headrace.pipeline.rules.template_safety import Purpose
from headrace.pipeline.rules.template_time import beyond, moment_in

CREATED = datetime(2026, 1, 6, 0, 55, 3, 250_000, tzinfo=UTC)
PATTERN = r"^(SA..).. (?P<centre>....) ([0-9]{6}) ?(.*)"
ROW: dict[str, Any] = {
    "sequence": 42, "feed": "wx/text/metar", "ident": "SAUS70 KWBC 060053 /pMETAR", "origin": "denver",
    "origin_sequence": 7, "created": CREATED, "inserted": CREATED, "expiry": None, "priority": 4, "slice": None,
    "signature": b"\x01\xff", "properties": [("level", "3"), ("a.b", "c")], "gust": 12.345, "calm": False,
    "rain": Decimal("0.250"), "dry": Decimal("0E-9"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("plain", "plain"),
        ("{feed}/{created:%Y%m%d}/{1}.txt", "wx/text/metar/20260106/SAUS.txt"),
        ("{feed.1}.{feed.3}.{feed.-1}.{feed.-3}", "wx.metar.metar.wx"),
        ("{centre}{centre:lower}{0}", "KWBCkwbcSAUS70 KWBC 060053 %2FpMETAR"),
        ("{time(3):%Y-%m-%dT%H%M}", "2026-01-06T0053"),
        ("{time(3):%b%d:lower}{created:%a:upper}", "jan06TUE"),
        ("{created}", "20260106T005503Z"),
        ("{created:%H:%M:%S.%f %j %y %B %A %%}", "00:55:03.250000 006 26 January Tuesday %25"),
        ("{sequence:08}{origin_sequence}{origin}", "000000427denver"),
        ("{gust:.1}|{gust}{calm}", "12.3|12.345false"),
        ("{rain:.1} {rain:07} {dry:.1} {dry:03}", "0.2 000.250 0.0 0.000000000"),
        ("{properties.level}{properties.a.b}", "3c"),
        ("{signature}", "01ff"),
        ("{expiry|never}{slice|}{properties.none|-}{feed.9|x}", "neverx".replace("x", "-x")),
        ("a{{b}}{{{1}}}", "a{b}{SAUS}"),
        ("x/{4}", "x/%2FpMETAR"),
        ("x/{4:path}", "x/pMETAR"),
        ("x{3:09}", "x000060053"),
    ],
)
def test_fields_are_filled_in_one_by_one_and_by_the_batch(source: str, expected: str) -> None:
    made = template(source, "path", PATTERN)
    assert made.text(ROW) == expected
    batch = pa.RecordBatch.from_pylist([ROW, ROW])
    filled = made.column(batch)
    assert (filled.texts.to_pylist(), filled.errors) == ([expected, expected], [])


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{expiry}", "{expiry} is missing"),
        ("{feed.4}", "{feed.4} is missing"),
        ("{properties.none}", "{properties.none} is missing"),
        ("{nothing}", "{nothing} needs the column 'nothing'"),
        ("{origin:%Y}", "{origin:%Y} is 'denver', not a time"),
        ("{origin:04}", "{origin:04} is 'denver', not a number"),
        ("{time(1):%Y}", "{time(1):%Y} is missing"),
    ],
)
def test_a_field_that_cannot_be_filled_in_is_an_error(source: str, problem: str) -> None:
    with pytest.raises(RuleError) as told:
        template(source, "text", PATTERN).text(ROW)
    assert told.value.problem == problem


@pytest.mark.parametrize("purpose", ["path", "feed", "ident", "argument", "text"])
def test_a_missing_field_fails_only_its_row(purpose: Purpose) -> None:
    filled = template("a{ident}", purpose).column(pa.RecordBatch.from_pylist([{"ident": ""}, {"ident": "b"}]))
    assert (filled.texts.to_pylist(), filled.errors) == ([None, "ab"], [(0, "{ident} is missing")])


def test_in_a_batch_only_the_row_that_cannot_be_filled_in_has_an_error() -> None:
    rows = [ROW, {**ROW, "ident": "no heading"}, {**ROW, "gust": None}, ROW]
    filled = template("{1}-{gust}", "path", PATTERN).column(pa.RecordBatch.from_pylist(rows))
    assert filled.texts.to_pylist() == ["SAUS-12.345", None, None, "SAUS-12.345"]
    assert filled.errors == [(1, "{1} is missing"), (2, "{gust} is missing")]


@pytest.mark.parametrize("source", ["{text:08}", "{text:.1}"])
def test_a_text_with_too_many_digits_fails_only_its_row(source: str) -> None:
    rows = pa.RecordBatch.from_pylist([{"text": "1" * 5000}, {"text": "1" * 301}, {"text": "7"}])
    filled = template(source, "text").column(rows)
    assert filled.errors == [(0, f"{source} has 5,000 digits"), (1, f"{source} has 301 digits")]
    assert filled.texts.to_pylist() == [None, None, "00000007" if "8" in source else "7.0"]


YEAR_1_US, YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
STRANGE_US = [YEAR_1_US - 1, YEAR_1_US, 0, None, YEAR_10000_US - 1, YEAR_10000_US, 2**62, -(2**63)]
IS_STRANGE = [True, False, False, False, False, True, True, True]


@pytest.mark.parametrize("source", ["{t|none}", "{t:%Y%m%d|none}", "{time(3)|none}{t|none}"])
def test_a_time_outside_the_range_of_python_fails_only_its_row(source: str) -> None:
    times = pa.array(STRANGE_US, pa.timestamp("us", "UTC"))
    ident = pa.array([ROW["ident"]] * len(times))
    made = template(source, "path", PATTERN)
    filled = made.column(pa.RecordBatch.from_arrays([ident, times, times], ["ident", "created", "t"]))
    assert [place for place, _ in filled.errors] == [0, 5, 6, 7]
    assert all("is a time outside the years 1 to 9999" in why for _, why in filled.errors)
    assert [text is None for text in filled.texts.to_pylist()] == IS_STRANGE
    assert filled.texts[2].as_py().endswith("19700101" if "%" in source else "19700101T000000Z")


@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [
        (pa.timestamp("us", "UTC"), lambda at: at),
        (pa.timestamp("us"), lambda at: at),
        (pa.list_(pa.timestamp("us")), lambda at: [0, at]),
        (pa.struct({"at": pa.timestamp("us")}), lambda at: {"at": at}),
        (pa.map_(pa.string(), pa.timestamp("us")), lambda at: [("a", 0), ("b", at)]),
        (pa.map_(pa.string(), pa.list_(pa.struct({"at": pa.timestamp("us")}))), lambda at: [("b", [{"at": at}])]),
    ],
)
def test_times_outside_the_range_of_python_are_found_at_any_depth(kind: Any, wrapped: Any) -> None:
    column = pa.array([None, *map(wrapped, STRANGE_US)], kind)
    assert beyond(column).tolist() == [False, *IS_STRANGE]
    assert beyond(column.slice(4, 4)).tolist() == IS_STRANGE[3:7]
    column.filter(pa.array(~beyond(column))).to_pylist()
    with pytest.raises((OverflowError, ValueError)):
        column.to_pylist()


def test_days_and_the_edges_of_other_zones_are_found_too() -> None:
    days = pa.array([-719_163, -719_162, 2_932_896, 2_932_897, None], pa.int32()).cast(pa.date32())
    assert beyond(days).tolist() == [True, False, False, True, False]
    edges = [YEAR_1_US, YEAR_10000_US - 1]
    assert beyond(pa.array(edges, pa.timestamp("us", "America/Denver"))).tolist() == [True, False]
    assert beyond(pa.array(edges, pa.timestamp("us", "Asia/Tokyo"))).tolist() == [False, True]
    assert not beyond(pa.array([2**63 - 1], pa.timestamp("ns"))).any()


@pytest.mark.parametrize(
    ("source", "column", "problem"),
    [
        ("a{1", 2, "a brace is unbalanced"),
        ("a}", 2, "a brace is unbalanced"),
        ("{}", 1, "{} has no name"),
        ("x{created:%Q}", 2, "the time format has '%Q', which is not supported"),
        ("{created:%}", 1, "the time format has '%', which is not supported"),
        ("{a b}", 1, "{a b} is not allowed in a template"),
        ("{payload}", 1, "{payload} is not allowed in a template"),
        ("{properties}", 1, "{properties} is not allowed in a template"),
        ("{1:bold}", 1, "{1:bold} has the unknown format 'bold'"),
        ("{time():%Y}", 1, "{time():%Y} names no group"),
    ],
)
def test_a_syntax_error_has_its_column(source: str, column: int, problem: str) -> None:
    with pytest.raises(RuleError) as told:
        template(source, "text", PATTERN)
    assert (told.value.column, told.value.problem) == (column, problem)
    assert told.value.hint
    assert told.value.excerpt.split("\n")[1].index("^") == column + 1


@pytest.mark.parametrize("source", ["../{1}", "a/../b", "./a", "/etc/{1}", "a//b", "a/", "", "a\0b", "a/" + "b" * 256])
def test_a_template_that_leaves_its_folder_is_refused(source: str) -> None:
    with pytest.raises(RuleError, match=r"path|file name"):
        template(source, "path")


@pytest.mark.parametrize(
    ("ident", "source", "text"),
    [
        ("..", "{ident}", None),
        (".", "{ident}/x", None),
        ("../../etc/passwd", "{ident}", "..%2F..%2Fetc%2Fpasswd"),
        ("../../etc/passwd", "{ident:path}", None),
        ("/etc/passwd", "{ident:path}", "etc/passwd"),
        ("a/./b", "{ident:path}", None),
        ("a\0b\n", "{ident}", "a%00b%0A"),
        ("%2F", "{ident}", "%252F"),
        (".", "{ident}.", None),
        ("x" * 256, "{ident}", None),
        ("ü" * 128, "{ident}", None),
        ("", "{ident}", None),
    ],
)
def test_no_value_makes_a_path_leave_its_folder(ident: str, source: str, text: str | None) -> None:
    made = template(source, "path")
    filled = made.column(pa.RecordBatch.from_pylist([{"ident": ident}]))
    assert filled.texts.to_pylist() == [text]
    if text is None:
        assert len(filled.errors) == 1
        with pytest.raises(RuleError):
            made.text({"ident": ident})
    else:
        assert made.text({"ident": ident}) == text


@settings(deadline=None, max_examples=300)
@given(
    ident=st.text(st.sampled_from("./\\%\0 a\n~ü"), max_size=8),
    source=st.sampled_from(
        ["{ident}", "x{ident}", "{ident:path}", "a/{ident:path}/b", "{ident}{ident}", "{ident|d}.x"]
    ),
)
def test_a_path_stays_below_its_folder_for_any_ident(ident: str, source: str) -> None:
    try:
        text = template(source, "path").text({"ident": ident})
    except RuleError:
        return
    assert "\0" not in text
    assert posixpath.normpath(posixpath.join("/folder", text)) == "/folder/" + text


def test_different_idents_make_different_names() -> None:
    names = {template("{ident}", "path").text({"ident": ident}) for ident in ("a/b", "a%2Fb", "a%252Fb", "a b")}
    assert len(names) == 4


def test_feeds_idents_and_arguments_each_have_their_rules() -> None:
    row = {"feed": "wx/text", "ident": "A B/*+"}
    assert template("{feed}/x/{ident}", "feed").text(row) == "wx/text/x/A%20B%2F%2A%2B"
    assert template("{ident}", "ident").text(row) == "A B/*+"
    assert template("{ident}", "argument").text(row) == "A B/*+"
    assert template("--x={ident}", "argument").text({"ident": "-rf"}) == "--x=-rf"
    for source, purpose, ident in [
        ("{ident}", "argument", "-rf"),
        ("a{ident}", "argument", "\0"),
        ("{ident}", "feed", "@x"),
        ("{ident}", "ident", "x" * 1025),
    ]:
        with pytest.raises(RuleError):
            template(source, purpose).text({"ident": ident})  # type: ignore[arg-type]
    with pytest.raises(RuleError):
        template("wx alert", "feed")


@pytest.mark.parametrize(
    ("digits", "created", "expected"),
    [
        ("06", "2026-01-06T12:00", "2026-01-06T00:00"),
        ("0612", "2026-01-06T12:00", "2026-01-06T12:00"),
        ("060053", "2026-01-06T00:55", "2026-01-06T00:53"),
        ("31", "2026-01-01T01:00", "2025-12-31T00:00"),
        ("010005", "2025-12-31T23:58", "2026-01-01T00:05"),
        ("01", "2025-12-31T00:00", "2026-01-01T00:00"),
        ("02", "2025-12-31T23:58", "2025-12-02T00:00"),
        ("0624", "2026-01-06T12:00", "2026-01-07T00:00"),
        ("29", "2026-03-01T12:00", "2026-01-29T00:00"),
        ("29", "2028-03-01T12:00", "2028-02-29T00:00"),
        ("31", "2026-03-01T12:00", "2026-01-31T00:00"),
        ("00", "2026-01-06T12:00", "2026-01-06T00:00"),
        ("01", "0001-01-01T00:00", "0001-01-01T00:00"),
        ("29", "0001-03-01T12:00", "0001-01-29T00:00"),
        ("31", "9999-12-31T23:58", "9999-12-31T00:00"),
        ("01", "9999-12-31T23:58", "9999-12-01T00:00"),
        ("20251231", "2026-01-06T12:00", "2025-12-31T00:00"),
        ("20251231235959", "2026-01-06T12:00", "2025-12-31T23:59:59"),
    ],
)
def test_a_day_of_the_month_becomes_a_plausible_date(digits: str, created: str, expected: str) -> None:
    at = datetime.fromisoformat(created).replace(tzinfo=UTC)
    assert moment_in(digits, at) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize("digits", ["", "1", "32", "0625", "060060", "abc", "20261301", "²³", "123"])
def test_digits_that_are_not_a_date_are_missing(digits: str) -> None:
    assert moment_in(digits, CREATED) is None


def test_a_day_before_the_first_year_is_missing() -> None:
    assert moment_in("31", datetime(1, 1, 1, tzinfo=UTC)) is None


def test_a_creation_without_a_zone_is_utc() -> None:
    assert moment_in("06", CREATED.replace(tzinfo=None)) == moment_in("06", CREATED)
    assert moment_in("01", datetime(1, 1, 1)) == datetime(1, 1, 1, tzinfo=UTC)


@settings(deadline=None, max_examples=200)
@given(day=st.integers(1, 31), hours=st.integers(0, 24 * 900))
def test_a_day_is_at_most_one_day_ahead_and_at_most_two_months_back(day: int, hours: int) -> None:
    created = datetime(2027, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
    found = moment_in(f"{day:02}", created)
    assert found is not None
    assert found.day == day
    assert timedelta(days=-62) < found - created <= timedelta(days=1)


@pytest.mark.parametrize(
    ("ident", "path"), [("a/V06/b", "x/V06/b.raw"), ("a//V06", "x/V06.raw"), ("a", "x.raw"), ("a/V06/", "x/V06/.raw")]
)
def test_slashes_of_a_value_are_kept_where_they_meet_text(ident: str, path: str) -> None:
    """As LDM's pqact has it: `x\\1.raw` with a group that begins with a slash makes a folder."""
    made = template("x{1:path|}.raw", "path", "^a(/.*)?")
    assert made.text({"ident": ident}) == path
    column = made.column(pa.RecordBatch.from_pydict({"ident": [ident]}))
    assert (column.texts.to_pylist(), column.errors) == ([path], [])
    assert template("{1:path}/x", "path", "^a(/.*)?").text({"ident": "a/b/"}) == "b/x"
