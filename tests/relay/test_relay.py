"""Products from site to site: live, from the log, through filters, and after faults on the way."""

import pytest
from relaying import has_examined, is_live, put, texts

from headrace import Queue
from headrace.errors import FabricError
from support.damage import flip_bit
from support.fleet import Fabric, held, want
from support.waiting import until


def test_a_product_arrives_as_it_was_put(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("wx/**"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    a.put(b"\0payload", feed="wx/text", ident="SAUS70", priority=6, properties={"n": 1}, slice=3, expiry="1h")
    until(lambda: b.next == 2, "it arrives")
    sent, came = next(iter(a.read_batch("oldest"))), next(iter(b.read_batch("oldest")))
    for name in ("feed", "ident", "origin", "origin_sequence", "created_ns", "priority", "properties", "slice",
                 "expiry_ns", "signature"):  # fmt: skip
        assert getattr(came, name) == getattr(sent, name), name
    assert bytes(came.payload) == b"\0payload"


def test_only_requested_products_arrive(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("wx/radar/*"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "wx/text", "no")
    put(a, "wx/radar/K", "yes")
    put(a, "wx/radar/K/deeper", "no")
    put(a, "wx/radar/L", "also")
    until(lambda: has_examined(fabric, "b", "a"), "b has everything")
    assert texts(b) == ["yes", "also"]


def test_a_request_may_have_alternatives(fabric: Fabric) -> None:
    a = fabric.add("a")
    put(a, "wx/text", "text-old")
    put(a, "wx/other", "no-old")
    b = fabric.add("b", want("wx/radar/**|wx/*/K|wx/text", "oldest"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "wx/radar/K", "of two alternatives")
    put(a, "wx/other", "no")
    put(a, "wx/text", "text")
    put(a, "wx/obs/K", "third")
    until(lambda: has_examined(fabric, "b", "a"), "b has everything")
    assert sorted(texts(b)) == ["of two alternatives", "text", "text-old", "third"]


def test_a_new_site_gets_the_history_that_it_requests(fabric: Fabric) -> None:
    a = fabric.add("a")
    put(a, "x", *(str(n) for n in range(500)))
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    c = fabric.add("c", want("**", "next"), near=("a",))
    until(lambda: b.next == 501, "everything arrives")
    until(lambda: is_live(fabric, "c"), "c listens")
    put(a, "x", "new")
    until(lambda: b.next == 502 and c.next == 2, "the new one arrives at both")
    assert texts(b) == [*(str(n) for n in range(500)), "new"]
    assert texts(c) == ["new"]


def test_selections_are_applied_at_the_sending_site(fabric: Fabric) -> None:
    a = fabric.add("a")
    put(a, "x", "K-old", "L-old")
    b = fabric.add("b", want('** ident ~ "^K"', "oldest"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "x", "K-1", "L-1", "K-2")
    put(a, "y", "L-2", "K-3")
    until(lambda: has_examined(fabric, "b", "a"), "b has everything")
    assert sorted(texts(b)) == ["K-1", "K-2", "K-3", "K-old"]
    (state,) = fabric.sites["b"].statistics().upstreams
    assert state.counts.products == 4  # the others were not even sent
    assert state.base == a.next - 1  # and are known not to be missing


def test_products_put_at_a_stopped_site_do_not_count_as_received(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "x", "1")
    until(lambda: b.next == 2, "it arrives")
    fabric.stop("b")
    put(a, "x", "2", "3")
    b.put(b"of an archive", feed="x", origin="a", origin_sequence=1000)
    fabric.start("b")
    until(lambda: b.next == 5, "what came while it was stopped arrives")
    assert texts(b) == ["1", "of an archive", "2", "3"]


def test_equal_selections_share_a_stream(fabric: Fabric) -> None:
    fabric.add("a")
    fabric.add("b", want('** ident ~ "^K"'), near=("a",))
    fabric.add("c", want('** ident ~ "^K"'), near=("a",))
    fabric.add("d", want('** ident ~ "^L"'), near=("a",))
    until(lambda: all(is_live(fabric, name, at="a") for name in "bcd"), "all listen to a")
    streams = fabric.sites["a"].statistics().streams
    names = {name for name in streams if name != "own"}
    assert len(names) == 2


def test_a_restarted_site_continues_where_it_stopped(fabric: Fabric) -> None:
    a = fabric.add("a", dedup="none")
    b = fabric.add("b", want("**", "oldest"), near=("a",), dedup="none")
    put(a, "x", "1", "2")
    until(lambda: b.next == 3, "both arrive")
    fabric.stop("b")
    put(a, "x", "3", "4")
    fabric.start("b")
    until(lambda: b.next == 5, "the others arrive")
    put(a, "x", "5")
    until(lambda: b.next == 6, "and the new one")
    assert texts(b) == ["1", "2", "3", "4", "5"]


def test_a_restarted_origin_is_found_again(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    put(a, "x", "1")
    until(lambda: b.next == 2, "it arrives")
    fabric.stop("a")
    put(a, "x", "2", "3")
    fabric.start("a")
    until(lambda: b.next == 4, "what was put meanwhile arrives")
    put(a, "x", "4")
    until(lambda: b.next == 5, "and the new one")
    assert texts(b) == ["1", "2", "3", "4"]


def put_numbers(queue: Queue, first: int, count: int) -> None:
    for number in range(first, first + count):
        put(queue, f"feed/{number % 3}", str(number))


def test_dropped_pages_are_pulled_from_the_log(fabric: Fabric) -> None:
    a = fabric.add("a", dedup="none")
    b = fabric.add("b", want("**"), near=("a",), dedup="none")
    until(lambda: is_live(fabric, "b"), "b listens")
    ((_, upstream),) = fabric.sites["b"]._receiver.upstreams()
    for first in range(0, 200, 20):
        upstream._buffer.shut()
        dropped = sum(upstream._buffer.dropped.values())
        put_numbers(a, first, 10)
        until(lambda dropped=dropped: sum(upstream._buffer.dropped.values()) > dropped, "pages are dropped")
        upstream._buffer.open()
        put_numbers(a, first + 10, 10)
        until(lambda first=first: b.next == first + 21, "all arrive")
    for feed in range(3):
        assert texts(b, f"feed/{feed}") == [str(n) for n in range(200) if n % 3 == feed]
    assert upstream.statistics.repairs > 0


def test_a_lost_tail_is_found_by_the_heartbeat(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    ((_, upstream),) = fabric.sites["b"]._receiver.upstreams()
    upstream._buffer.shut()
    dropped = sum(upstream._buffer.dropped.values())
    put(a, "x", "last words")
    until(lambda: sum(upstream._buffer.dropped.values()) > dropped, "the page has come and was dropped")
    upstream._buffer.open()
    until(lambda: b.next == 2, "it arrives")


def test_products_evicted_before_they_arrive_are_named(fabric: Fabric) -> None:
    a = fabric.add("a", size="4MiB")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    put(a, "x", "1")
    until(lambda: b.next == 2, "it arrives")
    fabric.stop("b")
    for number in range(60):
        a.put(number.to_bytes(2, "big") + bytes(200_000), feed="x")
    oldest = a.oldest
    fabric.start("b")
    until(lambda: is_live(fabric, "b"), "b has caught up")
    (state,) = fabric.sites["b"].statistics().upstreams
    assert state.counts.lost == [(2, oldest - 1, "evicted")]
    assert [sequence for _, _, sequence, _ in held(b)] == [1, *range(oldest, 62)]


def test_only_a_product_that_is_too_large_is_left_out(fabric: Fabric) -> None:
    a = fabric.add("a", size="64MiB")
    put(a, "x", "1", "2", "3")
    a.put(bytes(12 << 20), feed="x", ident="giant")
    put(a, "x", "5", "6")
    b = fabric.add("b", want("**", "oldest"), near=("a",), size="4MiB")
    until(lambda: is_live(fabric, "b"), "b has caught up")
    assert texts(b) == ["1", "2", "3", "5", "6"]
    assert fabric.sites["b"].statistics().arrivals["r"].refused == 1


def test_a_product_damaged_at_its_origin_is_named_and_the_rest_arrive(fabric: Fabric) -> None:
    a = fabric.add("a")
    put(a, "x", "first words", "second words", "third words")
    flip_bit(a.path, b"second words")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b has caught up")
    assert texts(b) == ["first words", "third words"]
    (state,) = fabric.sites["b"].statistics().upstreams
    assert state.counts.lost == [(2, 2, "damaged")]
    flip_bit(a.path, b"recond words")  # which repairs it


def test_a_product_damaged_at_its_origin_comes_from_another_holder(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    put(a, "x", "first words", "second words", "third words")
    until(lambda: b.next == 4, "b has them")
    flip_bit(a.path, b"second words")
    c = fabric.add("c", want("**", "oldest"), near=("a", "b"))
    until(lambda: c.next == 4, "c has them")
    assert texts(c) == ["first words", "second words", "third words"]
    assert all(upstream.counts.lost == [] for upstream in fabric.sites["c"].statistics().upstreams)
    flip_bit(a.path, b"recond words")


def test_a_named_site_relays_the_products_of_others(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    c = fabric.add("c", want("**", "oldest", "b"), near=("b",))
    put(a, "x", "from a")
    put(b, "y", "from b")
    until(lambda: c.next == 3, "both arrive")
    assert sorted(held(c)) == [
        ("x", "a", 1, b"from a"),
        ("y", "b", held(b)[0][2] if held(b)[0][1] == "b" else 2, b"from b"),
    ]


def test_a_product_that_arrives_over_two_paths_is_stored_once(fabric: Fabric) -> None:
    a = fabric.add("a")
    fabric.add("b", want("**", "oldest"), near=("a",))
    c = fabric.add("c", want("**", "oldest", "a", "b"), near=("a", "b"))
    put(a, "x", *(str(n) for n in range(50)))
    until(lambda: c.next == 51, "all arrive")
    until(lambda: fabric.sites["c"].statistics().arrivals["r"].duplicates == 50, "and once more, from the other site")
    assert texts(c) == [str(n) for n in range(50)]


def test_our_own_products_do_not_come_back(fabric: Fabric) -> None:
    a = fabric.add("a", dedup="none")
    fabric.add("b", want("**", "oldest"), near=("a",), dedup="none")
    fabric.stop("a")
    fabric._terms["a"] = ([], [want("**", "oldest", "b")])
    fabric.start("a")
    put(a, "x", "mine")
    until(lambda: fabric.queues["b"].next == 2, "b has it")
    until(lambda: has_examined(fabric, "a", "b"), "a has everything of b")
    assert texts(a) == ["mine"]


def test_two_sites_of_one_name_are_refused(fabric: Fabric) -> None:
    fabric.add("a")
    with pytest.raises(FabricError, match="a site called 'a' is running already"):
        fabric.add("b", near=("a",), origin="a")
    fabric.sessions.pop("b").close()


def test_products_of_a_dead_site_come_from_another_holder(fabric: Fabric) -> None:
    """c is stopped when a puts its last products and stops; b has them."""
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    c = fabric.add("c", want("**", "oldest"), near=("a", "b"))
    put(a, "x", "1")
    until(lambda: b.next == 2 and c.next == 2, "both have it")
    fabric.stop("c")
    put(a, "x", "2", "3")
    put(a, "y", "4")
    until(lambda: b.next == 5, "b has all")
    fabric.stop("a")
    fabric.start("c")
    until(lambda: c.next == 5, "c has them from b")
    assert texts(c, "x") == ["1", "2", "3"]
    fabric.start("a")
    put(a, "x", "5")
    until(lambda: texts(c, "x") == ["1", "2", "3", "5"], "and goes on with a")


def test_a_new_site_gets_the_history_of_a_dead_site(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    put(a, "x", "1", "2")
    until(lambda: b.next == 3, "b has them")
    fabric.stop("a")
    c = fabric.add("c", want('** ident ~ "2"', "oldest"), near=("b",))
    until(lambda: c.next == 2, "c has what it wants")
    assert held(c) == [("x", "a", 2, b"2")]


def test_the_last_hop_of_each_product_is_known(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    put(b, "y", "ours")
    put(a, "x", "1", "2")
    site = fabric.sites["b"]
    until(lambda: site.hop(3) == "a", "b has noted the last hop")
    assert [site.hop(sequence) for sequence in (1, 2, 3)] == [None, "a", "a"]
    (flow,) = site.statistics().flows
    assert (flow.origin, flow.feed, flow.products, flow.payload_bytes, flow.duplicates) == ("a", "x", 2, 2, 0)
    assert flow.latency_p50_s is not None
    assert flow.latency_p50_s > 0


def test_what_a_new_queue_evicted_is_named_though_the_old_one_had_the_same_sequences(fabric: Fabric) -> None:
    fabric.add("a", size="4MiB")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    put(fabric.queues["a"], "x", *map(str, range(5)))
    until(lambda: b.next == 6, "b has products 1-5 of the old queue")
    a = fabric.renew("a", size="4MiB")
    for number in range(60):
        a.put(number.to_bytes(2, "big") + bytes(200_000), feed="x", ident=str(number))
    oldest = a.oldest
    assert oldest > 6
    fabric.start("a")
    until(lambda: is_live(fabric, "b") and has_examined(fabric, "b", "a"), "b has everything of the new queue")
    (state,) = fabric.sites["b"].statistics().upstreams
    assert state.counts.lost == [(1, oldest - 1, "evicted")]


def test_a_receiver_stays_live_at_a_site_with_a_slow_beat(fabric: Fabric) -> None:
    """Slower than the 3 s after which a site with the usual beat is unreachable."""
    fabric.beats_s["a"] = 4.0
    a = fabric.add("a")
    b = fabric.add("b", want("**"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    ((_, upstream),) = fabric.sites["b"]._receiver.upstreams()
    heard = {upstream.upstream._heard}
    until(lambda: heard.add(upstream.upstream._heard) or len(heard) > 2, "two beats have come")
    assert upstream.statistics.problem == ""
    put(a, "x", "1")
    until(lambda: b.next == 2, "it arrives")
