"""The page on decoders has every column with its type, and its programs run."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import Queue
from headrace.pipeline.decoders import DECODERS, decoder
from headrace.testing import FeedGenerator

PAGE = (Path(__file__).parents[3] / "docs" / "decoders.md").read_text()
WORDS = {
    pa.int32(): "int",
    pa.int64(): "long",
    pa.string(): "string",
    pa.float64(): "double",
    pa.float32(): "float",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


def words(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"map of {words(kind.key_type)} to {words(kind.item_type)}"
    if pa.types.is_list(kind):
        return f"array of {words(kind.value_type)}"
    return "struct" if pa.types.is_struct(kind) else WORDS[kind]


@pytest.mark.parametrize("name", DECODERS)
def test_every_column_is_in_its_table_in_its_order_and_with_its_type(name: str) -> None:
    part = next(part for part in PAGE.split("\n### ") if name in part.splitlines()[0].split(", "))
    listed = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", part.split("\n## ")[0], re.M)
    ours = [(field.name, words(field.type)) for field in decoder(name).schema]
    assert ours == (listed[:-1] if name == "grib" else listed)


def test_the_decoders_of_the_page_run(tmp_path: Path) -> None:
    strokes, sizes, trying = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "strokes.py").write_text(strokes)
    (tmp_path / "sizes.py").write_text(sizes)
    drafts = list(FeedGenerator(seed=3, feeds=["lightning"], products=20, duplicates=0))
    with Queue.create(tmp_path / "wx.queue", size="2MiB", origin="here") as queue:
        for draft in drafts:
            queue.put(draft.payload, feed=draft.feed, ident=draft.ident)
    lines = sum(draft.payload.count(b"\n") - 1 for draft in drafts)
    trying += 'made = decoder("sizes:sizes").decode(products)\nprint(made.rows["size"].to_pylist())\n'
    done = subprocess.run([sys.executable, "-c", trying], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{lines} []", str([len(draft.payload) for draft in drafts])]
