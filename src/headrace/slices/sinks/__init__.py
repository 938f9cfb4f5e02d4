"""Where processing nodes store their results, each result once.

    SqliteSink     rows of a table, or whatever a function of yours does in the same transaction
    ParquetSink    files in a folder
    QueueSink      products of a feed, here or at another site

`Sink` says what a sink promises; a class of your own with the same methods is one too.
"""

from headrace.slices.sinks.interface import Result, Sink, SinkStatistics
from headrace.slices.sinks.parquet import ParquetSink, committed_files
from headrace.slices.sinks.queue import QueueSink
from headrace.slices.sinks.sqlite import SqliteSink

__all__ = ["ParquetSink", "QueueSink", "Result", "Sink", "SinkStatistics", "SqliteSink", "committed_files"]
