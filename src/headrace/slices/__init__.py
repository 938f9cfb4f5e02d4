"""Slices: processing nodes that share a stream, and the balancer that moves slices between them.

    from headrace.slices import ProcessingNode

    def work(product): ...

    with ProcessingNode("wx.queue", "radar", work) as node:
        node.wait()

docs/slices.md explains streams, groups, nodes and sessions; docs/sinks.md, how results are stored exactly once.
"""

from headrace.slices.balancer import Balancer
from headrace.slices.node import NodeStatistics, ProcessingNode
from headrace.slices.sinks.parquet import ParquetSink
from headrace.slices.sinks.queue import QueueSink
from headrace.slices.sinks.sqlite import SqliteSink

__all__ = ["Balancer", "NodeStatistics", "ParquetSink", "ProcessingNode", "QueueSink", "SqliteSink"]
