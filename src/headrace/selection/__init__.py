"""Which products a reader wants."""

from headrace.selection.selection import Selection

__all__ = ["Selection"]
