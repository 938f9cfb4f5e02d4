"""Text from elsewhere, made visible: on a terminal, in a log, in an error, in JSON.

Feed names, idents, properties and errors come from other sites and other programs. Shown as they are, they can move the
cursor of a terminal, forge a line of a log, or look like another name. `visible` replaces each character that acts or
hides by its escape (`\\x1b`, `\\u202e`), so that the reader sees what is there:

    control characters (C0, DEL, C1), line and paragraph separators, every space but the common one
    bidirectional controls and other format characters, zero width included
    lone surrogates, private and unassigned code points
    characters that are letters or marks by category, and show nothing: fillers and variation selectors

and it shortens what is too long. Every log, table and message passes through here; payloads that a user asks for do
not. The module stands below all others.
"""

import re
from collections.abc import Iterator

TEXT_MAX = 4096  # characters of one text: more than the longest ident, feed or property with escapes

# Printable by category, and nothing to be seen.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_BLANKS = re.compile(f"[{_BLANK}]")
# What no program of Headrace writes on purpose; line feeds and the sequences of its own colours are not here.
_HIDDEN = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    f"\U0001d173-\U0001d17a\U000e0000-\U000e007f{_BLANK}]"
)


def visible(text: str, limit: int = TEXT_MAX) -> str:
    """The text on one line, each character that acts or hides escaped; at most `limit` of its characters.

    A text that is cut ends with how many characters are left out.
    """
    left_out = len(text) - limit
    if left_out > 0:
        return f"{visible(text[:limit], limit)}… {left_out:,} more characters"
    if text.isascii() and text.isprintable():
        return text
    if text.isprintable():
        return _BLANKS.sub(_escape, text)
    return "".join(char if char.isprintable() and not _BLANKS.match(char) else _escaped(char) for char in text)


def visible_lines(text: str, lines_max: int, width: int = TEXT_MAX) -> Iterator[str]:
    """The lines of a text, each as `visible` has it; of too many, the first and the last ones."""
    lines = text.rstrip("\n").split("\n")
    left_out = len(lines) - lines_max
    head = lines_max // 2
    for number, line in enumerate(lines):
        if left_out <= 0 or number < head or number >= head + left_out:
            yield visible(line, width)
        elif number == head:
            yield f"… {left_out:,} more lines"


def shown_on_one_column(text: str) -> str:
    """The text with a blank in place of each character that acts or hides, so that no other one changes its column."""
    return "".join(char if char.isprintable() and not _BLANKS.match(char) else " " for char in text)


def harmless(written: str) -> str:
    """What a program writes, its own line feeds and colours included, with all else that acts or hides escaped.

    The escapes are those of JSON, where most of such characters can stand only within a text.
    """
    return written if written.isascii() and "\x7f" not in written else _HIDDEN.sub(_json_escape, written)


def _escape(found: re.Match[str]) -> str:
    return _escaped(found[0])


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode()


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
