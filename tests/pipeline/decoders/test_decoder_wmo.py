"""WMO bulletins: headings, reports, times."""

from datetime import UTC, datetime, timedelta

import pytest
from decoding import decoded, errors, generated, products_of, rows
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.decoders.day_of_month import resolve_us
from headrace.pipeline.decoders.wmo import find_heading

BULLETIN = "\x01\r\r\n417 \r\r\nFPUS55 KBOU 061200 AAA\r\r\nZFPBOU\r\r\n\r\r\nZONE FORECAST\r\r\nSNOW=RAIN.\r\r\n\r\r\n$$\r\r\n\x03"
SIGMET = "WSBZ31 SBGL 061210\r\r\nSBAZ SIGMET 3 VALID 061215/061615 SBAZ-\r\r\nSBAZ AMAZONICA FIR EMBD TS=\r\r\n"
SYNOP = "SMDL01 EDZW 061200\r\r\nAAXX 06124\r\r\n10384 31960 82506=\r\r\n10637 32970\r\r\n 72308=\r\r\nNNNN"


def test_heading_and_text_of_a_bulletin() -> None:
    assert rows("wmo", [BULLETIN]) == [
        {
            "place": 0,
            "report": 0,
            "data_type": "FP",
            "area": "US",
            "number": 55,
            "center": "KBOU",
            "time": datetime(2020, 1, 6, 12, 0, tzinfo=UTC),
            "indicator": "AAA",
            "awips": "ZFPBOU",
            "text": "ZONE FORECAST\nSNOW=RAIN.\n\n$$",
        }
    ]


def test_reports_are_rows_and_carry_the_line_that_is_meant_for_all() -> None:
    assert [row["text"] for row in rows("wmo", [SYNOP])] == [
        "AAXX 06124 10384 31960 82506",
        "AAXX 06124 10637 32970\n 72308",
    ]
    metar = "SPCN31 CWAO 061207\r\r\nSPECI\r\r\nCYYZ 061205Z 1SM=\r\r\nSPECI CYUL 061206Z 2SM="
    assert [row["text"] for row in rows("wmo", [metar])] == ["SPECI CYYZ 061205Z 1SM", "SPECI CYUL 061206Z 2SM"]
    (sigmet,) = rows("wmo", [SIGMET])
    assert sigmet["text"].startswith("SBAZ SIGMET 3 VALID")
    assert sigmet["awips"] is None


