"""A channel assigns a slice to every product that enters it, on whatever path: docs/channels.md, "Slices"."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from headrace import Product, Queue
from headrace.cli.main import headrace
from headrace.errors import ChannelExistsError, FunctionMissingError, OptionError, TermsError
from headrace.pipeline.source.options import write_options
from headrace.pipeline.source.writers import BatchWriter
from headrace.queue import AnyQueue
from support.fleet import Fabric, want
from support.serving import Served
from support.slice_oracle import slice_of
from support.waiting import until

Way = Callable[["Place", AnyQueue, str], Any]
IDENT = "KDEN/1"
PROPERTIES: dict[str, Any] = {"station": "KDEN", "n": -12345, "lat": 39.85, "lon": -104.65}
SLICES = 8
BY_PRODUCT = {
    "ident": "ident", "property": "property:station", "modulo": "modulo:n", "grid": "grid:lat,lon,4x8",
}  # fmt: skip


def by_ident(products: Sequence[Product]) -> list[int]:
    return [len(product.ident) for product in products]


class Place:
    """A site with its queue, from here and from elsewhere, and a queue of another origin."""

    def __init__(self, served: Served, other: Queue) -> None:
        self.here, self.there, self.other = served.queue, served.connect(), other
        self.endpoint = f"{served.endpoint}?site={served.name}"
        self._puts = 0

    def put(self, way: str, feed: str) -> int | None:
        """Put a product; its slice."""
        kind, _, where = way.partition(", ")
        begin = self.here.next
        WAYS[kind](self, self.there if where == "remote" else self.here, feed)
        (product,) = self.here.read(begin)
        return product.slice

    def payload(self) -> bytes:
        """Another one each time."""
        self._puts += 1
        return b"%d" % self._puts


def push(place: Place, queue: AnyQueue, feed: str) -> None:
    with queue.channel(feed).supplier() as supplier:
        supplier.push(place.payload(), feed=feed, ident=IDENT, properties=PROPERTIES)


def push_many(place: Place, queue: AnyQueue, feed: str) -> None:
    with queue.channel(feed).supplier() as supplier:
        supplier.push_many([place.payload()], feed=feed, ident=[IDENT], properties=[PROPERTIES])


def put_batch(place: Place, queue: AnyQueue, feed: str) -> None:
    sequence = place.other.put(place.payload(), feed=feed, ident=IDENT, properties=PROPERTIES, slice=7)
    assert isinstance(sequence, int)
    queue.put_batch(place.other.read_batch(sequence))


def put_by_command(place: Place, queue: AnyQueue, feed: str) -> None:
    where = place.endpoint if queue is place.there else str(place.here.path)
    said = ["put", where, "-", "--feed", feed, "--ident", IDENT]
    said += [word for name, value in PROPERTIES.items() for word in ("--property", f"{name}={value}")]
    done = CliRunner().invoke(headrace, said, input=place.payload())
    assert done.exit_code == 0, done.output


def put_by_spark(place: Place, queue: AnyQueue, feed: str) -> None:
    """The code of a task, without Java."""
    address = {"site": place.endpoint} if queue is place.there else {"queue": str(place.here.path)}
    rows = pa.RecordBatch.from_pydict({
        "payload": pa.array([place.payload()], pa.binary()), "ident": pa.array([IDENT]),
        "properties": pa.array([[(name, str(value)) for name, value in PROPERTIES.items()]],
                               pa.map_(pa.string(), pa.string())),
    })  # fmt: skip
    BatchWriter(write_options({**address, "feed": feed})).write(iter([rows]))


WAYS: dict[str, Way] = {
    "push": push,
    "push_many": push_many,
    "put": lambda p, q, feed: q.put(p.payload(), feed=feed, ident=IDENT, properties=PROPERTIES),
    "put_many": lambda p, q, feed: q.put_many([p.payload()], feed=feed, ident=[IDENT], properties=PROPERTIES),
    "put_async": lambda p, q, feed: asyncio.run(
        q.put_async(p.payload(), feed=feed, ident=IDENT, properties=PROPERTIES)
    ),
    "put_batch": put_batch,
    "command": put_by_command,
}
EVERY = [f"{way}, {where}" for way in WAYS for where in ("local", "remote")]


@pytest.fixture
def place(make_served: Callable[..., Served], make_quick: Callable[..., Queue]) -> Place:
    served = make_served(functions={"by_ident": by_ident})
    return Place(served, make_quick("other", origin="other"))


@pytest.fixture
def spark_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    opened: dict[Any, AnyQueue] = {}
    monkeypatch.setattr("headrace.pipeline.source.open_queues._open", opened)  # a task leaves its queues open
    yield place
    for queue in opened.values():
        queue.close()


@pytest.mark.parametrize("assign", BY_PRODUCT.values(), ids=BY_PRODUCT)
def test_every_put_gets_the_slice_of_its_product(place: Place, assign: str) -> None:
    channel = place.here.channel("c", "c", slices=SLICES, assign=assign)
    expected = slice_of(assign, SLICES, IDENT, PROPERTIES)
    for way in EVERY:
        if not (way.startswith("command") and assign != "ident"):  # its properties are texts
            assert place.put(way, "c") == expected, way
    assert channel.statistics().spread == 0


def test_every_put_takes_its_turn(place: Place) -> None:
    place.here.channel("c", "c", slices=SLICES, assign="round_robin")
    ways = [way for way in EVERY if not way.startswith("put_batch")]
    assert [place.put(way, "c") for way in ways] == [number % SLICES for number in range(len(ways))]
    assert place.put("put_batch, remote", "c") == 7  # it came with the product


def test_every_put_gets_a_random_slice(place: Place) -> None:
    place.here.channel("c", "c", slices=2, assign="random")
    found = {place.put(way, "c") for _ in range(3) for way in EVERY}
    assert found == {0, 1}


def test_every_put_calls_the_function_of_a_user(place: Place) -> None:
    place.here.channel("c", "c", slices=SLICES, assign="function:by_ident")
    for way in EVERY:
        if not way.startswith("command, local"):  # a process of its own, in which nobody has registered the function
            assert place.put(way, "c") == len(IDENT), way
    done = CliRunner().invoke(headrace, ["put", str(place.here.path), "-", "--feed", "c"], input=b"x")
    assert (done.exit_code != 0, "there is no function 'by_ident' here" in done.output) == (True, True)


def test_a_task_of_spark_puts_with_slices(spark_place: Place) -> None:
    spark_place.here.channel("c", "c", slices=SLICES, assign="property:station")
    WAYS["Spark"] = put_by_spark
    try:
        for where in ("local", "remote"):
            assert spark_place.put(f"Spark, {where}", "c") == slice_of("property:station", SLICES, IDENT, PROPERTIES)
    finally:
        del WAYS["Spark"]


def test_a_consumer_puts_with_slices(place: Place) -> None:
    place.here.channel("c", "c", slices=SLICES)
    for queue in (place.here, place.there):
        begin = place.here.next
        with queue.station("somebody", "elsewhere/**").attach() as consumer:
            consumer.put(consumer.new(1, 3, feed="c", ident=f"{IDENT}{begin}"))
        (product,) = place.here.read(begin)
        assert product.slice == slice_of("ident", SLICES, f"{IDENT}{begin}", {})


# --- remote clients -------------------------------------------------------------------------------


def test_a_remote_client_creates_compares_and_refuses_slices_as_a_local_one(place: Place) -> None:
    channel = place.there.channel("c", "c", slices=12, assign="property:station")
    assert channel.definition == place.here.channel("c").definition
    assert place.there.channel("c", "c", slices=12, assign="property:station").feed == "c/**"
    with pytest.raises(ChannelExistsError, match="slices 12, not 13"):
        place.there.channel("c", "c", slices=13, assign="property:station")
    with pytest.raises(OptionError, match="the option slices of a channel cannot change"):
        channel.change(slices=13)
    with pytest.raises(TermsError, match="channel 'c' assigns slices to"):
        place.there.channel("d", "c/d", slices=12)
    with pytest.raises(OptionError, match=r"channel 'c' assigns slices by property:station, and .* came with one"):
        place.there.put(b"x", feed="c", slice=3)
    place.there.put(b"x", feed="c")
    assert channel.statistics().spread == 1


def test_a_remote_producer_is_told_that_the_site_lacks_a_function(place: Place) -> None:
    place.here.channel("c", "c", slices=SLICES, assign="function:nobodys")
    for put in (
        lambda: place.there.put(b"x", feed="c"),
        lambda: place.there.put_many([b"x"], feed="c"),
        lambda: place.there.channel("c").supplier().push(b"x"),
    ):
        with pytest.raises(FunctionMissingError, match=r"'nobodys' here; there is by_ident.*\[functions\] of the site"):
            put()


# --- relays ---------------------------------------------------------------------------------------


def test_two_sites_with_the_same_terms_give_the_same_slices(fabric: Fabric) -> None:
    """The target does not keep the slices of the source; a site with other terms computes its own."""
    source, far = fabric.add("source"), {}
    source.channel("c", "c", slices=SLICES, assign="property:station")
    for name, slices in (("same", SLICES), ("other", 3)):
        far[name] = fabric.add(name, want("c/**", "oldest"), near=("source",))
        far[name].channel("c", "c", slices=slices, assign="property:station")
    stations = [f"K{number}" for number in range(40)]
    for station in stations:
        source.put(station.encode() * 50_000, feed="c", properties={"station": station})
    for target in far.values():
        until(lambda target=target: target.next > 40, "all products have arrived")  # type: ignore[misc]
    for queue, slices in ((source, SLICES), (far["same"], SLICES), (far["other"], 3)):
        expected = {station: slice_of("property:station", slices, "", {"station": station}) for station in stations}
        assert {str(p.properties["station"]): p.slice for p in queue.read()} == expected
        assert queue.check() == []


def test_a_relay_waits_for_a_function_that_its_site_lacks_and_loses_nothing(fabric: Fabric) -> None:
    source = fabric.add("source")
    target = fabric.add("target", want("c/**", "oldest"), near=("source",))
    channel = target.channel("c", "c", slices=SLICES, assign="function:nobodys")
    for number in range(5):
        source.put(b"%d" % number, feed="c", ident=str(number))
    until(lambda: any("nobodys" in each.text for each in fabric.sites["target"].problems()), "the site says so")
    assert target.next == 1
    channel.remove()
    until(lambda: target.next == 6, "all products have arrived")
    assert [product.ident for product in target.read()] == [str(number) for number in range(5)]
