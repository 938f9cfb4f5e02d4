"""Archives: tables of products that the pipeline wrote, read back: restored to a queue, or replayed. No Spark needed.

from headrace.pipeline.archive import Archive, ArchiveFilter
"""

from headrace.pipeline.archive.archive import Archive, ArchiveFilter, Holding

__all__ = ["Archive", "ArchiveFilter", "Holding"]
