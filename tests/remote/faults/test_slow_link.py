"""Links that are slower than what is put or got over them at once."""

from collections.abc import Iterator

import pytest

from headrace.errors import SiteUnreachableError
from headrace.remote.client.page_size import PageSize
from headrace.remote.protocol.fields import PAGE_BYTES_MAX
from headrace.testing import NarrowLink
from support.serving import Served, idents

LARGE = 8_000_000  # more than the buffers of a connection hold


@pytest.fixture
def large(make_served: object) -> Served:
    served: Served = make_served(size="64MiB")  # type: ignore[operator]
    return served


@pytest.fixture
def link(large: Served) -> Iterator[NarrowLink]:
    with NarrowLink(large.endpoint, 200_000) as made:
        yield made
    large.close_users()


def test_a_timeout_ends_a_put_that_the_link_has_not_taken(large: Served, link: NarrowLink) -> None:
    remote = large.connect(link.endpoint)
    with pytest.raises(SiteUnreachableError, match=r"that the link carries 7\.6 MiB within seconds"):
        remote.put(bytes(LARGE), feed="a", timeout=0.1)
    with pytest.raises(SiteUnreachableError):
        remote.put(b"behind it", feed="a", timeout=0.1)
    assert link.carried[0] < LARGE / 4  # it did not wait for the link
    assert large.queue.next == 1


def test_a_consumer_on_a_slow_link_gets_its_backlog_in_parts(large: Served) -> None:
    """All at once would take longer than a link may be full before it is given up."""
    station = large.queue.station("s")
    for number in range(30):
        large.queue.put(bytes(100_000), feed="a", ident=str(number))
    with NarrowLink(large.endpoint, 2_000_000) as link:
        got = []
        with large.connect(link.endpoint).station("s").attach() as consumer:
            while len(got) < 30:
                batch = consumer.get(30, timeout=240)
                assert len(batch) <= 21  # a first page of 1 MiB, and then what arrives in two seconds
                got += idents(batch)
                consumer.ack(batch)
        assert got == [str(number) for number in range(30)]
        assert station.lag().products == 0
        large.close_users()


def test_pages_of_a_read_grow_while_they_arrive_quickly_and_shrink_when_they_do_not() -> None:
    page = PageSize()
    first = page.bytes
    page.note(first, 0.01)
    assert page.bytes == 2 * first
    page.note(100, 0.01)  # all that there was
    page.note(100, 5.0)  # it waited for products
    assert page.bytes == 2 * first
    page.note(2 * first, 3.0)
    assert page.bytes == first
    for _ in range(20):
        page.note(page.bytes, 60.0)
    assert page.bytes == 1 << 16
    for _ in range(20):
        page.note(page.bytes, 0.1)
    assert page.bytes == PAGE_BYTES_MAX


@pytest.mark.parametrize("how", ["follow", "read", "read_batch"])
def test_a_reader_on_a_slow_link_asks_for_small_pages(large: Served, link: NarrowLink, how: str) -> None:
    for number in range(6):
        large.queue.put(bytes(50_000), feed="a", ident=str(number))
    remote = large.connect(link.endpoint)
    remote._connection.page.bytes = 100_000  # as it is after some slow pages
    before = large.calls
    reads = {
        "follow": lambda: [idents(batch) for batch in remote.follow("oldest", timeout=1)],
        "read": lambda: [idents(batch) for batch in remote.read().batches()],
        "read_batch": lambda: [idents(remote.read_batch())],
    }
    got = [ident for part in reads[how]() for ident in part]
    assert got == [str(number) for number in range(6)]
    assert large.calls - before >= 2
