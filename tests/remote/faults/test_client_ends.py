"""The client is killed, closes, or drops a consumer."""

import signal
import subprocess
import sys
import time

import pytest

from headrace import Queue
from support.serving import Served, idents, put
from support.waiting import until

CLIENT = """
import sys, time, headrace
queue = headrace.connect(sys.argv[1])
consumer = queue.station("s").attach(keep=sys.argv[2])
print(len(consumer.get(2)), flush=True)
time.sleep(60)
"""


def test_products_that_a_killed_client_held_are_delivered_again(served: Served) -> None:
    station = served.queue.station("s", "**", start="oldest")
    put(served.queue, *"123")
    client = subprocess.Popen([sys.executable, "-c", CLIENT, served.endpoint, "0.5s"], stdout=subprocess.PIPE)
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == b"2\n"
        assert station.statistics().leased == 2
    finally:
        killed = time.monotonic()
        client.kill()
        client.communicate()
    until(lambda: station.statistics().restored == 2, "its leases are restored")
    assert time.monotonic() - killed >= 0.5  # not at once: the client might have come back
    with station.attach() as consumer:
        batch = consumer.get(3)
        assert (sorted(idents(batch)), sorted(batch.deliveries.tolist())) == (["1", "2", "3"], [1, 2, 2])


def test_a_client_that_closes_gives_back_at_once(served: Served) -> None:
    put(served.queue, *"12")
    remote = served.connect()
    consumer = remote.station("s", "**", start="oldest").attach(keep="1h")
    consumer.get(2)
    remote.close()
    told = served.queue.station("s").statistics()
    assert (told.leased, told.restored, told.consumers) == (0, 0, 0)
    del consumer


def test_a_consumer_that_is_dropped_counts_as_dead(served: Served) -> None:
    put(served.queue, *"12")
    remote = served.connect()
    consumer = remote.station("s", "**", start="oldest").attach()
    consumer.get(2)
    del consumer
    until(lambda: served.queue.station("s").statistics().restored == 2, "its leases are restored")


ENDINGS = """
import signal, sys, headrace
signal.signal(signal.SIGINT, signal.default_int_handler)
queue = headrace.connect(sys.argv[1])
consumer = queue.station("s").attach(keep="1h")
print(len(consumer.get(1)), flush=True)
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [("", 0), ("sys.exit(5)", 5), ("raise ValueError", 1), ("signal.raise_signal(signal.SIGINT)", -signal.SIGINT)],
)
def test_a_program_that_does_not_close_ends_with_its_own_code_and_its_leases_are_freed(
    served: Served, ending: str, code: int
) -> None:
    station = served.queue.station("s", "**", start="oldest")
    put(served.queue, "1")
    ended = subprocess.run(
        [sys.executable, "-c", ENDINGS.format(ending=ending), served.endpoint], capture_output=True, timeout=240
    )
    assert (ended.returncode, ended.stdout) == (code, b"1\n"), ended.stderr.decode()
    told = station.statistics()
    assert (told.leased, told.consumers, told.restored) == (0, 0, 1)


def test_a_queue_that_closes_gives_back_what_its_consumers_hold(served: Served) -> None:
    served.queue.station("s", "**")
    put(served.queue, "1")
    for connect in (served.connect, lambda: Queue.open(served.queue.path)):
        with connect() as queue:
            consumer = queue.station("s").attach()
            assert consumer.get(1).deliveries.tolist() == [1]
        with pytest.raises(ValueError, match="decode"), connect() as queue:
            consumer = queue.station("s").attach()
            assert consumer.get(1).deliveries.tolist() == [1]
            raise ValueError("decode")
        with connect() as queue, queue.station("s").attach() as consumer:
            batch = consumer.get(1)
            assert batch.deliveries.tolist() == [2]
            consumer.ack(batch)
        put(served.queue, "2")
