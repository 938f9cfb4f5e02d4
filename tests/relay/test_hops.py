"""Through which site each product came: ranges that are joined, forgotten, saved and read again."""

import logging
from pathlib import Path

import pytest

from headrace.errors import QueueDamagedError
from headrace.relay.hops import CHUNK, Hop, Hops, read_hops, site_of
from headrace.relay.messages.source import Source


def test_adjacent_ranges_of_one_site_are_joined(tmp_path: Path) -> None:
    hops = Hops(tmp_path)
    hops.add(2, 3, "a")
    hops.add(4, 4, "a")
    hops.add(5, 5, "b")
    hops.add(7, 7, "b")
    hops.save(1)
    assert read_hops(tmp_path) == [Hop(2, 4, "a"), Hop(5, 5, "b"), Hop(7, 7, "b")]
    assert [hops.site_of(sequence) for sequence in range(1, 9)] == [None, "a", "a", "a", "b", None, "b", None]


def test_ranges_that_arrive_out_of_order_are_found(tmp_path: Path) -> None:
    hops = Hops(tmp_path)
    hops.add(5, 6, "b")
    hops.add(2, 4, "a")
    assert [hops.site_of(sequence) for sequence in (1, 2, 4, 5, 6, 7)] == [None, "a", "a", "b", "b", None]


def test_the_sites_of_evicted_ranges_are_forgotten_when_the_hops_are_saved(tmp_path: Path) -> None:
    hops = Hops(tmp_path)
    hops.add(1, 2, "a")
    hops.add(3, 9, "b")
    hops.save(oldest=3)
    assert read_hops(tmp_path) == [Hop(1, 2, ""), Hop(3, 9, "b")]
    assert hops.site_of(2) is None


def test_hops_continue_after_a_restart(tmp_path: Path) -> None:
    first = Hops(tmp_path)
    first.add(1, 2, "a")
    first.save(1)
    second = Hops(tmp_path)
    second.add(3, 3, "a")
    second.save(1)
    assert site_of(read_hops(tmp_path), 3) == "a"
    assert len(read_hops(tmp_path)) == 1


def test_a_queue_without_a_site_has_no_hops(tmp_path: Path) -> None:
    assert read_hops(tmp_path) == []


def test_a_damaged_file_is_an_error_for_readers_and_a_warning_for_the_site(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "hops.json").write_text("[[1,")
    with pytest.raises(QueueDamagedError, match=r"hops\.json is invalid"):
        read_hops(tmp_path)
    with caplog.at_level(logging.WARNING):
        hops = Hops(tmp_path)
    assert "hops.json" in caplog.text
    hops.add(1, 1, "a")
    hops.save(1)
    assert read_hops(tmp_path) == [Hop(1, 1, "a")]


def test_what_came_from_elsewhere_is_known_after_it_was_evicted(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    hops = Hops(tmp_path)
    hops.add(1, 10, "a")
    hops.add(11, 20, "b")
    hops.add(23, 30, "a")
    hops.save(28)
    for each in (hops, Hops(tmp_path)):
        assert each.without_received(1, 20) == (21, 20), "nothing is left"
        assert each.without_received(5, 27) == (21, 22), "these were put here"
        assert each.without_received(21, 22) == (21, 22)
        assert each.site_of(5) is None
        assert each.site_of(30) == "a"


def test_sources_say_from_where_evicted_products_came(tmp_path: Path) -> None:
    one, other = b"1" * 16, b"2" * 16
    hops = Hops(tmp_path)
    hops.add(1, 10, "a", Source("a", one, 101, 130))
    hops.add(11, 20, "b", Source("b", other, 7, 16))
    hops.add(23, 30, "a", Source("a", one, 95, 140))
    hops.add(31, 40, "c")  # a file of an earlier version
    hops.save(28)
    for each in (hops, Hops(tmp_path)):
        both = (Source("a", one, 101, 130), Source("b", other, 7, 16))
        assert each.sources(1, 20) == (both, (21, 20))
        assert each.sources(5, 12) == (both, (13, 12))
        assert each.sources(15, 30)[1] == (21, 22)
        assert each.sources(23, 30) == ((Source("a", one, 95, 140),), (31, 30))
        assert each.sources(21, 22) == ((), (21, 22)), "these were put here"
        assert each.sources(24, 35) == ((Source("a", one, 95, 140),), (31, 35)), "unknown"
        assert each.sources(50, 60) == ((), (50, 60))


def test_sources_of_a_queue_and_of_the_one_after_it_are_kept_apart(tmp_path: Path) -> None:
    hops = Hops(tmp_path)
    hops.add(1, 5, "a", Source("a", b"1" * 16, 50, 54))
    hops.add(6, 8, "a", Source("a", b"2" * 16, 1, 3))
    hops.save(100)
    assert hops.sources(1, 8) == ((Source("a", b"1" * 16, 50, 54), Source("a", b"2" * 16, 1, 3)), (9, 8))


def test_a_long_range_has_its_sources_in_stretches(tmp_path: Path) -> None:
    hops = Hops(tmp_path)
    for first in range(1, 5 * CHUNK, CHUNK // 2):
        hops.add(first, first + CHUNK // 2 - 1, "a", Source("a", b"1" * 16, first, first + CHUNK // 2 - 1))
    hops.save(10 * CHUNK)
    (source,), rest = hops.sources(3 * CHUNK + 5, 3 * CHUNK + 9)
    assert rest[0] > rest[1]
    assert source.last - source.first < CHUNK
    assert len(read_hops(tmp_path)) == 5
