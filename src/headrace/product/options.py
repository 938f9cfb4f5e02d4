"""Options: what few products carry besides their properties, in a form that Headrace itself reads.

The block in a record is a row of entries, each

    type u8 | value length u8 | value

in the order of their types. Options of unknown types are kept as they are, and passed on. From type 128 on an option
changes what the payload means: a reader that does not know it must not use the payload.
"""

import struct
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headrace.errors import OptionError

BLOCK_BYTES_MAX = 4096
MUST_KNOW = 128  # from this type on
TRANSFER_BYTES = 16
SIGNATURE_BYTES = 64
CODEC_ZSTD = 1
_BOUND, _REPLAY, _HOPS, _SIGNED, _COMPRESSION, _FRAGMENT = 1, 2, 3, 4, 128, 129
_KNOWN = (_BOUND, _REPLAY, _HOPS, _SIGNED, _COMPRESSION, _FRAGMENT)
_NUMBER = struct.Struct("<I")
_PAIR = struct.Struct("<QQ")
_SIGNATURE = struct.Struct("<Q64s")
_COMPRESSED = struct.Struct("<BII")
_PART = struct.Struct("<16sII")
_REPLAY_BLOCK = np.dtype(
    [
        ("replay", "u1"), ("replay_bytes", "u1"), ("run", "<u8"), ("sequence", "<u8"), ("hops", "u1"),
        ("hops_bytes", "u1"), ("left", "u1"),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Replay:
    """The product was not made now: a replay put it."""

    run: int  # which replay
    sequence: int  # where the original was in the queue that was replayed


@dataclass(frozen=True, slots=True)
class OriginSignature:
    """The origin vouches for the product."""

    key: int
    signature: bytes  # 64 bytes


@dataclass(frozen=True, slots=True)
class Compression:
    """The payload is stored in a shorter form."""

    codec: int  # 1: Zstandard
    dictionary: int  # 0: none
    size: int  # bytes of the payload before


@dataclass(frozen=True, slots=True)
class Fragment:
    """The payload is a part of something larger."""

    transfer: bytes  # 16 bytes that the parts have in common
    number: int  # from 0 on
    count: int

    def __str__(self) -> str:
        """For people: which part it is; the manifest, which lists the parts, is the last by number."""
        return "manifest" if self.number == self.count - 1 else f"part {self.number + 1} of {self.count - 1}"


@dataclass(frozen=True, slots=True)
class Options:
    """What a product may carry; None or 0 where it does not."""

    bound_us: int = 0  # how far `created` may be from the truth, in microseconds; 0 unknown
    replay: Replay | None = None
    hops: int | None = None  # how often sites may still pass it on; None: without a limit
    signed: OriginSignature | None = None
    compression: Compression | None = None
    fragment: Fragment | None = None
    unknown: tuple[tuple[int, bytes], ...] = ()  # type and value

    @property
    def is_readable(self) -> bool:
        """Whether this version of Headrace knows what the payload means."""
        return all(kind < MUST_KNOW for kind, _ in self.unknown)


NO_OPTIONS = Options()


class EncodedOptions(list[bytes]):
    """Blocks that are known to be valid; `put_many` takes them as a column of options, and does not look into them."""


def replay_blocks(run: int, sequences: npt.NDArray[np.uint64], hops: int | None) -> EncodedOptions:
    """For each sequence the block of `Options(replay=Replay(run, sequence), hops=hops)`, without a call for each."""
    blocks = np.zeros(len(sequences), _REPLAY_BLOCK)
    blocks["replay"], blocks["replay_bytes"] = _REPLAY, _PAIR.size
    blocks["run"], blocks["sequence"] = run, sequences
    blocks["hops"], blocks["hops_bytes"], blocks["left"] = _HOPS, 1, hops or 0
    size = _REPLAY_BLOCK.itemsize
    data, used = blocks.tobytes(), size if hops is not None else size - 3
    return EncodedOptions(data[place : place + used] for place in range(0, len(data), size))


def encode_options(options: Options) -> bytes:
    """The block; empty without options. OptionError names the value that does not fit."""
    values: dict[int, bytes] = dict(options.unknown)
    if len(values) != len(options.unknown) or any(kind in _KNOWN or not 0 < kind < 256 for kind in values):
        raise OptionError("unknown options have types that are known, or twice the same", "give each type once")
    try:
        if options.bound_us:
            values[_BOUND] = _NUMBER.pack(options.bound_us)
        if options.replay is not None:
            values[_REPLAY] = _PAIR.pack(options.replay.run, options.replay.sequence)
        if options.hops is not None:
            values[_HOPS] = bytes([options.hops])
        if options.signed is not None:
            values[_SIGNED] = _signed(options.signed)
        if (made := options.compression) is not None:
            values[_COMPRESSION] = _COMPRESSED.pack(made.codec, made.dictionary, made.size)
        if options.fragment is not None:
            values[_FRAGMENT] = _fragment(options.fragment)
    except (struct.error, ValueError, TypeError):
        raise OptionError(f"{options!r} has a value out of range", "docs/format.md has the ranges") from None
    block = b"".join(bytes([kind, len(values[kind])]) + values[kind] for kind in sorted(values))
    if len(block) > BLOCK_BYTES_MAX:
        raise OptionError(f"the options take {len(block)} bytes, more than {BLOCK_BYTES_MAX}", "leave some out")
    return block


def _signed(signed: OriginSignature) -> bytes:
    if len(signed.signature) != SIGNATURE_BYTES:
        raise ValueError
    return _SIGNATURE.pack(signed.key, signed.signature)


def _fragment(fragment: Fragment) -> bytes:
    if len(fragment.transfer) != TRANSFER_BYTES or not 0 <= fragment.number < fragment.count:
        raise ValueError
    return _PART.pack(fragment.transfer, fragment.number, fragment.count)


def decode_options(block: bytes) -> Options:
    """The options in a block; OptionError if it is not one."""
    if not block:
        return NO_OPTIONS
    facts: dict[str, object] = {}
    unknown: list[tuple[int, bytes]] = []
    try:
        for kind, value in _entries(block):
            if kind == _BOUND:
                facts["bound_us"] = _NUMBER.unpack(value)[0]
            elif kind == _REPLAY:
                facts["replay"] = Replay(*_PAIR.unpack(value))
            elif kind == _HOPS:
                (facts["hops"],) = value
            elif kind == _SIGNED:
                facts["signed"] = OriginSignature(*_SIGNATURE.unpack(value))
            elif kind == _COMPRESSION:
                facts["compression"] = Compression(*_COMPRESSED.unpack(value))
            elif kind == _FRAGMENT:
                facts["fragment"] = Fragment(*_PART.unpack(value))
                _fragment(facts["fragment"])  # type: ignore[arg-type]
            else:
                unknown.append((kind, value))
    except (struct.error, ValueError) as error:
        raise OptionError("the options are malformed", "drop the product") from error
    return Options(**facts, unknown=tuple(unknown))  # type: ignore[arg-type]


def run_in(block: bytes) -> int:
    """The run of the replay that put the product; 0 if none did. Quicker than `decode_options`, for whole batches."""
    place = 0
    while place + 2 <= len(block) and block[place] <= _REPLAY:
        if block[place] == _REPLAY:
            return int.from_bytes(block[place + 2 : place + 10], "little")
        place += 2 + block[place + 1]
    return 0


def fragment_in(block: bytes) -> Fragment | None:
    """The mark of a fragment, if the block has one. Quicker than `decode_options`, for whole batches."""
    place = 0
    while place + 2 <= len(block) and block[place] <= _FRAGMENT:
        if block[place] == _FRAGMENT:
            return Fragment(*_PART.unpack_from(block, place + 2))
        place += 2 + block[place + 1]
    return None


def _entries(block: bytes) -> list[tuple[int, bytes]]:
    """Types and values; ValueError unless entries fill the block, in the order of their types."""
    entries: list[tuple[int, bytes]] = []
    place, before = 0, 0
    while place < len(block):
        kind, size = block[place : place + 2]
        value = block[place + 2 : place + 2 + size]
        if kind <= before or len(value) != size:
            raise ValueError(kind)
        entries.append((kind, value))
        place, before = place + 2 + size, kind
    return entries


def check_options(block: bytes) -> bytes:
    """Return a block that came from elsewhere if it is one of options."""
    if len(block) > BLOCK_BYTES_MAX:
        raise OptionError(f"the options take {len(block)} bytes, more than {BLOCK_BYTES_MAX}", "leave some out")
    decode_options(block)
    return block


def check_plain(block: bytes) -> bytes:
    """As `check_options`, for a product whose payload is not compressed."""
    if decode_options(check_options(block)).compression is not None:
        raise OptionError("the options say that a payload is compressed", "give it as it is: channels compress")
    return block


def with_compression(block: bytes, compression: Compression, hops_less: int = 0) -> bytes:
    """The block of a product that is now stored compressed, and may be passed on less often."""
    options = decode_options(block)
    hops = None if options.hops is None else max(0, options.hops - hops_less)
    return encode_options(replace(options, compression=compression, hops=hops))


def without_compression(options: Options) -> Options:
    """The options of a product whose payload is at hand as it was put."""
    return options if options.compression is None else replace(options, compression=None)
