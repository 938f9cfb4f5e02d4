"""Which tests run in one process, one after the other, and which groups begin first.

A group is a file, so that its fixtures are made once; all files with the fixture `spark` are one group, so that the suite
has one SparkSession. That group is the longest and begins first, so that no process is left alone with it in the end.

pytest-xdist reads groups from marks, through an attribute that pytest 9.2 no longer has; here they come from the name of the
file. `tests/test_suite.py` notices when groups are no longer kept.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SPARK = "spark"
_FIXTURE = re.compile(r"^(?:async )?def test_\w+\([^)]*\bspark: ", re.M)
# While Spark computes, tests that wait for other processes run beside it; then what computes for long; small files last.
_ORDER = (
    ("/relay/", "/remote/", "/security/", "/site/", "/link/"),
    ("_with_spark", "_kills", "/demo/", "/bench/", "/docs/", "/slices/"),
)


def group_of(nodeid: str) -> str:
    """The group of a test, by the name that pytest gives it."""
    file = nodeid.partition("::")[0]
    return SPARK if _has_spark(ROOT / file) else file


def rank(nodeid: str) -> int:
    """Tests with a lower number begin earlier; the same for all tests of a group."""
    group = group_of(nodeid)
    if group == SPARK:
        return 0
    return next(
        (place for place, words in enumerate(_ORDER, 1) if any(word in group for word in words)), 1 + len(_ORDER)
    )


@cache
def _has_spark(path: Path) -> bool:
    return path.is_file() and _FIXTURE.search(path.read_text()) is not None


def make_scheduler(config: Any, log: Any) -> Any:
    """A scheduler of pytest-xdist that keeps the groups."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)
