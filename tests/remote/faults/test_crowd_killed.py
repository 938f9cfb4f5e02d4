"""Programs with many consumers each are killed, while others go on: every product is acknowledged exactly once."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from support.serving import Served, put
from support.waiting import until

pytestmark = pytest.mark.processes
SEED = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 31)))
PROGRAMS, CONSUMERS, PRODUCTS, KILLS = 3, 40, 600, 4
PROGRAM = """
import asyncio, sys, headrace
queue = headrace.connect(sys.argv[1])
station = queue.station("s")

async def work(number):
    consumer = station.attach(keep="0.2s")
    while True:
        batch = await consumer.get_async(1 + number % 3)
        await asyncio.sleep(0.002 * (number % 5))
        consumer.ack(batch)
        print(*(product.ident for product in batch), flush=True)

async def main():
    tasks = [asyncio.create_task(work(number)) for number in range(int(sys.argv[2]))]
    print("ready", flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""


class Program:
    """A client process; what it has acknowledged is known as far as it could say so before it was killed."""

    def __init__(self, endpoint: str) -> None:
        command = [sys.executable, "-c", PROGRAM, endpoint, str(CONSUMERS)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.acknowledged: list[str] = []
        self.is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line == "ready\n":
                    self.is_ready.set()
                elif line.endswith("\n"):
                    self.acknowledged += line.split()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


@pytest.fixture
def programs(served: Served) -> Iterator[list[Program]]:
    started: list[Program] = []
    served.queue.station("s", "**", deliveries_max=0)
    started += [Program(f"{served.endpoint}?site={served.name}") for _ in range(PROGRAMS)]
    yield started
    for program in started:
        program.kill()


def test_products_of_killed_programs_reach_the_others_and_none_is_acknowledged_twice(
    served: Served, programs: list[Program]
) -> None:
    print(f"seed {SEED}")
    random_ = random.Random(SEED)
    station, killed = served.queue.station("s"), []
    for program in programs:
        assert program.is_ready.wait(240)
    for number in range(PRODUCTS):
        put(served.queue, str(number))
        if number % (PRODUCTS // (KILLS + 1)) == PRODUCTS // (KILLS + 1) - 1 and len(killed) < KILLS:
            time.sleep(random_.random() * 0.1)
            victim = programs.pop(random_.randrange(len(programs)))
            victim.kill()
            killed.append(victim)
            programs.append(Program(f"{served.endpoint}?site={served.name}"))
        elif random_.random() < 0.3:
            time.sleep(0.002)
    until(lambda: station.statistics().acknowledged >= PRODUCTS, "all are acknowledged", 240)
    told = station.statistics()
    print(f"{told.restored} were restored from {len(killed)} killed programs")
    assert (told.acknowledged, told.waiting, told.leased, told.parked) == (PRODUCTS, 0, 0, 0)
    for program in programs:
        program.kill()
    said = [ident for program in (*programs, *killed) for ident in program.acknowledged]
    assert len(said) == len(set(said)), "none is acknowledged twice"
    assert set(said) <= {str(number) for number in range(PRODUCTS)}
