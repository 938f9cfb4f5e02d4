"""Required texts: every ident that RE2 matches contains the texts that its pattern requires."""

import random

import pytest
import re2

from headrace.selection.table.literals import BEGIN, END, fold, required

PARTS = [
    "a", "b", "A", "B", "k", "s", "K", "ſ", "\u212a", "é", "É", " ", "-", "{", "}", "]", "(", "(?:", "(?P<x>", "(?i)",
    "(?i:", "(?-i:", "(?m)", "(?s)", "(?U)", ")", ")", "|", "|", "*", "+", "?", "{1}", "{2}", "{0,2}", "{1,}", "*?",
    "[ab]", "[^a]", "[a-b]", "[]a]", "[[:alpha:]]", "[a\\]]", "[ab", "\\d", "\\w", "\\b", "\\B", "\\A", "\\z", "^", "$",
    ".", "\\.", "\\Q", "\\E", "\\pL", "\\p{Greek}", "\\PN", "\\n", "\n", "\\x41", "\\101", "\\C", "\\-", "[a\\pL]", "(?<y>",
    "1", "[:", "#",
]  # fmt: skip
CHARACTERS = "abABksKſ\u212aéÉ -\n1{}]."


def found(pattern: str) -> set[frozenset[str]]:
    marked = [{text.replace(BEGIN, "<").replace(END, ">") for text in clause} for clause in required(pattern).clauses]
    return {frozenset(clause) for clause in marked}


@pytest.mark.parametrize(
    ("pattern", "clauses"),
    [
        ("KWBC", [{"KWBC"}]),
        (r"^S[AP]US\d\d (KFTG|KDEN)", [{"<SAUS", "<SPUS"}, {" KFTG", " KDEN"}]),
        ("^abc$", [{"<abc>"}]),
        ("^^abc", [{"<"}, {"<abc"}]),
        ("abc|bcd", [{"abc", "bcd"}]),
        ("abc|", []),
        ("x*abc?", [{"abc", "ab"}]),
        ("(abc)+d", [{"abc"}, {"d"}]),
        ("ab{2}c", [{"a"}, {"b"}, {"c"}]),
        ("(?m)^abc", [{"abc"}]),
        (r"\Qa.c\E", [{"a.c"}]),
        ("[[:alpha:]]abc", [{"abc"}]),
        (".*", []),
        ("", []),
        (r"\x41bc", []),
    ],
)
def test_the_required_texts_are_found_in_a_pattern(pattern: str, clauses: list[set[str]]) -> None:
    assert found(pattern) == {frozenset(clause) for clause in clauses}


def test_a_case_insensitive_pattern_requires_folded_texts() -> None:
    needed = required("(?i)METAR")
    assert needed.folded
    assert needed.clauses == (frozenset(["metar"]),)
    assert fold("ſpecial \u212aWBC METAR") == "special kwbc metar"


def test_every_matching_ident_contains_the_required_texts() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    options = re2.Options()
    options.log_errors = False
    tried = 0
    while tried < 3000:
        pattern = "".join(chance.choices(PARTS, k=chance.randint(1, 9)))
        try:
            compiled = re2.compile(pattern, options)
        except re2.error:
            continue
        needed = required(pattern)
        tried += 1
        for _ in range(20):
            ident = "".join(chance.choices(CHARACTERS, k=chance.randint(0, 6)))
            if compiled.search(ident) is None:
                continue
            text = BEGIN + (fold(ident) if needed.folded else ident) + END
            for clause in needed.clauses:
                assert any(part in text for part in clause), (pattern, ident, clause)
