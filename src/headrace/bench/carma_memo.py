"""Tables 1 to 4 of CARMA memorandum 22 (2004), to stand beside ours.

ORBacus Notify, in C++. All suppliers ran on a laptop (2.0 GHz Mobile Pentium 4), the notification server on a desktop
(2.8 GHz Pentium 4) and the consumers on a 1.6 GHz dual Athlon, over 100 Mbit Ethernet. The memo adds 0.25 s to each
latency with staggered suppliers, which is the time from the first to the last of them; it is left out here.
"""

import msgspec

MACHINES = "2004: 2.8 GHz Pentium 4 (server), 1.6 GHz dual Athlon (consumers), 2.0 GHz Pentium 4 (suppliers)"


class MemoRow(msgspec.Struct, frozen=True):
    """A row of the memo, and which experiment and channel here it is compared with."""

    what: str
    case: str
    channel: str
    consumer_pct: float
    server_pct: float
    latency_s: float | None = None  # tables 1 to 3


class MemoTable(msgspec.Struct, frozen=True):
    number: int
    title: str
    rows: tuple[MemoRow, ...]


TABLES = (
    MemoTable(1, "suppliers staggered or not", (
        MemoRow("staggered by 5 ms", "staggered", "monitor", 23, 28, 0.1),
        MemoRow("not staggered", "together", "monitor", 24, 26, 0.2),
    )),
    MemoTable(2, "consumers of one channel", (
        MemoRow("1 consumer", "staggered", "monitor", 23, 28, 0.1),
        MemoRow("2 consumers", "consumers-2", "monitor", 25, 41, 0.1),
        MemoRow("3 consumers", "consumers-3", "monitor", 25, 57, 0.13),
    )),
    MemoTable(3, "size of products", (
        MemoRow("34 kB", "staggered", "monitor", 23, 28, 0.1),
        MemoRow("23 kB", "size-23", "monitor", 16, 12, 0.03),
    )),
    MemoTable(4, "pipeline, alone and beside the monitor system", (
        MemoRow("pipeline alone", "pipeline", "pipeline", 2, 1),
        MemoRow("both: pipeline", "both", "pipeline", 2, 25),
        MemoRow("both: monitor", "both", "monitor", 22, 25),
    )),
)  # fmt: skip

NOT_COMPARABLE = [
    "machines: the memo had three of 2004, joined by a network; here all processes share the cores of one",
    "the work: the memo's service is C++ without storage (BestEffort); this site stores each product in a queue before "
    "it delivers it, and suppliers and consumers are Python programs",
    "CPU: percent of one core while products flow, processes of a role together, but for consumers: each",
    "latency: here from before the push to after the get of each product; the memo does not say which statistic it has",
]
