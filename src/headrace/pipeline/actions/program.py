"""Program: a process of another author that reads our standard input, and may hang, crash or be missing.

It has a process group of its own, so that its children end with it when it is killed. Its standard output is discarded;
the end of its standard error is kept, to explain a failure. Every wait here has a limit.
"""

import array
import fcntl
import os
import select
import signal
import subprocess
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headrace.guard import OnceThread

STDERR_BYTES = 400  # the end of it that is kept
_POLL_S = 0.2  # how often a program that reads nothing is checked for its end


class ProgramError(Exception):
    """The program failed; the text tells how."""


class StartError(ProgramError):
    """It does not start; a retry does not help."""


class HungError(ProgramError):
    """It exceeded a timeout."""


class EndedError(ProgramError):
    """It has ended, or has closed its input."""


class Program:
    """A running process."""

    def __init__(self, command: Sequence[str], folder: Path | None) -> None:
        """StartError: there is no such program, or it is not executable."""
        try:
            self._process = subprocess.Popen(
                list(command), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                bufsize=0, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise StartError(f"{command[0]!r} does not start: {error!s:.200}") from None
        assert self._process.stdin is not None
        self._input = self._process.stdin.fileno()
        os.set_blocking(self._input, False)
        self._stderr = b""
        self._listener = OnceThread(self._listen, "headrace-pipe-errors")
        self._listener.start()

    def give(self, data: bytes, timeout_s: float) -> None:
        """Write all data to standard input. HungError: not in time; EndedError: the program does not read it."""
        end = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._input, select.POLLOUT)
        view = memoryview(data)
        while view:
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise HungError(f"it accepted {len(data) - len(view):,} of {len(data):,} bytes within {timeout_s:g} s")
            poll.poll(min(remaining, _POLL_S) * 1000)
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                if self._process.poll() is not None:
                    raise EndedError(self.end_text()) from None
            except OSError:
                raise EndedError(self.end_text()) from None

    @property
    def unread(self) -> int:
        """Bytes in the pipe that the program has not read."""
        held = array.array("i", [0])
        try:
            fcntl.ioctl(self._input, termios.FIONREAD, held)
        except OSError:
            return 0
        return held[0]

    def code(self) -> int | None:
        """The exit status; None: it is running."""
        return self._process.poll()

    def close_input(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def wait(self, timeout_s: float) -> int:
        """The exit status. HungError: it is still running."""
        try:
            return self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            raise HungError(f"it was still running after {timeout_s:g} s") from None

    def finish(self, timeout_s: float) -> int:
        """Close its input and wait for its end; kill it after the timeout."""
        self.close_input()
        try:
            return self.wait(timeout_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it and its children if it is running, and free all resources."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.close_input()
        self._listener.join(_POLL_S)

    def end_text(self) -> str:
        """How it ended, and the end of its standard error."""
        try:
            code = self._process.wait(_POLL_S)
            self._listener.join(_POLL_S)
        except subprocess.TimeoutExpired:
            return "it has closed its input"
        how = f"it was killed by {_signal(-code)}" if code < 0 else f"it ended with status {code}"
        said = self._stderr.decode(errors="replace").strip()
        return f"{how}: {said}" if said else how

    def _listen(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        with stream:
            while data := stream.read(4096):
                self._stderr = (self._stderr + data)[-STDERR_BYTES:]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
