"""Seeds of tests that make random choices."""

import os
import random


def random_seed() -> int:
    """A new seed, or the one in HEADRACE_SEED; it is printed, so that a run can be repeated."""
    seed = int(os.environ.get("HEADRACE_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    print(f"\nseed {seed} (repeat with HEADRACE_SEED={seed})")
    return seed
