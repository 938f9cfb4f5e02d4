"""A client that receives nothing any more holds up no other client."""

import asyncio
from collections.abc import Callable

from headrace.remote.server.gets import GET_THREADS, THREADS
from support.serving import Served, Wire, idents, put
from support.waiting import until

CONSUMERS = GET_THREADS + THREADS + 8  # more than there are threads to serve them


def test_a_program_with_many_consumers_on_a_frozen_link_delays_nobody(make_served: Callable[..., Served]) -> None:
    served = make_served(size="256MiB")
    wire = Wire(served.endpoint)
    large = served.connect(wire.endpoint, patience="1h").station("large", "large")
    small = served.connect().station("small", "small")

    def be_quick() -> None:
        """Get while the frozen client is sent more than its link holds."""
        wire.freeze()
        for number in range(CONSUMERS):
            served.queue.put(bytes(4_000_000), feed="large", ident=str(number))
        told = served.queue.station("large").statistics
        until(lambda: told().leased == CONSUMERS, "products are on their way to all of its consumers")
        with small.attach() as consumer:
            for number in range(20):
                put(served.queue, str(number), feed="small")
                batch = consumer.get(1, timeout=240)
                consumer.ack(batch)
                assert idents(batch) == [str(number)]
        assert not served.misses_a_client, "the site still tries to send to the frozen client"

    async def live() -> None:
        consumers = [large.attach(keep="1h") for _ in range(CONSUMERS)]
        tasks = [asyncio.create_task(consumer.get_async(1)) for consumer in consumers]
        assert served.site is not None
        while len(served.site._remote._gets) < CONSUMERS:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(be_quick)
        wire.thaw()
        got = await asyncio.gather(*tasks)
        assert sorted(int(ident) for batch in got for ident in idents(batch)) == list(range(CONSUMERS))

    asyncio.run(live())
    served.close_users()
    wire.close()
