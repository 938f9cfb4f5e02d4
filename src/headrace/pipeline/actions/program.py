"""Program: a process of somebody else's, with standard input from us, that may hang, crash or not be there.

It has a process group of its own, so that what it starts ends with it when it is killed. Its output goes nowhere; the
end of what it says on standard error is kept, to tell why it failed. Nothing here waits without a limit."""

import array
import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

COMPLAINT_BYTES = 400
_LOOK_S = 0.2  # how often a program that takes nothing is asked whether it lives


class ProgramError(Exception):
    """It has failed; the text says how."""


class StartError(ProgramError):
    """It cannot be started, now or in a second."""


class HungError(ProgramError):
    """It did not do what it should in time."""


class EndedError(ProgramError):
    """It has ended, or takes no more."""


class Program:
    """A process that runs."""

    def __init__(self, command: Sequence[str], folder: Path | None) -> None:
        """StartError: there is no such program, or it cannot be run."""
        try:
            self._process = subprocess.Popen(
                list(command), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                bufsize=0, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise StartError(f"{command[0]!r} cannot be started: {error!s:.200}") from None
        assert self._process.stdin is not None
        self._input = self._process.stdin.fileno()
        os.set_blocking(self._input, False)
        self._said = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def give(self, data: bytes, timeout_s: float) -> None:
        """All of it to standard input. HungError: not in time; EndedError: it does not take it."""
        end = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._input, select.POLLOUT)
        view = memoryview(data)
        while view:
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise HungError(
                    f"it took {len(data) - len(view):,} of {len(data):,} bytes in {timeout_s:g} s, and no more"
                )
            poll.poll(min(remaining, _LOOK_S) * 1000)
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                if self._process.poll() is not None:
                    raise EndedError(self.told()) from None
            except OSError:
                raise EndedError(self.told()) from None

    @property
    def unread(self) -> int:
        """Bytes that were given and that it has not read."""
        held = array.array("i", [0])
        try:
            fcntl.ioctl(self._input, termios.FIONREAD, held)
        except OSError:
            return 0
        return held[0]

    def code(self) -> int | None:
        """Its exit status, if it has ended."""
        return self._process.poll()

    def close_input(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def wait(self, timeout_s: float) -> int:
        """Its exit status; HungError: it goes on."""
        try:
            return self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            raise HungError(f"it had not ended after {timeout_s:g} s") from None

    def finish(self, timeout_s: float) -> int:
        """Close its input and let it come to an end, or be killed."""
        self.close_input()
        try:
            return self.wait(timeout_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it, and what it has started, if it still runs; free everything."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.close_input()
        self._listener.join(_LOOK_S)

    def told(self) -> str:
        """How it ended, and what it said last."""
        try:
            code = self._process.wait(_LOOK_S)
            self._listener.join(_LOOK_S)
        except subprocess.TimeoutExpired:
            return "it has closed its input"
        how = f"it was ended by {_signal(-code)}" if code < 0 else f"it ended with status {code}"
        said = self._said.decode(errors="replace").strip()
        return f"{how}: {said}" if said else how

    def _listen(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        with stream:
            while data := stream.read(4096):
                self._said = (self._said + data)[-COMPLAINT_BYTES:]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
