"""Decoding: how bytes become plain data, wherever they come from: other sites, clients, products and files.

    _BEATS: Decoder[Beat] = Decoder(Beat, bytes_max=2 << 20)
    beat = _BEATS.decode(payload)      # msgspec.DecodeError, whatever the bytes are

Bytes from elsewhere may be anything. `decode` returns what the type says, or raises `msgspec.DecodeError`, the one
error of all decoders: for bytes that are malformed, for text that is not UTF-8, for numbers that are out of range, for
more bytes than the limit, and for nesting that is too deep. msgspec reports the last of these as RecursionError,
before the stack overflows; it allocates nothing for a length that the bytes only claim. So time and memory are bounded
by the length of the bytes.

The types do the rest. Their structs refuse unknown fields: nothing is skipped that nobody has looked at. No member of a
message may have any type, so a message that was decoded is no deeper than its type.

Decoders are made at import, once: threads that use a msgspec type for the first time at the same moment can crash the
interpreter. Every decoder of Headrace is one of these; a test looks for others. Not here: configuration (toml/), and
what is not MessagePack or JSON: records, and the files of a queue.
"""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from headrace.units import format_size

Decoded = TypeVar("Decoded")
Encoding = Literal["msgpack", "json"]
FILE_BYTES_MAX = 1 << 30  # of a small file of ours; a larger one is not ours

TOO_DEEP = "it is nested too deeply"


class Decoder(Generic[Decoded]):
    """Decodes values of one type; threads may share it."""

    __slots__ = ("_bytes_max", "_decode")

    def __init__(self, kind: Any, *, bytes_max: int = FILE_BYTES_MAX, encoding: Encoding = "msgpack") -> None:
        decoder: Any = (msgspec.msgpack if encoding == "msgpack" else msgspec.json).Decoder(kind)
        self._decode, self._bytes_max = decoder.decode, bytes_max

    def decode(self, data: bytes | memoryview | str) -> Decoded:
        """The value in `data`; msgspec.DecodeError says what is invalid, and nothing else is raised for any bytes."""
        if len(data) > self._bytes_max:
            limit = format_size(self._bytes_max)
            raise msgspec.DecodeError(f"it has {format_size(len(data))}, and the limit is {limit}")
        try:
            decoded: Decoded = self._decode(data)
            return decoded
        except RecursionError:
            raise msgspec.DecodeError(TOO_DEEP) from None
        except (ValueError, OverflowError) as error:  # text that is not UTF-8, numbers beyond the range of their type
            raise msgspec.DecodeError(str(error)) from None


def converted(value: Any, kind: type[Decoded]) -> Decoded:
    """A decoded value as another type; msgspec.DecodeError as for bytes."""
    try:
        return msgspec.convert(value, kind)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
    except (ValueError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from None
