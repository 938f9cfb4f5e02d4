"""Hypothesis strategies for products: all texts, feeds, values and origins that a queue accepts.

`puts` generates the arguments of `Queue.put`, with payloads that the test chooses. `foreign` generates the additional
arguments of a product from another site.
"""

import re
from typing import Any

from hypothesis import strategies as st

from headrace.product.options import Options, OriginSignature, Replay

FAR = 1 << 62
LAST = (1 << 63) - 1

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
levels = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="/*?#$+>|\"'\\"), min_size=1
).filter(lambda level: not level.startswith("@"))
feeds = (
    st.lists(levels, min_size=1, max_size=3)
    .map("/".join)
    .filter(lambda feed: len(feed.encode()) < 256 and re.fullmatch(r"\S+", feed))
)
foreign = st.fixed_dictionaries(
    {
        "origin": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True),
        "origin_sequence": st.integers(1, LAST),
    },
    optional={"previous": st.integers(1, LAST)},
)


_numbers = st.integers(0, (1 << 64) - 1)
options = st.builds(  # without those that change what the payload means
    Options,
    replay=st.none() | st.builds(Replay, run=_numbers, sequence=_numbers),
    hops=st.none() | st.integers(0, 255),
    signed=st.none() | st.builds(OriginSignature, key=_numbers, signature=st.binary(min_size=64, max_size=64)),
    unknown=st.dictionaries(st.integers(5, 127), st.binary(max_size=255), max_size=3).map(
        lambda d: tuple(sorted(d.items()))
    ),
)


def puts(payloads: st.SearchStrategy[bytes], *, allow_nan: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of `Queue.put` with one of `payloads`; properties may be NaN only if `allow_nan`."""
    values = st.booleans() | st.integers(-(1 << 63), LAST) | st.floats(allow_nan=allow_nan) | texts
    names = texts.filter(lambda name: 1 <= len(name.encode()) <= 255)
    return st.fixed_dictionaries(
        {"payload": payloads, "feed": feeds, "ident": texts},
        optional={
            "created": st.integers(1, LAST),
            "priority": st.integers(0, 7),
            "expiry": st.integers(FAR, LAST),
            "properties": st.dictionaries(names, values, min_size=1, max_size=5),
            "slice": st.integers(0, 65534),
            "signature": st.binary(min_size=16, max_size=16),
            "options": options,
        },
    )
