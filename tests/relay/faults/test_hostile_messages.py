"""Malformed, oversized, forged and replayed messages under every key: refused, counted, no harm."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import zenoh
from harness import LEASH, PATIENCE_S, Fleet, chain

from support.seeds import random_seed
from support.waiting import until

MEMORY_MB_MAX = 150  # that a site may keep: threads have stacks of up to 8 MB, which deep recursion touches
THREADS_MAX = 60


def attack(folder: Path, seconds: float) -> dict[str, int]:
    """Attack site b during real traffic from a and c; return how many messages were sent, by kind."""
    seed = random_seed()
    with chain(folder, seed, "abc") as fleet:
        fleet.start()
        for site in "ac":
            fleet.feed(site, seconds + 1, 100)
        until(lambda: fleet.timeline.is_level("abc", "ac") and fleet.timeline.count("b", "c") > 20, "products come")
        before = {site: _memory_mb(fleet, site) for site in "abc"}
        words = [*LEASH, sys.executable, str(Path(__file__).with_name("hostile.py")), fleet.endpoint("b"), str(seed)]
        done = subprocess.run([*words, str(seconds), *"abc"], capture_output=True, text=True, timeout=seconds + 60)
        assert done.returncode == 0, done.stderr
        fleet.settle()
        print("memory in MB, before and after:", {site: (before[site], _memory_mb(fleet, site)) for site in "abc"})
        for site in "abc":  # after a burst a site gives memory back, once a minute
            until(
                lambda site=site: _memory_mb(fleet, site) < before[site] + MEMORY_MB_MAX, f"the memory of site {site}"
            )
            assert _number(fleet, site, "Threads") < THREADS_MAX, f"the threads of site {site}"
        assert _refused(fleet) > 0
        fleet.judge()
    return dict(json.loads(done.stdout))


def _number(fleet: Fleet, site: str, name: str) -> int:
    status = Path(f"/proc/{fleet.pid(site)}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(f"{name}:")).split()[1])


def _memory_mb(fleet: Fleet, site: str) -> int:
    """The memory of a site, without the files of its queue."""
    return _number(fleet, site, "RssAnon") // 1024


def _refused(fleet: Fleet) -> int:
    """Pages and heartbeats that the receiving sites refused."""
    return sum(int(upstream["refused"]) for site in "abc" for upstream in fleet.describe(site)["upstreams"])


def test_hostile_messages_do_no_harm(tmp_path: Path) -> None:
    sent = attack(tmp_path, 5)
    print(f"sent {sum(sent.values())}: {sent}")


@pytest.mark.soak
def test_two_minutes_of_hostile_messages_do_no_harm(tmp_path: Path) -> None:
    sent = attack(tmp_path, 120)
    print(f"sent {sum(sent.values())}: {sent}")


def test_the_admin_space_of_zenoh_is_closed(tmp_path: Path) -> None:
    """It would reveal subscriptions, and a router that is queried while others declare may block for ever."""
    config = zenoh.Config()
    config.insert_json5("mode", '"client"')
    config.insert_json5("scouting/multicast/enabled", "false")
    with chain(tmp_path, 1, "ab") as fleet:
        fleet.start()
        config.insert_json5("connect/endpoints", json.dumps([fleet.endpoint("a")]))
        with zenoh.open(config) as session:
            own = str(session.zid())
            for _ in range(100):
                told = [str(reply.ok.key_expr) for reply in session.get("@/**", timeout=PATIENCE_S) if reply.ok]
                assert [key for key in told if own not in key] == []
        fleet.feed("a", 1)
        fleet.settle()
        fleet.judge()
