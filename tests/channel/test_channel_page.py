"""docs/channels.md agrees with the code: options, defaults, names of CORBA, and a program that runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.channel.qos import DEFAULTS, FIELDS, POLICIES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "channels.md").read_text()
TABLE = {row[0]: row for row in re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", PAGE, re.M)}


@pytest.mark.parametrize("option", FIELDS)
def test_every_option_is_explained_with_its_default(option: str) -> None:
    _, default, meaning, _ = TABLE[option]
    value = getattr(DEFAULTS, FIELDS[option])
    assert default.startswith("open") if value in (None, "any") else default == f"`{value}`"
    for policy in POLICIES.get(option, ()):
        assert f"`{policy}`" in meaning + default


@pytest.mark.parametrize(
    "name",
    [
        "ooc.database.max_transactions", "ooc.database.max_locks", "ooc.database.max_retries",
        "ooc.notification.eventqueue", "ooc.notification.dispatch_strategy", "ConnectionReliability",
        "EventReliability", "OrderPolicy", "MaxEventsPerConsumer", "DiscardPolicy", "Timeout", "StartTime", "StopTime",
        "MaximumBatchSize", "PacingInterval", "MaxQueueLength", "RejectNewEvents", "MaxConsumers", "MaxSuppliers",
        "Priority",
    ],
)  # fmt: skip
def test_every_name_of_corba_is_in_the_table(name: str) -> None:
    assert f"`{name}`" in PAGE.partition("## If you come from CORBA")[2]


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_pull_supplier_of_the_page_stores_every_status(tmp_path: Path) -> None:
    """They are equal and have no ident, and each is a product."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    waits = "import time\n        while len(queue.read_batch(selection='wx/radar/status')) < 3: time.sleep(0.01)\n"
    ends = "counts = radar.statistics()\nprint(counts.pushed, counts.duplicates, len(queue.read_batch()))\n"
    assert program.endswith("        ...\n")
    done = subprocess.run(
        [sys.executable, "-c", program.removesuffix("...\n") + waits + ends],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pushed, duplicates, held = map(int, done.stdout.split()[-3:])
    assert (duplicates, pushed) == (0, held)
    assert held >= 4
