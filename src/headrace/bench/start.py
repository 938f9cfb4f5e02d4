"""Start: how long short commands take, and how much memory the first import needs.

Each command runs in a process of its own, and so does `import numpy`, the yardstick. They run by turns, and each run is
compared with the `import numpy` of its turn, so that other work on the machine slows both alike; the median of the
turns counts. Time is processor time, after a first turn that compiles the modules, as an installation does.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from headrace.bench.report import Announce, Figure
from headrace.errors import HeadraceError
from headrace.queue import Queue

RATIO_MAX = 2.0
IMPORT_MB_MAX = 60.0
NOT_MEASURED = ["the first start after an installation, which compiles modules and reads them from disk"]

_RUNS = 15
_NUMPY = "import numpy"
_IMPORTS = ("import headrace", "from headrace import Queue")
_MEMORY = "; print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"  # in kB
_COMMAND = "from headrace.cli.main import main; main()"
_LINES = (
    "--help", "queue --help", "queue info {queue}", "lag {queue}", "watch --help", "serve --help", "demo --help",
    "pipeline run --help",
)  # fmt: skip


def run(folder: Path, scale: float, progress: Announce) -> Iterator[Figure]:
    """Measure everything, with files in `folder`."""
    queue = folder / "start.queue"
    with Queue.create(queue, size="16MiB") as filled:
        filled.station("decode", 'wx/** ident ~ "^SA"')
        filled.put_many([b"x"] * 100, feed="wx/text", ident=[f"SAUS {number}" for number in range(100)])
    programs = {_NUMPY: [_NUMPY]}
    programs |= {line: [_COMMAND, *line.format(queue=queue).split()] for line in _LINES}
    progress(f"processor time of {len(programs)} programs")
    turns = _turns(programs, folder, max(1, round(_RUNS * scale)))
    yield Figure("numpy", _NUMPY, median(turn[_NUMPY] for turn in turns) * 1000, "ms")
    for line in _LINES:
        name = line.format(queue="QUEUE")
        ratio = median(turn[line] / turn[_NUMPY] for turn in turns)
        beside = f"{median(turn[line] for turn in turns) * 1000:.0f} ms"
        yield Figure(name, f"headrace {name}", ratio, "times import numpy", RATIO_MAX, True, beside)
    progress("memory of the first import")
    beside = f"{_memory_mb(_NUMPY):.0f} MB for import numpy"
    for code in _IMPORTS:
        yield Figure(code, f"memory after {code}", _memory_mb(code), "MB", IMPORT_MB_MAX, True, beside)


def _turns(programs: Mapping[str, list[str]], folder: Path, count: int) -> list[dict[str, float]]:
    """Processor seconds of each program in each turn, without the first, which compiles the modules."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    turns = [{name: _cpu_s(words, environment) for name, words in programs.items()} for _ in range(count + 1)]
    return turns[1:]


def _cpu_s(words: list[str], environment: Mapping[str, str]) -> float:
    child = subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise HeadraceError(f"{words} failed with exit code {child.returncode}", "its error is above")
    return used.ru_utime + used.ru_stime


def _memory_mb(code: str) -> float:
    """The largest resident size of a process that runs this."""
    done = subprocess.run([sys.executable, "-c", code + _MEMORY], stdout=subprocess.PIPE, check=True)
    return int(done.stdout) / 1024
