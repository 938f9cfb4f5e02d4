"""Archives: tables of products that the pipeline wrote, read back and put into a queue again. No Spark needed.

from headrace.pipeline.archive import Archive, ArchiveFilter, Pace
"""

from headrace.pipeline.archive.archive import Archive, ArchiveFilter, Holding
from headrace.pipeline.archive.pace import Pace

__all__ = ["Archive", "ArchiveFilter", "Holding", "Pace"]
