"""METAR reports, compared with an independent parser and with what the generator wrote."""

import random
from datetime import UTC, datetime

import pytest
from decoding import decoded, errors, generated, products_of, rows
from hypothesis import given
from hypothesis import strategies as st
from metar_oracle import compare, generated_reports

from headrace.pipeline.decoders.metar_group import UNKNOWN, read_group

SEED = 60_053
REPORTS = """
METAR KDEN 060053Z 18008G17KT 10SM FEW080 SCT150 BKN220 12/M03 A3002 RMK AO2 SLP123 T01221033
METAR KEWR 061151Z VRB03G19KT 2SM R04R/3000VP6000FT TSRA BR FEW015 BKN040CB BKN065 OVC200 22/22 A2987 RMK AO2 PK WND 29028/1817 WSHFT 1812 TSB05RAB22 SLP114 FRQ LTGICCCCG TS OHD AND NW-N-E MOV NE P0013 T02270215
SPECI KJFK 061215Z 31015G25KT 1 1/2SM -SN BR OVC009 M02/M04 A2969 RMK AO2 P0001 T10221044
METAR KBOS 061154Z AUTO 00000KT M1/4SM FZFG VV002 M05/M06 A3021 RMK AO2 SLP233 T10501061 $
METAR EGLL 061220Z AUTO 24012KT 210V270 9999 FEW020 SCT035 09/04 Q1012 NOSIG
METAR EDDF 061220Z 24015G28KT CAVOK 12/03 Q0998 NOSIG
METAR UUEE 061200Z 18005MPS 150V210 9999 -SHSN OVC014CB M01/M03 Q1004 R24L/190055 TEMPO 1500 SHSN
METAR RJTT 061200Z 34010KT 9999 FEW030 BKN/// 08/M01 Q1023 NOSIG RMK 1CU030 A3021
METAR LFPG 061200Z 22008KT 4000 BR BKN005 OVC010 07/06 Q1016 BECMG 6000
METAR CYYZ 061200Z 25012G20KT 15SM BKN040 OVC070 M03/M08 A2992 RMK SC6AC2 SLP141
METAR KORD 061151Z COR 27008KT 3/4SM R10L/4500VP6000FT -SN BKN008 OVC015 M07/M09 A3001 RMK AO2 SLP178 T10671089
METAR ZBAA 061200Z 35004MPS CAVOK M02/M15 Q1030 NOSIG
METAR SBGR 061200Z 09006KT 8000 -RA BKN012 FEW030TCU BKN080 21/20 Q1018 RERA
METAR VIDP 061200Z 00000KT 0300 R28/0600 FG VV/// 09/09 Q1017 NOSIG
METAR ENGM 061220Z 02004KT 350V050 0800 R01L/1100N R01R/P1500U FZFG VV001 M08/M08 Q1021 TEMPO 0500
METAR KMIA 061153Z 12009KT 10SM FEW025CB SCT040 BKN250 27/23 A3005 RMK AO2 SLP176 CB DSNT E T02720228
METAR PANC 061153Z 36003KT 6SM -SN FEW010 SCT025 OVC045 M12/M14 A2955 RMK AO2 SLP010 SNB12 P0000 T11221144
METAR EFHK 061220Z 20012KT 6000 -RASN SCT006 BKN008 01/01 Q0989 TEMPO 3000 SN BKN004
METAR LOWI 061220Z VRB02KT 9999 FEW050 SCT120 M01/M05 Q1028 R26/D7//// NOSIG
METAR KSFO 061156Z 29018G26KT P6SM CLR 14/09 A3012 RMK AO2 SLP200 T01390094
METAR CYVR 061200Z CCA 11006KT 2 1/4SM -RA BR OVC006 06/06 A2971 RMK NS8 SLP062
METAR OMDB 061200Z 31012KT 5000 HZ NSC 28/14 Q1013 NOSIG
METAR KABQ 061152Z 26022G35KT 10SM BLDU SCT080 16/M06 A2985 RMK AO2 PK WND 27041/1231 SLP072 T01561056
METAR FACT 061200Z 18028G40KT 9999 FEW040 19/12 Q1011 NOSIG
METAR NZWN 061200Z AUTO 34025G38KT 20KM SCT018 BKN030 17/14 Q1003
METAR KPIT 061151Z 21004KT 1/2SM FG OVC002 03/03 A3010 RMK AO2 SLPNO T00280028
METAR KLAS 061156Z 05003KT 10SM CLR 08/M07 A3017 RMK AO2 SLP214 T00781067
METAR BIKF 061230Z 14032G45KT 3000 RA BR OVC008 05/05 Q0972
METAR KBUF 061154Z 25020G31KT 1/4SM R23/1200V2000FT +SN BLSN VV004 M06/M08 A2960 RMK AO2 SLP035 T10611078
METAR KMSP 061153Z 30010KT 1SM -FZRA -PL BR OVC007 M03/M04 A2980 RMK AO2 SLP110 I1003 T10281039
METAR SCEL 061200Z 20006KT 170V240 CAVOK 24/08 Q1015 NOSIG
METAR UNNT 061200Z 36003MPS 0050 R25/0150 FZFG VV001 M25/M28 Q1040 NOSIG RMK QBB030
METAR COR LEMD 061200Z 24004KT 9999 FEW040 11/04 Q1024
METAR KGRB 061153Z 33015KMH 4000NE BCFG 05/05 Q1004
METAR ETAR 061156Z 24010KT 9999 SCT030 08/03 A2985 RMK AO2A SLP112
METAR KNKT 061156Z 24010KT 7SM SCT030 08/03 QNH2985INS
METAR LSZH 061220Z /////KT 9999 BKN030 ///// Q////
METAR ESSA 061220Z 24110KT 9999 OVC020 01/00 Q0999 R19L/29//95 R26/19//95
METAR LIMC 061220Z 24005KT 2000 R35L/P1500N -TSRA SCT010 BKN020CB 14/13 Q1009 WS R35L RETS
""".strip().splitlines()


