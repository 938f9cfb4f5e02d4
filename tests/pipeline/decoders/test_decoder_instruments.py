"""Monitor frames, detector events, and text."""

import struct
from datetime import UTC, datetime

import numpy as np
import pytest
from decoding import decoded, errors, generated, products_of, rows

from headrace.testing.feeds.instruments import EVENT_HEADER, FRAME_HEADER, POINT

NS = 1_578_313_800_123_456_789
MOMENT = datetime(2020, 1, 6, 12, 30, 0, 123456, tzinfo=UTC)


def frame(points: list[tuple[bytes, float]], number: int = 7, subsystem: int = 3) -> bytes:
    return FRAME_HEADER.pack(b"HRMF", len(points), subsystem, number, NS) + np.array(points, POINT).tobytes()


def event(number: int, hits: list[tuple[int, int]], time_ns: int = NS) -> bytes:
    return EVENT_HEADER.pack(number, time_ns, len(hits)) + b"".join(struct.pack("<HH", *hit) for hit in hits)


def test_a_frame_is_a_row_for_each_point() -> None:
    made = rows("monitor", [frame([(b"temperature_c.00", 21.5), (b"x" * 24, float("-inf"))]), frame([], 8)])
    assert made == [
        {"place": 0, "name": "temperature_c.00", "value": 21.5, "time": MOMENT, "frame": 7, "subsystem": 3},
        {"place": 0, "name": "x" * 24, "value": float("-inf"), "time": MOMENT, "frame": 7, "subsystem": 3},
    ]


def test_a_frame_that_does_not_fit_is_an_error() -> None:
    whole = frame([(b"a", 1.0)])
    made = errors("monitor", [b"", b"HRMX" + whole[4:], whole[:-1], whole + b"x", frame([(b"\xff\xfe", 1.0)]), whole])
    assert set(made) == {0, 1, 2, 3, 4}
    assert made[2] == "55 bytes, but a frame of 1 points has 56"
    assert "not UTF-8" in made[4]
    assert "out of range" in errors("monitor", [frame([], (1 << 64) - 1)])[0]


def test_generated_frames_give_the_points_that_were_written() -> None:
    products = generated("monitor", 60)
    made = decoded("monitor", products)
    assert made.errors == []
    at = 0
    for place, payload in enumerate(products.column("payload").to_pylist()):
        points = np.frombuffer(payload, POINT, -1, FRAME_HEADER.size)
        part = made.rows.slice(at, len(points)).to_pydict()
        assert set(part["place"]) == {place}
        assert part["name"] == [name.decode() for name in points["name"].tolist()]
        assert part["value"] == points["value"].tolist()
        at += len(points)
    assert at == made.rows.num_rows


def test_hits_are_counted_by_channel_and_step_over_a_batch() -> None:
    made = rows("events", [event(5, [(1, 10), (1, 255), (2, 256)]), event(6, [(1, 0), (4095, 4095)])])
    assert [
        (row["place"], row["channel"], row["adc_low"], row["adc_high"], row["count"], row["adc_sum"]) for row in made
    ] == [
        (0, 1, 0, 256, 3, 265),
        (0, 2, 256, 512, 1, 256),
        (1, 4095, 3840, 4096, 1, 4095),
    ]
    assert {(row["first_event"], row["last_event"], row["time"]) for row in made} == {(5, 6, MOMENT)}


def test_a_summary_is_a_row_for_each_event() -> None:
    some, none = rows("events-summary", [event(5, [(1, 10), (1, 250), (2, 256)]), event(6, [])])
    assert (some["event"], some["time"], some["hits"], some["channels"]) == (5, MOMENT, 3, 2)
    assert (some["adc_min"], some["adc_max"], some["adc_sum"], some["adc_mean"]) == (10, 256, 516, 172.0)
    assert (none["hits"], none["adc_min"], none["adc_sum"], none["adc_mean"]) == (0, None, 0, None)


@pytest.mark.parametrize("name", ["events", "events-summary"])
def test_an_event_that_does_not_fit_is_an_error(name: str) -> None:
    whole = event(1, [(1, 1)])
    made = errors(name, [b"", whole[:-1], whole + b"x", event(1, [(4096, 1)]), event(1 << 63, []), whole])
    assert set(made) == {0, 1, 2, 3, 4}
    assert made[3] == "a channel or ADC value of 4096, not below 4096"
    huge = EVENT_HEADER.pack(1, 1, 0xFFFFFFFF) + b"xxxx"
    assert "4294967295 hits" in errors(name, [huge])[0]


def test_histograms_of_parts_add_up_to_the_histogram_of_the_whole() -> None:
    products = generated("event", 80, 4000)
    whole = decoded("events", products).rows.to_pylist()
    parts = [
        row
        for start in (0, 30)
        for row in decoded("events", products.slice(start, 30 if not start else 50)).rows.to_pylist()
    ]

    def totals(made: list[dict[str, int]]) -> dict[tuple[int, int], int]:
        sums: dict[tuple[int, int], int] = {}
        for row in made:
            key = (row["channel"], row["adc_low"])
            sums[key] = sums.get(key, 0) + row["count"]
        return sums

    assert totals(whole) == totals(parts)
    hits = decoded("events-summary", products).rows.column("hits").to_pylist()
    assert sum(totals(whole).values()) == sum(hits) > 0


def test_text_is_a_row_for_each_line() -> None:
    made = rows("text", ["one\r\r\ntwo\r\n\nfour\n", "no end", "", "grün\n".encode(), b"gr\xfcn", b"\n"])
    assert [(row["place"], row["line"], row["text"], row["encoding"]) for row in made] == [
        (0, 0, "one", "utf-8"),
        (0, 1, "two", "utf-8"),
        (0, 2, "", "utf-8"),
        (0, 3, "four", "utf-8"),
        (1, 0, "no end", "utf-8"),
        (3, 0, "grün", "utf-8"),
        (4, 0, "grün", "latin-1"),
        (5, 0, "", "utf-8"),
    ]


def test_too_much_text_is_an_error() -> None:
    assert "more than the limit of 67,108,864" in errors("text", [bytes((64 << 20) + 1)])[0]


def test_a_batch_that_is_a_slice_of_another_is_decoded_as_itself() -> None:
    products = products_of([frame([(b"a", 1.0)]), frame([(b"b", 2.0)]), frame([(b"c", 3.0)])])
    made = decoded("monitor", products.slice(1))
    assert made.rows.column("place").to_pylist() == [0, 1]
    assert made.rows.column("name").to_pylist() == ["b", "c"]
