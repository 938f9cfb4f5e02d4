"""Link: a whole message, compressed for the way to another site or client.

The bytes of a page or of a batch are compressed as one: products of a feed resemble each other, so a page shrinks
further than its products would one by one, and without a dictionary. Both ends agree on it first; a message says by
`size`, the number of bytes before, that it is compressed, and 0 that it is not. A message that would not shrink travels
as it is. A receiver allocates no more than `size` says, and refuses more than its limit before it allocates anything.
"""

import threading
from typing import TYPE_CHECKING

from headrace.errors import FabricMessageError, OptionError

if TYPE_CHECKING:
    import zstandard

ZSTD = "zstd"
_LEVEL = 1  # a link of a gigabit gains nothing from a higher one
_SMALLEST = 256
_local = threading.local()  # a compressor serves one thread at a time


def check_link(compress: object) -> str:
    """Return what compresses a link, "" for nothing; OptionError if it is unknown."""
    if compress is None or compress == "":
        return ""
    if compress != ZSTD:
        raise OptionError(f"compress {str(compress)[:40]!r} is unknown", f'choose "{ZSTD}", or leave it out')
    return ZSTD


def shrink(message: bytes) -> tuple[bytes, int]:
    """The message for the link, and its size before; 0 if it travels as it is."""
    if len(message) < _SMALLEST:
        return message, 0
    frame: bytes = _compressor().compress(message)
    return (frame, len(message)) if len(frame) < len(message) - len(message) // 16 else (message, 0)


def unfold(message: bytes, size: int, size_max: int, what: str) -> bytes:
    """The message before it was compressed; `size` and `what` are from its head and say what it is.

    FabricMessageError if it is damaged, or larger than `size_max`.
    """
    if size == 0:
        return message
    if size > size_max:
        raise FabricMessageError(f"{what} of {size} bytes is compressed", f"the limit is {size_max} bytes")
    import zstandard  # loaded by programs that compress something

    try:
        if zstandard.frame_content_size(message) != size:
            raise zstandard.ZstdError("the size is another one")
        whole: bytes = _decompressor().decompress(message, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FabricMessageError(f"{what} does not expand: {error}", "it was changed on its way") from None
    return whole


def _compressor() -> "zstandard.ZstdCompressor":
    if not hasattr(_local, "compressor"):
        import zstandard  # as above

        _local.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _decompressor() -> "zstandard.ZstdDecompressor":
    if not hasattr(_local, "decompressor"):
        import zstandard  # as above

        _local.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _local.decompressor
    return decompressor