@pytest.mark.parametrize("text", REPORTS)
@pytest.mark.filterwarnings("ignore:Unparsed groups:RuntimeWarning")
def test_real_reports_are_read_as_an_independent_parser_reads_them(text: str) -> None:
    (row,) = rows("metar", [text + "="])
    compare(text, row)
    assert row["unread"] == []
    assert row["text"] == text


def test_generated_reports_are_read_as_an_independent_parser_reads_them() -> None:
    print(f"seed {SEED}")
    texts = generated_reports(random.Random(SEED), 1700)
    for text, row in zip(texts, rows("metar", texts), strict=True):
        compare(text, row)
        assert row["unread"] == []
        assert row["corrected"] == ("COR" in text or "CCA" in text)
        assert row["auto"] == ("AUTO" in text)


@pytest.mark.filterwarnings("ignore:Unparsed groups:RuntimeWarning")
def test_composed_reports_are_read_as_an_independent_parser_reads_them() -> None:
    print(f"seed {SEED}")
    source = random.Random(SEED)
    texts = [composed(source) for _ in range(800)]
    for text, row in zip(texts, rows("metar", texts), strict=True):
        compare(text, row)
        assert row["unread"] == [], text


def composed(source: random.Random) -> str:
    """A report of groups that are drawn, each in one of the ways in which it is written."""
    pick = source.choice
    speed = source.randrange(3, 99)
    gust = pick(["", f"G{speed + source.randrange(3, 30):02d}"])
    wind = f"{pick(['VRB', f'{source.randrange(1, 37) * 10:03d}'])}{speed:02d}{gust}{pick(['KT', 'MPS', 'KMH'])}"
    visibility = pick(["9999", "CAVOK", "0150", "4500", "M1/4SM", "3/4SM", "1 3/4SM", "10SM", "P6SM", "7SM", "2 1/2SM"])
    weather = pick(
        ["", "-RA", "+TSRAGR", "VCSH", "FZDZ BR", "SHRASN", "MIFG", "DRSN", "+FC", "VA", "PRFG", "UP", "-PL"]
    )
    height = f"{source.randrange(1, 250):03d}"
    clouds = pick(
        ["", "CLR", "NSC", f"FEW{height}", f"SCT{height} BKN200", f"OVC{height}CB", f"VV{height}", f"FEW{height}TCU"]
    )
    below = pick(["", "M"])
    degrees = source.randrange(1, 40)
    temperature = f"{below}{degrees:02d}/{pick(['', 'M'])}{source.randrange(1, 30):02d}"
    pressure = pick([f"A{source.randrange(2800, 3100)}", f"Q{source.randrange(930, 1050):04d}"])
    tenths = f"T{int(bool(below))}{degrees * 10 + source.randrange(-4, 5):03d}1{source.randrange(300):03d}"
    remarks = pick(
        ["", "RMK AO2", f"RMK AO2 SLP{source.randrange(1000):03d}", f"RMK AO1 SLP{source.randrange(1000):03d} {tenths}"]
    )
    opening = (
        pick(["METAR ", "SPECI ", ""])
        + f"K{pick('ABC')}{pick('DEF')}{pick('GH1')} 06{source.randrange(12):02d}{source.randrange(60):02d}Z"
    )
    groups = (opening, pick(["", "AUTO", "COR"]), wind, visibility, weather, clouds, temperature, pressure, remarks)
    return " ".join(group for group in groups if group)


