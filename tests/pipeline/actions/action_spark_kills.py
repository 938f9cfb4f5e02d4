"""A pipeline of all actions that promise to act once, on Spark, to be killed by its parent.

    python action_spark_kills.py FOLDER

Batches come from the checkpoint on, as Spark's own would; a batch is noted when all actions are done with it. Each begins with a
line on standard output.
"""

import os
import sys
from pathlib import Path

from headrace.pipeline import spark_session
from headrace.pipeline.actions import Context, DeadLetters, performer
from headrace.pipeline.rules import FileAction, PublishAction, TableAction
from headrace.pipeline.source.open_queues import QueueAddress

BATCHES = 6
ROWS = 400


def main(folder: Path) -> None:
    letters = DeadLetters(folder / "dead")
    actions = {
        "file-0": FileAction(path="{station:path}.txt", folder=folder / "files", content="text"),
        "table-0": TableAction(path=str(folder / "parquet"), partition_by=("station",)),
        "table-1": TableAction(path=str(folder / "delta"), format="delta"),
        "publish-0": PublishAction(feed="wx/derived", ident="{sequence}", content="text"),
    }
    performers = {name: performer(action, name, None, letters) for name, action in actions.items()}
    spark = spark_session("kills", "local[2]")
    note = folder / "checkpoint"
    for number in range(int(note.read_text()) if note.exists() else 0, BATCHES):
        print(number, flush=True)
        begin = number * ROWS
        frame = spark.sql(
            "select id as sequence, if(id % 50 = 7, '../out', concat('s', id % 3)) as station, concat('row ', id) as text"
            f" from range({begin}, {begin + ROWS}, 1, 2)"
        )
        context = Context("r", number, QueueAddress(str(folder / "queue"), None), folder / "state", "kills")
        for each in performers.values():
            each.perform(frame, context)
        part = note.with_suffix(".new")
        part.write_text(str(number + 1))
        os.replace(part, note)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