JOINED = {
    "METAR without =": (
        "SACN31 CWAO 121500\r\r\nCYYZ 121500Z 27010KT 15SM FEW040 12/03 A3001 RMK CU2\r\r\nSLP168\r\r\n"
        "CYUL 121500Z 00000KT 9SM\r\r\n SKC 10/02 A3003\r\r\nCYOW 121500Z AUTO 30005KT 9SM CLR 09/01 A3002\r\r\n",
        ["CYYZ 121500Z 27010KT 15SM FEW040 12/03 A3001 RMK CU2\nSLP168", "CYUL 121500Z 00000KT 9SM\n SKC 10/02 A3003",
         "CYOW 121500Z AUTO 30005KT 9SM CLR 09/01 A3002"],
    ),
    "one = is missing": (
        "SAUS70 KWBC 061200\r\r\nMETAR KDEN 061153Z 18008KT 10SM 12/M03 A3002=\r\r\nMETAR KBOU 061150Z 10SM 11/M02\r\r\n"
        "METAR KCOS 061154Z NIL=\r\r\n",
        ["METAR KDEN 061153Z 18008KT 10SM 12/M03 A3002", "METAR KBOU 061150Z 10SM 11/M02", "METAR KCOS 061154Z NIL"],
    ),
    "a shared line": (
        "SPCN31 CWAO 061207\nSPECI\nCYYZ 061205Z 1SM\nCYUL 061206Z 2SM=",
        ["SPECI CYYZ 061205Z 1SM", "SPECI CYUL 061206Z 2SM"],
    ),
    "TAF": (
        "FTCN31 CWAO 121140\nTAF CYYZ 121140Z 1212/1318 27012KT P6SM SCT040\n  FM121800 28015KT P6SM\n"
        "TAF AMD CYUL 121141Z 1212/1312 20005KT P6SM\nCYOW 121142Z 1212/1312 20005KT P6SM=",
        ["TAF CYYZ 121140Z 1212/1318 27012KT P6SM SCT040\n  FM121800 28015KT P6SM",
         "TAF AMD CYUL 121141Z 1212/1312 20005KT P6SM", "CYOW 121142Z 1212/1312 20005KT P6SM"],
    ),
    "Canadian SA": (
        "SACN74 CWAO 090000 RRC\r\r\n\r\r\nNPL SA 0000 AUTO8 M M M 990/-36/-39/2703/M/     7003 61MM\r\r\n"
        "WEL SA 0000 AUTO8 M M M 189/12/10/1008/M/ 0002 07MM=\r\r\n",
        ["NPL SA 0000 AUTO8 M M M 990/-36/-39/2703/M/     7003 61MM", "WEL SA 0000 AUTO8 M M M 189/12/10/1008/M/ 0002 07MM"],
    ),
    "times that begin no report": (
        "SAUS70 KWBC 061200\nKDEN 061153Z 10SM RMK NEXT 061300Z LAST 061100Z KBOU 061000Z=\n",
        ["KDEN 061153Z 10SM RMK NEXT 061300Z LAST 061100Z KBOU 061000Z"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINED)
def test_reports_are_separated_where_an_equals_sign_is_missing(name: str) -> None:
    bulletin, texts = JOINED[name]
    assert [row["text"] for row in rows("wmo", [bulletin])] == texts


@pytest.mark.parametrize(
    "start",
    ["", "\x01\r\r\n001\r\r\n", "00417 \r\r\n", "ZCZC 123\r\r\n", "0000012300\x01\r\r\n12345\r\r\n", "\r\n\r\n"],
)
def test_transmission_numbers_before_a_heading_are_skipped(start: str) -> None:
    (row,) = rows("wmo", [f"{start}NOUS42 KWNO 061230\nADMNFD\nTEXT\n"])
    assert (row["center"], row["awips"], row["text"]) == ("KWNO", "ADMNFD", "TEXT")


@pytest.mark.parametrize(
    "payload", ["", "HELLO", "SAUS70 KWBC", "saus70 kwbc 061200\n", "x\nSAUS70 KWBC 061200\n", "SAUS70  KWBC 061200"]
)
def test_a_bulletin_without_a_heading_is_an_error(payload: str) -> None:
    assert "no WMO heading" in errors("wmo", [payload])[0]


def test_an_empty_bulletin_is_a_row() -> None:
    assert [row["text"] for row in rows("wmo", ["SAUS70 KWBC 061200", "FPUS55 KBOU 061200\n"])] == ["", ""]


def test_a_body_that_is_not_text_is_left_out() -> None:
    (row,) = rows("wmo", [b"YTQA50 KWBC 061200\r\r\nGRIB\x00\x00\x00\x02" + bytes(100)])
    assert (row["data_type"], row["text"]) == ("YT", None)


@pytest.mark.parametrize(
    "body", [b"BUFR\x01\x00\x40\x04", b"BUFR \x01\x40\x04", b"BUFR0\x0d\x40\x04", b"GRIB\x01\x00\x40\x01"]
)
@pytest.mark.parametrize("end", [b"\r\r\n", b"\n"])
def test_the_start_of_a_binary_body_is_not_an_awips_identifier(body: bytes, end: bytes) -> None:
    payload = b"ISMD01 EDZW 061200" + end + body + bytes(100)
    (row,) = rows("wmo", [payload])
    assert (row["awips"], row["text"]) == (None, None)
    heading = find_heading(payload.decode("latin-1"))
    assert heading is not None
    assert payload[heading.end :] == end + body + bytes(100)


def test_an_awips_identifier_may_stand_before_a_binary_body() -> None:
    (row,) = rows("wmo", [b"ISMD01 EDZW 061200\r\r\nOBSEDZ\r\r\nBUFR\x01\x00\x40\x04" + bytes(100)])
    assert (row["awips"], row["text"]) == ("OBSEDZ", None)


def test_too_large_a_bulletin_is_an_error() -> None:
    assert "more than the limit of 4,194,304" in errors("wmo", [b"FPUS55 KBOU 061200\n" + b"A" * (4 << 20)])[0]
    assert "more than 10,000 reports" in errors("wmo", [b"SAUS70 KBOU 061200\n" + b"A=" * 10_001])[0]


@pytest.mark.parametrize("kind", ["bulletin", "metar", "nexrad3"])
def test_generated_bulletins_have_the_heading_of_their_ident(kind: str) -> None:
    products = generated(kind, 200)
    made = decoded("wmo", products)
    assert made.errors == []
    idents = products.column("ident").to_pylist()
    for row in made.rows.to_pylist():
        words = [f"{row['data_type']}{row['area']}{row['number']:02d}", row["center"], f"{row['time']:%d%H%M}"]
        if row["indicator"]:
            words.append(row["indicator"])
        assert idents[row["place"]].startswith(" ".join(words))
        assert abs(row["time"] - datetime(2020, 1, 6, tzinfo=UTC)) < timedelta(days=1)


@pytest.mark.parametrize(
    ("digits", "created", "resolved"),
    [
        ("061200", "2020-01-06T12:30", "2020-01-06T12:00"),
        ("312355", "2020-02-01T00:05", "2020-01-31T23:55"),
        ("010005", "2020-01-31T23:58", "2020-02-01T00:05"),
        ("292300", "2020-03-01T00:10", "2020-02-29T23:00"),
        ("292300", "2019-03-01T00:10", "2019-01-29T23:00"),
        ("311200", "2020-01-01T00:10", "2019-12-31T12:00"),
        ("010000", "2019-12-31T23:50", "2020-01-01T00:00"),
        ("311200", "2020-04-15T00:00", "2020-03-31T12:00"),
        ("202400", "2020-04-20T23:59", "2020-04-21T00:00"),
        ("212359", "2020-04-20T00:00", "2020-04-21T23:59"),
        ("220000", "2020-04-20T23:59", "2020-03-22T00:00"),
        ("150000", "2020-04-20T12:00", "2020-04-15T00:00"),
        ("022359", "2021-02-28T12:00", "2021-02-02T23:59"),
    ],
)
def test_a_day_of_the_month_is_the_latest_plausible_date(digits: str, created: str, resolved: str) -> None:
    us = resolve_us(digits, _us(datetime.fromisoformat(created)))
    assert us == _us(datetime.fromisoformat(resolved))


@pytest.mark.parametrize("digits", ["000000", "320000", "992500", "062500", "061260", "062401"])
def test_an_invalid_time_is_none(digits: str) -> None:
    assert resolve_us(digits, _us(datetime(2020, 1, 6))) is None
    (row,) = rows("wmo", [f"FPUS55 KBOU {digits}\nTEXT"])
    assert row["time"] is None


@given(
    observed=st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1)),
    lag=st.timedeltas(timedelta(days=-1), timedelta(days=26)),
)
def test_a_time_is_restored_if_the_product_is_a_day_early_or_up_to_26_days_late(
    observed: datetime, lag: timedelta
) -> None:
    observed = observed.replace(second=0, microsecond=0)
    assert resolve_us(observed.strftime("%d%H%M"), _us(observed + lag)) == _us(observed)


@given(digits=st.from_regex(r"\A[0-9]{6}\Z"), created=st.integers(-(1 << 62), 1 << 62))
def test_no_time_raises(digits: str, created: int) -> None:
    resolve_us(digits, created)


@given(st.text(st.characters(max_codepoint=255), max_size=120))
def test_no_text_raises(text: str) -> None:
    find_heading(text)
    decoded("wmo", products_of([f"SAUS70 KWBC 061200\n{text}"]))


def _us(moment: datetime) -> int:
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1_000_000
