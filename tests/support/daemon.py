"""`headrace serve` in a process of its own."""

import signal
import subprocess
from pathlib import Path

import msgspec

from support.commandline import PROGRAM
from support.waiting import until

END_S_MAX = 240.0


class Daemon:
    """A site that serves a configuration file; its log is beside the file. A `with` block ends it."""

    def __init__(self, file: Path) -> None:
        self.log = file.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, "serve", str(file), "--json"], stdout=subprocess.PIPE, stderr=log
            )

    def wait_until_ready(self) -> str:
        """The first endpoint of the site, as soon as it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        endpoint: str = msgspec.json.decode(line)["endpoints"][0]
        return endpoint

    def reload(self, message: str) -> None:
        """Read the file again, and wait until the log has another such message."""
        before = self.log.read_text().count(message)
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self.log.read_text().count(message) > before, message)

    def wait(self) -> int:
        """The exit code, when the process has ended by itself."""
        return self.process.wait(END_S_MAX)

    def stop(self) -> int:
        """End the site by SIGTERM; the exit code."""
        self.process.terminate()
        return self.wait()

    def kill(self) -> None:
        """End the process by SIGKILL, if it still runs."""
        self.process.kill()
        self.process.communicate(timeout=END_S_MAX)

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=END_S_MAX)