def test_units_are_metric() -> None:
    kt, mps, kmh, sm, inch = rows(
        "metar",
        [
            "KDEN 061200Z 18010G20KT 10SM=",
            "UUEE 061200Z 18010G20MPS 9999=",
            "ZZZZ 061200Z 18036G72KMH 0000=",
            "KDEN 061200Z 00000KT M1/4SM FEW010=",
            "KDEN 061200Z VRB03KT A2992=",
        ],
    )
    assert (kt["wind_speed"], kt["wind_gust"]) == pytest.approx((5.14444, 10.28889), abs=1e-4)
    assert kt["visibility"] == pytest.approx(16093.44)
    assert (mps["wind_speed"], mps["visibility"], mps["visibility_limit"]) == (10, 10_000, ">")
    assert (kmh["wind_speed"], kmh["wind_gust"], kmh["visibility"]) == (pytest.approx(10), pytest.approx(20), 0)
    assert (sm["wind_direction"], sm["wind_speed"], sm["wind_variable"]) == (0, 0, False)
    assert (sm["visibility"], sm["visibility_limit"]) == (pytest.approx(402.336), "<")
    assert sm["sky"] == [{"cover": "FEW", "base_m": pytest.approx(304.8), "type": None}]
    assert inch["altimeter"] == pytest.approx(1013.21, abs=0.01)
    assert (inch["wind_direction"], inch["wind_variable"]) == (None, True)


def test_a_bulletin_is_split_and_tells_the_kind() -> None:
    speci = "SPUS70 KWBC 061215\r\r\nSPECI\r\r\nKDEN 061214Z 18008KT 1/2SM\r\r\n     FG=\r\r\nMETAR KBOS 061154Z 10SM="
    bare = "KLGA 061151Z 31012KT 10SM"
    made = rows("metar", [speci, bare])
    assert [(row["place"], row["report"], row["station"], row["kind"]) for row in made] == [
        (0, 0, "KDEN", "SPECI"),
        (0, 1, "KBOS", "METAR"),
        (1, 0, "KLGA", "METAR"),
    ]
    assert made[0]["weather"] == ["FG"]


