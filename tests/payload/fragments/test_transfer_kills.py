"""Sender and receiver as processes that are killed at random points: the file arrives, and little is sent again."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

from headrace import Queue
from headrace.payload.fragments.journal import RECORD_BYTES
from payload.fragments.transfers import FRAGMENT_BYTES, make_file
from support.commandline import objects
from support.seeds import random_seed
from support.waiting import until

SIZE = 40_000_000
FRAGMENTS = -(-SIZE // FRAGMENT_BYTES)
KILLS = 2

Start = Callable[..., "subprocess.Popen[bytes]"]


def test_a_file_arrives_whatever_is_killed_when(make_quick: Callable[..., Queue], start: Start, tmp_path: Path) -> None:
    seed = random_seed()
    chance = random.Random(seed)
    queue, file = make_quick(size="8MiB"), make_file(tmp_path / "big.bin", SIZE, seed)
    words = {"send": ("send", file, queue.path, "--json"), "receive": ("receive", "in", "--from", queue.path, "--json")}
    running = {name: start(*each) for name, each in words.items()}
    state = tmp_path / "in" / ".headrace-receive"
    for share in sorted(chance.uniform(0.02, 0.9) for _ in range(KILLS)):
        until(lambda share=share: _recorded(state) >= share * FRAGMENTS, f"{share:.0%} of the file")  # type: ignore[misc]
        name = chance.choice(list(words))
        running[name].kill()
        running[name].communicate()
        running[name] = start(*words[name])
    out, _ = running["send"].communicate(timeout=120)
    running["receive"].terminate()
    received, _ = running["receive"].communicate(timeout=60)
    assert running["send"].returncode == 0
    assert running["receive"].returncode == 143
    assert objects(out.decode())[0]["state"] == "done"
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert not list((tmp_path / "in" / ".headrace-receive").glob("*.part"))
    print(objects(out.decode())[-1], objects(received.decode())[-1])


def _recorded(state: Path) -> int:
    """Fragments in the journal; all of them when there is none any more."""
    if (state / "done.log").exists():
        return FRAGMENTS
    return sum(max(0, each.stat().st_size - 500) // RECORD_BYTES for each in state.glob("*.journal"))
