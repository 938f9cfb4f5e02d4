"""A member that claims to have received a file: `send` believes the sites that it was told to believe."""

from pathlib import Path

from headrace.errors import AccessDeniedError
from headrace.payload.fragments.receipt import Receipt, TransferState, encode_receipt, receipts_feed
from headrace.payload.fragments.sender import Sender, SenderStatistics, Sent
from headrace.payload.fragments.source import list_sources
from headrace.queue import AnyQueue
from support.realm import Allow, Realm

FEED = "lab/files"


def lie(queue: AnyQueue, transfer: str, origin: str | None = None) -> None:
    """Say that the file has arrived."""
    receipt = Receipt("0" * 16, "nowhere", "hub", (1 << 62), 1 << 40, transfers=[TransferState(transfer, "done")])
    queue.put(encode_receipt(receipt), feed=receipts_feed(FEED), origin=origin, origin_sequence=1 if origin else 0)


def transfers_in(queue: AnyQueue) -> list[str]:
    if queue.next == 1:
        return []
    fragments = [product.options.fragment for product in queue.read_batch("oldest", FEED)]
    return [fragment.transfer.hex() for fragment in fragments if fragment is not None]


def test_a_forged_receipt_of_a_member_does_not_end_a_transfer(realm: Realm, tmp_path: Path) -> None:
    hub = realm.site(
        "hub", Allow("evil", receive=["lab/**"], publish=["lab/**"]), Allow("denver", publish=["lab/files/receipts"])
    )
    file = tmp_path / "a.bin"
    file.write_bytes(b"content")
    evil, denver = realm.connect("evil", hub), realm.connect("denver", hub)
    sent: list[Sent] = []
    lies: list[int] = []

    def watch(now: SenderStatistics) -> None:
        """Lie as soon as there is a transfer; when that was ignored, denver speaks."""
        transfers = transfers_in(hub.queue)
        if transfers and not lies:
            for origin in ("denver", "hub"):
                try:
                    lie(evil, transfers[0], origin)
                except AccessDeniedError:
                    lies.append(0)
            lie(evil, transfers[0])
            lies.append(1)
        if now.ignored_receipts and sent == [] and len(lies) == 3:
            lies.append(2)
            lie(denver, transfers[0], "denver")

    sources, _ = list_sources([file])
    Sender(
        hub.queue, FEED, sources, receivers_at=["denver"], on_sent=sent.append, on_progress=watch, timeout_s=60
    ).run()
    assert lies == [0, 0, 1, 2]
    assert [each.state for each in sent] == ["done"]
