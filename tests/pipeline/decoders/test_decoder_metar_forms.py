"""METAR reports in the irregular forms of real collectives: the observation is what python-metar reads of the report alone.

Each form is made from a regular report of the generator, so that the observation is known.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from decoding import errors, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from metar_oracle import compare, generated_reports

from headrace.pipeline.decoders.metar_opening import single_reports

SEED = 31_031
FORECASTS = (
    "FM0300 27025G40KT 2000 TSRA BKN008CB", "FM060300 18003KT CAVOK", "BECMG FM0200 TL0330 VRB02KT 0400 FZFG VV001",
    "BECMG 09015KT 9999 NSW", "TEMPO 3000 SHRA BKN010", "PROB30 TEMPO 1000 TS", "INTER 0200/0500 4000 RA SCT005",
    "NOSIG", "NOSIG FM0600 30030KT", "TREND FM0100 0800 FG", "FCST 24010KT 5000", "TEMPO FM0100 TL0200 VRB15G30KT",
    "FM0200 31012KT INTER 0200/0500 1500 +TSRA FEW040CB", "TEMPO: 2000 SN", "BECMGFM0200 1200 BR",
)  # fmt: skip
COLORS = (
    "BLU", "BLU+", "WHT", "GRN", "YLO", "YLO1", "YLO2", "AMB", "RED", "BLACK", "BLACKGRN", "BLACK WHT", "BLU NOSIG",
    "WHT TEMPO GRN 4000 RA BKN008", "RERA BLU",
)  # fmt: skip
FORECAST_AFTER_COLOR = (
    "WHT WHT",
    "BLU GRN BECMG BLU",
    "YLO1 AMB 1500 BR BKN002",
    "BLACKRED 0200 FG VV000",
    "GRN 9999 SCT030",
)


def observations(count: int, style: str = "icao") -> list[str]:
    """Reports without `=`, none of them NIL."""
    print(f"seed {SEED}")
    return [text.rstrip("=") for text in generated_reports(random.Random(SEED), count, style) if "NIL" not in text]


def with_tail(texts: Sequence[str], tails: Sequence[str]) -> list[str]:
    """Reports with a forecast or a colour state before the remarks."""
    made = []
    for number, text in enumerate(texts):
        body, mark, remarks = text.partition(" RMK ")
        made.append(f"{body} {tails[number % len(tails)]}{mark}{remarks}")
    return made


@pytest.mark.parametrize("style", ["icao", "us", "canada"])
@pytest.mark.parametrize("tails", [FORECASTS, COLORS, FORECAST_AFTER_COLOR])
def test_forecasts_and_colour_states_are_not_observations(style: str, tails: Sequence[str]) -> None:
    texts = observations(120, style)
    for text, row in zip(texts, rows("metar", with_tail(texts, tails)), strict=True):
        compare(text, row)
        assert row["unread"] == [], row["text"]


def test_a_forecast_is_the_text_of_the_trend() -> None:
    opening = "YSSY 061200Z 27008KT 9999 FEW030 24/18 Q1011"
    tails = [
        "FM0300 18025KT 3000 RA",
        "PROB30 TEMPO 1000 TS",
        "WHT WHT",
        "BLU BECMG GRN",
        "GRN 3000 BR",
        "BLU RERA",
        "AMB",
    ]
    trends = [row["trend"] for row in rows("metar", [f"{opening} {tail}=" for tail in tails])]
    assert trends == ["FM0300 18025KT 3000 RA", "PROB30 TEMPO 1000 TS", "WHT", "BECMG GRN", "3000 BR", None, None]


@pytest.mark.parametrize(
    ("prefix", "kind", "corrected", "auto"),
    [
        ("METAR METAR ", "METAR", False, False),
        ("TTF METAR ", "METAR", False, False),
        ("METAR SPECI ", "SPECI", False, False),
        ("SPECI SPECI COR ", "SPECI", True, False),
        ("COR METAR ", "METAR", True, False),
        ("METAR CCA ", "METAR", True, False),
        ("METAR AUTO ", "METAR", False, True),
        ("TTF SPECI AMD ", "SPECI", False, False),
    ],
)
def test_a_report_may_have_any_words_in_front(prefix: str, kind: str, corrected: bool, auto: bool) -> None:
    (row,) = rows("metar", [f"SANZ31 NZKL 061200\r\r\n{prefix}NZWN 061200Z 34025KT 20KM 17/14 Q1003="])
    assert (row["station"], row["kind"], row["corrected"], row["auto"]) == ("NZWN", kind, corrected, auto)
    assert (row["temperature"], row["unread"]) == (17, [])


def test_a_correction_may_stand_between_station_and_time() -> None:
    (row,) = rows("metar", ["METAR LFPG COR 061200Z 22008KT 4000 BR 07/06 Q1016="])
    assert (row["station"], row["corrected"], row["altimeter"]) == ("LFPG", True, 1016)


def test_letters_in_lower_case_are_read_and_kept() -> None:
    texts = observations(60) + observations(60, "us")
    times = [text.replace("Z ", "z ", 1) for text in texts]
    small = [text.lower() for text in texts]
    made = rows("metar", times) + rows("metar", small)
    for text, sent, row in zip(texts * 2, times + small, made, strict=True):
        compare(text, row)
        assert row["text"] == sent
    (row,) = rows("metar", ["KDEN 061200z 18008KT 10SM 12/M03 A3002 RMK AO2 Slp123 T01221033="])
    assert (row["remarks"], row["sea_level_pressure"], row["temperature"]) == ("AO2 Slp123 T01221033", 1012.3, 12.2)


def test_a_station_that_sent_nothing_has_a_row_with_its_name() -> None:
    collective = (
        "SAMP31 LMMM 061200\r\r\nMETAR HLLT NIL=\r\r\nMETAR HLLB 061200Z NIL=\r\r\nLMML NIL=\r\r\nSPECI LMMM NIL="
    )
    made = rows("metar", [collective])
    assert [(row["station"], row["missing"], row["observed"] is None, row["kind"], row["unread"]) for row in made] == [
        ("HLLT", True, True, "METAR", []),
        ("HLLB", True, False, "METAR", []),
        ("LMML", True, True, "METAR", []),
        ("LMMM", True, True, "SPECI", []),
    ]


@pytest.mark.parametrize("body", ["NIL=", "NIL", "METAR NIL=", "METAR\r\r\nNIL=", "SPECI NIL ="])
def test_a_bulletin_without_any_report_has_a_row_that_says_so(body: str) -> None:
    (row,) = rows("metar", [f"SAMP31 LMMM 061200\r\r\n{body}\r\r\n"])
    assert (row["station"], row["observed"], row["missing"], row["unread"]) == (None, None, True, [])


@pytest.mark.parametrize("mark", [" METAR ", "\r\r\nMETAR ", " SPECI COR ", "\r\r\n", " ", "\r\r\n   METAR METAR "])
def test_reports_that_are_joined_by_a_missing_end_are_separated(mark: str) -> None:
    texts = observations(90)
    for low in range(0, 87, 3):
        three = texts[low : low + 3]
        made = rows("metar", ["SAEU31 EGRR 061200\r\r\nMETAR\r\r\n" + mark.join(three) + "="])
        assert len(made) == 3
        for text, row in zip(three, made, strict=True):
            compare_observation(text, row)
            assert row["unread"] == []


def compare_observation(text: str, row: dict[str, Any]) -> None:
    """All but the kind, which the word between two reports changes."""
    compare(text, {**row, "kind": "METAR"})


def test_stations_that_sent_nothing_may_be_joined() -> None:
    made = rows("metar", ["METAR FAGM NIL FAGG NIL FALA 061200Z NIL METAR FACT 061200Z 18028KT CAVOK 19/12 Q1011="])
    assert [(row["station"], row["missing"]) for row in made] == [
        ("FAGM", True), ("FAGG", True), ("FALA", True), ("FACT", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "remark",
    [
        "LAST OBS NEXT 071200Z",
        "LAST 071200Z",
        "LAST STFD OBS/NEXT 071200 UTC",
        "933036 TSNO",
        "OBS NEXT\r\r\nNEXT 071200Z RVRNO",
    ],
)
def test_a_time_in_a_remark_does_not_begin_a_report(remark: str) -> None:
    (row,) = rows("metar", [f"CYAB 061200Z 18008KT 10SM 01/M01 A2990 RMK {remark} ="])
    assert row["station"] == "CYAB"


def test_text_before_a_report_costs_only_itself() -> None:
    rest, good = rows("metar", ["OBS SENT LATE 060900Z KDEN\nMETAR KDEN 061200Z 18008KT 10SM 12/M03 A3002="])
    assert (rest["station"], rest["text"]) == (None, "OBS SENT LATE 060900Z KDEN")
    assert (good["station"], good["temperature"]) == ("KDEN", 12)


def test_too_many_joined_reports_are_an_error() -> None:
    assert "more than 10,000 reports" in errors("metar", ["KDEN NIL " * 10_001])[0]


WORDS = "KDEN 061200Z 061200 METAR SPECI COR TTF NIL AUTO RMK NEXT 18008KT FM0300 BLU BLACK 10SM = x"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*WORDS.split(), "\n", "\n  "]), max_size=30))
def test_no_word_is_lost_when_reports_are_separated(words: list[str]) -> None:
    raw = " ".join(words)
    assert " ".join(single_reports(raw)).split() == raw.split()


# --- Canadian SA reports ----------------------------------------------------------------------------


SA = (
    "SACN74 CWAO 060000 RRC\r\r\n\r\r\nNPL SA 0000 AUTO8 M M M 990/-36/-39/2703/M/     7003 61MM=\r\r\n"
    "ZMJ SA 2355 AUTO8 M M M 089////M/ 3009 92MM\r\r\nYXX SA COR 0000 250 SCT 15+ 156/12/5/7715+30/001=\r\r\n"
    "WEL SA 0000 AUTO1 M M M=\r\r\n"
)


def test_canadian_sa_reports_are_rows() -> None:
    npl, zmj, yxx, wel = rows("metar", [SA])
    assert (npl["station"], npl["kind"], npl["auto"], npl["corrected"]) == ("NPL", "SA", True, False)
    assert npl["observed"] == datetime(2020, 1, 6, tzinfo=UTC)
    assert (npl["sea_level_pressure"], npl["temperature"], npl["dewpoint"]) == (999.0, -36, -39)
    assert (npl["wind_direction"], round(npl["wind_speed"], 2), npl["wind_gust"]) == (270, 1.54, None)
    assert (npl["remarks"], npl["unread"], npl["altimeter"]) == ("7003 61MM", [], None)
    assert zmj["observed"] == datetime(2020, 1, 5, 23, 55, tzinfo=UTC), "the day before the bulletin"
    assert (zmj["sea_level_pressure"], zmj["temperature"], zmj["wind_speed"]) == (1008.9, None, None)
    assert (yxx["auto"], yxx["corrected"], yxx["unread"]) == (False, True, ["250", "SCT", "15+"])
    assert (yxx["wind_direction"], round(yxx["wind_speed"] * 3.6 / 1.852), yxx["altimeter"]) == (270, 115, 1016.3)
    assert (wel["station"], wel["temperature"], wel["remarks"]) == ("WEL", None, None)
    assert errors("metar", [SA]) == {}


@pytest.mark.parametrize("text", ["NPL SA 2500 AUTO8 M=", "NPL SA=", "SA SA SA SA", "NPL SA 0000=", "x/y/z/" * 500])
def test_what_is_no_sa_report_is_an_error(text: str) -> None:
    assert "no METAR or SPECI report" in errors("metar", [f"SACN74 CWAO 060000\n{text}"])[0]
