"""One signature for many products: a tree of digests, of which the origin signs the root.

Each product carries its place among the leaves and the digests beside its way to the root, 32 bytes for each level. So
any part of a batch can be verified alone, and thousands of products cost a few operations of Ed25519. The number of
leaves is filled up to a power of two with zeros. A leaf and an inner node never have the same input, as in RFC 6962.
"""

from blake3 import blake3

DIGEST_BYTES = 32
LEVELS_MAX = 7  # what fits into one option
LEAVES_MAX = 1 << LEVELS_MAX
_EMPTY = bytes(DIGEST_BYTES)


def _node(left: bytes, right: bytes) -> bytes:
    return blake3(b"\1" + left + right).digest()


def grow(leaves: list[bytes]) -> tuple[bytes, list[bytes]]:
    """The root, and the path of each leaf; at most LEAVES_MAX leaves."""
    paths = [b""] * len(leaves)
    level, width = leaves, 1
    while len(level) > 1:
        level = [*level, _EMPTY] if len(level) % 2 else level
        for place in range(len(leaves)):
            paths[place] += level[place // width ^ 1]
        level = [_node(level[place], level[place + 1]) for place in range(0, len(level), 2)]
        width *= 2
    return level[0], paths


def root_of(leaf: bytes, place: int, path: bytes) -> bytes:
    """The root to which a path leads from a leaf."""
    for begin in range(0, len(path), DIGEST_BYTES):
        beside = path[begin : begin + DIGEST_BYTES]
        leaf = _node(beside, leaf) if place & 1 else _node(leaf, beside)
        place >>= 1
    return leaf
