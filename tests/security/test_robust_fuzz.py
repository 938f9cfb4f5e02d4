"""Mutations of everything that arrives from elsewhere: by a seed that is printed, a few thousand here, half an hour in `make soak`."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz import Target, fuzz, targets

from headrace import Queue
from headrace.errors import HeadraceError, OptionError, SelectionError
from headrace.selection import Selection
from headrace.units import parse_age, parse_size
from support.seeds import random_seed

EACH = 200  # mutations of each target; the suite tries the same ones in every run
FILES = 30  # of files of queues, each in several ways
SUITE_SEED = int(os.environ.get("HEADRACE_SEED", "20261119"))
SOAK_S = float(os.environ.get("HEADRACE_FUZZ_S", "1800"))  # of all targets together
CHILD = Path(__file__).with_name("fuzz_files.py")


@pytest.fixture(scope="module")
def all_targets(tmp_path_factory: pytest.TempPathFactory) -> list[Target]:
    return list(targets(tmp_path_factory.mktemp("fuzz")))


def test_no_mutation_raises_anything_but_an_error_of_ours(all_targets: list[Target]) -> None:
    print(f"\nseed {SUITE_SEED} (repeat with HEADRACE_SEED={SUITE_SEED})")
    for target in all_targets:
        chance = random.Random(f"{SUITE_SEED} {target.name}")
        for _ in range(EACH):
            fuzz(target, chance)


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "text",
    [f"** every {DIGITS}", f"** slice 1-{DIGITS}", f"** priority <={DIGITS}", f"** tag {DIGITS}", f"** age < {DIGITS}h",
     f"** where a > {DIGITS}", "** xpath //a[b='\x01']", "** xpath //a[b='\ufffe']"],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_was_found_is_refused_as_a_selection(text: str) -> None:
    with pytest.raises(SelectionError):
        Selection.parse(text)


@pytest.mark.parametrize("parse", [parse_size, parse_age])
def test_sizes_and_ages_beyond_all_numbers_are_refused(parse: Callable[[str], object]) -> None:
    with pytest.raises(OptionError):
        parse(f"{DIGITS}{'GiB' if parse is parse_size else 'h'}")


@pytest.mark.parametrize("name", ["queue.json", "stations.json", "channels.json"])
@pytest.mark.parametrize("rest", [', "lines": 1, "stations": 2', ', "lines": [1], "stations": [[]]', ', "dedup": {}'])
def test_an_older_document_that_no_version_wrote_is_damage(tmp_path: Path, name: str, rest: str) -> None:
    with Queue.create(tmp_path / "q", size="1MiB") as queue:
        queue.channel("c", "a")
        queue.station("s", "a")
    (tmp_path / "q" / name).write_text(f'{{"format": 1{rest}}}')
    with pytest.raises(HeadraceError), Queue.open(tmp_path / "q") as queue:
        _ = queue.stations, queue.channel("c").definition, queue.station("s").terms


def damage(kind: str, folder: Path, seed: int, times: int) -> None:
    """Use damaged files in a process of its own: a fault in mapped memory ends it."""
    words = [sys.executable, str(CHILD), kind, str(folder), str(seed), str(times)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3 * SOAK_S)
    assert done.returncode == 0, f"seed {seed}: {done.stdout[-2000:]}{done.stderr[-4000:]}"


@pytest.mark.parametrize("kind", ["queue", "archive"])
def test_damaged_files_raise_nothing_but_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    print(f"\nseed {SUITE_SEED} (repeat with HEADRACE_SEED={SUITE_SEED})")
    damage(kind, tmp_path, SUITE_SEED, FILES)


@pytest.mark.soak
def test_half_an_hour_of_mutations(all_targets: list[Target], tmp_path: Path) -> None:
    seed = random_seed()
    chance, end, tried = random.Random(seed), time.monotonic() + SOAK_S, 0
    while time.monotonic() < end:
        for target in all_targets:
            for _ in range(100):
                fuzz(target, chance)
                tried += 1
        for kind in ("queue", "archive"):
            damage(kind, tmp_path, chance.randrange(1 << 31), 100)
            tried += 100
    print(f"{tried:,} mutations of {len(all_targets) + 2} kinds in {SOAK_S:g} s")
