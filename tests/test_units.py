"""Sizes, ages and times as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import OptionError
from headrace.units import (
    exact_age,
    exact_size,
    format_age,
    format_latency,
    format_size,
    format_time,
    parse_age,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("1.5 MiB", 3 * 2**19), ("500MB", 500_000_000), ("10kB", 10_000), (7, 7), ("7", 7), (7.9, 7)],
)
def test_sizes_are_parsed(text: str | float, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "age_s"), [("1h", 3600), ("90s", 90), ("2d", 172800), ("250ms", 0.25), (5, 5), (timedelta(minutes=1), 60)]
)
def test_ages_are_parsed(text: str | float | timedelta, age_s: float) -> None:
    assert parse_age(text) == age_s


def test_times_are_nanoseconds_and_default_to_utc() -> None:
    assert (
        parse_time("2026-11-15T12:00Z")
        == parse_time("2026-11-15T12:00")
        == parse_time(datetime(2026, 11, 15, 12, tzinfo=UTC))
    )
    assert parse_time("2026-11-15T13:00+01:00") == 1_794_744_000 * 10**9
    assert parse_time(datetime.fromtimestamp(1.000001, UTC)) == 1_000_001_000


@pytest.mark.parametrize("bad", ["", "GiB", "-1B", "1 apple", -1, float("nan"), None, True, "1e3"])
def test_an_invalid_size_is_refused(bad: object) -> None:
    with pytest.raises(OptionError, match="size"):
        parse_size(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["", "h", "-1h", "1 fortnight", -1, float("inf"), None, True])
def test_an_invalid_age_is_refused(bad: object) -> None:
    with pytest.raises(OptionError, match="length of time"):
        parse_age(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["5", "0.5", " 7 "])
def test_an_age_without_a_unit_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(OptionError, match=f'has no unit.*"{text.strip()}s"'):
        parse_age(text)
    assert parse_age("0") == 0


@pytest.mark.parametrize("bad", ["noon", "", -1, 1 << 63, None, 1.5, datetime(2026, 1, 1)])
def test_an_invalid_time_is_refused(bad: object) -> None:
    with pytest.raises(OptionError):
        parse_time(bad)  # type: ignore[arg-type]


def test_sizes_ages_and_times_are_formatted_for_people() -> None:
    assert (format_size(1536), format_size(12), format_size(2**31)) == ("1.5 KiB", "12 B", "2.0 GiB")
    assert (format_age(5400), format_age(3), format_age(90)) == ("1.5 h", "3.0 s", "1.5 min")
    assert (format_age(0.25), format_age(0.05), format_age(1e-6)) == ("250 ms", "50 ms", "1 ms")
    assert (format_latency(0.25), format_latency(0.00042)) == ("250.0 ms", "420 µs")
    assert format_time(1_794_744_000_123_456_789) == "2026-11-15T12:00:00.123Z"


def test_zero_has_the_plain_unit() -> None:
    assert (format_age(0), format_age(-0.2), format_latency(0), format_size(0)) == ("0 s", "0 s", "0 µs", "0 B")
    assert (exact_age(0), exact_size(0)) == ("0s", "0B")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_age(0.9996), "1.0 s"), (format_age(59.96), "1.0 min"), (format_age(3599), "1.0 h"),
        (format_age(86_399), "1.0 d"), (format_age(59.9), "59.9 s"), (format_latency(0.99996), "1.0 s"),
        (format_latency(0.0009996), "1.0 ms"), (format_size(2**20 - 1), "1.0 MiB"), (format_size(2**40 - 1), "1.0 TiB"),
        (format_size(1023), "1023 B"),
    ],
)  # fmt: skip
def test_no_text_is_rounded_up_to_a_whole_larger_unit(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5400.0, "90min"), (1.5, "1500ms"), (0.25, "250ms"), (0.0005, "500us"), (1e-6, "1us"), (2e-9, "2ns"),
        (0.1234, "0.1234s"), (1e-12, "0.000000000001s"),
    ],
)  # fmt: skip
def test_an_exact_age_is_read_as_what_it_was(seconds: float, text: str) -> None:
    assert (exact_age(seconds), parse_age(text)) == (text, seconds)
