"""Runs the commands of documentation pages exactly as they are printed, in bash, at a fraction of their start-up time.

Most of the time of a `headrace` command is spent on imports. Here `headrace` and `python` on the PATH of bash are small
scripts that ask a server, which has imported everything, to fork: each command is a process of its own that can be put into
the background and killed, also by SIGKILL. `headrace pipeline run` goes to a second server, which runs one command after the
other in its own process, so that all of them share one Java.

Output goes to a file, because Java keeps descriptors open for longer than the command that has started it.
"""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

from support.waiting import until

TIMEOUT_S = 300.0

SCRIPT = """\
#!{python} -IS
import json, os, signal, socket, sys
words = [{name!r}, *sys.argv[1:]]
server = {sequential!r} if words[1:3] == ["pipeline", "run"] else {forking!r}
with socket.socket(socket.AF_UNIX) as link:
    link.connect(server)
    socket.send_fds(link, [b"x"], [0, 1, 2])
    link.sendall(json.dumps([words, os.getcwd(), dict(os.environ)]).encode() + b"\\n")
    replies = link.makefile()
    pid = int(replies.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(replies.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Shell:
    """Runs bash with `headrace` and `python` from the servers. A `with` block ends them."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        self.folder = folder
        self.runs = 0
        sockets = {kind: folder / f"{kind}.socket" for kind in ("forking", "sequential")}
        for name in ("headrace", "python"):
            program = self.programs / name
            program.write_text(
                SCRIPT.format(python=sys.executable, name=name, **{kind: str(path) for kind, path in sockets.items()})
            )
            program.chmod(0o755)
        self.servers = [
            subprocess.Popen([sys.executable, "-m", "support.shell_server", kind, str(path)], env=environment())
            for kind, path in sockets.items()
        ]
        for path in sockets.values():
            until(path.exists, f"{path.name} is there")

    def run(self, script: str, folder: Path, **variables: str) -> str:
        """The output of a script that must succeed: every command of it, unless the script says what follows."""
        self.runs += 1
        output = self.folder / f"{self.runs}.log"
        words = ["bash", "-eu", "-o", "pipefail", "-c", script]
        with output.open("wb") as file:
            path = f"{self.programs}:{os.environ['PATH']}"
            process = subprocess.Popen(
                words, cwd=folder, env=environment(PATH=path, **variables), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
            try:
                code: int | str = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                code = f"none within {TIMEOUT_S:g} s"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if code != 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has left in the background; the servers notice
        text = output.read_text()
        assert code == 0, f"exit code {code}\n{textwrap.indent(script, '> ')}\n{text}"
        return text

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()  # a command may have set handlers; Java ends with the process that started it
            server.wait()


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), **more}
