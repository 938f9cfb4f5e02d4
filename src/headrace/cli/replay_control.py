"""Commands for a replay that runs: pause, resume, seek, speed, status, stop.

They come from keys on the terminal (replay_keys.py) and from a socket beside the file of the run, through which
`headrace replay --run RUN --control COMMAND` sends one line and gets one JSON object back: the progress, or an error.
The folder of the socket belongs to one user, so only that user commands it.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.decoding import Decoder
from headrace.errors import HeadraceError, OptionError, ReplayError
from headrace.guard import OnceThread
from headrace.timing.replay.run import folder, run_text
from headrace.timing.replay.spacing import speed_text
from headrace.units import format_time

if TYPE_CHECKING:
    from headrace.timing.replay import Replay

COMMANDS = "pause, resume, seek PLACE, speed SPEED, status, stop"
_LINE_BYTES_MAX = 1024
_REPLY_BYTES_MAX = 1 << 16
_REPLIES: Decoder[dict[str, Any]] = Decoder(dict[str, Any], bytes_max=_REPLY_BYTES_MAX, encoding="json")
_REPLY_S = 30.0  # a seek may ask a distant site


def obey(replay: "Replay", command: str) -> dict[str, Any]:
    """Do what a command says; the progress afterwards. OptionError if it is none."""
    word, _, value = command.strip().partition(" ")
    value = value.strip()
    if word in ("seek", "speed") and value:
        replay.seek(int(value) if value.isdecimal() else value) if word == "seek" else replay.speed(value)
    elif word in ("pause", "resume", "stop", "status") and not value:
        if word != "status":
            getattr(replay, word)()
    else:
        raise OptionError(f"command {command[:80]!r} is invalid", f"the commands are {COMMANDS}")
    return progress_values(replay)


def progress_values(replay: "Replay") -> dict[str, Any]:
    """For programs: how far a replay is."""
    now = replay.progress()
    return {
        "products": now.products, "payload_bytes": now.payload_bytes, "lost": now.lost, "damaged": now.damaged,
        "position": now.position, "start": now.start, "stop": now.stop,
        "time": None if now.time_ns == 0 else format_time(now.time_ns), "speed": speed_text(now.speed),
        "paused": now.is_paused, "live": now.is_live, "behind_s": now.behind_s, "fraction": now.fraction,
    }  # fmt: skip


# --- the socket -----------------------------------------------------------------------------------


@contextmanager
def controlled(replay: "Replay", run: int) -> Iterator[None]:
    """Take commands for this run until the end of the block. The caller holds the run."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with _address(run) as address:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)  # of a process that was killed
        listener.bind(address)
        listener.listen(8)
        server = OnceThread(_serve, "headrace-control", args=(listener, replay))
        server.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
            server.join(_REPLY_S)  # the command that has ended the replay gets its reply
            listener.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)


def _serve(listener: socket.socket, replay: "Replay") -> None:
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        with caller, contextlib.suppress(OSError):
            caller.settimeout(_REPLY_S)
            caller.sendall(_reply(replay, caller.recv(_LINE_BYTES_MAX)))


def _reply(replay: "Replay", line: bytes) -> bytes:
    try:
        return msgspec.json.encode(obey(replay, line.decode(errors="replace")))
    except HeadraceError as error:
        return msgspec.json.encode({"error": type(error).__name__, "problem": error.problem, "hint": error.hint})


def command(run: int, text: str) -> dict[str, Any]:
    """Send a command to the process that replays a run; ReplayError if there is none, OptionError if it refuses."""
    try:
        with _address(run) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(_REPLY_S)
            caller.connect(address)
            caller.sendall(text.encode()[:_LINE_BYTES_MAX])
            caller.shutdown(socket.SHUT_WR)
            with caller.makefile("rb") as reply:
                told = _REPLIES.decode(reply.read(_REPLY_BYTES_MAX))
    except (OSError, msgspec.DecodeError):
        raise ReplayError(
            f"no process replays run {run_text(run)} here", f"continue it: headrace replay --run {run_text(run)}"
        ) from None
    if "error" in told:
        raise OptionError(told["problem"], told["hint"])
    return told


@contextmanager
def _address(run: int) -> Iterator[str]:
    """The path of the socket, through a descriptor of its folder, because paths of sockets must be short."""
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{run_text(run)}.control"
    finally:
        os.close(descriptor)
