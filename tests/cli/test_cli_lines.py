"""Lines of a stream as batches."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as some

from headrace.cli.put import BATCH_LINES_MAX, line_batches


class Chunks:
    """A stream that gives its bytes in the pieces it was told."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = iter([chunk for chunk in chunks if chunk])

    def read1(self, size: int = -1, /) -> bytes:
        return next(self._chunks, b"")


@given(some.lists(some.binary(max_size=40).map(lambda b: b.replace(b"x", b"\n")), max_size=20))
def test_lines_do_not_depend_on_how_the_stream_is_cut(chunks: list[bytes]) -> None:
    lines = [line for batch in line_batches(Chunks(chunks), 1000) for line in batch]
    expected = [(n, line) for n, line in enumerate(b"".join(chunks).split(b"\n"), 1) if line]
    assert lines == expected


@given(some.lists(some.sampled_from([b"a", b"bb", b"\n", b"cccccc", b"d\n"]), max_size=30))
def test_of_a_line_that_is_too_long_no_more_is_kept_than_shows_it(chunks: list[bytes]) -> None:
    lines = [line for batch in line_batches(Chunks(chunks), 4) for line in batch]
    whole = [(n, line) for n, line in enumerate(b"".join(chunks).split(b"\n"), 1) if line]
    assert lines == [(n, line[:5]) for n, line in whole]


def test_a_batch_is_bounded() -> None:
    batches = list(line_batches(Chunks([b"a\n" * (BATCH_LINES_MAX * 2 + 1)]), 1000))
    assert [len(batch) for batch in batches] == [BATCH_LINES_MAX, BATCH_LINES_MAX, 1]


def test_what_has_arrived_is_handed_out_before_more_is_read() -> None:
    batches = line_batches(Chunks([b"one\ntw", b"o\n"]), 1000)
    assert next(batches) == [(1, b"one")]
    assert next(batches) == [(2, b"two")]