def test_a_forgotten_end_of_report_is_found_by_the_next_station() -> None:
    text = "SAIN31 VIDP 061200\r\r\nMETAR\r\r\nVIDP 061200Z 27004KT 2000 HZ\r\r\nMETAR COR VABB 061200Z 9999\r\r\nVOMM 061200Z CAVOK="
    made = rows("metar", [text])
    assert [(row["station"], row["corrected"], row["visibility"]) for row in made] == [
        ("VIDP", False, 2000),
        ("VABB", True, 10_000),
        ("VOMM", False, 10_000),
    ]
    (one,) = rows("metar", ["CYAB 061200Z 10SM RMK LAST OBS NEXT 071200Z FZDZ ="])
    assert one["remarks"] == "LAST OBS NEXT 071200Z FZDZ"


def test_times_are_those_of_the_month_they_belong_to() -> None:
    made = decoded("metar", products_of(["KDEN 312353Z 10SM="], datetime(2020, 3, 1, 0, 5, tzinfo=UTC)))
    assert made.rows.column("observed").to_pylist() == [datetime(2020, 1, 31, 23, 53, tzinfo=UTC)]
    made = decoded("metar", products_of(["KDEN 312353Z 10SM="], datetime(2020, 1, 1, 0, 5, tzinfo=UTC)))
    assert made.rows.column("observed").to_pylist() == [datetime(2019, 12, 31, 23, 53, tzinfo=UTC)]


def test_unknown_groups_are_listed_and_the_rest_is_read() -> None:
    (row,) = rows("metar", ["KDEN 061200Z 18008KT GARBAGE 10SM 3 12/M03 XYZZY A3002="])
    assert row["unread"] == ["GARBAGE", "XYZZY", "3"]
    assert (row["temperature"], row["visibility"]) == (12, pytest.approx(16093.44))


def test_a_report_without_station_and_time_has_a_row_beside_good_ones() -> None:
    good, bad, wrong = rows("metar", ["SAUS70 KWBC 061200\nKDEN 061200Z 10SM=\nWHAT IS THIS=\nKBOS 069900Z 10SM="])
    assert good["station"] == "KDEN"
    assert (bad["station"], bad["observed"], bad["text"], bad["unread"]) == (
        None,
        None,
        "WHAT IS THIS",
        ["WHAT", "IS", "THIS"],
    )
    assert (wrong["station"], wrong["visibility"]) == (None, None)


@pytest.mark.parametrize(
    "payload", ["", "HELLO WORLD=", "SAUS70 KWBC 061200\r\r\nMETAR\r\r\n", "TAF KDEN=", "\x00\xff"]
)
def test_a_product_without_any_report_is_an_error(payload: str) -> None:
    assert "no METAR or SPECI report" in errors("metar", [payload])[0]


def test_nil_reports_trends_and_remarks_are_read() -> None:
    nil, trend = rows("metar", ["KDEN 061200Z NIL=", "EGLL 061220Z 9999 Q1012 TEMPO 3000 RA BKN010 RMK QFE1008="])
    assert (nil["missing"], nil["station"], nil["temperature"]) == (True, "KDEN", None)
    assert (trend["trend"], trend["remarks"]) == ("TEMPO 3000 RA BKN010", "QFE1008")
    assert (trend["weather"], trend["sky"], trend["visibility"]) == ([], [], 10_000)


def test_every_generated_bulletin_is_understood() -> None:
    made = decoded("metar", generated("metar", 1500))
    assert made.errors == []
    assert not any(made.rows.column("unread").to_pylist())
    assert None not in made.rows.column("station").to_pylist()


@given(st.text(st.sampled_from("ABKMTZVRGSQ0123456789/+- "), max_size=24))
def test_no_word_raises(word: str) -> None:
    kind, values = read_group(word)
    assert kind != UNKNOWN or values == word


WORDS = "KDEN 061200Z METAR COR AUTO RMK TEMPO = 1 1/2SM 18008KT A2992 T01 SLP SLP123 // RMKS"


@given(st.lists(st.sampled_from([*WORDS.split(), "\n"])))
def test_no_order_of_words_raises(words: list[str]) -> None:
    decoded("metar", products_of([" ".join(words)]))
