"""Rules that share a query, on Spark: each handles the products that it selects once, whatever happens to the others."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from pipeline.jobs import TABLE, numbers, put, run, running, until, write_rules

FILE = """
[[rule]]
name = "f{number}"
select = "wx/text"
ident = "^i{number}"
[rule.file]
folder = "{folder}"
path = "{number}.txt"
"""
RULES = 24
EXEC = """
[[rule]]
name = "log"
select = "**"
ident = "^i[0-9]$"
exec = ["sh", "-c", "cat >> log.txt"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "wx.queue", size="4MiB").close()
    return tmp_path


def many_rules(extra: str = "", broken: int | None = None) -> str:
    folders = ("broken" if number == broken else "texts" for number in range(RULES))
    return "".join(FILE.format(number=number, folder=each) for number, each in enumerate(folders)) + extra


def selected(number: int, count: int) -> list[int]:
    return [each for each in range(count) if re.match(f"^i{number}", f"i{each}")]


def filed(folder: Path, number: int, below: str = "texts") -> list[int]:
    """The products in the file of a rule, in their order."""
    path = folder / below / f"{number}.txt"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def test_many_rules_run_in_few_queries_and_each_gets_what_it_selects(folder: Path, spark: Any) -> None:
    put(folder, 0, 60)
    text = many_rules(EXEC + TABLE.format(name="a") + TABLE.format(name="b"))
    statuses = run(write_rules(folder, text), spark)
    assert {status.state for status in statuses.values()} == {"done"}, statuses
    queries = sorted(path.name for path in (folder / "rules.checkpoint").iterdir() if (path / "offsets").is_dir())
    assert queries == ["shared.1", "shared.2"]
    for number in range(RULES):
        assert filed(folder, number) == selected(number, 60)
        assert statuses[f"f{number}"].rows == len(selected(number, 60))
    assert sorted(int(line.split()[0]) for line in (folder / "log.txt").read_text().splitlines()) == list(range(10))
    assert numbers(folder, "a") == numbers(folder, "b") == list(range(60))

    for query in queries:  # as if the process had been killed before Spark recorded the end of the batch
        (folder / "rules.checkpoint" / query / "commits" / "0").unlink()
    put(folder, 60, 10)
    run(write_rules(folder, text), spark)
    for number in range(RULES):
        assert filed(folder, number) == selected(number, 70)
    assert numbers(folder, "a") == numbers(folder, "b") == list(range(70))


def test_a_rule_that_cannot_write_holds_up_its_query_and_no_row_is_skipped_or_repeated(
    folder: Path, spark: Any
) -> None:
    with running(write_rules(folder, many_rules(EXEC, broken=3), trigger="200ms"), spark) as job:
        (folder / "broken").write_text("a file where a folder must be")
        put(folder, 0, 40)
        until(lambda: job.statuses[0].retries >= 1, lambda: job.statuses[0])
        assert "rule 'f3': " in job.statuses[0].failure
        assert [filed(folder, number) for number in (0, 1, 23)] == [selected(number, 40) for number in (0, 1, 23)]
        (folder / "broken").unlink()
        until(lambda: job.statuses[0].state == "running", lambda: job.statuses[0])
        put(folder, 40, 10)
        until(lambda: filed(folder, 4) == selected(4, 50), lambda: job.statuses[4])
    for number in range(RULES):
        assert filed(folder, number, "broken" if number == 3 else "texts") == selected(number, 50)
    assert len((folder / "log.txt").read_text().splitlines()) == 10, "the program was not run again for a retry"


DECODER = """
import sys
for line in sys.stdin.buffer:
    with open(sys.argv[1], "ab") as out:
        out.write(line)
"""
ALL = """
[[rule]]
name = "all{number}"
select = "wx/text"
ident = "[{digits}]$"
[[rule.file]]
path = "all.txt"
[[rule.file]]
path = "last.txt"
mode = "overwrite"
[[rule.pipe]]
command = ["{python}", "decoder.py", "decoded.txt"]
"""
REST = """
[[rule]]
name = "{name}"
select = "wx/**"
otherwise = true
{more}
"""


def test_rules_that_write_to_the_same_files_and_programs_do_so_in_the_order_of_the_products(
    folder: Path, spark: Any
) -> None:
    (folder / "decoder.py").write_text(DECODER)
    put(folder, 0, 60)
    text = many_rules(
        "".join(ALL.format(number=n, digits=d, python=sys.executable) for n, d in enumerate(("13579", "0-9")))
    )
    statuses = run(write_rules(folder, text), spark)
    assert {status.state for status in statuses.values()} == {"done"}, statuses
    wanted = [number for number in range(60) for _ in range(1 + number % 2)]
    for path in ("files/all.txt", "decoded.txt"):
        assert [int(line.split()[0]) for line in (folder / path).read_text().splitlines()] == wanted, path
    assert int((folder / "files" / "last.txt").read_text().split()[0]) == 59


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_rule_with_otherwise_gets_what_no_rule_above_selects(folder: Path, spark: Any, is_shared: bool) -> None:
    put(folder, 0, 60)
    count = RULES if is_shared else 3
    above = "".join(
        f'[[rule]]\nname = "r{number}"\nselect = "wx/text"\nident = "^i{number}$"\nfile = "{number}"\n'
        for number in range(count)
    )
    text = above + REST.format(name="rest", more='file = "rest"')
    text += REST.format(name="none", more='sql = "select * from products where ident like \'%5\'"\ntable = "none"')
    statuses = run(write_rules(folder, text), spark)
    assert {status.state for status in statuses.values()} == {"done"}, statuses
    found = (folder / "files" / "rest").read_text()
    assert [int(line.split()[0]) for line in found.splitlines()] == list(range(count, 60))
    assert numbers(folder, "none") == [], "the rule above it takes everything that is left"
