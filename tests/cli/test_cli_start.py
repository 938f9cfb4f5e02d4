"""What commands load: a help page and a look at a queue answer at once, so they load no library that they do not use."""

import subprocess
import sys
from pathlib import Path

from headrace import Queue

HEAVY = ("pyspark", "zenoh", "cryptography", "matplotlib", "pandas", "pyarrow", "sqlglot", "lxml", "asyncio", "rich")

# Runs commands one after the other, and names the first one after which a heavy library is loaded.
RUN = """
import sys
import click
from click.testing import CliRunner
from headrace.cli.main import headrace

def below(group, names=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*names, name)
        if isinstance(command, click.Group):
            yield from below(command, (*names, name))

heavy = sys.argv[1].split(",")
commands = [line.split() for line in sys.argv[2:]] or [[*names, "--help"] for names in below(headrace)]
for words in commands:
    result = CliRunner().invoke(headrace, words)
    assert result.exit_code == 0, (words, result.output)
    loaded = [name for name in heavy if name in sys.modules]
    if loaded:
        sys.exit(f"headrace {' '.join(words)} loads {', '.join(loaded)}")
print(len(commands))
"""


def commands_run(*lines: str) -> int:
    """Run the commands, or without any the help of all; fail if one of them loads a heavy library."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, ",".join(HEAVY), *lines], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_the_help_of_no_command_loads_a_heavy_library() -> None:
    assert commands_run() > 50


def test_a_look_at_a_queue_loads_no_heavy_library(tmp_path: Path) -> None:
    path = tmp_path / "wx.queue"
    with Queue.create(path, size="16MiB") as queue:
        queue.station("s", 'wx/** ident ~ "^SA" priority 2..')
        queue.channel("c", "wx/text")
        queue.put_many([b"a", b"b"], feed="wx/text", ident=["SA 1", "SA 2"])
        cursor = queue.cursor("reader", start="oldest")
        cursor.commit(cursor.read_batch())
    assert commands_run(f"queue info {path}", f"lag {path}", f"station list {path}", f"lag {path} --json") == 4
