"""Faults on purpose: a power failure (PowerCut), and the death of a process at a chosen step (failpoints).

PowerCut is a disk that remembers what a power failure would leave. Give it to a queue as its storage. It copies a file
when the queue syncs it, so that at any moment it can write the directory as it would be found after the machine lost
power: what was synced is there; of the rest, each page is the old or the new one, at random by a seed, because a real
disk promises neither. A file that was created after the last sync of its directory is gone; one that was unlinked may
be back.
"""

import random
import shutil
from pathlib import Path

from headrace.errors import OptionError
from headrace.kernel import _kernel as kernel

PAGE = 4096
_BOOT_ID_PLACE = slice(32, 48)  # in the control file


class PowerCut:
    """Storage that keeps a copy of what is safe."""

    def __init__(self, queue: Path, safe: Path) -> None:
        self._queue, self._safe = queue, safe
        self._named: set[Path] = set()
        safe.mkdir()

    def prime(self) -> None:
        """Treat the queue as safe in its present state, as it is right after its creation."""
        for file in self._queue.rglob("*"):
            if file.is_file():
                self.sync_file(file)
        self._named = {file.relative_to(self._queue) for file in self._queue.rglob("*") if file.is_file()}

    def sync_file(self, path: Path) -> None:
        copy = self._safe / path.relative_to(self._queue)
        copy.parent.mkdir(parents=True, exist_ok=True)
        part = copy.with_name(copy.name + ".part")
        part.write_bytes(path.read_bytes())
        part.replace(copy)

    def sync_directory(self, path: Path) -> None:
        folder = path.relative_to(self._queue)
        self._named = {name for name in self._named if name.parent != folder}
        self._named |= {file.relative_to(self._queue) for file in path.iterdir() if file.is_file()}

    def image(self, target: Path, seed: int) -> None:
        """Write the directory as it would be found after a power failure now."""
        chance = random.Random(seed)
        (target / "segments").mkdir(parents=True)
        for name in sorted(self._named):
            safe, live = self._safe / name, self._queue / name
            kept = safe.read_bytes() if safe.exists() else b""
            now = live.read_bytes() if live.exists() else kept
            (target / name).write_bytes(_mixed(kept, now, chance))
        control = bytearray((target / "control").read_bytes())
        control[_BOOT_ID_PLACE] = bytes(16)
        (target / "control").write_bytes(control)

    def discard(self) -> None:
        shutil.rmtree(self._safe)


def _mixed(kept: bytes, now: bytes, chance: random.Random) -> bytes:
    """Page by page the old or the new; the size is the new one's, as the blocks were allocated before."""
    pages = []
    for place in range(0, len(now), PAGE):
        old, new = kept[place : place + PAGE], now[place : place + PAGE]
        pages.append(new if old == new or chance.random() < 0.5 else old.ljust(len(new), b"\0"))
    return b"".join(pages)


# --- failpoints -----------------------------------------------------------------------------------
#
#     arm("append:row-written", passes=3)     # the third time this process gets there, it is killed (SIGKILL)
#
# `POINTS` lists them in the order of the work. Arming is per process; a child that is to die arms itself.

CURSOR_POINTS = ("cursor:cell-written", "cursor:name-written", "cursor:half-saved", "cursor:saved")
POINTS: tuple[str, ...] = (*kernel.FAILPOINTS, *CURSOR_POINTS)


def arm(point: str, passes: int = 1) -> None:
    """Kill this process when it reaches `point` for the `passes`-th time."""
    if point not in POINTS:
        raise OptionError(f"failpoint {point!r} is unknown", f"choose one of {', '.join(POINTS)}")
    kernel.arm_failpoint(point, passes)
