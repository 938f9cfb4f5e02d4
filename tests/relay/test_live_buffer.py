"""LiveBuffer: bounded in every way that a sender can make it grow, and drops the rest."""

import pytest

from headrace.relay.receive.actions import LiveMessage
from headrace.relay.receive.live_buffer import LiveBudget, LiveBuffer


@pytest.mark.parametrize("parts", [(b"", bytes(10)), (bytes(10), b""), (bytes(5), bytes(5))])
def test_attachments_and_payloads_count_towards_the_limit(parts: tuple[bytes, bytes]) -> None:
    buffer = LiveBuffer(bytes_max=25)
    buffer.open()
    for _ in range(9):
        buffer.push(LiveMessage("wx", *parts, 0))
    assert buffer.dropped == {"catching up": 0, "full": 7}
    assert len(buffer.take()) == 2
    for _ in range(3):
        buffer.push(LiveMessage("wx", *parts, 0))
    assert len(buffer.take()) == 2


def test_the_buffers_of_a_receiver_have_a_limit_together() -> None:
    budget = LiveBudget(25)
    first, second = LiveBuffer(budget=budget), LiveBuffer(budget=budget)
    for buffer in (first, second):
        buffer.open()
    for _ in range(2):
        first.push(LiveMessage("wx", b"", bytes(10), 0))
    second.push(LiveMessage("wx", b"", bytes(10), 0))
    assert second.dropped["full"] == 1
    assert len(first.take()) == 2
    for _ in range(2):
        second.push(LiveMessage("wx", b"", bytes(10), 0))
    second.shut()
    first.push(LiveMessage("wx", b"", bytes(25), 0))
    assert len(first.take()) == 1
