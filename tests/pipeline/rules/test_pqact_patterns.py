"""POSIX patterns of a pqact.conf become RE2 patterns that match the same idents, or are refused."""

import random
import tomllib

import pytest
import re2
from glibc_regex import glibc, matcher

from headrace.errors import RuleError
from headrace.pipeline.rules.pqact import translate
from headrace.pipeline.rules.pqact.ere import parsed
from headrace.pipeline.rules.pqact.ere_re2 import groups_of, prefers_the_first
from headrace.pipeline.rules.pqact.selection import re2_of
from support.seeds import random_seed

SAME = {
    r"^SA.. (K[A-Z]{3})\.": r"^SA.. (K[A-Z]{3})\.",
    r"[\.]x[]a]": r"[\\.]x[\]a]",
    r"[[:alpha:]_]+[^/]*": r"[A-Za-z_]+[^/]*",
    r"a\/b\-c": "a/b-c",
    r"foo{,3}$": r"foo{0,3}$",
    r"a{,}": "a*",
    r"a{2}{,3}": "(?:a{2}){0,3}",
    r"a+?$": "a*$",
    r"a??b++c**": "a?b+c*",
    r"^(.*?)-(.*)$": r"^(.*)-(.*)$",
    r"(a|b)+?": "(a|b)*",
    r"[[=a=]b]": "[ab]",
    r"[[.-.]x]": r"[\-x]",
    r"[[.].]-a]": r"[\]-a]",
    r"[+--]": r"[+-\-]",
    r"[^]a-]": r"[^\]a\-]",
    r"\`a\'": r"\Aa\z",
    r"\<a\>": r"\ba\b",
    r"\<(foo|bar)+\>": r"\b(foo|bar)+\b",
    r"\s\S": r"[\x09-\x0d ][^\x09-\x0d ]",
    r"a)": r"a\)",
    r"a|": "a|",
    r"\{y}": r"\{y\}",
}
REFUSED_BY_POSIX = [
    "(?i)A", "(?:a)b", "a{", "x {y}", "a{1", "a{1,2", "a{,2", "a{}", "a{3,1}", "a{1a}", "a{32768}", "[[:word:]]",
    "[[:^alpha:]]", "[[:alpha]", "[[.hyphen.]]", "[[=ab=]]", "[z-a]", "[a-c-e]", "[a-[:digit:]]", "[[:digit:]-z]",
    "[[=a=]-z]", "(a", "[a", "a\\", "*a", "^*a", "a|*b", "(+a)", r"\<*a", "$?", "[[==]]", r"\`+",
]  # fmt: skip
NOT_IN_RE2 = [r"\d", r"(a)\1", r"\x41", r"\t", r"\A", r"\pL", r"a\<", r"\<.", r"\>a", r"\<a?"]


@pytest.mark.parametrize(("posix", "made"), SAME.items())
def test_patterns_keep_their_meaning(posix: str, made: str) -> None:
    assert re2_of(posix) == made


@pytest.mark.parametrize("pattern", REFUSED_BY_POSIX)
def test_a_pattern_that_posix_refuses_is_refused(pattern: str) -> None:
    assert matcher(glibc(), pattern) is None
    with pytest.raises(RuleError, match="is not a POSIX pattern") as caught:
        re2_of(pattern)
    assert "pqact would refuse it" in caught.value.hint


@pytest.mark.parametrize("pattern", NOT_IN_RE2)
def test_a_pattern_that_re2_does_not_have_is_refused(pattern: str) -> None:
    with pytest.raises(RuleError, match=r"has another meaning|RE2 has no"):
        re2_of(pattern)


@pytest.mark.parametrize("pattern", ["(" * 1000, "(" * 60 + ")" * 60, "a" + "{1}" * 2000, "\\<" + "(a{64}){64}" * 20])
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(RuleError):
        re2_of(pattern)


