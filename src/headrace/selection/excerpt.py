"""Excerpt: a piece of text with a caret below the place that is meant.

wx/radar/** priority 9
                     ^
"""

from headrace.errors import SelectionError

_WIDTH = 100  # characters shown of a long text
_BEFORE = 60


def excerpt(text: str, place: int) -> str:
    """Two lines: the text around `place`, and the caret."""
    begin = max(0, place - _BEFORE) if len(text) > _WIDTH else 0
    shown = text[begin : begin + _WIDTH]
    left = "…" if begin else ""
    right = "…" if begin + _WIDTH < len(text) else ""
    visible = "".join(char if char.isprintable() else " " for char in shown)
    return f"  {left}{visible}{right}\n  {' ' * (len(left) + place - begin)}^"


def mistake(problem: str, hint: str, text: str, place: int) -> SelectionError:
    """The error that points at `place` (from 0) in `text`."""
    return SelectionError(problem, hint, column=place + 1, excerpt=excerpt(text, place))
