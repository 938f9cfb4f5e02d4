"""Link: a whole message, compressed for the way to another site or client.

The bytes of a page or of a batch are compressed as one: products of a feed resemble each other, so a page shrinks
further than its products would one by one, and without a dictionary. The receiver asks for it by the parameter
`compress=zstd` of its Zenoh queries; the sender may comply, and says so by the encoding `application/zstd` of a
message. A site that does not know the parameter replies as it always did. A message that would not shrink travels as it
is. A receiver reads the size before the compression in the frame, and refuses more than its limit before it allocates
anything.
"""

import threading
from typing import TYPE_CHECKING, Any

from headrace.errors import FabricMessageError, OptionError

if TYPE_CHECKING:
    import zstandard

ZSTD = "zstd"
ENCODING = "application/zstd"  # of a message that is compressed
PARAMETER = "compress"
_LEVEL = 1  # a link of a gigabit gains nothing from a higher one
_SMALLEST = 256
_of_thread = threading.local()  # a compressor serves one thread at a time


class LinkCounts:
    """Bytes of messages that were compressed for a link: on the link, and without that. Threads may share it."""

    def __init__(self) -> None:
        self.wire_bytes = self.plain_bytes = 0
        self._lock = threading.Lock()

    def add(self, wire_bytes: int, plain_bytes: int) -> None:
        with self._lock:
            self.wire_bytes += wire_bytes
            self.plain_bytes += plain_bytes


def check_link(compress: Any) -> str:
    """Return what compresses a link, "" for nothing; OptionError if it is unknown."""
    if compress is None or compress == "":
        return ""
    if compress != ZSTD:
        raise OptionError(f"compress {str(compress)[:40]!r} is unknown", f'choose "{ZSTD}", or leave it out')
    return ZSTD


def asking(key: str, compress: str) -> str:
    """The key of a query, with the parameter that asks for compressed replies."""
    return f"{key}?{PARAMETER}={compress}" if compress else key


def is_asked(parameters: Any) -> bool:
    """Whether the parameters of a query ask for compressed replies."""
    return bool(parameters.get(PARAMETER) == ZSTD)


def shrunk(message: bytes) -> bytes | None:
    """The message for the link; None if it is to travel as it is."""
    if len(message) < _SMALLEST:
        return None
    frame: bytes = _compressor().compress(message)
    return frame if len(frame) < len(message) - len(message) // 16 else None


def unfolded(message: bytes, size_max: int, what: str) -> bytes:
    """The message before it was compressed; FabricMessageError if it is damaged, or larger than `size_max`."""
    import zstandard  # loaded by programs that compress something

    try:
        size = zstandard.frame_content_size(message)
        if not 0 <= size <= size_max:
            raise FabricMessageError(
                f"{what} is compressed, and has {size} bytes without that", f"the limit is {size_max} bytes"
            )
        whole: bytes = _decompressor().decompress(message, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FabricMessageError(f"{what} does not expand: {error}", "it was changed on its way") from None
    return whole


def _compressor() -> "zstandard.ZstdCompressor":
    if not hasattr(_of_thread, "compressor"):
        import zstandard  # as above

        _of_thread.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    compressor: zstandard.ZstdCompressor = _of_thread.compressor
    return compressor


def _decompressor() -> "zstandard.ZstdDecompressor":
    if not hasattr(_of_thread, "decompressor"):
        import zstandard  # as above

        _of_thread.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _of_thread.decompressor
    return decompressor
