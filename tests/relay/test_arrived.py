"""What the queue itself says has arrived, even if a product in it is damaged."""

from headrace import Queue
from headrace.relay.receive.arrived import arrived_since, still_missing


def flip_first_bit(queue: Queue, payload: bytes) -> None:
    for file in (queue.path / "segments").iterdir():
        place = file.read_bytes().find(payload)
        if place >= 0:
            with file.open("r+b") as opened:
                opened.seek(place)
                opened.write(bytes([payload[0] ^ 1]))


def test_a_damaged_product_does_not_hide_what_arrived_behind_it(queue: Queue) -> None:
    """Otherwise a site could not start after a crash."""
    for number, payload in enumerate((b"first words", b"second words", b"third words"), 1):
        queue.put(payload, feed=f"wx/{number % 2}", origin="a", origin_sequence=number)
    flip_first_bit(queue, b"second words")
    assert arrived_since(queue, 1) == {"a": {"wx/1": 3}}
    flip_first_bit(queue, b"recond words")  # undo it
    assert arrived_since(queue, 1) == {"a": {"wx/1": 3, "wx/0": 2}}


def test_products_of_an_earlier_queue_of_the_origin_do_not_count(queue: Queue) -> None:
    """A new queue has the same sequences: its products would be lost without being named."""
    for number in range(1, 6):
        queue.put(b"old %d" % number, feed="x", origin="a", origin_sequence=number)
    since = queue.next
    assert still_missing(queue, "a", 2, 4) == (5, 4)
    assert still_missing(queue, "a", 2, 4, since) == (2, 4)
    queue.put(b"new 2", feed="x", origin="a", origin_sequence=2)
    assert still_missing(queue, "a", 2, 4, since) == (3, 4)
