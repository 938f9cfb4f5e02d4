"""Options of the source, read from text as Spark passes them; without Spark."""

from collections.abc import Callable

import pytest

from headrace.errors import OptionError
from headrace.pipeline.source.columns import COLUMNS
from headrace.pipeline.source.open_queues import QueueAddress
from headrace.pipeline.source.options import (
    ReadOptions,
    WriteOptions,
    check_for_batch,
    check_for_stream,
    read_options,
    write_options,
)


def test_every_option_has_a_default_but_the_address() -> None:
    assert read_options({"path": "q"}) == ReadOptions(QueueAddress("q", None))
    assert write_options({"site": "tcp/h:1"}) == WriteOptions(QueueAddress(None, "tcp/h:1"))


def test_names_of_options_are_not_case_sensitive() -> None:
    """Spark converts them to lower case."""
    options = read_options({"queue": "q", "startingoffsets": "earliest", "maxbytespertrigger": "2MiB"})
    assert (options.start("latest").text, options.max_bytes) == ("earliest", 2 << 20)


@pytest.mark.parametrize("name", ["checkpointLocation", "queryname", "asyncProgressTrackingEnabled"])
def test_an_option_that_spark_adds_is_left_to_spark(name: str) -> None:
    """`.queryName("x")` is an option of every sink, for instance."""
    options = write_options({"queue": "q", name: "cp", "feed": "x", "application": "a", "batch": "7"})
    assert options == WriteOptions(QueueAddress("q", None), "x", "a", 7)
    assert read_options({"queue": "q", name: "x"}) == ReadOptions(QueueAddress("q", None))


def test_a_star_stands_for_all_columns() -> None:
    assert read_options({"queue": "q", "columns": "*"}).columns == COLUMNS
    assert read_options({"queue": "q"}).columns == ("sequence", "feed", "ident", "created", "payload")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "neither queue nor site"),
        ({"queue": " "}, "option queue is empty"),
        ({"queue": "q", "selekt": "x"}, "no option 'selekt'.*did you mean select"),
        ({"queue": "q", "zzz": "x"}, "no option 'zzz'.*options are queue, site"),
        ({"queue": "q", "columns": "sequence,sequence"}, "named twice"),
        ({"queue": "q", "columns": "colour"}, f"unknown: colour.*columns are {', '.join(COLUMNS)}"),
        ({"queue": "q", "minPartitions": "0"}, "not a positive number"),
        ({"queue": "q", "blocking": "true"}, "requires a station"),
        (
            {"queue": "q", "startingOffsets": "first"},
            "startingOffsets: 'first' is invalid; give earliest, latest, a seq",
        ),
        (
            {"queue": "q", "startingTimestamp": "1h"},
            "startingTimestamp: '1h' is not a time; .* milliseconds since 1970",
        ),
        (
            {"queue": "q", "startingTimestamp": "2026-07-02", "endingTimestamp": "2026-07-01"},
            "endingTimestamp is not after startingTimestamp",
        ),
        ({"queue": "q", "startingTimestamp": "2200-01-01"}, "startingTimestamp is in the future"),
        ({"queue": "q", "select": "wx/** created 2026-01-01..", "endingTimestamp": "2026-07-01"}, "limit `created`"),
    ],
)
def test_an_unknown_or_invalid_option_is_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read_options(given)


@pytest.mark.parametrize(
    ("given", "check", "problem"),
    [
        ({"endingOffsets": "4711"}, check_for_stream, "endingOffsets has no effect in a stream; .* spark.read$"),
        ({"pushFilters": "true"}, check_for_stream, "pushFilters has no effect in a stream"),
        ({"maxProductsPerTrigger": "9"}, check_for_batch, "maxProductsPerTrigger has no effect in a batch"),
        ({"maxBytesPerTrigger": "9"}, check_for_batch, "maxBytesPerTrigger has no effect in a batch"),
        ({"station": "s"}, check_for_batch, "station has no effect in a batch; .* spark.readStream$"),
    ],
)
def test_an_option_without_effect_is_an_error(
    given: dict[str, str], check: Callable[[ReadOptions], None], problem: str
) -> None:
    """A batch that named a station, for instance, would hold nothing."""
    options = read_options({"queue": "q", **given})
    with pytest.raises(OptionError, match=problem):
        check(options)
    check(read_options({"queue": "q", "startingOffsets": "earliest", "columns": "*", "minPartitions": "2"}))


def test_the_number_of_a_batch_must_be_a_number() -> None:
    with pytest.raises(OptionError, match="'first' is not the number of a batch"):
        write_options({"queue": "q", "batch": "first"})
