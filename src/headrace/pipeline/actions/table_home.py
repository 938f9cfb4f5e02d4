"""Home: the folder of what belongs to a table and is none of its rows: stages, and the record of its columns.

    <parent>/.headrace/<table>/columns.json                        table_schema.py
    <parent>/.headrace/<table>/staging-<rule>-<action>/…           table_staging.py
    <parent>/.headrace/<table>/compaction/…                        table_replaced.py, table_delta_compaction.py
    <parent>/<table>/…                                             Parquet files, and nothing else

It lies beside the table. Some readers (polars, `**` in DuckDB) read every file below the folder of a table, also if its
name begins with a dot or an underscore: a JSON file stops them, and a staged file has rows that the table has not yet.

Files are renamed from the home into the table, so both must be on one file system. If the table is a mount point, or
its parent is read-only, the home is `<table>/.headrace`, which Spark, Arrow and pandas ignore. A home that was chosen
earlier is still found: `homes` names both.
"""

import os
from pathlib import Path

from headrace.pipeline.actions.disk import RESERVED


def homes(table: Path) -> tuple[Path, Path]:
    """Both possible homes, the one for new files first."""
    real = table.resolve()
    beside, inside = real.parent / RESERVED / real.name, real / RESERVED
    return (beside, inside) if _can_be_beside(real) else (inside, beside)


def unfinished(table: Path) -> set[str]:
    """The marks of batches that have a stage; they are part of the names of their files."""
    places = [*(path for home in homes(table) for path in home.glob("staging-*")), *table.glob(".staging-*")]
    return {stage.name for place in places for stage in place.iterdir()}


def _can_be_beside(table: Path) -> bool:
    parent = table.parent
    if not parent.exists() or not table.exists():
        return True  # both are created by us
    has_access = os.access(parent / RESERVED if (parent / RESERVED).exists() else parent, os.W_OK)
    return has_access and table.stat().st_dev == parent.stat().st_dev
