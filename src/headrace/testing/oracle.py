"""What was sent, against what was received.

A producer reports each draft that it put; consumers report each product that they got.
The verdict on a consumer is exact: every product that it should have and does not, every one that
it has twice, out of order, altered or from nowhere.

    producer ── sent(draft) ──► Oracle ◄── received(feed, ident, payload) ── consumer
                                  │
                                  └──► verdict(consumer)

The oracle keeps no payload, only feed, ident, size and a signature of 16 bytes. It computes the
signature itself, from the bytes it is handed, and so shares no code with what is under test.
A draft whose feed, ident and payload were all sent before is a copy and is expected to arrive once;
a draft without an ident is never a copy.

Producer and consumer may be different processes: `save` and `load` carry an oracle over as JSON
lines. Order is that of first sending, over all products or within each feed; several producers at
a time have only the latter, and only if no two of them share a feed.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec
from blake3 import blake3

from headrace.errors import OracleError
from headrace.testing.draft import Draft
from headrace.testing.verdict import SIGNATURE_BYTES, Expect, Order, Sighting, Verdict, judge

Payload = bytes | bytearray | memoryview

CONSUMER_DEFAULT = "watcher"
FILE_VERSION = 1


class _Header(msgspec.Struct, frozen=True, tag="oracle", forbid_unknown_fields=True):
    """The first line of a saved oracle. The counts reveal a file that was cut short."""

    version: int
    sent: int
    received: int


class _Sent(msgspec.Struct, frozen=True, tag="sent", forbid_unknown_fields=True):
    product: Sighting


class _Received(msgspec.Struct, frozen=True, tag="received", forbid_unknown_fields=True):
    consumer: str
    product: Sighting


_Line = _Header | _Sent | _Received


class Oracle:
    """Remembers sendings and receipts, and judges consumers."""

    def __init__(self) -> None:
        self._sent: list[Sighting] = []
        self._received: dict[str, list[Sighting]] = {}

    def sent(self, draft: Draft) -> None:
        """Note a draft as sent, in the order of the calls; copies too."""
        self._sent.append(_sighting(draft.feed, draft.ident, draft.payload))

    def received(self, feed: str, ident: str, payload: Payload, consumer: str = CONSUMER_DEFAULT) -> None:
        """Note a receipt, in the order of the calls. It may come before its sending is noted."""
        seen = _sighting(feed, ident, payload)
        self._received.setdefault(consumer, []).append(seen)

    def verdict(
        self,
        consumer: str = CONSUMER_DEFAULT,
        *,
        expect: Expect | None = None,
        order: Order = "total",
        skip_earlier: bool = False,
    ) -> Verdict:
        """Judge what the consumer has received so far.

        expect: from feed and ident, whether a product was meant for this consumer; all if None.
        order: "total" over all products, or "feed" within each feed.
        skip_earlier: products that came before all that were sent, and were never sent, are no fault.

        A consumer that never received anything has lost everything.
        """
        return judge(self._sent, self._received.get(consumer, ()), expect, order, skip_earlier=skip_earlier)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything noted so far to `path`, all of it or, on an error, nothing."""
        target = Path(path)
        partial = target.with_name(target.name + ".partial")
        encoder = msgspec.json.Encoder()
        with partial.open("wb") as file:
            for line in self._lines():
                file.write(encoder.encode(line) + b"\n")
        partial.replace(target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. Raises ValueError, with file and line, for anything else."""
        oracle = cls()
        header: _Header | None = None
        for line in _read_lines(Path(path)):
            if isinstance(line, _Header):
                header = line
            elif isinstance(line, _Sent):
                oracle._sent.append(line.product)
            else:
                oracle._received.setdefault(line.consumer, []).append(line.product)
        if header is None or header != oracle._header():
            raise OracleError(
                f"{path}: not a whole oracle of version {FILE_VERSION}: {header} announced, {oracle._header()} found",
                "save it again",
            )
        return oracle

    def _header(self) -> _Header:
        receipts = sum(len(seen) for seen in self._received.values())
        return _Header(FILE_VERSION, len(self._sent), receipts)

    def _lines(self) -> Iterator[_Line]:
        yield self._header()
        for product in self._sent:
            yield _Sent(product)
        for consumer, seen in self._received.items():
            for product in seen:
                yield _Received(consumer, product)


def _sighting(feed: str, ident: str, payload: Payload) -> Sighting:
    view = memoryview(payload).cast("B")
    return Sighting(feed, ident, view.nbytes, blake3(view).digest(length=SIGNATURE_BYTES))


def _read_lines(path: Path) -> Iterator[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                yield decoder.decode(text)
            except msgspec.MsgspecError as error:
                raise OracleError(f"{path}, line {number}: {error}", "save it again") from error
