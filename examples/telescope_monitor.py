"""Monitor an array of telescopes: a channel for readings, which may be dropped, and one for alarms, which may not.

For crews of telescopes and detectors. A channel is a feed subtree with a quality of service; its suppliers and its
stations need not know each other. Here a display that is too slow sees the newest readings only and holds up nobody,
while the log of alarms gets each of them, the most urgent first.

    python telescope_monitor.py
"""

import json
import math
import time

from headrace import Channel, Queue

ANTENNAS = ("north", "east", "west")
TICKS = 200


def reading_of(antenna: str, tick: int) -> dict[str, float]:
    """What would come from the hardware."""
    drift = math.sin(tick / 30 + ANTENNAS.index(antenna))
    return {"tick": tick, "cryostat_k": 15 + 2 * drift, "wind_m_s": 8 + 6 * drift}


def observe(monitor: Channel, alarm: Channel) -> None:
    """Push every reading, and an alarm when a cryostat gets too warm."""
    with monitor.supplier() as readings, alarm.supplier() as alarms:
        for tick in range(TICKS):
            for antenna in ANTENNAS:
                reading = reading_of(antenna, tick)
                readings.push(json.dumps(reading).encode(), feed=f"array/monitor/{antenna}")
                if reading["cryostat_k"] > 16.9:
                    text = f"{antenna}: cryostat at {reading['cryostat_k']:.2f} K"
                    alarms.push(text.encode(), feed=f"array/alarm/{antenna}", priority=7 if antenna == "north" else 5)


def main() -> None:
    with Queue.create("array.queue", size="64MiB", exist_ok=True) as queue:
        monitor = queue.channel("monitor", "array/monitor/**", timeout="10s", max_per_consumer=30, discard="fifo")
        alarm = queue.channel("alarm", "array/alarm/**", reliability="persistent", order="priority")
        display = monitor.station("display", "**")
        log = alarm.station("log", "**")
        observe(monitor, alarm)

        with display.attach() as screen:  # it was away: only the newest readings are waiting
            shown = screen.get(100, timeout=1)
            screen.ack(shown)
        print(f"display: {len(shown)} of {TICKS * len(ANTENNAS)} readings")
        print(f"the last one: {shown[-1].feed}, tick {json.loads(bytes(shown[-1].payload))['tick']}")

        logged: list[str] = []
        with alarm.consumer(log, lambda product: logged.append(bytes(product.payload).decode())):  # called for each
            while log.lag().products:
                time.sleep(0.01)
        print(f"log: {len(logged)} alarms, the most urgent first: {logged[0]}")
        dropped = [sum(channel.statistics().dropped.values()) for channel in (monitor, alarm)]
        print(f"dropped so far: {dropped[0]} readings, {dropped[1]} alarms")


if __name__ == "__main__":
    main()
