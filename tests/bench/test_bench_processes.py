"""Processes of a benchmark: a child that fails ends the benchmark instead of stopping it forever."""

import operator

import pytest

from headrace.bench.processes import processes
from headrace.bench.stations import _note_pipe
from headrace.errors import HeadraceError


def test_a_process_that_ends_before_it_is_ready_is_an_error_at_once() -> None:
    with pytest.raises(HeadraceError, match="ended"), processes(operator.methodcaller("close"), [()]):
        pytest.fail("it was never ready")


def test_the_death_of_a_process_ends_the_wait_for_its_reply() -> None:
    with processes(_note_pipe, [(1,)]) as (reader,):
        reader.send_bytes(b"")
        assert len(reader.recv()) == 1
        with pytest.raises(EOFError):
            reader.recv()
