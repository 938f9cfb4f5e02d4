"""The terms of stations and channels, as editors and mypy see them."""

from pathlib import Path
from typing import get_args

import pytest

import headrace
from headrace.channel.compression import COMPRESSION_OPTIONS
from headrace.channel.membership import STATION_ONLY
from headrace.channel.qos import FIELDS, POLICIES, ChannelOptions, MemberOptions, QoS, QoSOptions
from headrace.channel.slicing import SLICING_OPTIONS
from headrace.kernel import _kernel as kernel
from headrace.station import terms
from headrace.station.terms import CHANGEABLE, OPTIONS, ChangeableOptions, StationOptions, StationTerms

SNIPPET = """
from headrace.queue.queue import Queue

def use(queue: Queue) -> None:
    queue.station("s", "**", capacity=10, timeout="10s", order="fifo", after=None, start="oldest")
    queue.station("s").change(selection="a/**", capacity=None)
    queue.channel("c", "a/**", order="fifo", pacing=1.5).station("s", max_per_consumer=5, hung_after="1min")
    queue.station("s", "**", capasity=10)
    queue.station("s", "**", capacity="10")
    queue.station("s", "**", order="lifo")
    queue.station("s").change(group="g")
    queue.channel("c", "a/**", capacity=5)
    queue.channel("c").station("s", blocking=True)
    queue.channel("c").change(reliability="perhaps")
"""


def test_a_type_checker_finds_wrong_names_and_wrong_types_of_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only these modules are checked: the rest of the package takes ten times as long, and says nothing about terms."""
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", f"{Path(headrace.__file__).parent.parent}:{tmp_path}")
    (tmp_path / "snippet.py").write_text(SNIPPET)
    modules = ["queue.queue", "station.terms", "station.station", "channel.qos", "channel.channel"]
    found, problems, _ = api.run([
        "--config-file=", "--no-error-summary", "--follow-imports=skip", "--cache-dir", str(tmp_path / "cache"),
        *(word for module in modules for word in ("-m", f"headrace.{module}")), "-m", "snippet",
    ])  # fmt: skip
    assert problems == ""
    first = SNIPPET.splitlines().index('    queue.station("s", "**", capasity=10)') + 1
    told = [
        line.partition("snippet.py:")[2] for line in found.splitlines() if "snippet.py" in line and "error:" in line
    ]
    assert [int(line.partition(":")[0]) for line in told] == [*range(first, first + 7)], found
    assert "capasity" in told[0]
    assert 'has incompatible type "str"; expected "int | None"' in told[1]
    assert "Literal['lifo']" in told[2]
    assert all(name in line for name, line in zip(["group", "capacity", "blocking", "perhaps"], told[3:], strict=True))


def test_every_option_of_a_station_is_checked_and_has_a_field() -> None:
    assert set(OPTIONS) == {"selection", *StationOptions.__annotations__}
    assert set(terms._CHECKS) == set(StationOptions.__annotations__) - {"after"}
    spelled = {terms._SPELLINGS.get(name, name) for name in StationOptions.__annotations__} - {"after"}
    given_by_the_queue = {"name", "chain", "member", "stage", "selection", "local", "paused", "channel", "retired"}
    assert spelled == set(StationTerms.__struct_fields__) - given_by_the_queue
    assert set(CHANGEABLE) == spelled - {"group"} | {"selection", "local"}


@pytest.mark.parametrize(
    ("kind", "known"),
    [(terms.Order, kernel.ORDERS), (terms.Discard, kernel.DISCARDS), (terms.Restore, kernel.RESTORES),
     (terms.Distribution, kernel.DISTRIBUTIONS)],
)  # fmt: skip
def test_the_words_that_editors_offer_are_those_of_the_kernel(kind: object, known: dict[str, int]) -> None:
    assert set(get_args(kind)) == set(known)


def test_the_options_of_a_channel_are_those_of_its_quality_of_service() -> None:
    assert set(QoSOptions.__annotations__) == set(FIELDS)
    assert len(FIELDS) == len(QoS.__struct_fields__)
    assert set(POLICIES) <= set(QoSOptions.__annotations__)
    assert set(ChannelOptions.__annotations__) == {*FIELDS, *SLICING_OPTIONS, *COMPRESSION_OPTIONS}


def test_a_station_of_a_channel_has_its_own_options_beside_those_of_the_channel() -> None:
    assert set(MemberOptions.__annotations__) == {*QoSOptions.__annotations__, *STATION_ONLY}
    by_channel = {"blocking", "durable", "capacity"}  # as reliability, connections and max_per_consumer
    assert set(STATION_ONLY) - {"start"} == set(StationOptions.__annotations__) - set(FIELDS) - by_channel
    assert {"after", "group"} == set(StationOptions.__annotations__) - set(ChangeableOptions.__annotations__)
