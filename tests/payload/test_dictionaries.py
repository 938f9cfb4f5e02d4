"""Dictionaries: trained from a queue, stored with it, and needed by every queue that holds products made with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Queue
from headrace.errors import DictionaryError, OptionError, ProductDamagedError
from headrace.log.dictionaries import Dictionaries, Dictionary, decode_dictionary, encode_dictionary, numbered
from headrace.log.records import rows_of
from headrace.payload.compression.coding import Coder
from headrace.payload.compression.training import train

STATIONS = [f"K{a}{b}{c}" for a in "ABCD" for b in "EFGH" for c in "XYZ"]


def reports(count: int, seed: int = 1) -> list[bytes]:
    """Reports that resemble each other, of about 100 bytes."""
    draw = np.random.default_rng(seed)
    return [
        f"SAUS70 KWBC 060000\r\r\nMETAR {STATIONS[n % len(STATIONS)]} 0600{draw.integers(60):02d}Z "
        f"{draw.integers(36):02d}0{draw.integers(20):02d}KT 10SM FEW{draw.integers(250):03d} "
        f"{draw.integers(30):02d}/{draw.integers(20):02d} A30{draw.integers(99):02d} RMK AO2=\r\r\n".encode()
        for n in range(count)
    ]


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    """A queue whose channel compresses with a dictionary from its own products."""
    queue = make_quick(size="16MiB")
    channel = queue.channel("text", "wx/text/**", compress="zstd")
    queue.put_many(reports(400), feed="wx/text/sa")
    training = queue.train_dictionary("wx/text/**", size="4KiB")
    channel.change(dictionary=training.dictionary.name)
    return queue


def test_a_dictionary_makes_small_products_smaller_than_compression_alone_does(queue: Queue) -> None:
    training = queue.train_dictionary("wx/text", products=300, size=2048)
    assert training.products == 150
    assert training.with_bytes < 0.75 * training.plain_bytes < training.alone_bytes
    before, payloads = queue.statistics().held_bytes, reports(100, seed=2)
    queue.put_many(payloads, feed="wx/text/sa")
    queue.put(payloads[0], feed="wx/text/other")
    batch = queue.read_batch(401)
    assert queue.statistics().held_bytes - before < 0.7 * batch.payload_bytes
    assert [bytes(product.payload) for product in batch] == [*payloads, payloads[0]]
    assert batch.to_arrow().column("payload").to_pylist() == [*payloads, payloads[0]]
    (option,) = {product.options.compression.dictionary for product in batch if product.options.compression}
    assert (queue.path / "dictionaries" / f"{option:08x}.dictionary").exists()


def test_the_number_of_a_dictionary_is_that_of_its_content(queue: Queue) -> None:
    first = train(reports(100), "wx/**", size=2048).dictionary
    again = train(reports(100), "wx/**", size=2048).dictionary
    other = train(reports(100, seed=5), "wx/**", size=2048).dictionary
    assert first == again
    assert first.number != other.number
    forged = Dictionary(first.number, "wx/**", other.content)
    for wrong in (encode_dictionary(forged), encode_dictionary(first)[:-1], encode_dictionary(first) + b"x", b""):
        with pytest.raises(DictionaryError, match=f"dictionary {first.name} is invalid"):
            decode_dictionary(wrong, first.number)
    assert decode_dictionary(encode_dictionary(first), first.number) == first


def test_every_altered_byte_of_a_dictionary_is_found(tmp_path: Path) -> None:
    dictionary = train(reports(100), "wx/**", size=1024).dictionary
    data = encode_dictionary(dictionary)
    for place in range(0, len(data), 7):
        altered = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(DictionaryError):
            decode_dictionary(altered, dictionary.number)


def test_put_batch_brings_the_dictionary_along(make_quick: Callable[..., Queue], queue: Queue) -> None:
    payloads = reports(20, seed=3)
    queue.put_many(payloads, feed="wx/text/sa")
    target = make_quick("target", origin="target")
    target.put_batch(queue.read_batch(401))
    queue.close()
    with Queue.open(target.path) as again:
        assert [bytes(product.payload) for product in again.read_batch()] == payloads
        assert rows_of(again.read_batch()).gather_records()


def test_a_missing_dictionary_is_an_error_that_names_it_and_nothing_is_stored_without_it(
    make_quick: Callable[..., Queue], queue: Queue
) -> None:
    queue.put_many(reports(3, seed=4), feed="wx/text/sa")
    (file,) = (queue.path / "dictionaries").iterdir()
    kept = file.read_bytes()
    file.unlink()
    with Queue.open(queue.path) as other:
        with pytest.raises(DictionaryError, match=f"lacks dictionary {file.stem}"):
            bytes(other.read_batch(401)[0].payload)
        with pytest.raises(DictionaryError, match=f"lacks dictionary {file.stem}"):
            other.read_batch(401).to_arrow()
        with pytest.raises(DictionaryError, match=f"lacks dictionary {file.stem}"):
            other.put(reports(1)[0], feed="wx/text/sa")
        target = make_quick("target", origin="target")
        with pytest.raises(DictionaryError, match=f"lacks dictionary {file.stem}"):
            target.put_batch(other.read_batch(401))
        assert target.next == 1
        file.write_bytes(kept)
        assert [bytes(product.payload) for product in other.read_batch(401)] == reports(3, seed=4)
        assert target.put_batch(other.read_batch(401)).stored == 3


def test_the_error_of_a_missing_dictionary_says_where_it_has_to_be_and_what_stays_readable(queue: Queue) -> None:
    queue.put_many(reports(3, seed=4), feed="wx/text/sa")
    (file,) = (queue.path / "dictionaries").iterdir()
    kept = file.read_bytes()
    file.unlink()
    with Queue.open(queue.path) as other:
        with pytest.raises(DictionaryError) as of_read:
            bytes(other.read_batch(401)[0].payload)
        with pytest.raises(DictionaryError, match="with which channel 'text' compresses its products") as of_put:
            other.put(reports(1)[0], feed="wx/text/sa")
        for error in (of_read.value, of_put.value):
            assert f"restore {file} from a backup of this queue" in error.hint
            assert "roducts that do not need it stay readable" in error.hint
        assert bytes(other.read_batch(1, limit=1)[0].payload) == reports(1)[0]
        assert other.put(reports(1)[0], feed="wx/elsewhere")
        assert f"or put without it: headrace channel change {queue.path} text --dictionary none" in of_put.value.hint
    file.write_bytes(kept)


def test_puts_go_on_in_the_same_process_once_a_missing_dictionary_is_back_or_no_longer_named(queue: Queue) -> None:
    (file,) = (queue.path / "dictionaries").iterdir()
    kept = file.read_bytes()
    file.unlink()
    with Queue.open(queue.path) as one, Queue.open(queue.path) as two:
        for each in (one, two):
            with pytest.raises(DictionaryError, match="lacks dictionary"):
                each.put(reports(1)[0], feed="wx/text/sa")
        one.channel("text").change(dictionary=None)
        assert two.put(reports(1)[0], feed="wx/text/sa", ident="without") == 401
        assert two.put_many(reports(9, seed=6), feed="wx/text/sa").stored == 9
    file.write_bytes(kept)


def test_a_put_finds_a_dictionary_that_is_back(queue: Queue) -> None:
    (file,) = (queue.path / "dictionaries").iterdir()
    kept = file.read_bytes()
    file.unlink()
    with Queue.open(queue.path) as other:
        with pytest.raises(DictionaryError, match="lacks dictionary"):
            other.put_many(reports(1), feed="wx/text/sa")
        file.write_bytes(kept)
        assert other.put_many(reports(3, seed=4), feed="wx/text/sa").stored == 3
        assert [bytes(product.payload) for product in other.read_batch(401)] == reports(3, seed=4)


def test_a_dictionary_with_another_content_never_returns_wrong_bytes(queue: Queue) -> None:
    """Frames with a dictionary have a checksum of their content."""
    payload = reports(1, seed=9)[0]
    right = train(reports(200), "**", size=2048).dictionary
    wrong = train(reports(200, seed=2), "**", size=2048).dictionary
    from headrace.product.expansion import expand

    class Lying:
        def need(self, number: int) -> Dictionary:
            return Dictionary(number, "**", wrong.content[:4] + right.content[4:8] + wrong.content[8:])

    frame = Coder(3, right).frame(payload)
    with pytest.raises(ProductDamagedError):
        expand(frame, right.number, len(payload), Lying(), 1)


def test_training_needs_enough_products_that_have_something_in_common(queue: Queue) -> None:
    with pytest.raises(DictionaryError, match=r"0 products of nothing/.* are too few"):
        queue.train_dictionary("nothing")
    with pytest.raises(OptionError, match="a dictionary of 10 B"):
        queue.train_dictionary("wx/text", size=10)
    with pytest.raises(DictionaryError, match="lacks dictionary 0000ffff"):
        queue.channel("text").change(dictionary="0000ffff")


def test_check_finds_a_damaged_dictionary(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick("spoilt", size="4MiB")
    dictionary = train(reports(100), "wx/**", size=1024).dictionary
    Dictionaries(queue.path).add(dictionary)
    assert queue.check() == []
    (file,) = (queue.path / "dictionaries").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert [finding.file for finding in queue.check()] == [str(file)]
    file.unlink()


def test_a_number_that_is_taken_is_refused(tmp_path: Path) -> None:
    folder = Dictionaries(tmp_path)
    dictionary = train(reports(100), "wx/**", size=1024).dictionary
    folder.add(dictionary)
    folder.add(Dictionary(dictionary.number, "other", dictionary.content))
    with pytest.raises(DictionaryError, match="the queue has another dictionary"):
        folder.add(Dictionary(dictionary.number, "wx/**", dictionary.content + b"x"))
    assert numbered(dictionary.content, "wx/**") == dictionary
    assert Dictionaries(tmp_path).numbers() == [dictionary.number]


def test_the_command_trains_and_tells_the_channel(run: Callable[..., Any], tmp_path: Path) -> None:
    with Queue.create(tmp_path / "wx.queue", size="4MiB") as queue:
        queue.channel("text", "wx/text/**")
        queue.put_many(reports(200), feed="wx/text/sa")
    refused = run("queue", "train", "wx.queue", "wx/text/**", "--size", "2KiB", "--channel", "txt")
    assert refused.exit_code == 3
    assert not list((tmp_path / "wx.queue" / "dictionaries").glob("*"))
    done = run("queue", "train", "wx.queue", "wx/text/**", "--size", "2KiB", "--channel", "text")
    assert "of that with it" in done.output
    assert "channel text uses it from now on" in done.output
    with Queue.open(tmp_path / "wx.queue") as queue:
        terms = queue.channel("text").definition.compression
        assert terms is not None
        assert terms.dictionary is not None
        assert terms.dictionary in done.output
