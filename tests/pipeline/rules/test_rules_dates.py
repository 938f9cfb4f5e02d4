"""A path made from the heading in an ident, and the row decoded from the same heading, have the same date."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.decoders import decoder
from headrace.pipeline.rules.template import template
from headrace.pipeline.rules.trial import batch_of
from headrace.product.product import MadeProduct, Product

PATTERN = "^SAUS70 KWBC ([0-9]{2})([0-9]{4})"


def product_of(day: str, time: str, created: datetime) -> Product:
    heading = f"SAUS70 KWBC {day}{time}"
    report = f"{heading}\r\r\nMETAR KDEN {day}{time}Z 36010KT 10SM CLR 01/M05 A3010=\r\r\n"
    created_ns = int(created.timestamp()) * 1_000_000_000
    return MadeProduct(
        feed="wx/text/metar", ident=heading, payload=memoryview(report.encode()), sequence=1, signature=b"",
        origin="here", origin_sequence=1, previous=None, created_ns=created_ns, inserted_ns=created_ns,
    )  # fmt: skip


def dates_of(product: Product) -> set[str]:
    """The date in a path by the day alone, by day and time, and in the rows of both decoders."""
    batch = batch_of([product])
    paths = [template(source, "path", PATTERN).column(batch) for source in ("{time(1):%Y%m%d}", "{time(1,2):%Y%m%d}")]
    assert [each.errors for each in paths] == [[], []]
    wmo, metar = (decoder(name).decode(batch).rows.to_pylist()[0] for name in ("wmo", "metar"))
    times = [wmo["time"], metar["observed"]]
    return {each.texts[0].as_py() for each in paths} | {f"{time:%Y%m%d}" for time in times}


@pytest.mark.parametrize(
    ("day", "time", "created", "expected"),
    [
        ("06", "0053", "2026-01-06T00:55", "20260106"),
        ("31", "2355", "2026-02-01T00:05", "20260131"),  # over the change of the month
        ("01", "0005", "2025-12-31T23:58", "20260101"),  # a day in the future, in the next year
        ("01", "2359", "2025-12-31T00:00", "20260101"),
        ("02", "0000", "2025-12-31T23:59", "20251202"),  # two days in the future are the month before
        ("02", "2359", "2025-12-31T12:00", "20251202"),
        ("28", "1200", "2026-03-05T12:00", "20260228"),  # late by 5 days, over the end of February
        ("10", "0000", "2026-01-15T23:59", "20260110"),
        ("29", "1200", "2026-03-01T00:10", "20260129"),  # a month without that day is skipped
        ("29", "1200", "2028-03-01T00:10", "20280229"),
        ("12", "0600", "2026-02-07T06:00", "20260112"),  # late by 26 days
    ],
)
def test_a_path_and_its_row_have_the_same_date(day: str, time: str, created: str, expected: str) -> None:
    at = datetime.fromisoformat(created).replace(tzinfo=UTC)
    assert dates_of(product_of(day, time, at)) == {expected}


@settings(deadline=None, max_examples=200)
@given(
    day=st.integers(1, 31),
    minute=st.integers(0, 24 * 60 - 1),
    created=st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1)),
)
def test_a_path_and_its_row_agree_whenever_the_product_was_created(day: int, minute: int, created: datetime) -> None:
    created = created.replace(tzinfo=UTC, microsecond=0)
    (date,) = dates_of(product_of(f"{day:02}", f"{minute // 60:02}{minute % 60:02}", created))
    ahead = datetime.strptime(date, "%Y%m%d").date() - created.date()
    assert timedelta(days=-62) <= ahead <= timedelta(days=1)
