"""The client is killed, closes, or drops a consumer."""

import subprocess
import sys
import time

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
