"""One list of causes: in the code, and for operators in the guarantees."""

import re
from pathlib import Path
from typing import get_args

from headrace.product.cause import CHOSEN, MEANING, Cause, LostBy, by_cause

GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees.md"


def test_every_cause_has_a_meaning_and_is_on_the_page() -> None:
    assert tuple(MEANING) == get_args(Cause)
    section = GUARANTEES.read_text().partition("\n## Causes\n")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `([a-z ]+)` \| ([^|]+) \|", section, re.M))
    assert listed == MEANING


def test_lost_and_chosen_causes_are_causes() -> None:
    assert set(get_args(LostBy)) | set(CHOSEN) <= set(MEANING)


def test_counts_are_text_for_people() -> None:
    assert by_cause({"too large": 1, "expired": 3000, "deleted": 0}) == "3,000 expired, 1 too large"
    assert by_cause({}) == ""


def test_only_the_count_that_is_an_upper_limit_says_so() -> None:
    assert by_cause({"evicted": 3, "expired": 5}, ["evicted"]) == "5 expired, at most 3 evicted"
