"""What comes from elsewhere besides messages, and how each kind is used: text, records, files of transfers.

A target is used with mutated samples. It returns or raises a HeadraceError; anything else is a finding. The files of
queues and archives are in fuzz_files.py, because they are mapped into memory and a fault there would end this process.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from messages import Message, flipped, messages, mutated

from headrace import Queue
from headrace.errors import HeadraceError
from headrace.link.endpoint import parse_endpoint
from headrace.log.records import Names, read_batch
from headrace.payload.compression.link import unfolded
from headrace.payload.fragments.journal import decode_journal, encode_entries, encode_head
from headrace.payload.fragments.manifest import Manifest
from headrace.pipeline.rules.load import check_rules
from headrace.product.feed import check_feed
from headrace.product.options import decode_options
from headrace.product.properties import decode_properties, encode_properties
from headrace.relay.messages.page import records_of
from headrace.selection import Selection
from headrace.site.example import EXAMPLE
from headrace.site.loading import check_config

ROOT = Path(__file__).parents[2]
SELECTIONS = (
    "wx/radar/**", 'wx/** ident ~ "^SA(US|CN)[0-9]+"', "** where size > 100 and priority <= 3", "a/*|b/** slice 3,7",
    "wx/** origin denver every 10 age 1h", "wx/text/** xpath //report[@code='SA']", "** where x is null or tag = 'a'",
)  # fmt: skip
_NASTY = (
    "(" * 3000,
    "[" * 3000,
    "not " * 3000,
    "\0",
    "\x01",
    "\ufffe",
    "\u202e",
    "9" * 5000,
    "''" * 500,
    "|" * 500,
    "{1000}{1000}",
)


@dataclass(frozen=True)
class Target:
    """`use` gets a mutation of one of the samples, by `mutate`."""

    name: str
    use: Callable[[bytes], object]
    mutate: Callable[[random.Random], bytes]


def _of_message(message: Message) -> Target:
    return Target(message.name, message.decode, lambda chance: mutated(chance, message))


def _of_bytes(name: str, use: Callable[[bytes], object], *samples: bytes) -> Target:
    return Target(name, use, lambda chance: spoilt(chance, chance.choice(samples)))


def spoilt(chance: random.Random, data: bytes) -> bytes:
    """Bytes with a fault: flipped, cut off, a piece left out, doubled or exchanged."""
    if len(data) < 2:
        return chance.randbytes(8)
    first, last = sorted((chance.randrange(len(data)), chance.randrange(len(data))))
    return chance.choice([
        lambda: flipped(chance, data), lambda: data[:last], lambda: data[:first] + data[last:],
        lambda: data[:last] + data[first:], lambda: data[:first] + chance.randbytes(last - first) + data[last:],
        lambda: data[:first] + bytes(last - first) + data[last:],
    ])()  # fmt: skip


def _of_text(name: str, use: Callable[[str], object], *samples: str) -> Target:
    def mutate(chance: random.Random) -> bytes:
        text = chance.choice(samples)
        how = chance.randrange(3)
        if how == 0:
            return spoilt(chance, text.encode())
        place = chance.randrange(len(text) + 1)
        if how == 1:
            return (text[:place] + chance.choice(_NASTY) + text[place:]).encode()
        words = text.split(" ")
        chance.shuffle(words)
        return " ".join(words).encode()

    return Target(name, lambda data: use(data.decode("utf-8", "replace")), mutate)


def _in_file(folder: Path, name: str, use: Callable[[Path], object]) -> Callable[[bytes], object]:
    path = folder / name

    def call(data: bytes) -> object:
        path.write_bytes(data)
        return use(path)

    return call


def _records(folder: Path) -> bytes:
    with Queue.create(folder / "records.queue", size="4MiB", origin="denver") as queue:
        queue.put(b"METAR KDEN", feed="wx/text", ident="x", properties={"a": 1, "b": "c", "d": 1.5}, expiry=1 << 62)
        queue.put(b"", feed="wx/a", slice=3)
        return records_of(queue.read_batch("oldest", limit=10))


def _journal(content: bytes) -> object:
    return decode_journal(content)


def targets(folder: Path) -> Iterator[Target]:
    """All of them; files are made in the folder."""
    yield from map(_of_message, messages())
    yield _of_bytes("records", lambda data: list(read_batch(data, Names())), _records(folder))
    manifest = Manifest(transfer="0" * 32, name="a.grib", size=10, hashes=bytes(32))
    yield _of_bytes("journal", _journal, encode_head(manifest, "denver") + encode_entries([(0, bytes(32))]))
    properties = encode_properties({"a": 1, "b": "c", "d": 1.5, "e": True})
    yield _of_bytes("properties", decode_properties, properties)
    yield _of_bytes("options", decode_options, bytes([1, 8]) + bytes(8))
    yield _of_bytes("compressed page", lambda data: unfolded(data, 1 << 20, "a page"), b"\x28\xb5\x2f\xfd" + bytes(40))
    yield _of_text("selection", Selection.parse, *SELECTIONS)
    yield _of_text("feed", check_feed, "wx/radar/nexrad2/KFTG")
    yield _of_text("endpoint", parse_endpoint, "tls/127.0.0.1:7447", "unixsock-stream//tmp/x.sock")
    site, rules = EXAMPLE.encode(), (ROOT / "examples" / "weather_rules.toml").read_bytes()
    yield _of_bytes("configuration", _in_file(folder, "site.toml", check_config), site)
    yield _of_bytes("rules", _in_file(folder, "rules.toml", check_rules), rules)


def fuzz(target: Target, chance: random.Random) -> None:
    """One mutation. AssertionError shows what was found, and by what."""
    data = target.mutate(chance)
    try:
        target.use(data)
    except HeadraceError:
        pass
    except Exception as error:
        raise AssertionError(f"{target.name}: {type(error).__name__}: {error!s:.300} by {data[:2000]!r}") from error