def test_a_group_is_known_by_what_it_can_match() -> None:
    facts = list(groups_of(parsed(r"^(a)+?(b){2}([^/]+)([[:punct:]])(c*)((d)|e)")))
    assert [each.may_be_empty for each in facts] == [True, False, False, False, True, False, True]
    assert [each.may_have_slash for each in facts] == [False, False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("pattern", "is_noted"),
    [
        ("^(a|ab)(c|bcd)?", True),
        ("^(a*|b)", True),
        ("^(N0Q|N0U|N0)(...)", False),
        ("^(TOR|SVR|FFWX)", False),
        ("^(a|)b", False),
        ("^(.*)-(.*)$", False),
    ],
)
def test_a_rule_whose_groups_may_differ_has_a_remark(pattern: str, is_noted: bool) -> None:
    made = translate(f"EXP\t{pattern}\tFILE\tx/\\1\nEXP\t{pattern}\tFILE\tx/y\n")
    assert made.rules == 2
    assert [(each.line, "POSIX takes the longest" in each.reason) for each in made.remarks] == [(1, True)] * is_noted
    assert tomllib.loads(made.toml)["rule"][0]["ident"] == pattern


# --- against glibc --------------------------------------------------------------------------------

ATOMS = [
    "a", "b", "-", "/", "]", "}", ".", "[ab]", "[^a]", "[]-a]", "[b-]", "[[:digit:]]", "[[=a=]]", "[[.-.]]", r"[\a]",
    r"\.", r"\{", r"\/", r"\w", r"\s", "(a)", "(b*)", "(a|b)", "(ab|a)", "(a|ab)", "(.*)", "(a|)", "([ab]+)", "()",
]  # fmt: skip
COUNTS = ["", "", "", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "{,}", "{0}", "**", "*?", "+?", "??", "{2}?", "+{2}"]
ODD = ["{", "(?", "|", "^", "$", r"\b", r"\<", r"\>", r"\`", r"\'", "*", "[a", "(", ")", "{,", "[[:x:]]", r"\B"]


def _patterns(dice: random.Random, count: int) -> list[str]:
    made = []
    for _ in range(count):
        parts = [dice.choice(ATOMS) + dice.choice(COUNTS) for _ in range(dice.randrange(1, 5))]
        if dice.random() < 0.3:
            parts.insert(dice.randrange(len(parts) + 1), dice.choice(ODD))
        made.append(dice.choice(["", "^"]) + "".join(parts) + dice.choice(["", "$"]))
    return made


def _idents(dice: random.Random, count: int) -> list[str]:
    return ["", *("".join(dice.choices("aaabbb-/]}.{1 \\\v", k=dice.randrange(1, 9))) for _ in range(count))]


def test_random_patterns_match_what_glibc_matches() -> None:
    dice = random.Random(random_seed())
    library = glibc()
    compared = 0
    for pattern in _patterns(dice, 400):
        posix = matcher(library, pattern)
        try:
            ours = re2.compile(re2_of(pattern))
        except RuleError as error:
            assert posix is None or "RE2 has no" in error.problem, pattern
            continue
        assert posix is not None, f"{pattern!r} is refused by glibc"
        compared += 1
        for ident in _idents(dice, 40):
            found, wanted = ours.search(ident), posix(ident)
            assert (found is None) == (wanted is None), (pattern, ours.pattern, ident)
    assert compared > 200


def test_random_patterns_without_a_remark_have_the_groups_of_glibc() -> None:
    """For patterns from `^` to `$`, and groups that are not repeated."""
    dice = random.Random(random_seed())
    library = glibc()
    compared = 0
    for _ in range(400):
        parts = [dice.choice(ATOMS) for _ in range(dice.randrange(1, 6))]
        pattern = f"^{''.join(each + ('' if each[0] == '(' else dice.choice(COUNTS)) for each in parts)}$"
        posix, ours = matcher(library, pattern), re2.compile(re2_of(pattern))
        assert posix is not None
        if prefers_the_first(parsed(pattern)):
            continue
        for ident in _idents(dice, 40):
            found, wanted = ours.search(ident), posix(ident)
            if found is not None and wanted is not None:
                compared += 1
                assert list(found.groups()) == wanted[1 : ours.groups + 1], (pattern, ours.pattern, ident)
    assert compared > 200
