"""Text from elsewhere, made visible."""

import json
import sys
import unicodedata

import pytest

from headrace.text import harmless, visible, visible_lines

ACTS = [
    "\x00", "\a", "\b", "\t", "\n", "\r", "\x1b", "\x7f", "\x85", "\x9b", "\xa0", "\xad", "\u034f", "\u061c", "\u115f",
    "\u17b4", "\u180e", "\u200b", "\u200d", "\u200f", "\u2028", "\u2029", "\u202e", "\u2066", "\u2800", "\u3000",
    "\u3164", "\ud800", "\ue000", "\ufe0f", "\ufeff", "\uffa0", "\U000e0041", "\U000e0100",
]  # fmt: skip


@pytest.mark.parametrize("char", ACTS, ids=ascii)
def test_what_acts_or_hides_is_escaped(char: str) -> None:
    shown = visible(f"wx{char}text")
    assert char not in shown
    assert shown == f"wx{char.encode('unicode_escape').decode()}text"
    assert visible(shown) == shown


def test_what_can_be_read_stays_as_it_is() -> None:
    for text in ("wx/radar/KFTG", "Zürich, 気象庁, القاهرة", "\\x1b", "12 °C → 3 m²", ""):
        assert visible(text) == text


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert visible("a" * 5000, 10) == "aaaaaaaaaa… 4,990 more characters"
    assert visible("\x1b" * 3, 2) == "\\x1b\\x1b… 1 more characters"


def test_of_many_lines_the_first_and_the_last_are_shown() -> None:
    text = "\n".join(f"line {n}\r" for n in range(100))
    assert list(visible_lines(text, 4)) == ["line 0\\r", "line 1\\r", "… 96 more lines", "line 98\\r", "line 99\\r"]
    assert list(visible_lines("one\ntwo\n", 4)) == ["one", "two"]


def test_no_control_or_format_character_leaves_a_command() -> None:
    """The C0 ones, which commands need for lines and colours, are escaped where foreign text enters a line."""
    for number in range(0x7F, sys.maxunicode + 1):
        char = chr(number)
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert harmless(char) != char, hex(number)
    own = "\x1b[1mKFTG\x1b[0m\r\n\t│ Zürich"
    assert harmless(own) == own


def test_json_stays_json_and_means_the_same() -> None:
    value = ["\x9b31m", "\u202e", "\U000e0041", "é", "\x7f"]
    written = harmless(json.dumps(value, ensure_ascii=False))
    assert json.loads(written) == value
    assert "\x9b" not in written
