"""Compressed products, dictionaries and compressed messages between a site and its remote clients."""

from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace import Queue
from headrace.errors import AccessDeniedError, DictionaryError, OptionError
from headrace.link.rights import Rule
from headrace.log.dictionaries import encode_dictionary
from headrace.payload.compression.training import train
from headrace.queue.queue import log_of
from headrace.remote.protocol.calls import AddDictionary, GetDictionary
from headrace.remote.protocol.replies import Done
from support.serving import Served

TEXTS = [
    f"SAUS70 KWBC 060000\r\r\nMETAR K{n * 7919 % 800:03d} 0600{n % 60:02d}Z {n % 36:02d}010KT 10SM FEW{n % 250:03d} "
    f"{n % 30:02d}/{n % 12:02d} A30{n % 99:02d} RMK AO2=\r\r\n".encode()
    for n in range(300)
]


def compress(queue: Queue) -> int:
    """Let a queue compress with a dictionary from now on; the number of the dictionary."""
    channel = queue.channel("text", "wx/text/**", compress="zstd")
    queue.put_many(TEXTS, feed="wx/text/sa")
    training = queue.train_dictionary("wx/text", size="2KiB")
    channel.change(dictionary=training.dictionary.name)
    return training.dictionary.number


def test_a_client_reads_consumes_and_puts_compressed_products(served: Served) -> None:
    compress(served.queue)
    station = served.queue.station("s", "wx/text/**")
    there = served.connect()
    assert isinstance(there.put(TEXTS[0], feed="wx/text/x", ident="one"), int)
    there.put_many(TEXTS[1:20], feed="wx/text/x", ident=[f"{n}" for n in range(19)])
    assert served.queue.read_batch(301).columns["form"].all()
    batch = there.read_batch(301)
    assert batch.columns["form"].all()
    assert [bytes(product.payload) for product in batch] == TEXTS[:20]
    assert batch.to_arrow().column("payload").to_pylist() == TEXTS[:20]
    assert [product.size for product in batch] == [len(text) for text in TEXTS[:20]]
    with there.station("s", create=False).attach() as consumer:
        taken = consumer.get(20, timeout=20)
        assert [bytes(product.payload) for product in taken] == TEXTS[:20]
        consumer.ack(taken)
    assert station.statistics().acknowledged == 20


def test_a_client_that_may_not_have_the_dictionary_gets_products_expanded(make_served: Callable[..., Served]) -> None:
    rules = (Rule(("*",), receive=("wx/text/sa",), station=("**",)),)
    served = make_served(rules=rules)
    number = compress(served.queue)
    served.queue.put_many(TEXTS[:20], feed="wx/text/sa", ident=[f"{n}" for n in range(20)])
    served.queue.put_many(TEXTS[:20], feed="wx/text/other", ident=[f"{n}" for n in range(20)])
    there = served.connect()
    batch = there.read_batch(301)
    assert not batch.columns["form"].any()
    assert [bytes(product.payload) for product in batch] == TEXTS[:20]
    here = served.queue.read_batch(301, limit=20)
    assert [product.signature for product in batch] == [product.signature for product in here]
    assert served.queue.read_batch(301).columns["form"].all()
    with there.station("s", "wx/text/sa", start=301).attach() as consumer:
        taken = consumer.get(20, timeout=20)
        assert [bytes(product.payload) for product in taken] == TEXTS[:20]
    assert there._connection.ask(GetDictionary(number), Done)[1] == b""  # type: ignore[attr-defined]


def test_put_batch_gives_the_site_the_dictionary(served: Served, make_quick: Callable[..., Queue]) -> None:
    source = make_quick("source", origin="source", size="8MiB")
    number = compress(source)
    source.put_many(TEXTS[:10], feed="wx/text/sa", ident="again")
    there = served.connect()
    assert there.put_batch(source.read_batch(301)).stored == 10
    assert log_of(served.queue).dictionaries.numbers() == [number]
    assert [bytes(product.payload) for product in served.queue.read()] == TEXTS[:10]


def test_a_dictionary_that_the_site_lacks_is_an_error_that_names_it(served: Served) -> None:
    number = compress(served.queue)
    served.queue.put(TEXTS[0], feed="wx/text/sa", ident="again")
    file = served.queue.path / "dictionaries" / f"{number:08x}.dictionary"
    hidden = file.rename(file.with_suffix(".hidden"))
    log_of(served.queue).dictionaries._known.clear()
    (product,) = served.connect().read_batch(301)
    with pytest.raises(DictionaryError, match=f"has no dictionary {number:08x} for this client"):
        product.payload
    hidden.rename(file)
    assert bytes(product.payload) == TEXTS[0]


def test_a_link_compresses_what_a_client_sends_and_gets(served: Served) -> None:
    assert served.site is not None
    with headrace.connect(f"{served.endpoint}?site={served.name}", compress="zstd") as there:
        there.put_many(TEXTS, feed="plain/text")
        there.put(b"".join(TEXTS), feed="plain/text")
        sent = served.site.statistics().remote
        assert 0 < sent.wire_bytes < sent.plain_bytes / 2
        assert sent.plain_bytes >= 2 * sum(map(len, TEXTS))
        assert [bytes(product.payload) for product in there.read()] == [*TEXTS, b"".join(TEXTS)]
        got = served.site.statistics().remote
        assert got.plain_bytes - sent.plain_bytes > 2 * sum(map(len, TEXTS))
        assert got.wire_bytes - sent.wire_bytes < (got.plain_bytes - sent.plain_bytes) / 2
    with pytest.raises(OptionError, match="compress 'lz4' is unknown"):
        headrace.connect(f"{served.endpoint}?site={served.name}", compress="lz4")


def test_a_client_without_rights_gets_no_dictionary_and_gives_none(shared_memory: Path) -> None:
    """Calls of a client whose rule names other feeds than those that a dictionary was trained with."""
    served = Served(shared_memory, rules=(Rule(("*",), receive=("ocean/**",), publish=("ocean/**",)),))
    try:
        number = compress(served.queue)
        there = served.connect()
        assert there._connection.ask(GetDictionary(number), Done)[1] == b""
        other = train(TEXTS[:100], "wx/**", size=2048).dictionary
        with pytest.raises(AccessDeniedError, match="may not publish anything of wx/"):
            there._connection.ask(AddDictionary(other.number), Done, encode_dictionary(other))
        mine = train(TEXTS[50:150], "ocean/**", size=2048).dictionary
        there._connection.ask(AddDictionary(mine.number), Done, encode_dictionary(mine))
        assert there._connection.ask(GetDictionary(mine.number), Done)[1] == encode_dictionary(mine)
    finally:
        served.close()
