"""RTP's formula, batch by batch and product by product."""

import random

import numpy as np
import pytest

from headrace.timing.jitter import Jitter, jitter_of_each


def slow_jitter(sent: list[int], received: list[int]) -> float:
    """RFC 3550, section 6.4.1, as it is printed there."""
    jitter = 0.0
    for place in range(1, len(sent)):
        change = (received[place] - received[place - 1]) - (sent[place] - sent[place - 1])
        jitter += (abs(change) - jitter) / 16
    return jitter


@pytest.mark.parametrize("count", [1, 2, 3, 50, 1500, 4000])
def test_the_jitter_of_batches_is_that_of_the_formula(count: int) -> None:
    randomly = random.Random(count)
    sent = [10**18 + 500_000 * place for place in range(count)]
    received = [each - 7 * 10**17 + randomly.randrange(30_000_000) for each in sent]
    jitter, place = Jitter(), 0
    while place < count:
        size = randomly.choice([1, 2, 17, 1100])
        jitter.note(np.array(sent[place : place + size], np.uint64), np.array(received[place : place + size]))
        place += size
    found = jitter.statistics()
    changes = np.abs(np.diff(np.array(received) - np.array(sent)))
    assert found.products == count
    assert found.jitter_ns == pytest.approx(slow_jitter(sent, received))
    assert (found.mean_ns, found.largest_ns) == (
        (pytest.approx(changes.mean()), changes.max()) if count > 1 else (0, 0)
    )
    each = jitter_of_each(np.array(sent, np.uint64), np.array(received))
    assert len(each) == count - 1
    assert count == 1 or each[-1] == pytest.approx(found.jitter_ns)


def test_even_products_have_no_jitter_and_no_product_is_no_error() -> None:
    jitter = Jitter()
    jitter.note(np.empty(0, np.uint64), np.empty(0, np.int64))
    jitter.note(np.arange(0, 100, 10, dtype=np.uint64), np.arange(5, 105, 10))
    assert (jitter.statistics().jitter_ns, jitter.statistics().largest_ns) == (0, 0)
