"""Keys that command a replay on a terminal.

    space          pause, and go on
    + and -        twice and half the speed
    right, left    10 seconds on and back; up and down: a minute
    m              as fast as possible
    q              stop

The terminal is in cbreak mode meanwhile: keys arrive without Enter, and Ctrl-C works as ever. It is
restored at the end.
"""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headrace.errors import HeadraceError
from headrace.guard import OnceThread
from headrace.timing.replay.spacing import AS_FAST_AS_POSSIBLE, SPEED_MAX, SPEED_MIN

if TYPE_CHECKING:
    from headrace.timing.replay import Replay

HELP = "space pauses, + and - change the speed, arrows seek, q stops"
_SEEKS = {b"\x1b[C": "+10s", b"\x1b[D": "-10s", b"\x1b[A": "+1min", b"\x1b[B": "-1min"}


def press(replay: "Replay", key: bytes) -> None:
    """Do what a key means; other keys mean nothing."""
    now = replay.progress()
    if key == b" ":
        replay.resume() if now.is_paused else replay.pause()
    elif key in (b"+", b"-"):
        speed = 1.0 if now.speed == AS_FAST_AS_POSSIBLE else now.speed * (2 if key == b"+" else 0.5)
        replay.speed(min(SPEED_MAX, max(SPEED_MIN, speed)))
    elif key == b"m":
        replay.speed("max")
    elif key == b"q":
        replay.stop()
    elif key in _SEEKS:
        with contextlib.suppress(HeadraceError):  # before the first product, or a site that is away
            replay.seek(_SEEKS[key])


@contextmanager
def keys(replay: "Replay") -> Iterator[None]:
    """Take keys until the end of the block, if standard input is a terminal of this process group."""
    if not _is_ours():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    ended, wake = os.pipe()
    thread = OnceThread(_listen, "headrace-keys", args=(replay, terminal, ended))
    click.echo(HELP, err=True)
    tty.setcbreak(terminal)
    thread.start()
    try:
        yield
    finally:
        os.close(wake)
        thread.join()
        os.close(ended)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _is_ours() -> bool:
    try:
        return os.isatty(sys.stdin.fileno()) and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _listen(replay: "Replay", terminal: int, ended: int) -> None:
    poll = select.poll()
    poll.register(terminal, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        if ended in dict(poll.poll()):
            return
        key = os.read(terminal, 16)
        if not key:
            return
        press(replay, key)
