"""In which order programs at several sites get the same products: per origin and feed, by time stamp, or one for all."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random

import pytest

from headrace import Batch, Queue, ReleaseBuffer, connect
from headrace.errors import ChannelError, OptionError, TermsError
from headrace.queue import AnyQueue
from support.fleet import Fabric, want
from support.seeds import random_seed
from support.waiting import until

FEEDS = ("wx/radar/x", "wx/radar/y")
COUNT = 60  # products that each site puts
Key = tuple[str, int]


@pytest.fixture
def sites(fabric: Fabric) -> dict[str, Queue]:
    """Three sites that put at the same time, and receive everything from each other."""
    everything = want("wx/**", "oldest")
    queues = {
        "a": fabric.add("a", everything),
        "b": fabric.add("b", everything, near=("a",)),
        "h": fabric.add("h", everything, near=("a", "b")),
    }
    for queue in queues.values():
        queue.channel("radar", "wx/radar", home="h")
    return queues


def put_everywhere(sites: dict[str, Queue], count: int = COUNT) -> None:
    seed = random_seed()

    def put(name: str, queue: Queue) -> None:
        chance = Random(f"{seed} {name}")
        for number in range(count):
            feed, priority = chance.choice(FEEDS), chance.randrange(8)
            queue.put(b"%d" % number, feed=feed, priority=priority)

    with ThreadPoolExecutor(len(sites)) as threads:
        for done in [threads.submit(put, *pair) for pair in sites.items()]:
            done.result()


def keys(batch: Batch) -> list[Key]:
    return [(product.origin, product.origin_sequence) for product in batch]


def at_home(fabric: Fabric, through: str) -> AnyQueue:
    """The queue of site h, for a program that is linked to another site."""
    return connect(f"{fabric._endpoints[through]}?site=h", patience=60)


def test_products_of_one_origin_and_feed_are_in_their_order_in_every_queue(sites: dict[str, Queue]) -> None:
    put_everywhere(sites)
    until(lambda: all(queue.next == 3 * COUNT + 1 for queue in sites.values()), "everything is everywhere")
    for queue in sites.values():
        for feed in FEEDS:
            for origin in sites:
                numbers = [
                    number for site, number in keys(queue.read_batch("oldest", feed, limit=1000)) if site == origin
                ]
                assert numbers == sorted(numbers)
                assert numbers


def test_release_buffers_at_several_sites_give_one_order_by_time_stamp(sites: dict[str, Queue]) -> None:
    put_everywhere(sites)
    until(lambda: all(queue.next == 3 * COUNT + 1 for queue in sites.values()), "everything is everywhere")
    orders = []
    for queue in sites.values():
        with ReleaseBuffer(queue.follow("oldest", timeout=0), hold="1min") as buffer:
            products = [product.copy() for batch in buffer for product in batch]
        assert all(one.created_ns <= other.created_ns for one, other in pairwise(products))
        orders.append([(product.origin, product.origin_sequence) for product in products])
    assert orders[0] == orders[1] == orders[2]
    assert len(set(orders[0])) == 3 * COUNT


def test_all_consumers_of_a_channel_with_a_home_get_one_order_also_when_the_home_was_away(
    fabric: Fabric, sites: dict[str, Queue]
) -> None:
    seen: dict[str, list[Key]] = {"a": [], "b": []}
    with at_home(fabric, "a") as of_a, at_home(fabric, "b") as of_b:
        followers = {"a": of_a.channel("radar").follow("oldest"), "b": of_b.channel("radar").follow("oldest")}
        threads = [threading.Thread(target=gather, args=(followers[name], seen[name])) for name in seen]
        for thread in threads:
            thread.start()
        put_everywhere(sites, COUNT // 2)
        until(lambda: len(seen["a"]) == len(seen["b"]) == 3 * COUNT // 2, lambda: {n: len(k) for n, k in seen.items()})
        fabric.stop("h")
        put_everywhere({name: sites[name] for name in "ab"}, COUNT // 2)  # while the home is down
        fabric.start("h")
        until(lambda: len(seen["a"]) == len(seen["b"]) == 5 * COUNT // 2, lambda: {n: len(k) for n, k in seen.items()})
        for follower in followers.values():
            follower.stop()
        for thread in threads:
            thread.join()
        station = of_b.channel("radar").station("late", start="oldest")  # in the order of the queue, not of priorities
        with station.attach() as consumer:
            taken: list[Key] = []
            while len(taken) < 5 * COUNT // 2:
                batch = consumer.get(50, timeout=60)
                taken += keys(batch)
                consumer.ack(batch)
    assert seen["a"] == seen["b"] == taken == keys(sites["h"].read_batch("oldest", limit=1000))
    assert len(set(taken)) == len(taken)


def gather(follower: Iterator[Batch], found: list[Key]) -> None:
    for batch in follower:
        found += keys(batch)


def test_products_of_a_channel_are_taken_at_its_home_only_and_put_anywhere(
    fabric: Fabric, sites: dict[str, Queue]
) -> None:
    refused = r"channel 'radar' has its order at its home, site h, and this is the queue of site a"
    local = sites["a"].channel("radar")
    with connect(f"{fabric._endpoints['a']}?site=a") as there:
        remote = there.channel("radar")
        for take in (
            lambda: local.station("s"), lambda: local.follow(), lambda: remote.station("s"), lambda: remote.follow(),
            lambda: local.consumer("s", print), lambda: remote.consumer("s", print),  # although there is no such station
        ):  # fmt: skip
            with pytest.raises(ChannelError, match=refused):
                take()
    with local.supplier() as supplier:
        supplier.push(b"from a", feed="wx/radar/x")
    batch = next(iter(sites["h"].channel("radar").follow("oldest", "**/x", timeout=60)))
    assert [bytes(product.payload) for product in batch] == [b"from a"]


def test_a_home_is_a_site_never_changes_and_has_no_other_order(make_quick) -> None:  # type: ignore[no-untyped-def]
    queue = make_quick()
    with pytest.raises(TermsError, match="home 'no site' is not the name of a site"):
        queue.channel("c", "x", home="no site")
    with pytest.raises(TermsError, match="order priority is another one"):
        queue.channel("c", "x", home="here", order="priority")
    channel = queue.channel("c", "x", home="here")
    assert channel.station("s").terms.order == "fifo"
    with pytest.raises(OptionError, match="option home of a channel cannot change"):
        channel.change(home="there")
    with pytest.raises(TermsError, match="home is the channel's alone"):
        channel.station("t", home="there")
